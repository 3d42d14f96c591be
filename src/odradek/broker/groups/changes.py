"""The changes of consumer groups (KIP-848): worked out, written to the log, and then applied, one after the other.

    a change     records, which are replayed as when the log is loaded
    upgrade      the tombstone of a classic group comes before them
    downgrade    the record of a classic group comes after them, and that group replaces the consumer group

Requests of classic groups do not wait here. If one changes a group while it is being upgraded, the change is worked out
again.

Source in Kafka: `GroupMetadataManager` (`getOrMaybeCreateConsumerGroup`), `CoordinatorRuntime`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

from kio.schema.errors import ErrorCode

from odradek.broker.groups.image_topics import ImageTopics
from odradek.broker.groups.membership import Membership
from odradek.broker.groups.turnstiles import Turnstiles
from odradek.broker.turns import Work
from odradek.coordination.errors import GroupErrorCode, RefusedError
from odradek.coordination.groups.classic import ClassicGroup
from odradek.coordination.groups.consumer import ConsumerGroup
from odradek.coordination.groups.heartbeat import Outcome, Settings, Steps
from odradek.coordination.groups.migration import Upgrade, check_upgrade, upgrade
from odradek.coordination.groups.replay import Group, GroupState
from odradek.coordination.state_log import KeyValue

_INTERRUPTED = int(ErrorCode.rebalance_in_progress)


class Changes:
    """The changes of the consumer groups of one partition of `__consumer_offsets`; of the loop's thread.

    Args:
        state: The groups.
        append: Appends records to the log; it raises an `ApiError` if they could not be written.
        room: Work: waits until the event loop need not wait for the disk for that.
        classic: The members of classic groups.
        topics: Returns the topics as they are now.
        upgraded: Called with a classic group whose members are in a consumer group now.
        downgraded: Called with a consumer group whose members are in a classic group now.
    """

    def __init__(
        self,
        state: GroupState,
        append: Callable[[Iterable[KeyValue]], int],
        room: Callable[[], Work[None]],
        classic: Membership,
        topics: Callable[[], ImageTopics],
        upgraded: Callable[[ClassicGroup], None],
        downgraded: Callable[[ConsumerGroup], None],
    ) -> None:
        self._state = state
        self._append = append
        self._room = room
        self._classic = classic
        self._topics = topics
        self._upgraded = upgraded
        self._downgraded = downgraded
        self._turnstiles = Turnstiles()

    def group(self, group_id: str) -> ConsumerGroup:
        """Return a group.

        Raises:
            RefusedError: The group does not exist, or has another protocol.
        """
        group = self._state.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        is_absent = group is None
        reason = f"Consumer group {group_id} not found." if is_absent else f"Group {group_id} is not a consumer group."
        raise RefusedError(GroupErrorCode.GROUP_ID_NOT_FOUND, reason)

    def joined_group(self, group_id: str, settings: Settings) -> Work[tuple[ConsumerGroup, Upgrade | None]]:
        """Work: return the group that a member joins, and what makes it of a classic group with members.

        Raises:
            RefusedError: It has another protocol, and may not move.
        """
        while True:
            group = self._state.groups.get(group_id)
            if group is not None and not isinstance(group, ClassicGroup):
                return self.group(group_id), None
            if group is None or group.is_empty:
                return ConsumerGroup(group_id), None
            check_upgrade(group, settings.policy, settings.max_size)
            revision = group.revision
            try:
                made = yield from upgrade(group, self._topics())
            except RefusedError:
                if not self._is_as_before(group_id, group, revision):
                    continue
                # As at Apache Kafka, where the members are told before it is known.
                self._classic.clients[group_id].answer_all(group.members, _INTERRUPTED)
                raise
            return made.group, made

    def _is_as_before(self, group_id: str, before: Group | None, revision: int | None) -> bool:
        group = self._state.groups.get(group_id)
        return group is before and _revision(group) == revision

    def make(self, group_id: str, steps: Callable[[], Steps]) -> Work[Outcome]:
        """Work: write and apply what changes in a group.

        Raises:
            RefusedError: Nothing changes.
            ApiError: The change could not be written.
        """
        yield from self._turnstiles.enter(group_id)
        try:
            while True:
                before = self._state.groups.get(group_id)
                revision = _revision(before)
                outcome = yield from steps()
                upgraded = [] if outcome.upgrade is None else outcome.upgrade.records
                encoded: list[KeyValue] = []
                for record in chain(upgraded, outcome.records):
                    encoded.append(record.encoded())
                    yield
                yield from self._room()
                # A request that does not wait may have replaced or removed the group meanwhile, or joined it.
                if self._is_as_before(group_id, before, revision):
                    break
            self._write(group_id, outcome, encoded)
        finally:
            self._turnstiles.leave(group_id)
        return outcome

    def _write(self, group_id: str, outcome: Outcome, encoded: list[KeyValue]) -> None:
        group = self._state.groups.get(group_id)
        if outcome.classic is not None:
            assert isinstance(group, ConsumerGroup)
            self._downgrade(group, outcome.classic, encoded, rebalances=outcome.rebalances)
            return
        if encoded:
            replaced = group if isinstance(group, ClassicGroup) else None
            tombstones = [] if replaced is None else replaced.tombstones()
            self._append([*tombstones, *encoded])
            if replaced is not None:
                # Those that wait for others join again.
                self._classic.removed(replaced, _INTERRUPTED)
                del self._state.groups[group_id]
                self._upgraded(replaced)
            if outcome.upgrade is not None:
                self._state.groups[group_id] = outcome.upgrade.group
            for record in outcome.records:
                self._state.replay_consumer(record)
        group = self._state.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.known_topics = outcome.known_topics

    def _downgrade(
        self, group: ConsumerGroup, classic: ClassicGroup, encoded: list[KeyValue], *, rebalances: bool
    ) -> None:
        assigned = {member.member_id: member.assignment for member in classic.members.values()}
        self._append([*encoded, classic.record(assigned)])
        self._state.groups[group.group_id] = classic
        self._downgraded(group)
        self._classic.take_over(classic, "it was a consumer group" if rebalances else "")


def _revision(group: Group | None) -> int | None:
    return group.revision if isinstance(group, ClassicGroup) else None
