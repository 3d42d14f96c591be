"""Sessions of consumers that fetch incrementally (KIP-227): the broker remembers which partitions they want.

    full fetch (epoch 0)      all partitions                      -> a session's id, all partitions
    then (epoch 1, 2, ...)    what is new, changed or forgotten   -> the partitions that have something new

The session answers a partition only if it has records, an error, or another high watermark or log start offset than the
client was told. So it looks only at those that may have news: that the client asked for again, whose log changed since
they were looked at, or that had records then. Partitions that had records go to the end, so that each has its turn.

Source in Kafka: `FetchSession`, `FetchSessionCacheShard`, `FetchManager`.
"""

from __future__ import annotations

import heapq
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias
from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.broker.errors import ApiError
from odradek.broker.log_waits import LogPlace
from odradek.broker.partitions import Partition
from odradek.storage.log.writable_log import WritableLog

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
_MAX_EPOCH = (1 << 31) - 1
_EVICTION_MS = 120_000
"""`MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS`."""

Key: TypeAlias = tuple[str | UUID | None, int]
"""What a session knows a partition by: its topic's name or id, and its number."""


class WantedPartition(NamedTuple):
    """What a consumer wants of one partition.

    Attributes:
        topic: The topic's name; None where it is given by its id.
        topic_id: The topic's id; None where it is given by its name.
        number: The partition.
        offset: The first offset wanted.
        max_bytes: How many bytes at most.
        leader_epoch: The leader epoch that the consumer knows, or -1.
    """

    topic: str | None
    topic_id: UUID | None
    number: int
    offset: int
    max_bytes: int
    leader_epoch: int

    @property
    def key(self) -> Key:
        """What the session knows it by."""
        return self.topic if self.topic_id is None else self.topic_id, self.number


class _Told(NamedTuple):
    high_watermark: int
    log_start_offset: int


@dataclass(slots=True)
class _Watched:
    partition: Partition
    log: WritableLog
    changes: int
    place: LogPlace


class FetchSession:
    """The partitions that a consumer wants, and what it was told of them.

    Attributes:
        id: Its id.
        epoch: The epoch that the next request has.
        uses_ids: Whether topics are named by their ids.
        created_ms: When it began.
        last_used_ms: When its last request came.
        on_growth: Called with a partition that grew, and where it ended before, while a fetch waits.
    """

    def __init__(self, session_id: int, now_ms: float, *, uses_ids: bool) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_ids = uses_ids
        self.created_ms = self.last_used_ms = now_ms
        self.on_growth: Callable[[WantedPartition, Partition, LogPlace], None] | None = None
        self._wanted: dict[Key, WantedPartition] = {}
        self._told: dict[Key, _Told] = {}
        # In the order in which they are answered.
        self._news: dict[Key, None] = {}
        self._watched: dict[Key, _Watched] = {}
        self._access: object = None

    def __len__(self) -> int:
        return len(self._wanted)

    def update(self, wanted: Iterable[WantedPartition], forgotten: Iterable[Key]) -> None:
        """Add or change partitions, and forget others."""
        for partition in wanted:
            self._wanted[partition.key] = partition
            self._news[partition.key] = None
        for key in forgotten:
            self._wanted.pop(key, None)
            self._told.pop(key, None)
            self._news.pop(key, None)
            self._unwatch(key)

    def seen_with(self, access: object) -> None:
        """Look at all partitions if what its client may read can have changed.

        Args:
            access: Changes when that does.
        """
        if access != self._access:
            self._access = access
            self._news |= dict.fromkeys(self._wanted)

    def take_news(self) -> list[WantedPartition]:
        """Return the partitions that may have news; they have none from now on, unless they change or are kept."""
        for key, watched in self._watched.items():
            if watched.log.changes != watched.changes:
                self._news[key] = None
        news, self._news = self._news, {}
        return [self._wanted[key] for key in news]

    def keep(self, wanted: WantedPartition) -> None:
        """Look at a partition again with the next fetch: it has an error, or records that cannot be sent now."""
        if wanted.key in self._wanted:
            self._news[wanted.key] = None

    def watch(self, wanted: WantedPartition, partition: Partition, *, is_committed: bool) -> LogPlace:
        """Ask a partition, which is looked at now, to report when it grows; return where it ends."""
        key, log = wanted.key, partition.log
        changes, place = log.changes, partition.end(is_committed=is_committed)
        watched = self._watched.get(key)
        if watched is not None and watched.partition is partition:
            watched.changes, watched.place = changes, place
        else:
            self._unwatch(key)
            self._watched[key] = _Watched(partition, log, changes, place)
        self.await_growth(wanted, place, 1, is_committed=is_committed)
        return place

    def await_growth(self, wanted: WantedPartition, place: LogPlace, size_bytes: int, *, is_committed: bool) -> None:
        """Ask a partition that is watched to report when it has grown by this many bytes."""
        key = wanted.key
        partition = self._watched[key].partition
        partition.wait((self, key), place, size_bytes, lambda: self._grew(key), is_committed=is_committed)

    def _grew(self, key: Key) -> None:
        self._news[key] = None
        if self.on_growth is not None:
            watched = self._watched[key]
            self.on_growth(self._wanted[key], watched.partition, watched.place)

    def _unwatch(self, key: Key) -> None:
        watched = self._watched.pop(key, None)
        if watched is not None:
            watched.partition.forget((self, key))

    def close(self) -> None:
        """Stop watching the partitions."""
        for key in list(self._watched):
            self._unwatch(key)

    def is_news(
        self, partition: WantedPartition, high_watermark: int, log_start_offset: int, *, has_more: bool
    ) -> bool:
        """Return whether a partition belongs in the answer.

        Args:
            partition: The partition.
            high_watermark: Its high watermark now.
            log_start_offset: Its log start offset now.
            has_more: Whether there are records, or an error.
        """
        told = self._told.get(partition.key)
        return has_more or told is None or told != (high_watermark, log_start_offset)

    def answered(self, partition: WantedPartition, high_watermark: int, log_start_offset: int, *, failed: bool) -> None:
        """Note what the answer says about a partition."""
        if failed:
            # Answer the error as long as it lasts, and then the partition, even if nothing else has changed.
            self._told.pop(partition.key, None)
        else:
            self._told[partition.key] = _Told(high_watermark, log_start_offset)


class FetchSessions:
    """The sessions by id.

    If there are too many, a new session replaces one that was not used for two minutes; otherwise the one with the
    fewest partitions, if the new one has more and the old one began more than two minutes ago. Otherwise there is no
    new session: those in use are kept. Sessions of followers, which Kafka prefers, do not exist here.

    Args:
        limit: `max.incremental.fetch.session.cache.slots`.
        now_ms: Returns the time.
    """

    def __init__(self, limit: int, now_ms: Callable[[], float]) -> None:
        self._limit = limit
        self._now_ms = now_ms
        # The one that was not used for the longest time comes first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        # A heap of (size, id) of the sessions that a larger one may replace; their size is checked when it is needed.
        self._evictable: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, wanted: Sequence[WantedPartition], *, uses_ids: bool) -> FetchSession | None:
        """Begin a session; None if there may be none."""
        now = self._now_ms()
        if len(self._sessions) >= self._limit:
            evicted = self._to_evict(len(wanted), now)
            if evicted is None:
                return None
            self.end(evicted)
        session_id = random.randint(1, _MAX_EPOCH)
        while session_id in self._sessions:
            session_id = random.randint(1, _MAX_EPOCH)
        session = self._sessions[session_id] = FetchSession(session_id, now, uses_ids=uses_ids)
        session.update(wanted, ())
        return session

    def _to_evict(self, size: int, now_ms: float) -> int | None:
        """Return the id of the session that a new one of a size replaces."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is not None and now_ms - oldest.last_used_ms > _EVICTION_MS:
            return oldest.id
        while self._evictable and not self._is_current(self._evictable[0]):
            heapq.heappop(self._evictable)
        if not self._evictable or self._evictable[0][0] >= size:
            return None
        return self._evictable[0][1]

    def _is_current(self, evictable: tuple[int, int]) -> bool:
        size, session_id = evictable
        session = self._sessions.get(session_id)
        return session is not None and len(session) == size

    def go_on(
        self,
        session_id: int,
        epoch: int,
        wanted: Iterable[WantedPartition],
        forgotten: Iterable[Key],
        *,
        uses_ids: bool,
    ) -> FetchSession | None:
        """Return a session for its next request; None if it has no partitions any more, which ends it.

        Raises:
            ApiError: There is no such session, or the request is not its next one.
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise ApiError(ErrorCode.fetch_session_id_not_found)
        if session.epoch != epoch:
            raise ApiError(ErrorCode.invalid_fetch_session_epoch)
        if session.uses_ids != uses_ids:
            raise ApiError(ErrorCode.fetch_session_topic_id_error)
        size = len(session)
        session.update(wanted, forgotten)
        if not len(session):
            self.end(session_id)
            return None
        session.epoch = 1 if session.epoch == _MAX_EPOCH else session.epoch + 1
        self._used(session, size)
        return session

    def _used(self, session: FetchSession, old_size: int) -> None:
        last_used, session.last_used_ms = session.last_used_ms, self._now_ms()
        self._sessions.move_to_end(session.id)
        was_young = last_used - session.created_ms <= _EVICTION_MS
        if session.last_used_ms - session.created_ms > _EVICTION_MS and (was_young or len(session) != old_size):
            heapq.heappush(self._evictable, (len(session), session.id))
            if len(self._evictable) > 2 * len(self._sessions):
                self._evictable = sorted(set(filter(self._is_current, self._evictable)))

    def end(self, session_id: int) -> None:
        """End a session, if there is one."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()
