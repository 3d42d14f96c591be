"""A consumer group (KIP-848) with members that behave as clients do, without a broker: for tests of its rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from odradek.broker.turns import whole
from odradek.coordination.errors import RefusedError
from odradek.coordination.groups.consumer import ConsumerGroup
from odradek.coordination.groups.departures import leave, remove
from odradek.coordination.groups.heartbeat import Heartbeat, HeartbeatRequest, Outcome, Settings, Steps, resolve
from odradek.coordination.groups.migration_policy import POLICIES
from odradek.coordination.groups.modern import GroupRecord
from odradek.coordination.groups.reconciliation import ConsumerMember
from odradek.coordination.groups.replay import GroupState
from odradek.coordination.groups.topics import KnownTopic, matches

GROUP = "g"


def topic_id(name: str, number: int = 0) -> UUID:
    """Return the id of a topic, which was made for the nth time."""
    return UUID(bytes=name.encode().ljust(15, b".") + bytes([number]))


class Topics:
    """The topics that exist."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.counts = dict(counts)
        self._made: Counter[str] = Counter()
        self.version = self.created_version = 1
        self.hashes: dict[UUID, int] = {}

    def put(self, name: str, count: int) -> None:
        """Make a topic, or let it have more partitions; 0 removes it."""
        self.version += 1
        self.hashes.clear()
        if name not in self.counts:
            self.created_version = self.version
        if count:
            self.counts[name] = max(count, self.counts.get(name, 0))
        elif self.counts.pop(name, None):
            self._made[name] += 1

    def named(self, name: str) -> KnownTopic | None:
        """Return the topic of a name."""
        count = self.counts.get(name)
        return None if count is None else KnownTopic(self.id_of(name), name, ((),) * count)

    def identified(self, topic_id: UUID) -> KnownTopic | None:
        """Return the topic of an id."""
        found = self.named(topic_id.bytes[:15].rstrip(b".").decode())
        return found if found is not None and found.topic_id == topic_id else None

    def id_of(self, name: str) -> UUID:
        """Return the id of a topic as it was made last."""
        return topic_id(name, self._made[name])


@dataclass
class Client:
    """A client: what it knows of its member.

    Attributes:
        owned: The partitions that it reads, by topic.
        names: The topics that it names.
        regex: Its pattern.
    """

    member_id: str
    names: Collection[str] = ()
    regex: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    epoch: int = 0
    owned: dict[UUID, set[int]] = field(default_factory=dict)
    assigned: dict[UUID, set[int]] = field(default_factory=dict)

    def revoke(self) -> None:
        """Stop reading what it is no longer assigned."""
        kept = {topic: numbers & self.assigned.get(topic, set()) for topic, numbers in self.owned.items()}
        self.owned = {topic: numbers for topic, numbers in kept.items() if numbers}

    def take(self) -> None:
        """Read what it is assigned."""
        self.owned = {topic: set(numbers) for topic, numbers in self.assigned.items()}


class Room:
    """A group, its topics and its time."""

    def __init__(self, topics: Mapping[str, int], interval_ms: int = 0, max_size: int = 1000) -> None:
        self.topics = Topics(topics)
        self.state = GroupState()
        self.now_ms = 1_000_000
        self.settings = Settings("uniform", interval_ms, max_size, 600_000, POLICIES["bidirectional"], 1000)
        self.log: list[GroupRecord] = []
        self.regexes: frozenset[str] = frozenset()

    @property
    def group(self) -> ConsumerGroup:
        """The group, which may be a new one that has no records yet."""
        found = self.state.groups.get(GROUP)
        return found if isinstance(found, ConsumerGroup) else ConsumerGroup(GROUP)

    def _do(self, steps: Steps) -> Outcome:
        while True:
            try:
                next(steps)
            except StopIteration as ended:
                outcome: Outcome = ended.value
                break
        for record in outcome.records:
            self.log.append(record)
            self.state.replay_consumer(record)
        self.group.known_topics = outcome.known_topics
        if outcome.regexes:
            self.regexes = outcome.regexes
        return outcome

    def request(self, client: Client, epoch: int) -> HeartbeatRequest:
        """Return a client's full request."""
        owned = {topic: frozenset(numbers) for topic, numbers in client.owned.items()}
        return HeartbeatRequest(
            client.member_id, epoch, client.instance_id, None, 30_000, frozenset(client.names), client.regex,
            client.assignor, owned if epoch else {}, "c", "/127.0.0.1",
        )  # fmt: skip

    def beat(self, client: Client) -> Outcome:
        """Send a client's heartbeat; one that is fenced forgets its partitions, and joins again with the next one."""
        try:
            request = self.request(client, client.epoch)
            outcome = self._do(Heartbeat(self.group, request, self.topics, self.settings, self.now_ms).run())
        except RefusedError as error:
            if error.error_name in ("FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID"):
                client.epoch, client.owned, client.assigned = 0, {}, {}
            raise
        assert outcome.member is not None
        client.epoch = outcome.member.member_epoch
        if outcome.shows_assignment:
            client.assigned = {topic: set(numbers) for topic, numbers in outcome.member.assigned.items()}
        return outcome

    def step(self, client: Client) -> None:
        """Do what a client does between two heartbeats, and send the next one."""
        client.revoke()
        self.beat(client)
        client.revoke()
        for topic, numbers in client.assigned.items():
            client.owned.setdefault(topic, set()).update(numbers)

    def leave(self, client: Client, epoch: int = -1) -> Outcome:
        """Let a client leave."""
        outcome = self._do(leave(self.group, self.request(client, epoch), self.topics, self.settings, self.now_ms))
        client.epoch, client.owned, client.assigned = 0, {}, {}
        return outcome

    def expire(self, member: ConsumerMember) -> Outcome:
        """Remove a member whose session is over."""
        return self._do(remove(self.group, [member], self.topics, self.settings, self.now_ms))

    def resolve(self) -> None:
        """Find the topics of the patterns that are due."""
        if self.regexes:
            before = {regex: known.topics for regex, known in self.group.regexes.items()}
            found = whole(matches(self.regexes, list(self.topics.counts), before))
            self.regexes = frozenset()
            self._do(resolve(self.group, found, self.topics, self.topics.version, self.now_ms))

    def settle(self, clients: Collection[Client], most: int = 10) -> int:
        """Let clients send heartbeats until the group is stable; return how many rounds it took."""
        for number in range(most):
            if self.group.state.value == "Stable" and number and not self.regexes:
                return number
            for client in clients:
                self.step(client)
            self.resolve()
            self.now_ms += 5_000
        raise AssertionError(f"not settled after {most} rounds: {self.group.state}")
