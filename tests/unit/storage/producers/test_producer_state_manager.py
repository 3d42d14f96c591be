from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek.errors import (
    BrokerError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
)
from odradek.records.append.validator import AppendOrigin
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.records.header import BatchHeader
from odradek.records.scan import scan_batches
from odradek.storage.formats.producer_snapshot import read_snapshot
from odradek.storage.formats.transaction_index import AbortedTransaction, TransactionIndex
from odradek.storage.names import LOG_SUFFIX, SNAPSHOT_SUFFIX
from odradek.storage.producers.producer_state import read_marker
from odradek.storage.producers.producer_state_manager import AppendCheck, LastRecord, ProducerStateManager
from peers.kafka_fixture import KafkaFixture

CLIENT, COORDINATOR, REPLICATION = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR, AppendOrigin.REPLICATION
MAX = 0x7FFFFFFF
PID = 7
FOREVER = 1 << 62


def header(
    offset: int,
    sequence: int,
    count: int = 1,
    *,
    pid: int = PID,
    epoch: int = 0,
    transactional: bool = False,
    control: bool = False,
    timestamp: int = 1000,
) -> BatchHeader:
    attributes = (0x10 if transactional else 0) | (0x20 if control else 0)
    return BatchHeader(0, 61, offset, 0, 2, 0, attributes, count - 1, timestamp, timestamp, pid, epoch, sequence, count)


@dataclass(frozen=True)
class Data:
    """Append a data batch of `count` records from `sequence` on."""

    sequence: int
    count: int = 1
    epoch: int = 0
    pid: int = PID
    transactional: bool = False
    origin: AppendOrigin = CLIENT
    bump: bool = False
    timestamp: int = 1000


class Marker(NamedTuple):
    """Append a marker."""

    commit: bool = True
    epoch: int = 0
    pid: int = PID
    coordinator_epoch: int = 0
    version: int = 0
    origin: AppendOrigin = COORDINATOR


def apply(manager: ProducerStateManager, check: AppendCheck, end_offset: int) -> tuple[AbortedTransaction, ...]:
    change = manager.prepare(check, end_offset)
    manager.begin(change)
    manager.install(change)
    return change.aborted


class Partition:
    """A manager and the log end offset that belongs to it."""

    def __init__(self, directory: Path) -> None:
        self.manager = ProducerStateManager(directory, producer_id_expiration_ms=FOREVER)
        self.end = 0
        self.aborted: list[AbortedTransaction] = []
        self.followed = 0

    def append(self, step: Data | Marker) -> object:
        marker = None
        if isinstance(step, Data):
            batch = header(
                self.end,
                step.sequence,
                step.count,
                pid=step.pid,
                epoch=step.epoch,
                transactional=step.transactional,
                timestamp=step.timestamp,
            )
            follows = self.manager.next_batch(batch) if step.origin is CLIENT else None
            check = self.manager.check([(batch, None)], step.origin, supports_epoch_bump=step.bump)
            if follows is not None:
                self.followed += 1
                assert check.duplicate is None
                assert follows == self.manager.prepare(check, batch.next_offset)
        else:
            batch = header(self.end, -1, pid=step.pid, epoch=step.epoch, transactional=True, control=True)
            kind = ControlRecordType.COMMIT if step.commit else ControlRecordType.ABORT
            marker = EndTransactionMarker(kind, step.coordinator_epoch)
            check = self.manager.check([(batch, marker)], step.origin, transaction_version=step.version)
        if check.duplicate is not None:
            return check.duplicate.first_offset
        self.end = batch.next_offset
        self.aborted += apply(self.manager, check, self.end)
        return "appended"


OUT_OF_ORDER, FENCED = OutOfOrderSequenceNumberError, InvalidProducerEpochError
STATE, ZOMBIE = InvalidTransactionStateError, TransactionCoordinatorFencedError
OK = "appended"

# Steps, and what the last one gives: appended, the first offset of the batch that it repeats, or an error.
CASES: dict[str, tuple[list[Data | Marker], object]] = {
    "an unknown producer may begin anywhere": ([Data(1 << 20)], OK),
    "but at 0 where a marker would have told": ([Data(5, bump=True)], OUT_OF_ORDER),
    "and 0 it is then": ([Data(0, bump=True)], OK),
    "a bumped producer with only a marker begins at 0": ([Marker(epoch=3), Data(5, epoch=3, bump=True)], OUT_OF_ORDER),
    "the next sequence": ([Data(0, 3), Data(3)], OK),
    "a gap": ([Data(0, 3), Data(4)], OUT_OF_ORDER),
    "a step back that repeats nothing": ([Data(0, 3), Data(1)], OUT_OF_ORDER),
    "a duplicate": ([Data(0, 3), Data(3, 2), Data(3, 2)], 3),
    "the oldest of five": ([*(Data(n) for n in range(5)), Data(0)], 0),
    "the sixth is forgotten": ([*(Data(n) for n in range(6)), Data(0)], OUT_OF_ORDER),
    "part of a batch is no duplicate": ([Data(0, 4), Data(0, 2)], OUT_OF_ORDER),
    "a new epoch begins at 0": ([Data(0, 3), Data(0, epoch=1)], OK),
    "not elsewhere": ([Data(0, 3), Data(3, epoch=1)], OUT_OF_ORDER),
    "an old epoch": ([Data(0, epoch=1), Data(1, epoch=0)], FENCED),
    "a duplicate of an old epoch": ([Data(0), Data(0, epoch=1), Data(0)], FENCED),
    "batches of the old epoch are forgotten": ([Data(0), Data(1), Data(0, epoch=1), Data(1, epoch=1)], OK),
    "wrap to 0": ([Data(MAX), Data(0)], OK),
    "wrap to anything else": ([Data(MAX), Data(1)], OUT_OF_ORDER),
    "wrap within a batch": ([Data(MAX - 1, 4), Data(2)], OK),
    "a duplicate across the wrap": ([Data(MAX - 1, 4), Data(2), Data(MAX - 1, 4)], 0),
    "the coordinator has no sequences": ([Data(-1, origin=COORDINATOR), Data(-1, origin=COORDINATOR)], OK),
    "nor duplicates": ([Data(0, origin=COORDINATOR), Data(0, origin=COORDINATOR)], OK),
    "but epochs": ([Data(-1, epoch=2, origin=COORDINATOR), Data(-1, epoch=1, origin=COORDINATOR)], FENCED),
    "a replica takes gaps": ([Data(0), Data(9, origin=REPLICATION)], OK),
    "and old epochs": ([Data(0, epoch=5), Data(1, epoch=4, origin=REPLICATION)], OK),
    "and unknown producers": ([Data(1 << 20, origin=REPLICATION)], OK),
    "a transaction": ([Data(0, transactional=True), Data(1, transactional=True), Marker()], OK),
    "a plain batch within it": ([Data(0, transactional=True), Data(1)], STATE),
    "even on a replica": ([Data(0, transactional=True), Data(1, origin=REPLICATION)], STATE),
    "a plain batch after it": ([Data(0, transactional=True), Marker(), Data(1)], OK),
    "a marker alone": ([Marker(epoch=2)], OK),
    "which fences": ([Marker(epoch=2), Data(0, epoch=1)], FENCED),
    "and starts sequences anew": ([Data(0, 5), Marker(epoch=1), Data(0, epoch=1)], OK),
    "in its epoch the sequence is checked": ([Data(0, 5), Marker(epoch=1), Data(5, epoch=1)], OUT_OF_ORDER),
    "a marker of the same epoch leaves sequences": ([Data(0, 5, transactional=True), Marker(), Data(5)], OK),
    "a marker of an old epoch": ([Data(0, epoch=4), Marker(epoch=3)], FENCED),
    "on a replica": ([Data(0, epoch=4), Marker(epoch=3, origin=REPLICATION)], OK),
    "v2: a marker of the data's epoch": ([Data(0, transactional=True), Marker(version=2)], FENCED),
    "v2: of the next": ([Data(0, transactional=True), Marker(epoch=1, version=2)], OK),
    "v2: a retry": ([Data(0, transactional=True), Marker(epoch=1, version=2), Marker(epoch=1, version=2)], OK),
    "v2: an older one": ([Data(0, epoch=3, transactional=True), Marker(epoch=2, version=2)], FENCED),
    "v2: an older one, nothing open": ([Marker(epoch=3, version=2), Marker(epoch=2, version=2)], FENCED),
    "v2: the last epoch": ([Data(0, epoch=32767, transactional=True), Marker(epoch=32767, version=2)], OK),
    "v2: data after the marker": (
        [Data(0, transactional=True), Marker(epoch=1, version=2), Data(0, epoch=1, bump=True)],
        OK,
    ),
    "a newer coordinator": ([Marker(coordinator_epoch=1), Marker(coordinator_epoch=2)], OK),
    "a replaced coordinator": ([Marker(coordinator_epoch=2), Marker(coordinator_epoch=1)], ZOMBIE),
    "a replaced coordinator, with data": (
        [Marker(coordinator_epoch=2), Data(0, transactional=True), Marker(coordinator_epoch=1)],
        ZOMBIE,
    ),
    "on a replica it passes": (
        [Marker(coordinator_epoch=2), Marker(coordinator_epoch=1, origin=REPLICATION)],
        OK,
    ),
    "producers are apart": ([Data(0, 5), Data(9, pid=8)], OK),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_what_a_producer_may_append(name: str, tmp_path: Path) -> None:
    steps, expected = CASES[name]
    partition = Partition(tmp_path)
    for step in steps[:-1]:
        assert partition.append(step) == OK
    if not isinstance(expected, type):
        assert partition.append(steps[-1]) == expected
        return
    before = [state.to_snapshot() for state in partition.manager.producers.values()]
    with pytest.raises(expected) as caught:
        partition.append(steps[-1])
    assert isinstance(caught.value, BrokerError)
    assert [state.to_snapshot() for state in partition.manager.producers.values()] == before


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [name for name in CASES if CASES[name][1] == OK])
def test_a_restart_between_any_two_steps_changes_no_answer(name: str, tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    for step in CASES[name][0]:
        assert partition.append(step) == OK
        partition.manager.take_snapshot()
        states = [state.to_snapshot() for state in partition.manager.producers.values()]
        unstable = partition.manager.first_unstable_offset
        partition.manager = ProducerStateManager(tmp_path, producer_id_expiration_ms=FOREVER)
        partition.manager.truncate_and_reload(0, partition.end, 0)
        assert [state.to_snapshot() for state in partition.manager.producers.values()] == states
        assert partition.manager.first_unstable_offset == unstable
        assert partition.manager.map_end_offset == partition.end


def test_error_codes_are_kafkas() -> None:
    assert [error.error_code for error in (OUT_OF_ORDER, FENCED, STATE, ZOMBIE)] == [45, 47, 48, 52]


def test_several_batches_of_one_append_are_checked_together(tmp_path: Path) -> None:
    manager = ProducerStateManager(tmp_path)
    manager.replay(header(0, 0))
    batches = [header(1, 1), header(2, 0, pid=8), header(3, 2), header(4, 4)]
    with pytest.raises(OutOfOrderSequenceNumberError):
        manager.check([(batch, None) for batch in batches], CLIENT)
    assert list(manager.producers) == [PID]
    apply(manager, manager.check([(batch, None) for batch in batches[:3]], CLIENT), 4)
    assert {pid: state.last_sequence for pid, state in manager.producers.items()} == {7: 2, 8: 0}
    assert manager.check([(header(4, 1), None)], CLIENT).duplicate == (1, 1, 0, 1000)


def test_a_batch_that_follows_its_producers_last_one(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    for step, follows in (
        (Data(0, 3), False),
        (Data(3), True),
        (Data(4, 2), True),
        (Data(6, transactional=True), False),
        (Data(7, transactional=True), True),
        (Marker(), False),
        (Data(8), True),
        (Data(0, epoch=1), False),
        (Data(1, epoch=1), True),
    ):
        before = partition.followed
        assert partition.append(step) == OK
        assert partition.followed == before + follows


def test_batches_without_a_producer_leave_no_trace(tmp_path: Path) -> None:
    manager = ProducerStateManager(tmp_path)
    apply(manager, manager.check([(header(0, -1, pid=-1), None)], CLIENT), 1)
    assert not manager.producers
    assert manager.map_end_offset == 1


def test_an_emptied_control_batch_says_nothing(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.append(Data(0, transactional=True))
    empty = header(1, -1, transactional=True, control=True)
    partition.manager.replay(empty, None)
    assert partition.manager.first_unstable_offset == 0
    assert partition.manager.producers[PID].coordinator_epoch == -1


def test_the_last_stable_offset_is_where_the_oldest_open_transaction_begins(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    manager = partition.manager

    def stable() -> int:
        return manager.last_stable_offset(partition.end)

    partition.append(Data(0, 3))
    assert stable() == 3
    partition.append(Data(0, 2, pid=1, transactional=True))
    partition.append(Data(0, 2, pid=2, transactional=True))
    partition.append(Data(3))
    assert (stable(), manager.first_unstable_offset) == (3, 3)
    assert manager.last_stable_offset(2) == 2
    partition.append(Marker(commit=False, pid=2))
    assert stable() == 3
    partition.append(Marker(pid=1))
    assert (stable(), manager.first_unstable_offset) == (partition.end, None)
    partition.append(Data(2, pid=1, transactional=True))
    partition.append(Marker(commit=False, pid=1))
    # Producer, first offset, marker, and the last stable offset after it.
    assert partition.aborted == [(2, 5, 8, 3), (1, 10, 11, 12)]


def test_transactions_that_begin_in_one_append_are_in_order(tmp_path: Path) -> None:
    manager = ProducerStateManager(tmp_path)
    marker = EndTransactionMarker(ControlRecordType.COMMIT, 0)
    batches = [
        (header(0, 0, transactional=True), None),
        (header(1, 0, pid=8, transactional=True), None),
        (header(2, -1, transactional=True, control=True), marker),
        (header(3, 1, transactional=True), None),
    ]
    apply(manager, manager.check(batches, REPLICATION), 4)
    assert manager.first_unstable_offset == 1
    manager.replay(header(4, -1, pid=8, transactional=True, control=True), marker)
    assert manager.first_unstable_offset == 3


def test_silent_producers_expire_unless_a_transaction_is_open(tmp_path: Path) -> None:
    manager = ProducerStateManager(tmp_path, producer_id_expiration_ms=100)
    manager.replay(header(0, 0, pid=1, timestamp=1000))
    manager.replay(header(1, 0, pid=2, timestamp=1050))
    manager.replay(header(2, 0, pid=3, timestamp=1000, transactional=True))
    manager.take_snapshot()
    manager.remove_expired(1099)
    assert list(manager.producers) == [1, 2, 3]
    manager.remove_expired(1100)
    assert list(manager.producers) == [2, 3]
    again = ProducerStateManager(tmp_path, producer_id_expiration_ms=100)
    again.truncate_and_reload(0, 3, 1149)
    assert list(again.producers) == [2, 3]
    again = ProducerStateManager(tmp_path, producer_id_expiration_ms=100)
    again.truncate_and_reload(0, 3, 1150)
    assert list(again.producers) == [3]


def test_active_producers_for_the_cleaner(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.append(Data(0, 3))
    partition.append(Data(0, pid=1, transactional=True))
    partition.append(Marker(pid=1, epoch=1))
    assert partition.manager.last_records() == {PID: LastRecord(2, 0), 1: LastRecord(None, 1)}


def snapshots(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.snapshot"))


def with_snapshots(directory: Path, count: int) -> Partition:
    partition = Partition(directory)
    for number in range(count):
        partition.append(Data(number))
        assert partition.manager.take_snapshot() is not None
        assert partition.manager.take_snapshot() is None
    return partition


def test_snapshots_behind_the_log_are_deleted(tmp_path: Path) -> None:
    partition = with_snapshots(tmp_path, 5)
    assert snapshots(tmp_path) == [1, 2, 3, 4, 5]
    partition.manager.truncate_and_reload(1, 3, 0)
    assert snapshots(tmp_path) == partition.manager.snapshot_offsets == [1, 2, 3]
    assert partition.manager.map_end_offset == 3
    assert partition.manager.producers[PID].last_sequence == 2


def test_the_newest_readable_snapshot_counts(tmp_path: Path) -> None:
    with_snapshots(tmp_path, 4)
    damages = (b"", b"\0" * 10, (tmp_path / f"{4:020d}.snapshot").read_bytes()[:-1])
    (tmp_path / f"{4:020d}.snapshot").write_bytes(damages[0])
    (tmp_path / f"{3:020d}.snapshot").write_bytes(damages[1])
    (tmp_path / f"{2:020d}.snapshot").write_bytes(damages[2])
    manager = ProducerStateManager(tmp_path, producer_id_expiration_ms=FOREVER)
    manager.truncate_and_reload(0, 4, 0)
    assert (manager.map_end_offset, snapshots(tmp_path)) == (1, [1])
    assert manager.producers[PID].last_sequence == 0
    # A snapshot is taken again once the rest was replayed.
    manager.replay(header(1, 1))
    assert manager.take_snapshot() == tmp_path / f"{2:020d}.snapshot"


def test_without_a_snapshot_the_state_is_empty(tmp_path: Path) -> None:
    manager = ProducerStateManager(tmp_path)
    manager.truncate_and_reload(5, 9, 0)
    assert (dict(manager.producers), manager.map_end_offset) == ({}, 5)


def test_truncating_fully(tmp_path: Path) -> None:
    partition = with_snapshots(tmp_path, 3)
    partition.append(Data(3, transactional=True))
    partition.manager.truncate_fully_and_start_at(100)
    assert snapshots(tmp_path) == []
    assert not partition.manager.producers
    assert partition.manager.first_unstable_offset is None
    assert partition.manager.map_end_offset == 100


def test_stray_snapshots(tmp_path: Path) -> None:
    partition = with_snapshots(tmp_path, 6)
    partition.manager.remove_stray_snapshots([2, 4])
    assert snapshots(tmp_path) == [2, 4, 6]
    partition.manager.remove_stray_snapshots([2, 8])
    assert snapshots(tmp_path) == [2]
    partition.manager.remove_stray_snapshots([])
    assert snapshots(tmp_path) == [2]


def test_snapshots_go_with_their_segments(tmp_path: Path) -> None:
    partition = with_snapshots(tmp_path, 4)
    marked = partition.manager.mark_snapshot_deleted(3)
    assert marked == tmp_path / f"{3:020d}.snapshot.deleted"
    assert marked.exists()
    assert partition.manager.mark_snapshot_deleted(3) is None
    (tmp_path / f"{2:020d}.snapshot").unlink()
    assert partition.manager.mark_snapshot_deleted(2) is None
    assert partition.manager.snapshot_offsets == [1, 4]


def test_the_head_of_the_log_goes(tmp_path: Path) -> None:
    partition = with_snapshots(tmp_path, 2)
    partition.manager.on_log_start_offset_incremented(10)
    assert partition.manager.map_end_offset == 10
    assert PID in partition.manager.producers


@pytest.mark.sampled
def test_replaying_a_brokers_log_gives_its_snapshots_and_transaction_indexes(
    kafka_fixture: KafkaFixture, tmp_path: Path
) -> None:
    compared = 0
    for folder in sorted(kafka_fixture.log_dir.glob("*-[0-9]*")):
        logs = sorted(folder.glob("*" + LOG_SUFFIX))
        wanted = {int(path.stem): path for path in folder.glob("*" + SNAPSHOT_SUFFIX)}
        if "compacted" in folder.name or folder.name.startswith("__") or int(logs[0].stem) != 0:
            continue
        manager = ProducerStateManager(tmp_path / folder.name, producer_id_expiration_ms=FOREVER)
        manager.directory.mkdir()
        for path in logs:
            data = path.read_bytes()
            found: list[AbortedTransaction] = []
            for batch in scan_batches(data):
                if batch.base_offset in wanted and manager.map_end_offset == batch.base_offset:
                    manager.take_snapshot()
                found += manager.replay(batch, read_marker(data, batch) if batch.is_control else None)
            index = TransactionIndex(path.with_suffix(".txnindex"), int(path.stem))
            assert found == index.transactions
        manager.take_snapshot()
        for offset in manager.snapshot_offsets:
            if offset in wanted:
                assert manager.snapshot_path(offset).read_bytes() == wanted[offset].read_bytes(), wanted[offset]
                compared += len(read_snapshot(wanted[offset])) > 0
    assert compared > 0


def test_many_producers_are_in_the_order_of_a_java_hash_map(tmp_path: Path) -> None:
    manager = ProducerStateManager(tmp_path)
    # With 16 buckets 16 and 32 share one, so that insertion decides; at 13 producers there are 32 buckets.
    for offset, pid in enumerate((32, 5, 16, (1 << 32) + 4)):
        manager.replay(header(offset, 0, pid=pid))
    path = manager.take_snapshot()
    assert path is not None
    assert [entry.producer_id for entry in read_snapshot(path)] == [32, 16, 5, (1 << 32) + 4]
    for offset in range(4, 13):
        manager.replay(header(offset, 0, pid=offset + 60))
    path = manager.take_snapshot()
    assert path is not None
    order = [entry.producer_id for entry in read_snapshot(path)]
    assert order == [32, 64, 65, 66, 67, 68, 5, (1 << 32) + 4, 69, 70, 71, 72, 16]
