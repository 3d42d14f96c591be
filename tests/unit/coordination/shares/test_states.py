"""What is written down of deliveries: snapshots and updates, epochs, and what is loaded again."""

from __future__ import annotations

import random
from collections.abc import Iterable
from uuid import UUID

import pytest

from odradek.broker.turns import whole
from odradek.coordination.errors import RefusedError, ShareErrorCode
from odradek.coordination.shares import states as states_module
from odradek.coordination.shares.state_batches import StateBatch, combined
from odradek.coordination.shares.states import DeliveryStates, StateWrite
from odradek.coordination.state_log import KeyValue, state_batch
from odradek.messages.coordinators.share_records import (
    ShareKey,
    ShareSnapshot,
    ShareUpdate,
    WrittenBatch,
    decode_share_record,
    encode_share_record,
)

MOST_BYTES = 1 << 20
KEY = ShareKey("group", UUID(int=7), 0)
OTHER = ShareKey("other", UUID(int=7), 1)


class Log:
    """A log of records, and the states that they make."""

    def __init__(self, updates_per_snapshot: int = 3) -> None:
        self.updates_per_snapshot = updates_per_snapshot
        self.most_bytes = MOST_BYTES
        self.states = DeliveryStates(updates_per_snapshot)
        self.records: list[KeyValue] = []

    def append(self, *records: KeyValue) -> None:
        for key, value in records:
            self.states.replay(key, value, len(self.records))
            self.records.append((key, value))

    def begin(self, key: ShareKey = KEY, state_epoch: int = 0, start_offset: int = 0) -> None:
        self.append(self.states.initialize(key, state_epoch, start_offset, 1))

    def write(self, *batches: tuple[int, int, int, int], key: ShareKey = KEY, start: int = -1, count: int = 0) -> None:
        write = StateWrite(-1, -1, start, count, [StateBatch(*one) for one in batches])
        self.states.check_write(key, write)
        self.append(self.states.write(key, write, len(self.records), self.most_bytes))

    def loaded(self) -> DeliveryStates:
        found = DeliveryStates(self.updates_per_snapshot)
        for offset, (key, value) in enumerate(self.records):
            found.replay(key, value, offset)
        return found

    @property
    def values(self) -> list[ShareSnapshot | ShareUpdate | None]:
        return [decode_share_record(*one).value for one in self.records]


def code(error: pytest.ExceptionInfo[RefusedError]) -> int:
    return error.value.error_code


def test_a_snapshot_follows_after_some_updates() -> None:
    log = Log(2)
    log.begin()
    for number in range(5):
        log.write((number, number, 1, 2))
    kinds = [type(one) for one in log.values]
    assert kinds == [ShareSnapshot, ShareUpdate, ShareUpdate, ShareSnapshot, ShareUpdate, ShareUpdate]
    assert [one.snapshot_epoch for one in log.values if one is not None] == [0, 0, 0, 1, 1, 1]
    snapshot = log.values[3]
    assert isinstance(snapshot, ShareSnapshot)
    assert [tuple(one) for one in snapshot.state_batches] == [(0, 2, 2, 1)]


def test_with_no_updates_each_change_is_a_snapshot() -> None:
    log = Log(0)
    log.begin()
    log.write((0, 4, 1, 0))
    log.write((2, 2, 1, 2))
    assert [type(one) for one in log.values] == [ShareSnapshot] * 3


def test_an_unknown_state_is_not_read_or_written() -> None:
    log = Log()
    for check in (
        lambda: log.states.check_read(KEY, -1),
        lambda: log.states.check_write(KEY, StateWrite(-1, -1, 0, 0, ())),
    ):
        with pytest.raises(RefusedError) as error:
            check()
        assert code(error) == ShareErrorCode.INVALID_REQUEST


def test_a_snapshot_that_is_too_large_is_put_off() -> None:
    log = Log(2)
    log.begin()
    log.most_bytes = 300
    for number in range(0, 40, 2):
        log.write((number, number, 1, 2))
    last = max(place for place, value in enumerate(log.values) if isinstance(value, ShareSnapshot))
    assert last < len(log.values) - 10
    assert (log.states.put_off, log.states.needed_from) == ({KEY}, last)
    loaded = log.loaded().states[KEY]
    assert [one.first_offset for one in loaded.state_batches] == list(range(0, 40, 2))
    # When it fits again, one of the next two changes is one.
    log.write((38, 38, 1, 2), start=36)
    log.write((39, 39, 1, 2), start=36)
    assert isinstance(log.values[-1], ShareSnapshot)
    assert (log.states.put_off, log.states.needed_from) == (set(), len(log.values) - 1)


@pytest.mark.slow
def test_a_large_state_costs_an_update_little_and_so_does_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    merged: list[int] = []

    def counted(before: Iterable[StateBatch], new: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
        ranges = [*before], [*new]
        merged.append(sum(map(len, ranges)))
        return combined(*ranges, start_offset)

    log = Log(100)
    log.begin()
    log.most_bytes = 300
    log.write(*((number, number, 1, 2) for number in range(0, 10_000, 2)))
    monkeypatch.setattr(states_module, "combined", counted)
    for number in range(300):
        log.write((10_000 + 2 * number, 10_000 + 2 * number, 1, 2), start=number)
    assert log.states.put_off == {KEY}
    # A snapshot was tried three times at most.
    assert sorted(merged)[-4] < 10
    merged.clear()
    assert log.loaded().states[KEY] == log.states.states[KEY]
    assert sorted(merged)[-2] < 10


def test_the_ranges_of_a_snapshot_that_overlap_are_merged() -> None:
    log = Log()
    ranges = (WrittenBatch(5, 9, 0, 1), WrittenBatch(0, 6, 2, 1))
    log.append(encode_share_record(KEY, ShareSnapshot(0, 0, 0, 0, 1, 1, ranges, 0)))
    log.write((2, 2, 2, 0))
    assert log.states.states[KEY].state_batches == (
        WrittenBatch(0, 1, 2, 1),
        WrittenBatch(2, 2, 0, 2),
        WrittenBatch(3, 6, 2, 1),
        WrittenBatch(7, 9, 0, 1),
    )


def test_a_leader_that_reads_is_written_once() -> None:
    log = Log()
    log.begin(start_offset=5)
    assert log.states.read(KEY, 0, 1, MOST_BYTES) == log.states.read(KEY, -1, 1, MOST_BYTES) == []
    log.append(*log.states.read(KEY, 4, 1, MOST_BYTES))
    assert log.states.read(KEY, 4, 1, MOST_BYTES) == []
    assert (log.states.states[KEY].leader_epoch, log.states.states[KEY].start_offset) == (4, 5)
    with pytest.raises(RefusedError) as error:
        log.states.check_read(KEY, 3)
    assert code(error) == ShareErrorCode.FENCED_LEADER_EPOCH


def test_a_state_that_begins_again_forgets_its_records_and_fences_the_old_one() -> None:
    log = Log()
    log.begin()
    log.write((0, 9, 1, 2), start=3, count=7)
    log.begin(state_epoch=2, start_offset=-1)
    found = log.states.states[KEY]
    assert (found.snapshot_epoch, found.state_epoch, found.start_offset) == (1, 2, -1)
    assert (found.state_batches, found.delivery_complete_count) == ((), -1)
    with pytest.raises(RefusedError) as error:
        log.states.check_write(KEY, StateWrite(1, -1, 0, 0, ()))
    assert code(error) == ShareErrorCode.FENCED_STATE_EPOCH


def test_records_before_the_oldest_snapshot_are_not_needed() -> None:
    log = Log(1)
    log.begin()
    log.begin(OTHER)
    assert log.states.needed_from == 0
    for number in range(4):
        log.write((number, number, 1, 2))
    assert log.states.needed_from == 1
    log.append(*log.states.delete([OTHER]))
    assert log.states.needed_from == 5
    log.append(*log.states.delete([KEY, OTHER]))
    assert (log.states.needed_from, log.states.states) == (7, {})


def test_what_is_not_written_for_a_while_gets_a_snapshot_if_others_are_written() -> None:
    log = Log()
    log.begin()
    log.begin(OTHER)
    assert whole(log.states.cold(100, 100)) == []
    assert whole(log.states.cold(100, 50)) == [KEY, OTHER]
    log.append(*log.states.cold_snapshots([KEY, OTHER], 100, 50))
    assert [one.snapshot_epoch for one in log.states.states.values()] == [1, 1]
    assert whole(log.states.cold(1000, 50)) == []
    log.begin(state_epoch=1)
    assert whole(log.states.cold(1000, 50)) == [KEY, OTHER]
    # What was written or removed since then gets none.
    log.append(*log.states.cold_snapshots([KEY], 1000, 50), *log.states.delete([OTHER]))
    assert log.states.cold_snapshots([KEY, OTHER], 1000, 50) == []


def test_a_snapshot_is_not_larger_than_what_is_said_before() -> None:
    log, key = Log(), ShareKey("\U0001f600" * 100, UUID(int=1), (1 << 31) - 1)
    log.begin(key, (1 << 31) - 1, (1 << 63) - 1)
    for number in (0, 1, 1000):
        log.write(*((2 * one, 2 * one, 5, 2) for one in range(number)), key=key)
        records = log.states.cold_snapshots([key], 1 << 62, 1)
        plain = len(state_batch(records, 1)) - 61
        assert plain <= log.states.most_bytes(key) <= plain + 200


def written(chance: random.Random) -> Log:
    """Returns a log to which states of two keys were written at random."""
    log = Log(chance.choice((0, 1, 3, 500)))
    start = 0
    for _ in range(60):
        key = chance.choice((KEY, OTHER))
        if key not in log.states.states or chance.random() < 0.03:
            log.begin(key, log.states.states[key].state_epoch + 1 if key in log.states.states else 0, start)
        elif chance.random() < 0.05:
            log.append(*log.states.delete([key]))
        else:
            first = start + chance.randrange(20)
            start += chance.random() < 0.2
            log.write(
                (first, first + chance.randrange(5), chance.randrange(1, 4), chance.choice((0, 2, 4))),
                key=key,
                start=chance.choice((-1, start)),
                count=chance.randrange(9),
            )
    return log


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 100, 20))
def test_what_is_loaded_is_what_was_written(first: int) -> None:
    for seed in range(first, first + 20):
        log = written(random.Random(seed))
        loaded = log.loaded()
        assert loaded.states == log.states.states, seed
        assert loaded.needed_from == log.states.needed_from, seed
        # ... and from the first record that is needed on, too.
        found = DeliveryStates(log.updates_per_snapshot)
        for offset, (name, value) in enumerate(log.records):
            if offset >= loaded.needed_from:
                found.replay(name, value, offset)
        assert found.states == log.states.states, seed
