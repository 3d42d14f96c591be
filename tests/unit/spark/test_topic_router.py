"""The tasks of a topic sink, without Spark or a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from odradek.kafka.settings import BrokerSettings
from odradek.spark.pipeline import topic
from odradek.spark.pipeline.sink_specs import TopicSinkSpec
from odradek.spark.pipeline.topic_routing import SinkRouter
from odradek.storage.names import TopicPartition


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


def test_a_row_that_no_record_can_hold_has_no_target() -> None:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    times = [-86_400_000, None, -1, 0, 1, 2, -2]
    headers = [None, [None], [], [{"key": "a", "value": None}], None, [{"key": "a"}, {"key": None, "value": b""}], None]
    # What is cut off a longer batch stands at other places in its buffers.
    for kind, factor in ((pa.timestamp("us", "UTC"), 1000), (pa.timestamp("ms"), 1), (pa.int64(), 1)):
        rows = pa.record_batch(
            {
                "timestamp": pa.array([None, *(time and time * factor for time in times)], pa.int64()).cast(kind),
                "headers": pa.array([None, *headers], pa.list_(header)),
                "target": ["t", *("tuttttu")],
            }
        ).slice(1)
        fixed = SinkRouter(TopicSinkSpec("t", {}), lambda _: 1)
        assert fixed.only_target(rows, 0) is None
        assert fixed.only_target(rows.slice(3, 2), 0) == TopicPartition("t", 0)
        by_column = SinkRouter(TopicSinkSpec(None, {}, topic_column="target"), lambda _: 1)
        for router, targets in ((fixed, {"t": [2, 3, 4]}), (by_column, {"t": [2, 3, 4]})):
            found = list(router.route(rows, 0))
            assert {to.target.topic: to.rows.to_pylist() for to in found if to.target and len(to.rows)} == targets
            assert {to.reason: to.rows.to_pylist() for to in found if to.target is None} == {
                "its timestamp is negative, and no record of Kafka's is from before 1970": [0, 6],
                "a header of it is null, or has no name": [1, 5],
            }


def test_no_row_goes_to_a_topic_of_coordinators() -> None:
    names = ["__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata", "t"]
    router = SinkRouter(TopicSinkSpec(None, {}, topic_column="target"), lambda _: 1)
    found = list(router.route(pa.record_batch({"target": names}), 0))
    assert [to.target for to in found] == [None, None, None, None, TopicPartition("t", 0)]
    assert "only coordinators write to it" in found[0].reason
