"""Offsets that come twice in a folder: Apache Kafka's start and its consumer make of them what we make of them."""

from __future__ import annotations

import shutil
from base64 import b64decode
from pathlib import Path

import odradek
from odradek import Record
from odradek.inspection import salvage
from odradek.places.opening import open_place
from odradek.records.builder import build_batch
from odradek.sources.arrow import record_batches
from odradek.storage.names import TopicPartition
from peers.files import crashed
from peers.kafka import KafkaBroker
from peers.kafka_tools import KafkaTools

Batch = tuple[int, int]

CASES: dict[str, dict[int, list[Batch]]] = {
    "segments": {0: [(0, 5), (5, 5)], 5: [(5, 5), (10, 2)]},
    "three": {0: [(0, 5), (5, 5), (10, 5)], 5: [(5, 5), (10, 5)], 10: [(10, 5), (15, 1)]},
    "again": {0: [(0, 5), (0, 5), (5, 2)]},
    "series": {0: [(0, 5), (5, 2), (0, 5), (5, 2), (7, 1)]},
    "between": {0: [(0, 5), (5, 2), (0, 5), (7, 1)]},
    "partly": {0: [(0, 5), (5, 5)], 7: [(7, 5)]},
}
# What a reader of the folder does not take for a copy, Kafka's consumer cuts.
STOPS = {"partly"}


def batches_of(batches: list[Batch]) -> bytes:
    return b"".join(
        build_batch([Record(b"k", b"v%d" % (start + number)) for number in range(count)], base_offset=start)
        for start, count in batches
    )


def given(place: str, topic: str) -> list[int]:
    with open_place(place) as opened:
        return [
            offset
            for table in record_batches(opened, TopicPartition(topic, 0))
            for offset in table["offset"].to_pylist()
        ]


def test_each_offset_comes_once(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    segments = {
        topic: {base_offset: batches_of(batches) for base_offset, batches in case.items()}
        for topic, case in CASES.items()
    }
    crashed(tmp_path / "ours", segments)
    ends = {topic: max(map(sum, next(reversed(case.values())))) for topic, case in CASES.items()}
    shutil.copytree(tmp_path / "ours", tmp_path / "kafka")
    salvage(tmp_path / "ours", tmp_path / "salvaged")
    for folder in ("kafka", "salvaged"):
        with KafkaBroker(kafka_tools, tmp_path / folder) as broker:
            consumed = kafka_tools.consume(broker.bootstrap_servers, list(CASES))
            for topic, end in ends.items():
                partition = consumed[f"{topic}-0"]
                assert partition["highWatermark"] == end, topic
                records = [(record["offset"], b64decode(record["value"])) for record in partition["records"]]
                assert records == [(offset, b"v%d" % offset) for offset in range(end)], topic
                if topic not in STOPS:
                    assert given(f"kafka://{broker.bootstrap_servers}", topic) == list(range(end)), topic
    # Recovered by us, what is there is the same.
    with odradek.open(tmp_path / "ours") as logs:
        for topic, end in ends.items():
            assert logs[topic, 0].log_end_offset == end
            if topic not in STOPS:
                assert [record.offset for record in logs[topic, 0].read()] == list(range(end))
