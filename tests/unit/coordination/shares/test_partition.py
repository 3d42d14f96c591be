"""A partition as a share group sees it: cases from a table, and random histories beside a model of each record."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from typing import TypeVar

import pytest

from odradek.broker.turns import whole
from odradek.coordination.errors import RefusedError
from odradek.coordination.shares.acquisition import Acquired, Limits, LogBatch, Wish, without
from odradek.coordination.shares.changes import Acknowledgement, Change
from odradek.coordination.shares.in_flight import MOST_RUNS
from odradek.coordination.shares.partition import SharePartition
from odradek.coordination.shares.record_states import AFTER, FOLLOWING, AcknowledgeType
from odradek.coordination.shares.state_batches import StateBatch, combined

_T = TypeVar("_T")
LIMITS = Limits(lock_duration_ms=30_000, delivery_count_limit=5, max_record_locks=200)
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = 0, 1, 2, 4
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


def log(*sizes: int, base: int = 0) -> list[LogBatch]:
    """Returns batches of some sizes."""
    found = []
    for size in sizes:
        found.append(LogBatch(base, base + size - 1))
        base += size
    return found


def acquired(
    share: SharePartition,
    batches: list[LogBatch],
    member: str = "a",
    most: int = 500,
    limits: Limits = LIMITS,
    **of: int,
) -> list[tuple[int, int, int]]:
    """Fetches and acquires."""
    offset = share.next_fetch_offset()
    read = [one for one in batches if one.last_offset >= offset]
    wish = Wish(
        member,
        most,
        of.get("batch_size", 500),
        bool(of.get("is_record_limit")),
        of.get("sessions_ended", 0),
    )
    found = share.acquire(wish, offset, read, limits, of.get("now_ms", 0))
    return [(one.first_offset, one.last_offset, one.delivery_count) for one in found]


def acknowledge(
    share: SharePartition,
    *said: tuple[int, int, list[int]],
    member: str = "a",
    now_ms: float = 0,
    is_written: bool = True,
    limits: Limits = LIMITS,
) -> Change:
    """Acknowledges, and completes it."""
    change = whole(share.acknowledge(member, [Acknowledgement(*one) for one in said], limits, now_ms))
    whole(share.complete(change, limits, now_ms, is_written=is_written))
    return change


def states(share: SharePartition) -> list[tuple[int, int, int, int]]:
    """Returns first and last offset, state and delivery count."""
    return [(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count) for one in share.states()]


def test_the_states_that_follow_are_those_of_kafka() -> None:
    following = {(one.name, other.name) for one in FOLLOWING for other in FOLLOWING[one]}
    assert following == {
        ("AVAILABLE", "ACQUIRED"),
        ("AVAILABLE", "ARCHIVED"),
        ("ACQUIRED", "AVAILABLE"),
        ("ACQUIRED", "ACKNOWLEDGED"),
        ("ACQUIRED", "ARCHIVED"),
        ("ARCHIVING", "ARCHIVED"),
    }
    assert {kind for kind in AcknowledgeType if kind not in AFTER} == {AcknowledgeType.RENEW}


def test_gaps_between_loaded_states_are_fetched_and_gaps_of_the_log_are_not() -> None:
    share = SharePartition(0, [StateBatch(5, 9, 1, ACKNOWLEDGED), StateBatch(15, 19, 1, AVAILABLE)])
    batches = log(5, 5, 5, 5, 5)
    assert share.next_fetch_offset() == 0
    assert acquired(share, batches[:1]) == [(0, 4, 1)]
    # Compaction has left nothing from 10 to 14.
    assert share.next_fetch_offset() == 10
    assert acquired(share, batches[3:4]) == [(15, 19, 2)]
    assert acquired(share, batches[4:]) == [(20, 24, 1)]
    acknowledge(share, (0, 4, [ACCEPT]))
    assert share.start_offset == 15
    acknowledge(share, (15, 24, [ACCEPT]))
    assert (share.start_offset, share.next_fetch_offset(), share.count) == (25, 25, 0)


def test_a_gap_whose_records_were_deleted_from_the_log_is_not_asked_for_again() -> None:
    share = SharePartition(0, [StateBatch(10, 19, 1, ACKNOWLEDGED)])
    assert share.next_fetch_offset() == 0
    whole(share.log_start_moved(5))
    assert (share.start_offset, share.next_fetch_offset()) == (5, 5)
    assert acquired(share, log(3, 7, 10)) == [(5, 9, 1)]


def test_what_a_batch_had_before_the_start_of_the_log_is_not_acquired() -> None:
    share = SharePartition(0)
    batches = log(6, 6, 3)
    assert acquired(share, batches[:1]) == [(0, 5, 1)]
    whole(share.log_start_moved(9))
    assert acquired(share, batches) == [(9, 14, 1)]
    assert share.leave_out([Acquired(9, 14, 1)], [batches[1]]) == [Acquired(12, 14, 1)]
    assert (share.start_offset, share.complete_count) == (12, 0)


def test_states_that_contradict_each_other_are_refused() -> None:
    for wrong in (
        [StateBatch(3, 4, 1, AVAILABLE)],
        [StateBatch(9, 5, 1, AVAILABLE)],
        [StateBatch(5, 9, 1, AVAILABLE), StateBatch(7, 8, 1, AVAILABLE)],
        [StateBatch(5, 9, 1, 77)],
    ):
        with pytest.raises(RefusedError):
            SharePartition(5, wrong)


def test_a_change_that_is_not_written_is_taken_back() -> None:
    share = SharePartition(0)
    acquired(share, log(4))
    acknowledge(share, (0, 1, [ACCEPT]), is_written=False)
    assert (states(share), share.complete_count, share.start_offset) == ([(0, 3, ACQUIRED, 1)], 0, 0)
    acknowledge(share, (0, 1, [ACCEPT]))
    assert (share.complete_count, share.start_offset) == (0, 2)


def test_what_times_out_while_a_change_is_written_is_available_if_that_fails() -> None:
    share = SharePartition(0)
    acquired(share, log(2))
    change = whole(share.acknowledge("a", [Acknowledgement(0, 1, [ACCEPT])], LIMITS, 0))
    assert share.time_out(LIMITS, 30_000) == []
    whole(share.complete(change, LIMITS, 30_000, is_written=False))
    assert states(share) == [(0, 1, AVAILABLE, 1)]
    assert acquired(share, log(2), "b") == [(0, 1, 2)]


def test_nobody_changes_what_is_being_written() -> None:
    share = SharePartition(0)
    acquired(share, log(4))
    whole(share.acknowledge("a", [Acknowledgement(0, 3, [RELEASE])], LIMITS, 0))
    assert acquired(share, log(4), "b") == []
    with pytest.raises(RefusedError):
        whole(share.acknowledge("a", [Acknowledgement(0, 3, [ACCEPT])], LIMITS, 0))


def test_only_what_was_acquired_before_the_end_of_a_session_is_released() -> None:
    share, batches = SharePartition(0), log(4, 4)
    acquired(share, batches, most=4)
    acquired(share, batches, most=4, sessions_ended=1)
    change = whole(share.release("a", LIMITS, 1))
    whole(share.complete(change, LIMITS, 0, is_written=False))
    assert states(share) == [(0, 3, ACQUIRED, 1), (4, 7, ACQUIRED, 1)]
    for ended, found in ((1, ACQUIRED), (2, AVAILABLE)):
        change = whole(share.release("a", LIMITS, ended))
        whole(share.complete(change, LIMITS, 0, is_written=True))
        assert states(share) == [(0, 3, AVAILABLE, 1), (4, 7, found, 1)]


def test_pieces_of_sessions_that_ended_are_joined_when_they_are_released() -> None:
    share, batches = SharePartition(0), log(4)
    acquired(share, batches, most=2, is_record_limit=1)
    acquired(share, batches, most=2, is_record_limit=1, sessions_ended=1)
    for ended, count in ((1, 2), (2, 1)):
        assert len(share.states()) == 2
        change = whole(share.release("a", LIMITS, ended))
        whole(share.complete(change, LIMITS, 0, is_written=False))
        assert len(share.states()) == 2
        change = whole(share.release("a", LIMITS, ended))
        whole(share.complete(change, LIMITS, 0, is_written=True))
        assert len(share.states()) == count


def test_records_that_were_deleted_from_the_log_are_archived() -> None:
    share = SharePartition(0)
    batches = log(4, 4, 4)
    acquired(share, batches)
    acknowledge(share, (2, 5, [RELEASE]))
    whole(share.log_start_moved(5))
    assert (share.start_offset, share.next_fetch_offset()) == (5, 5)
    assert states(share)[:2] == [(0, 1, ACQUIRED, 1), (2, 4, ARCHIVED, 1)]
    # What the member still has of these is archived when it is released.
    change = whole(share.release("a", LIMITS, 1))
    whole(share.complete(change, LIMITS, 0, is_written=True))
    assert [one.delivery_state for one in change.batches] == [ARCHIVED, AVAILABLE]
    whole(share.log_start_moved(100))
    assert (share.start_offset, share.end_offset, share.next_fetch_offset()) == (100, 100, 100)


def test_what_compaction_removed_from_under_a_group_is_archived() -> None:
    share = SharePartition(0)
    acquired(share, log(2, 2, 2))
    acknowledge(share, (0, 5, [RELEASE]))
    assert acquired(share, [LogBatch(4, 5)], "b") == [(4, 5, 2)]
    assert states(share)[0] == (0, 3, ARCHIVED, 1)


def test_a_batch_of_a_million_records_costs_no_more_than_what_is_said_of_it() -> None:
    share = SharePartition(0)
    assert acquired(share, log(1_000_000)) == [(0, 999_999, 1)]
    acknowledge(share, (10, 20, [ACCEPT]), (500_000, 900_000, [RELEASE]))
    assert len(share.states()) == 5
    acknowledge(share, (0, 9, [ACCEPT]))
    assert share.start_offset == 21


def test_locks_that_are_renewed_again_and_again_do_not_pile_up() -> None:
    share = SharePartition(0)
    acquired(share, log(10))
    for number in range(5_000):
        acknowledge(share, (0, 9, [RENEW]), now_ms=number)
    assert len(share._in_flight._locks) < 2_000
    assert share.time_out(LIMITS, 30_000) == []
    assert [tuple(one) for one in share.time_out(LIMITS, 34_999)] == [(0, 9, 1, AVAILABLE)]


def test_aborted_batches_are_left_out_of_what_was_acquired() -> None:
    share = SharePartition(0)
    batches = log(3, 3, 3, 3)
    got = [Acquired(*one) for one in acquired(share, batches)]
    assert share.leave_out(got, [batches[1], batches[3]]) == [(0, 2, 1), (6, 8, 1)]
    assert share.complete_count == 6
    assert states(share) == [(0, 2, ACQUIRED, 1), (3, 5, ARCHIVED, 1), (6, 8, ACQUIRED, 1), (9, 11, ARCHIVED, 1)]


def test_what_times_out_during_the_taking_back_of_a_change_ends_at_its_time_all_the_same() -> None:
    share = SharePartition(0)
    acquired(share, log(2))
    change = whole(share.acknowledge("a", [Acknowledgement(0, 1, [ACCEPT])], LIMITS, 0))
    assert share.time_out(LIMITS, 30_000) == []
    # It had begun a moment before.
    whole(share.complete(change, LIMITS, 29_999, is_written=False))
    assert share.next_due_ms == 30_000
    assert [tuple(one) for one in share.time_out(LIMITS, 30_000)] == [(0, 1, 1, AVAILABLE)]


def test_what_was_deleted_from_the_log_while_it_was_acknowledged_does_not_come_back() -> None:
    share = SharePartition(0)
    acquired(share, log(4))
    change = whole(share.acknowledge("a", [Acknowledgement(0, 3, [ACCEPT])], LIMITS, 0))
    whole(share.log_start_moved(2))
    whole(share.complete(change, LIMITS, 30_000, is_written=False))
    assert states(share) == [(0, 1, ARCHIVED, 1), (2, 3, AVAILABLE, 1)]
    assert (share.next_fetch_offset(), share.complete_count) == (2, 0)
    assert acquired(share, log(4)) == [(2, 3, 2)]
    acknowledge(share, (2, 3, [ACCEPT]))
    assert share.start_offset == 4


def test_a_long_aborted_transaction_does_not_use_up_all_that_may_be_in_flight() -> None:
    share, batches = SharePartition(0), log(*[50] * 10)
    for offset in range(0, 500, 50):
        assert share.can_acquire(LIMITS)
        got = [Acquired(*one) for one in acquired(share, [batches[offset // 50]])]
        assert share.leave_out(got, batches) == []
    assert (share.start_offset, share.count, share.complete_count) == (500, 0, 0)


def test_compaction_does_not_use_up_all_that_may_be_in_flight() -> None:
    share = SharePartition(0)
    acquired(share, log(200))
    acknowledge(share, (0, 199, [RELEASE]))
    assert acquired(share, [LogBatch(300, 301)]) == []
    assert share.can_acquire(LIMITS)
    assert acquired(share, [LogBatch(300, 301)]) == [(300, 301, 1)]


def test_a_start_of_the_log_that_moves_leaves_room_for_more_in_flight() -> None:
    share = SharePartition(0)
    acquired(share, log(1, 250))
    acknowledge(share, (1, 250, [ACCEPT]), (0, 0, [RELEASE]))
    whole(share.log_start_moved(1))
    assert share.can_acquire(LIMITS)
    assert share.start_offset == 251


@pytest.mark.parametrize(
    ("holes", "wanted"),
    [
        ([], [(0, 4), (10, 14)]),
        ([(0, 4)], [(10, 14)]),
        ([(2, 2), (4, 11)], [(0, 1), (3, 3), (12, 14)]),
        ([(6, 8)], [(0, 4), (10, 14)]),
        ([(0, 99)], []),
    ],
)
def test_ranges_without_some_batches(holes: list[tuple[int, int]], wanted: list[tuple[int, int]]) -> None:
    found = without([Acquired(0, 4, 1), Acquired(10, 14, 1)], [LogBatch(*one) for one in holes])
    assert [one[:2] for one in found] == wanted


# -- random histories


def numbers(batches: Iterable[StateBatch], start_offset: int) -> set[int]:
    """Returns the offsets of batches from an offset on."""
    return {n for one in batches for n in range(max(start_offset, one.first_offset), one.last_offset + 1)}


class History:
    """A log, a share partition, what was written down of it, and a model of each record."""

    def __init__(self, seed: int, deletes: float) -> None:
        self.chance = random.Random(seed)
        self.deletes = deletes
        self.limits = Limits(1_000, self.chance.choice((2, 3, 5, 10)), self.chance.choice((10, 40)))
        self.log: list[LogBatch] = []
        self.log_start = self.end = 0
        self.share = SharePartition(0)
        self.now_ms = 0.0
        # What was written down.
        self.start = 0
        self.batches: tuple[StateBatch, ...] = ()
        # The model: who has a record, and until when; how often it was delivered, as far as the broker knows: a crash
        # forgets what was not written down, and only what becomes of a record is; what is done.
        self.owner: dict[int, tuple[str, float]] = {}
        self.count: dict[int, int] = {}
        self.delivered: set[int] = set()
        self.done: set[int] = set()

    def append(self) -> None:
        size = self.chance.randrange(1, 6)
        self.log.append(LogBatch(self.end, self.end + size - 1))
        self.end += size

    def delete(self) -> None:
        self.log_start = self.chance.randrange(self.log_start, min(self.end, self.log_start + 8) + 1)

    def acquire(self, member: str) -> int:
        if self.share.next_fetch_offset() < self.log_start:
            whole(self.share.log_start_moved(self.log_start))
        offset = self.share.next_fetch_offset()
        assert self.log_start <= offset <= self.end
        read = [one for one in self.log if one.last_offset >= offset][: self.chance.randrange(1, 6)]
        is_limit = self.chance.random() < 0.4
        most = self.chance.randrange(1, 12)
        wish = Wish(member, most, self.chance.randrange(1, 6), is_limit)
        found = self.share.acquire(wish, offset, read, self.limits, self.now_ms)
        for one in found:
            for number in range(one.first_offset, one.last_offset + 1):
                assert number not in self.owner, "two members have it"
                assert number not in self.done, "it is delivered again"
                assert self.log_start <= number < self.end
                self.owner[number] = member, self.now_ms + self.limits.lock_duration_ms
                self.count[number] = self.count.get(number, 0) + 1
                assert self.count[number] == one.delivery_count <= self.limits.delivery_count_limit
                self.delivered.add(number)
        count = sum(one.size for one in found)
        assert count <= most or not is_limit
        return count

    def write(self, batches: Iterable[StateBatch]) -> None:
        self.start = max(self.start, self.share.start_offset)
        self.batches = combined(self.batches, batches, self.share.start_offset)

    def acknowledge(self, member: str) -> None:
        mine = sorted(number for number, (owner, _) in self.owner.items() if owner == member)
        if not mine:
            return
        first = self.chance.choice(mine)
        last = first
        while last + 1 in self.owner and self.owner[last + 1][0] == member and self.chance.random() < 0.8:
            last += 1
        types = [self.chance.choice((0, ACCEPT, RELEASE, REJECT)) for _ in range(last - first + 1)]
        if self.chance.random() < 0.5:
            types = types[:1]
        change = whole(self.share.acknowledge(member, [Acknowledgement(first, last, types)], self.limits, self.now_ms))
        is_written = self.chance.random() < 0.9
        if is_written:
            self.write(change.batches)
        whole(self.share.complete(change, self.limits, self.now_ms, is_written=is_written))
        if is_written:
            for number in range(first, last + 1):
                del self.owner[number]
            self.note(change.batches)

    def note(self, batches: Iterable[StateBatch]) -> None:
        for one in batches:
            if one.delivery_state in (ACKNOWLEDGED, ARCHIVED):
                self.done.update(range(one.first_offset, one.last_offset + 1))

    def release(self, member: str) -> None:
        start = self.share.start_offset
        change = whole(self.share.release(member, self.limits, 1))
        self.write(change.batches)
        whole(self.share.complete(change, self.limits, self.now_ms, is_written=True))
        released = {number for number, (owner, _) in self.owner.items() if owner == member}
        assert numbers(change.batches, start) == {number for number in released if number >= start}
        for number in released:
            del self.owner[number]
        self.note(change.batches)

    def wait(self) -> None:
        self.now_ms += self.chance.randrange(1, 800)
        due = {number for number, (_, until) in self.owner.items() if until <= self.now_ms}
        start = self.share.start_offset
        batches = self.share.time_out(self.limits, self.now_ms)
        assert numbers(batches, start) == {number for number in due if number >= start}
        for number in due:
            del self.owner[number]
        self.write(batches)
        self.share.move_start()
        self.note(batches)

    def crash(self) -> None:
        before = set(self.batches)
        self.share = SharePartition(self.start, self.batches)
        loaded = {n for one in self.share.states() for n in range(one.first_offset, one.last_offset + 1)}
        written = {n for one in before for n in range(one.first_offset, one.last_offset + 1)}
        assert loaded <= written
        assert all(n in self.done for n in written - loaded)
        self.owner.clear()
        self.count = {n: one.delivery_count for one in before for n in range(one.first_offset, one.last_offset + 1)}

    def step(self) -> None:
        member = self.chance.choice("abc")
        match self.chance.randrange(20):
            case 0 | 1 | 2:
                self.append()
            case 3 | 4 | 5 | 6 | 7 | 8:
                self.acquire(member)
            case 17:
                self.release(member)
            case 18:
                self.wait()
            case 19 if self.chance.random() < 0.2:
                self.crash()
            case 16 if self.chance.random() < self.deletes:
                self.delete()
            case _:
                self.acknowledge(member)
        assert self.share.start_offset <= self.end
        start = self.share.start_offset
        done = [(first, last) for first, last, state, _ in states(self.share) if state in (ACKNOWLEDGED, ARCHIVED)]
        assert self.share.complete_count == sum(max(0, last - max(first, start) + 1) for first, last in done)

    def drain(self) -> None:
        """Lets one member accept all that is left: it comes to an end."""
        for _ in range(50 * self.end + 50):
            if self.share.start_offset == self.end:
                return
            self.now_ms += self.limits.lock_duration_ms
            self.wait()
            self.acquire("d")
            for number in sorted(self.owner):
                change = whole(
                    self.share.acknowledge("d", [Acknowledgement(number, number, [ACCEPT])], self.limits, self.now_ms)
                )
                self.write(change.batches)
                whole(self.share.complete(change, self.limits, self.now_ms, is_written=True))
                del self.owner[number]
                self.note(change.batches)
        raise AssertionError("records are left")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seeds", [300, pytest.param(10_000, marks=pytest.mark.laboratory)])
def test_random_histories_deliver_each_record_once_at_least_and_to_one_member_at_a_time(seeds: int) -> None:
    for seed in range(seeds):
        history = History(seed, deletes=0)
        for _ in range(150):
            history.step()
        history.drain()
        assert history.delivered == history.done == set(range(history.end)), seed


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seeds", [300, pytest.param(10_000, marks=pytest.mark.laboratory)])
def test_random_histories_come_to_their_end_where_records_are_deleted_meanwhile(seeds: int) -> None:
    for seed in range(seeds):
        history = History(seed, deletes=0.5)
        for _ in range(150):
            history.step()
        history.drain()


# -- what is in many pieces


@pytest.mark.slow
def test_records_in_many_pieces_are_looked_at_a_few_at_a_time() -> None:
    share, number = SharePartition(0), 4 * MOST_RUNS
    batches = log(number)
    acquired(share, batches)
    types = [RELEASE, *[ACCEPT, REJECT] * (number // 2 - 1), RELEASE]
    acknowledge(share, (0, number - 1, types))
    # The rest is given with the next fetch.
    assert acquired(share, batches) == [(0, 0, 2)]
    assert acquired(share, batches) == [(number - 1, number - 1, 2)]
    assert acquired(share, batches) == []
    acknowledge(share, (0, 0, [ACCEPT]))
    assert (share.start_offset, share.complete_count) == (number - 1, 0)
    acknowledge(share, (number - 1, number - 1, [ACCEPT]))
    assert (share.start_offset, share.count) == (number, 0)


@pytest.mark.slow
def test_many_pieces_time_out_a_few_at_a_time() -> None:
    share, number = SharePartition(0), 2 * MOST_RUNS
    acquired(share, log(2 * number))
    acknowledge(share, *[(offset, offset, [ACCEPT]) for offset in range(0, 2 * number, 2)])
    found = []
    while share.next_due_ms <= 30_000:
        some = share.time_out(LIMITS, 30_000)
        assert len(some) <= MOST_RUNS
        found += some
    assert [one.first_offset for one in found] == [*range(1, 2 * number, 2)]


def in_pieces(number: int) -> SharePartition:
    """Returns a partition of which every other record is available, and the others, but for the first, are acquired."""
    share = SharePartition(0)
    acquired(share, log(number))
    acknowledge(share, *[(offset, offset, [RELEASE]) for offset in range(1, number, 2)])
    return share


@pytest.mark.slow
def test_a_start_of_the_log_that_moves_passes_a_few_pieces_at_a_time() -> None:
    number = 4 * MOST_RUNS
    share = in_pieces(number)
    starts = [0, *(share.start_offset for _ in share.log_start_moved(number - 10)), number - 10]
    assert max(after - before for before, after in itertools.pairwise(starts)) <= MOST_RUNS
    assert share.start_offset == number - 10
    assert share.next_fetch_offset() == number - 9
    assert share.complete_count == 0
    assert [state for _, _, state, _ in states(share)] == [ACQUIRED, ARCHIVED] * (number // 2 - 5) + [
        ACQUIRED,
        AVAILABLE,
    ] * 5
    # All are done when the member has said something about its own.
    change = whole(share.release("a", LIMITS._replace(delivery_count_limit=1), 1))
    whole(share.complete(change, LIMITS, 0, is_written=True))
    assert share.start_offset == number - 9


@pytest.mark.slow
def test_the_count_of_what_is_done_follows_the_start_of_the_log_past_many_pieces() -> None:
    number = 3 * MOST_RUNS
    share = SharePartition(0)
    acquired(share, log(number))
    acknowledge(share, *[(offset, offset, [ACCEPT]) for offset in range(1, number, 2)])
    assert share.complete_count == number // 2
    whole(share.log_start_moved(number - 10))
    assert (share.start_offset, share.complete_count) == (number - 10, 5)


@pytest.mark.slow
def test_what_compaction_removed_is_archived_a_few_pieces_at_a_time() -> None:
    number = 4 * MOST_RUNS
    share = in_pieces(number)
    rest = log(2, base=number)
    last = -1
    for part in range(1, 10):
        acquired(share, rest)
        archived = [first for first, _, state, _ in states(share) if state == ARCHIVED]
        assert len(archived) <= MOST_RUNS * part
        assert archived == list(range(1, 2 * len(archived), 2))
        if archived[-1] == last:
            break
        last = archived[-1]
    assert len(archived) == number // 2


@pytest.mark.slow
def test_of_an_aborted_batch_in_many_pieces_only_what_was_acquired_is_archived() -> None:
    number = 4 * MOST_RUNS
    share = in_pieces(number)
    batches = log(number)
    wish = Wish("b", number, number)
    got = share.acquire(wish, share.next_fetch_offset(), batches, LIMITS, 0)
    assert share.leave_out(got, batches) == []
    found = [first for first, _, state, _ in states(share) if state == ARCHIVED]
    assert max(found) == got[-1].last_offset
    assert len(found) <= MOST_RUNS


@pytest.mark.slow
def test_records_that_are_released_again_and_again_do_not_pile_up() -> None:
    share, batches = SharePartition(0), log(1, 1)
    limits = LIMITS._replace(delivery_count_limit=100_000)
    acquired(share, batches, limits=limits)
    acknowledge(share, (0, 0, [RELEASE]))
    for _ in range(3_000):
        change = whole(share.acknowledge("a", [Acknowledgement(1, 1, [RELEASE])], limits, 0))
        whole(share.complete(change, limits, 0, is_written=True))
        share.acquire(Wish("a", 1, 1), 1, batches[1:], limits, 0)
    assert len(share._in_flight._free) <= 1_000
    assert share.next_fetch_offset() == 0
