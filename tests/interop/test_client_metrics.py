"""Subscriptions of client metrics (KIP-714) by Kafka's own tool, at both brokers, one after the other on one folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from peers.fixtures import BROKERS, broker_of
from peers.kafka_tools import KafkaTools
from peers.process import wait_for

TIMEOUT_S = 30


@pytest.mark.laboratory  # records of the metadata, which metadata_peer takes both ways
def test_kafkas_tool_finds_what_the_other_broker_left(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    made: list[str] = []
    for number, kind in enumerate((*BROKERS, *BROKERS)):
        with broker_of(kind, kafka_tools, tmp_path / "data") as broker:

            def tool(*words: str) -> str:
                servers = ("--bootstrap-server", broker.bootstrap_servers)
                return kafka_tools.run("org.apache.kafka.tools.ClientMetricsCommand", *servers, *words).check().stdout

            def listed() -> list[str]:
                return sorted(tool("--list").split())

            def told(name: str) -> set[str]:
                return {word for word in tool("--describe", "--name", name).split() if "=" in word}

            # Apache Kafka learns of them a moment after its start.
            wait_for(lambda: listed() == made, TIMEOUT_S, f"{kind}: the subscriptions")
            for name in made:
                assert told(name) >= {"interval.ms=30000", "metrics=org.apache.kafka.", "match=client_id=a.*"}
            if len(made) == 2:
                tool("--delete", "--name", made.pop(0))
            made.append(f"s{number}")
            words = ("--interval", "30000", "--match", "client_id=a.*", "--metrics", "org.apache.kafka.")
            tool("--alter", "--name", made[-1], *words)
            wait_for(lambda: listed() == made, TIMEOUT_S, f"{kind}: the changes")
            broker.stop()
