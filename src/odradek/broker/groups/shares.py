"""The members of share groups (KIP-932): heartbeats, sessions, and what is written of them.

    heartbeat     its changes are worked out, written to the log, and applied; other changes of the group wait
    initialize    partitions that are new to a group get a share state, while its members wait for an assignment
    session       over without a heartbeat for `group.share.session.timeout.ms`: the member is removed

What a heartbeat changes is in `odradek.coordination.groups.share_heartbeat`.

Source in Kafka: `GroupMetadataManager` (`shareGroupHeartbeat` and what follows it), `GroupCoordinatorService`
(`persisterInitialize`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from functools import partial
from itertools import islice
from typing import TypeAlias
from uuid import UUID

from odradek.broker.clock import Clock
from odradek.broker.config import BrokerConfig
from odradek.broker.configs.group_settings import GroupSettings
from odradek.broker.errors import NO_ERROR, ApiError, code_of
from odradek.broker.groups.deadlines import Deadlines
from odradek.broker.groups.image_topics import ImageTopics
from odradek.broker.groups.turnstiles import Turnstiles
from odradek.broker.shares import ShareState
from odradek.broker.turns import Turns, Work, each
from odradek.coordination.errors import GroupErrorCode, RefusedError
from odradek.coordination.groups.modern import GroupRecord
from odradek.coordination.groups.reconciliation import JOINING_EPOCH
from odradek.coordination.groups.replay import GroupState
from odradek.coordination.groups.share import ShareGroup, share_topics_record
from odradek.coordination.groups.share_heartbeat import (
    ShareHeartbeat,
    ShareHeartbeatRequest,
    ShareOutcome,
    ShareSettings,
    ShareSteps,
    share_remove,
)
from odradek.coordination.groups.share_topics import ShareTopics
from odradek.coordination.placement import TopicIdPartition
from odradek.coordination.shares.state_batches import NO_START_OFFSET
from odradek.coordination.state_log import KeyValue
from odradek.errors import BrokerError, OdradekError
from odradek.printable import logger

_logger = logger(__name__)

_LATER_MS = 500
"""When it is tried again to remove a member, if that could not be written."""

_SESSION, _INTERVAL = "share.session.timeout.ms", "share.heartbeat.interval.ms"
_STATES_AT_ONCE = 100

Codes: TypeAlias = Mapping[TopicIdPartition, int]
"""Kafka's error codes by partition."""


class Shares:
    """The members of the share groups of one partition of `__consumer_offsets`. It belongs to the event loop's thread.

    Args:
        state: The groups.
        append: Appends records to the log; it raises an `ApiError` if they could not be written.
        room: Work: waits until the event loop need not wait for the disk for that.
        topics: Returns the topics as they are now.
        share_state: What groups have delivered.
        clock: The time.
        config: The broker's settings.
        settings: Those of groups.
        turns: Lets other work have its turns.

    Attributes:
        topics: See above.
        share_state: See above.
    """

    def __init__(
        self,
        state: GroupState,
        append: Callable[[Iterable[KeyValue]], int],
        room: Callable[[], Work[None]],
        topics: Callable[[], ImageTopics],
        share_state: ShareState,
        clock: Clock,
        config: BrokerConfig,
        settings: GroupSettings,
        turns: Turns,
    ) -> None:
        self._state = state
        self._append = append
        self._room = room
        self.topics = topics
        self.share_state = share_state
        self._clock = clock
        self._config = config
        self._settings = settings
        self._turns = turns
        self._turnstiles = Turnstiles()
        self._sessions = Deadlines(clock, self._is_silent)

    # -- life

    def loaded(self) -> None:
        """Start the sessions of the members of groups that were loaded, as if each had just sent a heartbeat."""
        for group in self._state.groups.values():
            if isinstance(group, ShareGroup):
                session_ms = self._settings.number(group.group_id, _SESSION)
                for member_id in group.members:
                    self._sessions.put(group.group_id, member_id, session_ms)

    def stop(self) -> None:
        """Stop all timers: the partition was closed."""
        self._sessions.stop()

    # -- changes

    def change(self, group_id: str, steps: Callable[[], ShareSteps]) -> Work[ShareOutcome]:
        """Work: write and apply what changes in a group.

        Raises:
            RefusedError: It may not change like this.
            ApiError: The change could not be written.
        """
        yield from self._turnstiles.enter(group_id)
        try:
            while True:
                before = self._state.groups.get(group_id)
                outcome = yield from steps()
                encoded = yield from each(outcome.records, GroupRecord.encoded)
                yield from self._room()
                # A request that does not wait may have made or removed the group meanwhile.
                if self._state.groups.get(group_id) is before:
                    break
            if encoded:
                self._append(encoded)
            for record in outcome.records:
                self._state.replay_share(record)
            group = self._state.groups.get(group_id)
            if isinstance(group, ShareGroup):
                group.known_topics, group.complete_at = outcome.known_topics, outcome.complete_at
        finally:
            self._turnstiles.leave(group_id)
        return outcome

    def change_topics(self, group_id: str, change: Callable[[ShareTopics], ShareTopics]) -> Work[None]:
        """Work: write and apply which partitions of a group are initialized; does nothing if the group was deleted.

        Raises:
            ApiError: The change could not be written.
        """

        def steps() -> ShareSteps:
            group = self._state.groups.get(group_id)
            if not isinstance(group, ShareGroup) or group.topics is None:
                return ShareOutcome([])
            yield
            return ShareOutcome([share_topics_record(group_id, change(group.topics))], known_topics=group.known_topics)

        yield from self.change(group_id, steps)

    def group(self, group_id: str, *, joins: bool = False) -> ShareGroup:
        """Return a group, or a new one if it does not exist and a member joins.

        Raises:
            RefusedError: The group does not exist, or has another protocol.
        """
        group = self._state.groups.get(group_id)
        if isinstance(group, ShareGroup):
            return group
        if joins and group is None:
            return ShareGroup(group_id)
        reason = f"Share group {group_id} not found." if group is None else f"Group {group_id} is not a share group."
        raise RefusedError(GroupErrorCode.GROUP_ID_NOT_FOUND, reason)

    # -- heartbeats

    def heartbeat(self, group_id: str, request: ShareHeartbeatRequest) -> Work[ShareOutcome]:
        """Work: keep a member in its group, or let it join.

        Raises:
            RefusedError: It may not be in the group like this.
            ApiError: The change could not be written.
        """

        def steps() -> ShareSteps:
            group = self.group(group_id, joins=request.member_epoch == JOINING_EPOCH)
            settings = ShareSettings(
                self._settings.number(group_id, "share.assignment.interval.ms"),
                self._config["group.share.max.size"],
                self._config["group.share.initialize.retry.interval.ms"],
            )
            return ShareHeartbeat(group, request, self.topics(), settings, self._clock.now_ms()).run()

        outcome = yield from self.change(group_id, steps)
        self._sessions.put(group_id, request.member_id, self._settings.number(group_id, _SESSION))
        if outcome.lacking:
            lacking = {topic_id: state.partitions for topic_id, state in outcome.lacking.items()}
            self._turns.begin(self._initialize(group_id, lacking, outcome.epoch))
        return outcome

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return how often a member sends heartbeats."""
        return self._settings.number(group_id, _INTERVAL)

    def leave(self, group_id: str, member_id: str) -> Work[None]:
        """Work: let a member go.

        Raises:
            RefusedError: It is not in the group.
            ApiError: The change could not be written.
        """
        yield from self.change(group_id, lambda: share_remove(self.group(group_id), member_id, self.topics()))
        self._sessions.drop(group_id, member_id)
        _logger.info("group %s: member %s leaves", group_id, member_id)

    # -- the share state

    def for_each(
        self, partitions: Iterable[TopicIdPartition], action: Callable[[UUID, int], Awaitable[None]]
    ) -> Work[Codes]:
        """Work: do something with the share state of partitions, some at a time; return the codes of the errors."""

        async def attempt(topic_id: UUID, number: int) -> int:
            # An error is a result: the client may have disconnected, and nobody would ask for an exception.
            try:
                await action(topic_id, number)
            except (OdradekError, OSError) as error:
                return code_of(error)
            return NO_ERROR

        rest = iter(partitions)
        found: dict[TopicIdPartition, int] = {}
        while some := list(islice(rest, _STATES_AT_ONCE)):
            futures = [asyncio.ensure_future(attempt(*one)) for one in some]
            yield partial(asyncio.wait, futures)
            found |= {one: future.result() for one, future in zip(some, futures, strict=True)}
        return found

    def initialize(self, group_id: str, epoch: int, offsets: Mapping[TopicIdPartition, int]) -> Work[Codes]:
        """Work: begin the share state of partitions at offsets; -1 stands for one that is not known yet."""
        if not offsets:
            return {}
        made = asyncio.ensure_future(self.share_state.create())
        yield partial(asyncio.wait, [made])
        error = made.exception()
        if error is not None:
            return dict.fromkeys(offsets, code_of(error))

        async def begin(topic_id: UUID, number: int) -> None:
            await self.share_state.initialize(group_id, topic_id, number, epoch, offsets[topic_id, number])

        return (yield from self.for_each(offsets, begin))

    def _initialize(self, group_id: str, lacking: Mapping[UUID, Set[int]], epoch: int) -> Work[None]:
        offsets: dict[TopicIdPartition, int] = {}
        for topic_id, numbers in lacking.items():
            offsets |= {(topic_id, number): NO_START_OFFSET for number in sorted(numbers)}
            yield
        codes = yield from self.initialize(group_id, epoch, offsets)
        failed = next(filter(None, codes.values()), NO_ERROR)
        try:
            if failed:
                _logger.warning("group %s: no share state could be made: error %d", group_id, failed)
            yield from self.change_topics(
                group_id, lambda topics: topics.failed(lacking) if failed else topics.done(lacking)
            )
        except BrokerError as error:
            # It is tried again after a while.
            _logger.warning("group %s: which partitions are initialized cannot be written: %s", group_id, error)

    def topics_deleted(self, topic_ids: Set[UUID]) -> None:
        """Begin to forget topics that were deleted."""
        self._turns.begin(self._forget(topic_ids))

    def _forget(self, topic_ids: Set[UUID]) -> Work[None]:
        for group in list(self._state.groups.values()):
            if isinstance(group, ShareGroup) and group.topics is not None and group.topics.holds(topic_ids):
                try:
                    yield from self.change_topics(group.group_id, lambda topics: topics.without(topic_ids))
                except BrokerError as error:
                    _logger.warning("group %s: deleted topics cannot be removed: %s", group.group_id, error)
            yield

    # -- what is due

    def _is_silent(self, group_id: str, member_id: str) -> None:
        self._turns.begin(self._remove(group_id, member_id))

    def _remove(self, group_id: str, member_id: str) -> Work[None]:
        """Work: remove a member whose session is over."""

        def steps() -> ShareSteps:
            # A heartbeat that came first may have put the deadline off.
            if self._sessions.is_set(group_id, member_id):
                raise RefusedError(GroupErrorCode.STALE_MEMBER_EPOCH)
            return share_remove(self.group(group_id), member_id, self.topics())

        try:
            yield from self.change(group_id, steps)
        except RefusedError:
            # It has left, or sent a heartbeat, or the group was removed.
            return
        except ApiError as error:
            _logger.warning("group %s: that member %s is removed cannot be written: %s", group_id, member_id, error)
            self._sessions.put(group_id, member_id, _LATER_MS)
            return
        _logger.info("group %s: member %s is removed: its session is over", group_id, member_id)
