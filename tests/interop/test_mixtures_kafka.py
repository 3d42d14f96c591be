"""Logs with several things wrong at once: what Apache Kafka's start leaves of them is what ours leaves."""

from __future__ import annotations

import random
import shutil
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.errors import CorruptRecordError
from odradek.inspection import salvage, verify
from odradek.storage.names import TopicPartition
from peers.kafka import KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.mixtures import Mixture, mixture_of, rows, value_of, write
from peers.odradek_broker import OdradekBroker

Given = tuple[int, int, list[tuple[int, bytes]]]
"""The log start offset, the log end offset, and the records with their offsets."""


def given(partition: dict[str, Any]) -> Given:
    records = [(record["offset"], b64decode(record["value"])) for record in partition["records"]]
    return partition["logStartOffset"], partition["highWatermark"], records


def logs_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.log")}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.laboratory) for seed in range(1, 20))])
@pytest.mark.laboratory  # a sample of random mixtures
def test_a_start_leaves_the_same_of_them(kafka_tools: KafkaTools, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    mixtures = [mixture_of(f"t{number}", rng) for number in range(50)]
    write(tmp_path / "ours", mixtures)
    told = {finding.path for finding in verify(tmp_path / "ours")}
    salvage(tmp_path / "ours", tmp_path / "salvaged")
    shutil.copytree(tmp_path / "ours", tmp_path / "kafka")
    # Kafka's consumer waits for good where a log ends with an empty segment that is not its first.
    shutil.copytree(tmp_path / "ours", tmp_path / "opened")
    odradek.open(tmp_path / "opened").close()
    mixtures = [mixture for mixture in mixtures if not _waits(logs_of(tmp_path / "opened" / f"{mixture.topic}-0"))]
    topics = [mixture.topic for mixture in mixtures]
    found: list[dict[str, Given]] = []
    brokers = KafkaBroker(kafka_tools, tmp_path / "kafka"), OdradekBroker(tmp_path / "ours")
    for each in (*brokers, KafkaBroker(kafka_tools, tmp_path / "salvaged")):
        with each as broker:
            consumed = kafka_tools.consume(broker.bootstrap_servers, topics)
        found.append({topic: given(consumed[f"{topic}-0"]) for topic in topics})
    kafka, ours, salvaged = found
    for mixture in mixtures:
        topic, about = mixture.topic, (mixture.topic, mixture.done)
        if ours[topic] != kafka[topic]:
            # Damage below the log's start takes nothing with it here; Kafka removes all segments behind it.
            assert ours[topic][2] == _kept(mixture), about
            assert len(kafka[topic][2]) < len(ours[topic][2]), about
        elif not mixture.is_foreign:
            left, at_kafka = (logs_of(tmp_path / name / f"{topic}-0") for name in ("ours", "kafka"))
            # The same, where no record above the log's start is behind the damage.
            is_removed = "flipped" in mixture.done and at_kafka == {f"{mixture.log_start_offset or 0:020d}.log": b""}
            assert left == at_kafka or is_removed, about
        if not mixture.is_foreign:
            assert salvaged[topic][2] == _kept(mixture), about
        if kafka[topic][2] != _kept(mixture):
            assert any(topic in str(path) or path.name.startswith("log-start") for path in told), about
    with odradek.open(tmp_path / "kafka", "r") as logs:
        for mixture in mixtures:
            log = logs[TopicPartition(mixture.topic, 0)]
            try:
                read = list(rows(log))
            except CorruptRecordError:
                # Segments that contradict each other, of which Kafka's consumer sees what it comes upon first.
                assert "overlap" in mixture.done
            else:
                assert read == kafka[mixture.topic][2], (mixture.topic, mixture.done)


def _waits(logs: dict[str, bytes]) -> bool:
    return len(logs) > 1 and not logs[max(logs)]


def _kept(mixture: Mixture) -> list[tuple[int, bytes]]:
    start = mixture.log_start_offset or 0
    return [(offset, value_of(offset)) for offset in sorted(mixture.sound) if offset >= start]
