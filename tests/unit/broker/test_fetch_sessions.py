"""Which fetch sessions end when there are too many: the rules of Kafka's `FetchSessionCacheShard`."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.broker.errors import ApiError
from odradek.broker.fetch_sessions import FetchSession, FetchSessions, WantedPartition

NOT_FOUND = 70


def wanted(numbers: Iterable[int]) -> list[WantedPartition]:
    return [WantedPartition("events", None, number, 0, 1 << 20, -1) for number in numbers]


class Cache:
    """Sessions, and a clock for them."""

    def __init__(self, limit: int) -> None:
        self.now_ms = 1e9
        self.sessions = FetchSessions(limit, lambda: self.now_ms)

    def begin(self, size: int) -> FetchSession | None:
        return self.sessions.begin(wanted(range(size)), uses_ids=False)

    def begun(self, size: int) -> FetchSession:
        session = self.begin(size)
        assert session is not None
        return session

    def use(self, session: FetchSession, *more: int, forgotten: Iterable[int] = ()) -> FetchSession | None:
        keys = [("events", number) for number in forgotten]
        return self.sessions.go_on(session.id, session.epoch, wanted(more), keys, uses_ids=False)

    def has(self, session: FetchSession) -> bool:
        try:
            self.sessions.go_on(session.id, -7, (), (), uses_ids=False)
        except ApiError as error:
            return error.error_code != NOT_FOUND
        return True


def test_sessions_in_use_are_kept() -> None:
    cache = Cache(2)
    first, second = cache.begun(1), cache.begun(1)
    assert cache.begin(1000) is None
    cache.now_ms += 100_000
    cache.use(first)
    cache.use(second)
    cache.now_ms += 100_000
    # Both are old, but neither was used since it became so; and no new one is worth more.
    assert cache.begin(1) is None
    cache.use(first)
    cache.use(second)
    assert cache.begin(1) is None
    assert cache.has(first)
    assert cache.has(second)


def test_the_one_that_was_not_used_for_two_minutes_ends() -> None:
    cache = Cache(3)
    sessions = [cache.begun(50) for _ in range(3)]
    cache.now_ms += 119_000
    cache.use(sessions[0])
    cache.now_ms += 1001
    cache.begun(1)
    assert [cache.has(one) for one in sessions] == [True, False, True]


def test_the_smallest_old_one_ends_for_a_larger_one() -> None:
    cache = Cache(3)
    sessions = [cache.begun(size) for size in (5, 3, 4)]
    cache.now_ms += 119_000
    for session in sessions:
        cache.use(session)
    cache.now_ms += 1001
    for session in sessions:
        cache.use(session)
    assert cache.begin(3) is None
    # It has grown, so that another one is the smallest.
    cache.use(sessions[1], 7, 8, 9)
    assert cache.begin(4) is None
    new = cache.begun(5)
    assert [cache.has(one) for one in sessions] == [True, True, False]
    # New ones are safe for two minutes, however small.
    cache.begun(6)
    assert [cache.has(one) for one in sessions] == [False, True, False]
    assert cache.begin(6) is None
    assert cache.has(new)
    cache.begun(7)
    assert cache.begin(1000) is None


def test_a_session_without_partitions_ends() -> None:
    cache = Cache(1)
    session = cache.begun(2)
    assert cache.use(session, forgotten=[0]) is session
    assert cache.use(session, forgotten=[1]) is None
    assert len(cache.sessions) == 0
    cache.begun(1)


def test_sessions_that_change_their_size_again_and_again_leave_nothing() -> None:
    cache = Cache(2)
    session = cache.begun(1)
    cache.now_ms += 121_000
    for number in range(1, 100):
        cache.use(session, number)
        cache.use(session, forgotten=[number])
    assert len(cache.sessions._evictable) <= 4
    cache.begun(1)
    assert cache.begin(1) is None
    cache.begun(2)
    assert not cache.has(session)


def test_no_slots_no_sessions() -> None:
    assert Cache(0).begin(1) is None
