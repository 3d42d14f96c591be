"""Sessions of consumers that fetch incrementally (KIP-227): the broker remembers which partitions they want.

    full fetch (epoch 0)      all partitions                      -> a session's id, all partitions
    then (epoch 1, 2, ...)    what is new, changed or forgotten   -> the partitions that have something new

The session answers a partition only if it has records, an error, or another high watermark or log start offset than the
client was told. So it looks only at those that may have news: that the client asked for again, whose log changed since
they were looked at, or that had records then. Partitions that had records go to the end, so that each has its turn.

Source in Kafka: `FetchSession`, `FetchManager`.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias
from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.broker.errors import ApiError
from odradek.broker.partitions import Partition
from odradek.storage.log.writable_log import WritableLog

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
_MAX_EPOCH = (1 << 31) - 1

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


class FetchSession:
    """The partitions that a consumer wants, and what it was told of them.

    Attributes:
        id: Its id.
        epoch: The epoch that the next request has.
        uses_ids: Whether topics are named by their ids.
        on_change: Is told of a partition that changed, as long as a fetch waits.
    """

    def __init__(self, session_id: int, *, uses_ids: bool) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_ids = uses_ids
        self.on_change: Callable[[WantedPartition], None] | None = None
        self._wanted: dict[Key, WantedPartition] = {}
        self._told: dict[Key, _Told] = {}
        # In the order in which they are answered.
        self._news: dict[Key, None] = {}
        self._watched: dict[Key, _Watched] = {}

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

    def take_news(self) -> list[WantedPartition]:
        """Return the partitions that may have news; they have none from now on, unless they change or are kept."""
        for key, watched in self._watched.items():
            if watched.log.changes != watched.changes:
                self._news[key] = None
        news, self._news = self._news, {}
        return [self._wanted[key] for key in news]

    def keep(self, wanted: WantedPartition) -> None:
        """Look at a partition with the next fetch too: it has an error, or records that the client may not get now."""
        if wanted.key in self._wanted:
            self._news[wanted.key] = None

    def watch(self, wanted: WantedPartition, partition: Partition) -> None:
        """Have a partition, which is looked at now, tell of its changes from now on."""
        key, log = wanted.key, partition.log
        watched = self._watched.get(key)
        if watched is not None and watched.partition is partition:
            watched.changes = log.changes
        elif key in self._wanted:
            self._unwatch(key)
            self._watched[key] = _Watched(partition, log, log.changes)
            partition.wait((self, key), lambda: self._changed(key))

    def _changed(self, key: Key) -> None:
        self._news[key] = None
        if self.on_change is not None:
            self.on_change(self._wanted[key])

    def _unwatch(self, key: Key) -> None:
        watched = self._watched.pop(key, None)
        if watched is not None:
            watched.partition.forget((self, key))

    def close(self) -> None:
        """Let go of the partitions."""
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
        """Note what the consumer is told of a partition."""
        if failed:
            # Answer the error as long as it lasts, and then the partition, even if nothing else has changed.
            self._told.pop(partition.key, None)
        else:
            self._told[partition.key] = _Told(high_watermark, log_start_offset)


class FetchSessions:
    """The sessions by id. If there are too many, the one that was not used for longest ends.

    Args:
        limit: `max.incremental.fetch.session.cache.slots`.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, *, uses_ids: bool) -> FetchSession | None:
        """Begin a session; None if there may be none."""
        if self._limit == 0:
            return None
        while len(self._sessions) >= self._limit:
            self._sessions.popitem(last=False)[1].close()
        session_id = random.randint(1, _MAX_EPOCH)
        while session_id in self._sessions:
            session_id = random.randint(1, _MAX_EPOCH)
        session = self._sessions[session_id] = FetchSession(session_id, uses_ids=uses_ids)
        return session

    def go_on(self, session_id: int, epoch: int, *, uses_ids: bool) -> FetchSession:
        """Return a session for its next request.

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
        session.epoch = 1 if session.epoch == _MAX_EPOCH else session.epoch + 1
        self._sessions.move_to_end(session_id)
        return session

    def end(self, session_id: int) -> None:
        """End a session, if there is one."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()
