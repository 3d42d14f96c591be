"""The members of consumer groups (KIP-848): heartbeats, sessions, patterns, and what is written of them.

    heartbeat   its changes are worked out, written to the log, and applied; other heartbeats of the group wait
    session     over without a heartbeat for `group.consumer.session.timeout.ms`: the member is removed
    rebalance   a member that does not give up partitions within its time-out is removed, and so is a classic one that
                does not join again, or does not ask for its assignment
    patterns    are tried in another thread; what they match counts from the next heartbeat on

What a heartbeat changes is in `odradek.coordination.groups.heartbeat`, how that is written in `changes`, and what
classic members of these groups ask for in `classic_consumers`.

Source in Kafka: `GroupMetadataManager` (`consumerGroupHeartbeat` and what follows it).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any, TypeAlias, TypeVar

from kio.schema.errors import ErrorCode

from odradek.broker.clock import Clock
from odradek.broker.config import BrokerConfig
from odradek.broker.configs.group_settings import GroupSettings
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.groups.changes import Changes
from odradek.broker.groups.deadlines import Deadlines
from odradek.broker.groups.image_topics import ImageTopics
from odradek.broker.groups.membership import LeavingMember
from odradek.broker.protocol import Message
from odradek.broker.turns import Turns, Work, result_of
from odradek.coordination.errors import GroupErrorCode, RefusedError
from odradek.coordination.groups.classic import ClassicGroup
from odradek.coordination.groups.consumer import ConsumerGroup
from odradek.coordination.groups.departures import leave, leaving_member, remove
from odradek.coordination.groups.heartbeat import Heartbeat, HeartbeatRequest, Outcome, Settings, Steps, resolve
from odradek.coordination.groups.migration_policy import POLICIES
from odradek.coordination.groups.reconciliation import JOINING_EPOCH, ConsumerMember, MemberState
from odradek.coordination.groups.replay import GroupState
from odradek.coordination.groups.topics import matches, regex_error
from odradek.errors import BrokerError
from odradek.printable import logger

_logger = logger(__name__)

_T = TypeVar("_T")

TopicFilter: TypeAlias = Callable[[str], bool]
"""Whether a client may know of a topic."""

_LATER_MS = 500
"""When it is tried again to remove a member, if that could not be written."""

_WHILE_S = 0.02
"""How long patterns are tried before others have a turn."""

_SESSION, _INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


class Consumers:
    """The members of the consumer groups of one partition of `__consumer_offsets`.

    Args:
        state: The groups.
        changes: Makes what changes them. It is given what to call with a classic group whose members have come here,
            and with a consumer group whose members have gone to a classic one.
        topics: Returns the topics as they are now.
        run: Runs an action in another thread.
        match: Runs an action in another thread that tries patterns.
        clock: The time.
        config: The broker's settings.
        settings: Those of groups.
        turns: Lets other work have its turns.
    """

    def __init__(
        self,
        state: GroupState,
        changes: Callable[[Callable[[ClassicGroup], None], Callable[[ConsumerGroup], None]], Changes],
        topics: Callable[[], ImageTopics],
        run: Callable[[Callable[[], Any]], Awaitable[Any]],
        match: Callable[[Callable[[], Any]], Awaitable[Any]],
        clock: Clock,
        config: BrokerConfig,
        settings: GroupSettings,
        turns: Turns,
    ) -> None:
        self._state = state
        self._changes = changes(self._upgraded, self._downgraded)
        self._topics = topics
        self._run = run
        self._match = match
        self._clock = clock
        self._config = config
        self._settings = settings
        self._turns = turns
        self._sessions = Deadlines(clock, self._is_silent)
        self._rebalances = Deadlines(clock, self._is_late)
        self._joins = Deadlines(clock, self._has_not_joined)
        self._syncs = Deadlines(clock, self._has_not_synced)
        # The epochs in which members have to give up partitions.
        self._revoking: dict[tuple[str, str], int] = {}
        self._resolving: set[str] = set()

    # -- life

    def loaded(self) -> None:
        """Start the sessions of the members of groups that were loaded, as if each had just sent a heartbeat."""
        for group in self._state.groups.values():
            if isinstance(group, ConsumerGroup):
                session_ms = self.setting(group.group_id, _SESSION)
                for member in group.members.values():
                    self._sessions.put(group.group_id, member.member_id, session_ms)
                    if member.state is MemberState.UNREVOKED_PARTITIONS:
                        self._await_revocation(group.group_id, member)

    def stop(self) -> None:
        """Stop all timers: the partition was closed."""
        for deadlines in (self._sessions, self._rebalances, self._joins, self._syncs):
            deadlines.stop()

    def setting(self, group_id: str, name: str) -> int:
        """Return a setting of a group, or else the broker's."""
        return self._settings.number(group_id, name)

    def settings(self, group_id: str) -> Settings:
        """Return the settings of a group."""
        config = self._config
        return Settings(
            config["group.consumer.assignors"][0],
            self.setting(group_id, "consumer.assignment.interval.ms"),
            config["group.consumer.max.size"],
            config["group.consumer.regex.refresh.interval.ms"],
            POLICIES[config["group.consumer.migration.policy"]],
            config["group.max.size"],
        )

    def _upgraded(self, group: ClassicGroup) -> None:
        for member in group.members.values():
            self._sessions.put(group.group_id, member.member_id, member.session_timeout_ms)

    def _downgraded(self, group: ConsumerGroup) -> None:
        for member_id in group.members:
            self._forget(group.group_id, member_id)

    # -- heartbeats

    def heartbeat(self, group_id: str, request: HeartbeatRequest, may_see: TopicFilter | None = None) -> Work[Outcome]:
        """Work: keep a member in its group, or let it join.

        Args:
            group_id: The group.
            request: What the member says.
            may_see: Which topics its patterns may match; None for all.

        Raises:
            RefusedError: It may not be in the group like this.
            ApiError: The change could not be written.
        """
        if request.topic_regex:
            # A pattern may take a while.
            error = yield from result_of(self._run(partial(regex_error, request.topic_regex)))
            request = request._replace(regex_error=error)

        def steps() -> Steps:
            settings = self.settings(group_id)
            if request.member_epoch == JOINING_EPOCH:
                group, made = yield from self._changes.joined_group(group_id, settings)
            else:
                group, made = self._changes.group(group_id), None
            outcome = yield from Heartbeat(group, request, self._topics(), settings, self._clock.now_ms()).run()
            return outcome._replace(upgrade=made)

        outcome = yield from self._changes.make(group_id, steps)
        member = outcome.member
        assert member is not None
        self._sessions.put(group_id, member.member_id, self.setting(group_id, _SESSION))
        if outcome.has_moved and member.state is MemberState.UNREVOKED_PARTITIONS:
            self._await_revocation(group_id, member)
        elif outcome.has_moved:
            self._end_revocation(group_id, member.member_id)
        self._find_topics(group_id, outcome.regexes, may_see)
        return outcome

    def _find_topics(self, group_id: str, regexes: frozenset[str], may_see: TopicFilter | None) -> None:
        if regexes and group_id not in self._resolving:
            self._resolving.add(group_id)
            self._turns.begin(self._resolve(group_id, regexes, may_see))

    # -- classic members

    def join_classic(
        self, group_id: str, joining: Callable[[], Work[HeartbeatRequest]], may_see: TopicFilter | None = None
    ) -> Work[ConsumerMember]:
        """Work: let a classic member join.

        Args:
            group_id: The group.
            joining: Work: checks whether it may, and returns what it says.
            may_see: Which topics patterns may match that are tried because it joins; None for all.

        Raises:
            RefusedError: It may not.
            ApiError: The change could not be written.
        """

        def steps() -> Steps:
            request = yield from joining()
            group, settings = self._changes.group(group_id), self.settings(group_id)
            return (yield from Heartbeat(group, request, self._topics(), settings, self._clock.now_ms()).run())

        outcome = yield from self._changes.make(group_id, steps)
        member = outcome.member
        assert member is not None
        self._joins.drop(group_id, member.member_id)
        if outcome.classic is None:
            self.heard_of_classic(group_id, member)
            self._syncs.put(group_id, member.member_id, member.rebalance_timeout_ms)
            self._find_topics(group_id, outcome.regexes, may_see)
        return member

    def heard_of_classic(self, group_id: str, member: ConsumerMember) -> None:
        """Count a classic member's session from now on."""
        assert member.classic is not None
        self._sessions.put(group_id, member.member_id, member.classic.session_timeout_ms)

    def await_join(self, group_id: str, member: ConsumerMember) -> None:
        """Give a classic member its time to join again, counted from the first heartbeat that asked it to."""
        if not self._joins.is_set(group_id, member.member_id):
            self._joins.put(group_id, member.member_id, member.rebalance_timeout_ms)

    def has_synced(self, group_id: str, member: ConsumerMember) -> None:
        """Take note that a classic member has got its assignment."""
        self._syncs.drop(group_id, member.member_id)
        self.heard_of_classic(group_id, member)

    # -- leaving

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return how often a member sends heartbeats."""
        return self.setting(group_id, _INTERVAL)

    def leave(self, group_id: str, request: HeartbeatRequest) -> Work[None]:
        """Work: let a member go.

        Raises:
            RefusedError: It is not in the group.
            ApiError: The change could not be written.
        """

        def steps() -> Steps:
            group, settings = self._changes.group(group_id), self.settings(group_id)
            return leave(group, request, self._topics(), settings, self._clock.now_ms())

        outcome = yield from self._changes.make(group_id, steps)
        if outcome.member is None:
            self._forget(group_id, request.member_id)
        _logger.info("group %s: member %s leaves", group_id, request.member_id)

    def remove_members(self, group_id: str, members: Sequence[LeavingMember]) -> Work[list[Message]]:
        """Work: remove the members that LeaveGroup names, as an administrator does; return an answer for each.

        If the group has become a classic one, there are no answers.

        Raises:
            ApiError: The change could not be written.
        """
        answers: list[Message] = []
        removed: dict[str, ConsumerMember] = {}

        def steps() -> Steps:
            answers.clear()
            removed.clear()
            group = self._changes.group(group_id)
            for leaving in members:
                try:
                    member = leaving_member(group, leaving.member_id, leaving.instance_id)
                except RefusedError as error:
                    answers.append(leaving.answer(error.error_code))
                else:
                    removed[member.member_id] = member
                    answers.append(leaving.answer(NO_ERROR))
                yield
            return (yield from self._removal(group, list(removed.values())))

        try:
            yield from self._changes.make(group_id, steps)
        except RefusedError:
            if isinstance(self._state.groups.get(group_id), ClassicGroup):
                return []
            # The group was removed meanwhile.
            return [leaving.answer(int(ErrorCode.unknown_member_id)) for leaving in members]
        for member_id in removed:
            self._forget(group_id, member_id)
            _logger.info("group %s: member %s is removed by LeaveGroup", group_id, member_id)
        return answers

    def _removal(self, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> Steps:
        return remove(group, members, self._topics(), self.settings(group.group_id), self._clock.now_ms())

    def _await_revocation(self, group_id: str, member: ConsumerMember) -> None:
        self._revoking[group_id, member.member_id] = member.member_epoch
        self._rebalances.put(group_id, member.member_id, member.rebalance_timeout_ms)

    def _end_revocation(self, group_id: str, member_id: str) -> None:
        self._rebalances.drop(group_id, member_id)
        self._revoking.pop((group_id, member_id), None)

    def _forget(self, group_id: str, member_id: str) -> None:
        for deadlines in (self._sessions, self._joins, self._syncs):
            deadlines.drop(group_id, member_id)
        self._end_revocation(group_id, member_id)

    # -- what is due

    def _is_silent(self, group_id: str, member_id: str) -> None:
        self._turns.begin(self._remove(self._sessions, "its session is over", group_id, member_id))

    def _is_late(self, group_id: str, member_id: str) -> None:
        reason = "it has not given up partitions in time"
        self._turns.begin(self._remove(self._rebalances, reason, group_id, member_id))

    def _has_not_joined(self, group_id: str, member_id: str) -> None:
        self._turns.begin(self._remove(self._joins, "it has not joined again in time", group_id, member_id))

    def _has_not_synced(self, group_id: str, member_id: str) -> None:
        self._turns.begin(self._remove(self._syncs, "it has not asked for its assignment in time", group_id, member_id))

    def _remove(self, deadlines: Deadlines, reason: str, group_id: str, member_id: str) -> Work[None]:
        """Work: remove a member whose deadline is over; a late one only in the epoch in which it is late."""

        def steps() -> Steps:
            group = self._changes.group(group_id)
            member = group.member(member_id)
            is_late = deadlines is self._rebalances
            has_gone_on = is_late and self._revoking.get((group_id, member_id)) != member.member_epoch
            # A heartbeat that came first may have put the deadline off.
            if deadlines.is_set(group_id, member_id) or has_gone_on:
                raise RefusedError(GroupErrorCode.STALE_MEMBER_EPOCH)
            return self._removal(group, [member])

        try:
            yield from self._changes.make(group_id, steps)
        except RefusedError:
            # It has left, or is no longer late, or the group was removed.
            if not deadlines.is_set(group_id, member_id):
                self._end_revocation(group_id, member_id)
            return
        except ApiError as error:
            _logger.warning("group %s: that member %s is removed cannot be written: %s", group_id, member_id, error)
            deadlines.put(group_id, member_id, _LATER_MS)
            return
        self._forget(group_id, member_id)
        _logger.info("group %s: member %s is removed: %s", group_id, member_id, reason)

    def _resolve(self, group_id: str, regexes: frozenset[str], may_see: TopicFilter | None) -> Work[None]:
        try:
            topics, now_ms = self._topics(), self._clock.now_ms()
            before = {regex: known.topics for regex, known in self._changes.group(group_id).regexes.items()}
            trying, found = matches(regexes, list(topics.image.topics), before), None
            while found is None:
                found = yield from result_of(self._match(partial(_for_a_while, trying)))
            matched = found if may_see is None else (yield from _seen(found, may_see))

            def steps() -> Steps:
                group = self._changes.group(group_id)
                return resolve(group, matched, self._topics(), topics.version, now_ms)

            yield from self._changes.make(group_id, steps)
        except BrokerError as error:
            _logger.warning("group %s: the topics of patterns cannot be written: %s", group_id, error)
        finally:
            self._resolving.discard(group_id)


def _seen(matched: Mapping[str, Iterable[str]], may_see: TopicFilter) -> Work[dict[str, tuple[str, ...]]]:
    """Work: return what patterns matched, without the topics that a client may not know of."""
    seen = {}
    for regex, names in matched.items():
        kept = []
        for name in names:
            if may_see(name):
                kept.append(name)
            yield
        seen[regex] = tuple(kept)
    return seen


def _for_a_while(work: Generator[None, None, _T]) -> _T | None:
    """Go on with work; return its result, or None if it takes longer."""
    end = perf_counter() + _WHILE_S
    try:
        while perf_counter() < end:
            next(work)
    except StopIteration as ended:
        found: _T = ended.value
        return found
    return None


def check_assignor(name: str | None, assignors: tuple[str, ...]) -> None:
    """Check the assignor that a member wants.

    Raises:
        ApiError: There is no such assignor.
    """
    if name is not None and name not in assignors:
        known = ", ".join(assignors)
        raise ApiError(
            ErrorCode.unsupported_assignor, f"ServerAssignor {name} is not supported. Supported assignors: {known}."
        )
