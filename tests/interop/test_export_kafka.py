"""From Apache Kafka into files and from files into Apache Kafka, as Kafka's own consumer and dump tool see it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.places.opening import open_place
from odradek.records import Record
from odradek.records.isolation import Isolation
from odradek.transfer.export import Export, Selection
from odradek.transfer.importing import Import
from odradek.transfer.opening import open_target
from peers.kafka_fixture import KafkaFixture, consumed_record
from peers.kafka_tools import KafkaTools
from peers.ledger import require

ISOLATION: Isolation = "read_committed"


def export(source: str | Path, to: Path, form: str) -> int:
    with open_place(source) as opened:
        report = Export(opened, opened.choose(), Selection(isolation=ISOLATION)).to_folder(to, form)
    assert (report.lost, report.damaged) == ([], [])
    return report.records


def import_(source: Path, to: str | Path) -> int:
    with open_target(to) as target:
        report = Import(target).from_path(source, threads=4)
    assert report.skipped == 0
    return report.records


def seen(records: list[Record], topic: str) -> Any:
    rows = [(record.timestamp, record.key, record.value, record.headers) for record in records]
    # The target compacts it, too, when it likes.
    return {row[1]: row for row in rows} if topic.startswith("compacted") else rows


@pytest.mark.laboratory  # replay takes the same way
def test_from_a_folder_of_kafka_to_a_broker_of_kafka_and_back(
    kafka_broker: Any, kafka_tools: KafkaTools, fixture_4_3_1: KafkaFixture, tmp_path: Path
) -> None:
    first = kafka_broker()
    address = f"kafka://{first.bootstrap_servers}"
    exported = export(fixture_4_3_1.log_dir, tmp_path / "parquet", "parquet")
    assert import_(tmp_path / "parquet", address) == exported
    export(address, tmp_path / "jsonl", "jsonl")
    second = kafka_broker()
    import_(tmp_path / "jsonl", f"kafka://{second.bootstrap_servers}")
    import_(tmp_path / "jsonl", tmp_path / "back")

    names = fixture_4_3_1.consumed_committed
    expected = {name: seen(fixture_4_3_1.records(name, ISOLATION), name) for name in names}
    for broker in (first, second):
        consumed = kafka_tools.consume(broker.bootstrap_servers, fixture_4_3_1.topics, isolation=ISOLATION)
        found = {name: [consumed_record(row) for row in held["records"]] for name, held in consumed.items()}
        require(
            {name: seen(records, name) for name, records in found.items()} == expected, "other records at the broker"
        )
    with odradek.open(tmp_path / "back") as logs:
        back = {str(name): list(logs[name]) for name in logs.topic_partitions()}
    require({name: seen(records, name) for name, records in back.items()} == expected, "other records in the folder")
    segments = sorted((tmp_path / "back").glob("*/*.log"))
    dumped = kafka_tools.dump_log(segments, "--deep-iteration").check().stdout
    assert "isvalid: false" not in dumped
    assert dumped.count("| offset:") == sum(map(len, back.values()))
