"""The partitions that share groups read from, and the sessions of their members.

Source in Kafka: `SharePartitionManager`, `SharePartitionCache`, `ShareSessionCache`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.broker.clock import Clock
from odradek.broker.configs.group_settings import GroupSettings
from odradek.broker.errors import ApiError
from odradek.broker.partitions import Partitions
from odradek.broker.shares.live import LivePartition
from odradek.broker.shares.state import ShareStates
from odradek.broker.tasks import Tasks
from odradek.broker.turns import Turns, rest
from odradek.coordination.shares.changes import Acknowledgement
from odradek.coordination.shares.sessions import MemberKey, ShareSession, ShareSessions
from odradek.errors import FormatError, OdradekError
from odradek.messages.coordinators.share_records import ShareKey
from odradek.printable import logger
from odradek.storage.directory.writable_log_directory import WritableLogDirectory

_logger = logger(__name__)

_SHARE_VERSION = "share.version"


def _log_failure(error: BaseException) -> None:
    _logger.error("a share group's partition failed", exc_info=error)


class ShareDeliveries:
    """What share groups are delivering. It belongs to the event loop's thread.

    Args:
        logs: The log directory.
        partitions: The partitions of the broker.
        states: The share coordinator.
        settings: The settings of groups.
        clock: The time.
        turns: Lets other work have its turns.
        run: Runs an action in another thread.
        found_damage: Notes damage in a log.
        disk_failed: Logs that the disk failed.
        timed_out: Counts the records that members had for too long.
        session_limit: `group.share.max.share.sessions`.

    Attributes:
        sessions: The share sessions.
        settings: As given, like `partitions`, `clock`, `turns`, `run`, `found_damage` and `disk_failed`.
    """

    def __init__(
        self,
        logs: WritableLogDirectory,
        partitions: Partitions,
        states: ShareStates,
        settings: GroupSettings,
        clock: Clock,
        turns: Turns,
        run: Callable[[Callable[[], Any]], Awaitable[Any]],
        found_damage: Callable[[FormatError], None],
        disk_failed: Callable[[str], None],
        timed_out: Callable[[int], None],
        session_limit: int,
    ) -> None:
        self.settings = settings
        self.sessions = ShareSessions(session_limit)
        self._logs = logs
        self.partitions = partitions
        self._states = states
        self._timed_out = timed_out
        states.replaced = self._replaced
        self.clock = clock
        self.turns = turns
        self.run = run
        self.found_damage = found_damage
        self.disk_failed = disk_failed
        self._live: dict[ShareKey, LivePartition] = {}
        self._of_group: dict[str, dict[ShareKey, None]] = {}
        # What was fenced, while something of it is still being written.
        self._ending: dict[ShareKey, LivePartition] = {}
        self._tasks = Tasks(_log_failure)

    def close(self) -> None:
        """Stop the timers and what runs."""
        for live in self._live.values():
            live.fence()
        self._tasks.cancel()

    def check_enabled(self) -> None:
        """Check whether there may be share groups.

        Raises:
            ApiError: They are off.
        """
        if self._logs.metadata_image.features.get(_SHARE_VERSION, 0) < 1:
            raise ApiError(ErrorCode.unsupported_version)

    def in_flight(self) -> Iterator[tuple[str, str, int]]:
        """Yield group, topic and the number of records in flight, for each partition. Any thread may ask."""
        for key, live in list(self._live.items()):
            share, name = live.share, self.topic_name(key.topic_id)
            if share is not None and name is not None:
                yield key.group_id, name, share.count

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic by its id, or None."""
        topic = self._logs.metadata_image.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def exists(self, topic_id: UUID, number: int) -> bool:
        """Return whether there is a partition."""
        topic = self._logs.metadata_image.topic_by_id(topic_id)
        return topic is not None and number in topic.partitions

    # -- partitions

    def find(self, key: ShareKey) -> LivePartition | None:
        """Return a partition that a group reads from, if it is in memory."""
        return self._live.get(key)

    def get(self, key: ShareKey) -> LivePartition:
        """Return a partition that a group reads from, which is loaded if it is not in memory."""
        live = self._live.get(key)
        if live is None:
            live = self._live[key] = LivePartition(
                key, self._states, self.settings, self.clock, self.turns, self.run, self._drop, self._timed_out
            )
            self._of_group.setdefault(key.group_id, {})[key] = None
            name = self.topic_name(key.topic_id) or ""
            self._tasks.start(live.load(self.partitions.opened(name, key.partition), self._ending.get(key)))
        return live

    def _replaced(self, key: ShareKey, state_epoch: int) -> None:
        ending, live = self._ending.get(key), self._live.get(key)
        if ending is not None:
            # What it still has to write is of the old state.
            ending.replaced(state_epoch)
        if live is not None and live.replaced(state_epoch):
            self._drop(live)

    def _drop(self, live: LivePartition) -> None:
        if self._live.get(live.key) is live:
            del self._live[live.key]
            keys = self._of_group[live.key.group_id]
            del keys[live.key]
            if not keys:
                del self._of_group[live.key.group_id]
        live.fence()
        if not live.is_settled:
            self._ending[live.key] = live
            self._tasks.start(self._end(live))

    async def _end(self, live: LivePartition) -> None:
        await live.settled()
        if self._ending.get(live.key) is live:
            del self._ending[live.key]

    # -- members

    async def acknowledge(self, key: ShareKey, member_id: str, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Take over what a member says about records of a partition.

        Raises:
            ApiError: Nobody of the group has fetched from the partition, or it cannot be written.
            RefusedError: A record is not the member's.
        """
        live = self._live.get(key)
        if live is None:
            raise ApiError(ErrorCode.unknown_topic_or_partition)
        await live.acknowledge(member_id, acknowledgements)

    def end_session(self, key: MemberKey) -> None:
        """End a member's session, and release what it has; that takes a while, but nobody waits for it."""
        session = self.sessions.end(key)
        if session is not None:
            self._tasks.start(self._release(key, session, self.sessions.ended))

    async def _release(self, key: MemberKey, session: ShareSession, sessions_ended: int) -> None:
        # Each partition waits for the write of the one before: the member may have a new session by then.
        group_id, member_id = key
        for number, (topic_id, partition) in enumerate(list(session.partitions)):
            live = self._live.get(ShareKey(group_id, topic_id, partition))
            if live is not None:
                try:
                    await live.release(member_id, sessions_ended)
                except OdradekError as error:
                    _logger.debug("%s: %s", live.key, error)
            await rest(number)

    def disconnected(self, connection: Hashable) -> None:
        """End the sessions of a client that has disconnected; forget groups that nobody reads for any more."""
        for key, session in self.sessions.disconnected(connection).items():
            self._tasks.start(self._gone(key, session, self.sessions.ended))

    async def _gone(self, key: MemberKey, session: ShareSession | None, sessions_ended: int) -> None:
        if session is not None:
            await self._release(key, session, sessions_ended)
        group_id, _ = key
        for number, one in enumerate(list(self._of_group.get(group_id, ()))):
            live = self._live.get(one)
            if live is not None and not self.sessions.has_members(group_id):
                self._drop(live)
            await rest(number)

    def topics_deleted(self) -> None:
        """Forget the partitions of topics that were deleted."""
        for key, live in list(self._live.items()):
            if not self.exists(key.topic_id, key.partition):
                self._drop(live)
