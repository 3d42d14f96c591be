"""A group that moves between the protocols, with clients that behave as real ones do, without sockets and logs.

The broker's own coordinator runs here: only what it writes is kept in a list, and time passes when a test says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

from odradek.broker.clock import Clock
from odradek.broker.config import BrokerConfig
from odradek.broker.configs.group_settings import GroupSettings
from odradek.broker.errors import ApiError
from odradek.broker.groups.changes import Changes
from odradek.broker.groups.classic_consumers import ClassicConsumers
from odradek.broker.groups.consumers import Consumers
from odradek.broker.groups.membership import JoinRequest, LeavingMember, Membership
from odradek.broker.turns import Turns, Work, whole
from odradek.coordination.errors import RefusedError
from odradek.coordination.groups.classic import ClassicGroup
from odradek.coordination.groups.consumer import ConsumerGroup
from odradek.coordination.groups.heartbeat import HeartbeatRequest
from odradek.coordination.groups.replay import Group, GroupState
from odradek.coordination.state_log import KeyValue
from odradek.messages.coordinators.consumer_protocol import TopicPartitions, encode_assignment, read_assignment
from odradek.records.header import BatchHeader
from odradek.records.kernels.objects import Record
from peers.consumer_groups import GROUP, Topics
from peers.mixed_groups import subscription

UNKNOWN_MEMBER, REBALANCE, MEMBER_ID_REQUIRED = 25, 27, 79
OF_THIS_GENERATION = (22, UNKNOWN_MEMBER)

Partitions = set[tuple[str, int]]


class World:
    """The coordinator and its group."""

    def __init__(self, counts: dict[str, int], policy: str, interval_ms: int) -> None:
        self.topics = Topics(counts)
        self.clock = Clock()
        self.state = GroupState(self.clock.now_ms)
        self.log: list[KeyValue] = []
        config = BrokerConfig(
            {
                "group.consumer.migration.policy": policy,
                "group.consumer.assignment.interval.ms": interval_ms,
                "group.initial.rebalance.delay.ms": 0,
            }
        )
        self.members = Membership(self.state.groups, self._append, self.clock.after, self.clock, config)
        self.turns = Turns()
        unused: Any = None
        topics: Any = lambda: self.topics  # noqa: E731
        image: Any = SimpleNamespace(configs={})
        settings = GroupSettings(lambda: image, config)
        changes = partial(Changes, self.state, self._append, self._room, self.members, topics)
        self.consumers = Consumers(
            self.state, changes, topics, unused, unused, self.clock, config, settings, self.turns
        )
        self.classic = ClassicConsumers(self.state.groups, self.consumers, topics)

    def _append(self, records: Iterable[KeyValue]) -> int:
        self.log += records
        return 0

    def _room(self) -> Work[None]:
        return
        yield

    @property
    def group(self) -> Group | None:
        return self.state.groups.get(GROUP)

    @property
    def all_partitions(self) -> Partitions:
        return {(name, number) for name, count in self.topics.counts.items() for number in range(count)}

    async def settle(self) -> None:
        """Let what is due be done."""
        await self.turns.begun.ended()

    def loaded(self, *, compacted: bool) -> Group | None:
        """Return the group as another broker loads it."""
        records = self.log
        if compacted:
            last = {key: place for place, (key, _) in enumerate(records)}
            records = [one for place, one in enumerate(records) if last[one[0]] == place]
        state = GroupState()
        header: BatchHeader = SimpleNamespace(is_control=False, is_transactional=False)  # type: ignore[assignment]
        for number, (key, value) in enumerate(records):
            state.replay(Record(offset=number, timestamp=0, key=key, value=value), header)
        return state.groups.get(GROUP)


class ConsumerClient:
    """A client of the consumer protocol."""

    def __init__(self, world: World, member_id: str, instance: str | None, reads: Iterable[str]) -> None:
        self.world = world
        self.member_id = member_id
        self.instance = instance
        self.reads = frozenset(reads)
        self.epoch = 0
        self.owned: Partitions = set()
        self.is_over = False

    def request(self, epoch: int) -> HeartbeatRequest:
        owned: dict[Any, set[int]] = {}
        for name, number in self.owned if epoch else ():
            owned.setdefault(self.world.topics.id_of(name), set()).add(number)
        return HeartbeatRequest(
            self.member_id, epoch, self.instance, None, 30_000, self.reads, "", None, owned, "c", "/h"
        )  # fmt: skip

    def act(self) -> None:
        """Send a heartbeat, and do what its answer says."""
        try:
            member = whole(self.world.consumers.heartbeat(GROUP, self.request(self.epoch))).member
        except RefusedError as error:
            self.owned, self.epoch = set(), 0
            # Another client has the instance id, or the first rebalance of a classic group is not over.
            self.is_over = error.error_name in ("FENCED_INSTANCE_ID", "UNKNOWN_SERVER_ERROR")
            return
        assert member is not None
        self.epoch = member.member_epoch
        assigned = {
            (topic.name, number)
            for topic_id, numbers in member.assigned.items()
            if (topic := self.world.topics.identified(topic_id)) is not None
            for number in numbers
        }
        # It gives up first, and tells of that with its next heartbeat.
        is_revoking = bool(self.owned - assigned)
        self.owned = self.owned & assigned if is_revoking else assigned

    def leave(self, epoch: int = -1) -> None:
        # It may have been removed meanwhile.
        with suppress(RefusedError):
            whole(self.world.consumers.leave(GROUP, self.request(epoch)))
        self.owned, self.is_over = set(), True

    @property
    def valid(self) -> Partitions:
        """What it has as a member that may commit."""
        group = self.world.group
        member = group.members.get(self.member_id) if isinstance(group, ConsumerGroup) else None
        if member is None or member.classic is not None:
            return set()
        return self.owned if self.epoch in (member.member_epoch, member.previous_member_epoch) else set()


class ClassicClient:
    """A client of the classic protocol, which gives up all that it has before it joins again."""

    def __init__(self, world: World, instance: str | None, reads: Iterable[str]) -> None:
        self.world = world
        self.instance = instance
        self.reads = sorted(reads)
        self.member_id = ""
        self.generation = -1
        self.owned: Partitions = set()
        self.is_over = False
        self._waiting: Any = None
        self._handle: Callable[[Any], None] = self._joined

    def _failed(self, code: int) -> None:
        self.owned, self.generation = set(), -1
        if code == UNKNOWN_MEMBER:
            self.member_id = ""
        elif code not in (REBALANCE, *OF_THIS_GENERATION):
            self.is_over = True

    def _ask(self, answer: Any, handle: Callable[[Any], None]) -> None:
        self._waiting, self._handle = answer, handle

    def act(self) -> None:
        """Do the next thing that a client does; nothing while it waits."""
        if self._waiting is not None:
            if isinstance(self._waiting, asyncio.Future) and not self._waiting.done():
                return
            answer = self._waiting.result() if isinstance(self._waiting, asyncio.Future) else self._waiting
            self._waiting = None
            self._handle(answer)
            return
        try:
            if self.generation < 0:
                self._join()
            else:
                self._beat()
        except (RefusedError, ApiError) as error:
            self._failed(error.error_code)

    def _beat(self) -> None:
        is_mixed = self.world.classic.has(GROUP)
        beat = self.world.classic.heartbeat if is_mixed else self.world.members.heartbeat
        beat(GROUP, self.member_id, self.instance, self.generation)

    def _join(self) -> None:
        self.owned = set()
        protocols = (("range", subscription(self.reads)),)
        request = JoinRequest(
            9, GROUP, self.member_id, self.instance, "c", "/h", 10_000, 30_000, "consumer", protocols, ""
        )  # fmt: skip
        found = whole(self.world.classic.join(request)) if self.world.classic.has(GROUP) else None
        self._ask(self.world.members.join(request) if found is None else found, self._joined)

    def _joined(self, answer: Any) -> None:
        code = answer["error_code"]
        if code == MEMBER_ID_REQUIRED:
            self.member_id = answer["member_id"]
            return
        if code:
            self._failed(code)
            return
        self.member_id, self.generation = answer["member_id"], answer["generation_id"]
        is_leader = answer["leader"] == self.member_id and not answer["skip_assignment"]
        assignments = list(self._assignments([one["member_id"] for one in answer["members"]])) if is_leader else []
        who = (GROUP, self.member_id, self.instance, self.generation, "consumer", "range")
        try:
            is_mixed = self.world.classic.has(GROUP)
            found = self.world.classic.sync(*who) if is_mixed else self.world.members.sync(*who, assignments)
        except RefusedError as error:
            self._failed(error.error_code)
            return
        self._ask(found, self._synced)

    def _assignments(self, members: list[str]) -> Iterator[tuple[str, bytes]]:
        """A leader deals the partitions out, all to all."""
        partitions = sorted(self.world.all_partitions)
        for place, member_id in enumerate(members):
            mine: dict[str, list[int]] = {}
            for name, number in partitions[place :: len(members)]:
                mine.setdefault(name, []).append(number)
            topics = tuple(TopicPartitions(name, tuple(numbers)) for name, numbers in mine.items())
            yield member_id, encode_assignment(topics, 1)

    def _synced(self, answer: Any) -> None:
        if answer["error_code"]:
            self._failed(answer["error_code"])
            return
        assigned = whole(read_assignment(answer["assignment"])).assigned_partitions if answer["assignment"] else ()
        self.owned = {(name, number) for name, numbers in assigned for number in numbers}

    def leave(self, _: int = -1) -> None:
        leaving = [LeavingMember(self.member_id, self.instance, "")]
        if self.world.classic.has(GROUP):
            whole(self.world.consumers.remove_members(GROUP, leaving))
        else:
            whole(self.world.members.leave(GROUP, leaving))
        self.owned, self.is_over = set(), True

    @property
    def valid(self) -> Partitions:
        """What it has as a member that may commit."""
        group = self.world.group
        if isinstance(group, ClassicGroup):
            is_in = self.member_id in group.members and self.generation == group.generation_id
        elif isinstance(group, ConsumerGroup):
            member = group.members.get(self.member_id)
            is_in = member is not None and member.classic is not None and self.generation == member.member_epoch
        else:
            is_in = False
        return self.owned if is_in else set()
