"""The tasks of a topic sink, without Spark or a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from odradek.kafka.settings import BrokerSettings
from odradek.spark.pipeline import topic
from odradek.spark.pipeline.job import TopicSinkSpec


def test_only_the_first_missing_topic_is_waited_for() -> None:
    asked: list[tuple[str, float]] = []

    class Client:
        def partition_count(self, name: str, patience_s: float) -> int | None:
            asked.append((name, patience_s))
            return 3 if name == "there" else None

    servers = {"bootstrap.servers": "localhost:9092"}
    batch: Any = SimpleNamespace(ranges=(), topic_ids={}, stored_offsets={})
    task = topic._ForwardTask(BrokerSettings.parse(servers), TopicSinkSpec(None, servers), ("job", "*"), batch)
    client: Any = Client()
    router = task._router(client)
    assert [router.count(name) for name in ("there", "missing", "missing", "another", "no/name")] == [
        3, None, None, None, None,
    ]  # fmt: skip
    assert asked == [("there", 5), ("missing", 5), ("another", 0)]
