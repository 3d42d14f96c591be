"""A control batch that compaction has emptied, and that has kept its bit (KAFKA-7467), ends no transaction."""

from __future__ import annotations

from pathlib import Path

import pytest

import odradek
from odradek import Record
from odradek.inspection import salvage, verify
from odradek.inspection.explaining.explanation import explain
from odradek.places.opening import open_place
from odradek.records.builder import build_batch, build_empty_batch
from odradek.sources.transactions import open_transactions
from odradek.storage.names import TopicPartition
from odradek.testing import Broker
from peers.command import rows
from peers.files import crashed

NAME = TopicPartition("t", 0)


def emptied(offset: int, producer_id: int, producer_epoch: int) -> bytes:
    options = {"producer_id": producer_id, "producer_epoch": producer_epoch}
    return build_empty_batch(offset, offset, max_timestamp=5, is_transactional=True, is_control=True, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A transaction that is open since 0, the emptied marker of an earlier one, and that of an unknown producer."""
    data = build_batch(
        [Record(b"k", b"a"), Record(b"k", b"b")],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    data += emptied(2, 7, 0) + emptied(3, 9, 4) + build_batch([Record(b"k", b"c")], base_offset=4)
    return crashed(tmp_path / "data", {"t": {0: data}})


def test_the_transaction_stays_open(folder: Path) -> None:
    with odradek.open(folder, "r") as logs:
        log = logs[NAME]
        assert log.last_stable_offset == 0
        assert list(log.read(isolation="read_committed")) == []
    assert [table.num_rows for table in odradek.scan(folder, "t", isolation="read_committed")] == []
    assert rows("tail", "-n", "9", "--read-committed", folder) == []
    assert explain(folder / "t-0", 0).last_stable_offset == 0
    with open_place(str(folder)) as place:
        (found,) = open_transactions(place, NAME, lambda: None)
        assert (found.producer_id, found.first_offset) == (7, 0)


@pytest.mark.slow
def test_what_the_broker_and_its_snapshot_say_of_it(folder: Path) -> None:
    with Broker(folder) as broker:
        with open_place(f"kafka://{broker.bootstrap_servers}") as place:
            assert place.bounds(NAME, "read_committed").end_offset == 0
            (found,) = open_transactions(place, NAME, lambda: None)
            assert (found.producer_id, found.first_offset) == (7, 0)
    # As Apache Kafka's, the snapshot has the producer of which nothing is left.
    assert (folder / "t-0" / "00000000000000000005.snapshot").exists()
    assert list(verify(folder, decode=True)) == []
    assert salvage(folder, folder.parent / "out").is_clean
    assert list(verify(folder.parent / "out", decode=True)) == []
