"""Transaction indexes against the transactions that the batches give, field by field."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import odradek
from flips.breakage import flip_bit
from odradek.inspection import Finding, FindingKind, verify
from odradek.records import Record
from odradek.records.append.validator import AppendOrigin
from odradek.records.builder import build_batch, build_control_batch
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.storage.formats.transaction_index import AbortedTransaction, format_transaction, parse_transaction_index

SmallLogDirectory = Callable[..., Path]
BASE = f"{0:020d}"


def entries(path: Path) -> list[AbortedTransaction]:
    return parse_transaction_index(path.read_bytes())


def write(path: Path, transactions: list[AbortedTransaction]) -> None:
    path.write_bytes(b"".join(map(format_transaction, transactions)))


def the_only_finding(path: Path) -> Finding:
    found = list(verify(path))
    assert len(found) == 1, [str(finding) for finding in found]
    return found[0]


@pytest.fixture
def index(small_log_dir: SmallLogDirectory) -> Path:
    """The transaction index of a segment of Kafka's, with seven entries."""
    return small_log_dir("transactional-0") / "transactional-0" / f"{8:020d}.txnindex"


@pytest.mark.slow
def test_every_flipped_bit_is_one_finding(index: Path) -> None:
    """Of 238 flipped bits 169 changed what was read, and none was found."""
    whole = index.read_bytes()
    for bit in random.Random(1).sample(range(8 * len(whole)), 60):
        flip_bit(index, bit // 8, bit % 8)
        finding = the_only_finding(index.parent)
        index.write_bytes(whole)
        assert (finding.path, finding.kind) == (index, FindingKind.INDEX)
        assert finding.position == bit // 8 // 34 * 34


@pytest.mark.slow
def test_an_index_that_is_emptied_removed_or_cut_is_one_finding(index: Path) -> None:
    whole = entries(index)
    for kept in range(len(whole)):
        write(index, whole[:kept])
        finding = the_only_finding(index.parent)
        assert finding.path == index
        first = whole[kept]
        what = (
            "an aborted transaction has" if kept + 1 == len(whole) else f"{len(whole) - kept} aborted transactions have"
        )
        assert finding.reason == (
            f"{what} no entry: producer {first.producer_id}, "
            f"offset {first.first_offset} to the ABORT marker at {first.last_offset}"
        )
    index.unlink()
    assert the_only_finding(index.parent).path == index


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"producer_id": 77}, "producer 77 has no ABORT marker at offset {last_offset}"),
        ({"first_offset": 50}, "the transaction begins at offset {first_offset}, not at 50"),
        ({"last_offset": 51}, "producer {producer_id} has no ABORT marker at offset 51"),
        ({"last_stable_offset": 50}, "the last stable offset after it is {last_stable_offset}, not 50"),
        ({"last_stable_offset": 9999}, "the last stable offset after it is {last_stable_offset}, not 9999"),
        ({"last_stable_offset": -1}, "the last stable offset after it is {last_stable_offset}, not -1"),
    ],
)
def test_each_field_is_compared(index: Path, change: dict[str, int], reason: str) -> None:
    whole = entries(index)
    write(index, [*whole[:1], whole[1]._replace(**change), *whole[2:]])
    finding = the_only_finding(index.parent)
    assert (finding.path, finding.position) == (index, 34)
    assert finding.reason == "entry 1: " + reason.format(**whole[1]._asdict())


def test_entries_that_are_twice_or_out_of_order(index: Path) -> None:
    whole = entries(index)
    write(index, [whole[0], *whole])
    assert (
        the_only_finding(index.parent).reason
        == f"entry 1: the marker at offset {whole[0].last_offset} has an entry already"
    )
    write(index, [whole[1], whole[0], *whole[2:]])
    assert "above those of later entries" in the_only_finding(index.parent).reason


# -- transactions of our own, so that all their cases are there


class Writer:
    """Appends batches of several producers, one after the other or many at a time."""

    def __init__(self, log: odradek.WritableLog) -> None:
        self._log = log
        self._pending = b""
        self._at_once = False
        self.next_offset = log.log_end_offset

    def _add(self, batch: bytes, count: int) -> None:
        self.next_offset += count
        self._pending += batch
        if not self._at_once:
            self.flush()

    def flush(self) -> None:
        if self._pending:
            self._log.append_batches(self._pending, origin=AppendOrigin.REPLICATION)
        self._pending = b""

    def together(self) -> None:
        self._at_once = True

    def data(self, producer_id: int, count: int = 2, *, transactional: bool = True) -> None:
        batch = build_batch(
            [Record(None, b"v" * 30, timestamp=self.next_offset)] * count,
            base_offset=self.next_offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=transactional,
            partition_leader_epoch=0,
        )
        self._add(batch, count)

    def end(self, producer_id: int, kind: ControlRecordType = ControlRecordType.ABORT) -> None:
        marker = build_control_batch(
            EndTransactionMarker(kind, 0),
            base_offset=self.next_offset,
            timestamp=self.next_offset,
            producer_id=producer_id,
            producer_epoch=0,
            partition_leader_epoch=0,
        )
        self._add(marker, 1)


@pytest.fixture
def open_log(tmp_path: Path) -> Callable[[], odradek.WritableLogDirectory]:
    def make() -> odradek.WritableLogDirectory:
        logs = odradek.open(tmp_path / "data")
        if "t" not in logs.topics():
            logs.create_topic("t", config={"internal.segment.bytes": "1000", "retention.ms": "-1"})
        return logs

    return make


def random_transactions(writer: Writer, source: random.Random, steps: int) -> None:
    producers = range(1, 6)
    for _ in range(steps):
        producer = source.choice(producers)
        match source.randrange(6):
            case 0:
                writer.end(producer)
            case 1:
                writer.end(producer, ControlRecordType.COMMIT)
            case 2:
                writer.data(100 + producer, transactional=False)
            case _:
                writer.data(producer, source.randrange(1, 4))


@pytest.mark.sampled
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_transactions_over_many_segments_are_clean(
    open_log: Callable[[], odradek.WritableLogDirectory], seed: int, at_once: bool
) -> None:
    """A replica takes many batches at a time: then a transaction that begins after a marker may be open at it."""
    source = random.Random(seed)
    with open_log() as logs:
        writer = Writer(logs["t", 0])
        for _ in range(40):
            if at_once:
                writer.together()
            random_transactions(writer, source, source.randrange(1, 5))
            writer.flush()
        root = logs.path
        assert list(verify(root)) == []
    assert sum(len(entries(path)) for path in root.glob("t-0/*.txnindex")) > 3
    assert list(verify(root, decode=True)) == []
    # Without its head, of the transactions that began there nothing is known, and nothing is wrong.
    for path in sorted(root.glob("t-0/*"))[:8]:
        if path.name[0] == "0":
            path.unlink()
    (root / ".kafka_cleanshutdown").unlink()
    first = min(root.glob("t-0/*.log")).stem
    for path in root.glob("t-0/0*"):
        if path.name < first:
            path.unlink()
    assert list(verify(root)) == []


def test_a_last_stable_offset_after_the_marker_is_that_of_a_transaction(
    open_log: Callable[[], odradek.WritableLogDirectory],
) -> None:
    with open_log() as logs:
        writer = Writer(logs["t", 0])
        writer.together()
        writer.data(1)
        writer.end(1)
        writer.data(100, transactional=False)
        writer.data(2)
        writer.flush()
        root = logs.path
    path = root / "t-0" / f"{BASE}.txnindex"
    assert entries(path) == [AbortedTransaction(1, 0, 2, 5)]
    assert list(verify(root)) == []
    write(path, [AbortedTransaction(1, 0, 2, 3)])
    assert list(verify(root)) == []
    write(path, [AbortedTransaction(1, 0, 2, 4)])
    assert the_only_finding(root).reason == "entry 0: the last stable offset after it is 3, not 4"


def test_a_version_that_kafka_would_take(index: Path) -> None:
    """Kafka looks at the first byte of the version only."""
    data = bytearray(index.read_bytes())
    struct.pack_into(">h", data, 34, 1)
    index.write_bytes(data)
    assert the_only_finding(index.parent).reason == "entry 1: its version is not 0"
