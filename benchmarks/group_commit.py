"""Measures what appends on the disk cost the broker, beside Apache Kafka 4.3.1.

    python benchmarks/group_commit.py [--producers 50] [--requests 10000] [--only odradek|kafka]

Producers send records of 1 KB, each with one request in flight, to a topic that syncs none of them, and to one with
`flush.messages=1`. The disk's own rate comes first: one KB written and synced, again and again, by one thread.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from odradek.testing.wire import WireClient
from peers import broker_load as load
from peers.kafka import KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.odradek_broker import OdradekBroker

TOPICS = {"unsynced": {}, "synced": {"flush.messages": "1"}}
ROUNDS = 3
CREATE_TOPICS = 19


def syncs_per_s(folder: Path, seconds: float = 2) -> float:
    """Write and sync one KB as often as the disk takes it."""
    count, begun = 0, time.perf_counter()
    with (folder / "syncs").open("wb", buffering=0) as file:
        while time.perf_counter() - begun < seconds:
            file.write(bytes(1000))
            os.fsync(file.fileno())
            count += 1
        return count / (time.perf_counter() - begun)


def create(port: int) -> None:
    """Create the topics."""
    topics: list[dict[str, Any]] = [
        {
            "name": name,
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in config.items()],
        }
        for name, config in TOPICS.items()
    ]
    with WireClient("127.0.0.1", port) as client:
        client.call(CREATE_TOPICS, 5, {"topics": topics, "timeout_ms": 60_000, "validate_only": False})


def measure(broker: KafkaBroker | OdradekBroker, requests: int, producers: int) -> None:
    """Print the rates of one broker: rounds of both topics in turn, so that a noisy machine disturbs both."""
    with broker:
        create(broker.port)
        frames = {name: load.produce_frame(load.topic_id_of(broker.port, name), 0, 1000, 0)[0] for name in TOPICS}
        for frame in frames.values():
            load.produce(broker.port, frame, requests // 2, producers)
        for _ in range(ROUNDS):
            rates = {
                name: requests / load.produce(broker.port, frame, requests, producers) for name, frame in frames.items()
            }
            share = rates["synced"] / rates["unsynced"]
            print(
                f"{broker.name:8} {rates['unsynced']:8,.0f}/s unsynced {rates['synced']:8,.0f}/s synced {share:5.0%}",
                flush=True,
            )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--producers", type=int, default=50)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--only", choices=["odradek", "kafka"])
    arguments = parser.parse_args()
    with TemporaryDirectory() as made:
        folder = Path(made)
        print(f"the disk: {syncs_per_s(folder):,.0f} syncs/s")
        if arguments.only != "kafka":
            measure(OdradekBroker(folder / "odradek"), arguments.requests, arguments.producers)
        if arguments.only != "odradek" and shutil.which("java"):
            with KafkaTools() as tools:
                kafka = KafkaBroker(tools, folder / "kafka", jvm_options=())
                measure(kafka, arguments.requests, arguments.producers)


if __name__ == "__main__":
    main()
