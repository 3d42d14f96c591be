"""A share group (KIP-932) with members that behave as clients do, without a broker: for tests of its rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from odradek.broker.turns import whole
from odradek.coordination.errors import RefusedError
from odradek.coordination.groups.modern import GroupRecord
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
from odradek.coordination.groups.share_topics import ShareTopics, TopicState
from peers.consumer_groups import GROUP, Topics


@dataclass
class ShareClient:
    """A client: what it knows of its member.

    Attributes:
        names: The topics that it names.
        assigned: The partitions that it has, by topic.
    """

    member_id: str
    names: Collection[str] = ()
    epoch: int = 0
    assigned: dict[UUID, set[int]] = field(default_factory=dict)


class ShareRoom:
    """A group, its topics, its time, and the partitions whose share state is being made."""

    def __init__(self, topics: Mapping[str, int], interval_ms: int = 0, max_size: int = 200) -> None:
        self.topics = Topics(topics)
        self.now_ms = 1_000_000
        self.state = GroupState(lambda: self.now_ms)
        self.settings = ShareSettings(interval_ms, max_size, 30_000)
        self.log: list[GroupRecord] = []
        self.lacking: list[Mapping[UUID, TopicState]] = []

    @property
    def group(self) -> ShareGroup:
        """The group, which may be a new one that has no records yet."""
        found = self.state.groups.get(GROUP)
        return found if isinstance(found, ShareGroup) else ShareGroup(GROUP)

    def write(self, records: Collection[GroupRecord]) -> None:
        """Write records and apply them."""
        for record in records:
            self.log.append(record)
            self.state.replay_share(record)

    def _do(self, steps: ShareSteps) -> ShareOutcome:
        outcome = whole(steps)
        self.write(outcome.records)
        self.group.known_topics, self.group.complete_at = outcome.known_topics, outcome.complete_at
        if outcome.lacking:
            self.lacking.append(outcome.lacking)
        return outcome

    def beat(self, client: ShareClient, *, says_all: bool = True) -> ShareOutcome:
        """Send a client's heartbeat; one that is fenced forgets its partitions, and joins again with the next one."""
        names = frozenset(client.names) if says_all or not client.epoch else None
        request = ShareHeartbeatRequest(client.member_id, client.epoch, None, names, "c", "/127.0.0.1")
        try:
            outcome = self._do(ShareHeartbeat(self.group, request, self.topics, self.settings, self.now_ms).run())
        except RefusedError as error:
            if error.error_name in ("FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID"):
                client.epoch, client.assigned = 0, {}
            raise
        assert outcome.member is not None
        client.epoch = outcome.member.member_epoch
        if outcome.shows_assignment:
            held = outcome.member.assigned.items()
            client.assigned = {topic: set(numbers) for topic, numbers in held if numbers}
        return outcome

    def remove(self, member_id: str) -> ShareOutcome:
        """Let a member leave."""
        return self._do(share_remove(self.group, member_id, self.topics))

    def initialize(self, *, succeeds: bool = True) -> None:
        """Let the share states that are being made be there, or let that fail."""
        for lacking in self.lacking:
            partitions = {topic_id: state.partitions for topic_id, state in lacking.items()}
            topics = self.group.topics
            if topics is not None:
                after = topics.done(partitions) if succeeds else topics.failed(partitions)
                self.write([share_topics_record(GROUP, after)])
        self.lacking.clear()

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        topic_id = self.topics.id_of(name)
        if name in self.topics.counts:
            self.topics.put(name, 0)
            topics = self.group.topics
            if topics is not None and topics.holds({topic_id}):
                self.write([share_topics_record(GROUP, topics.without({topic_id}))])

    def initialized(self) -> dict[UUID, set[int]]:
        """Return the partitions that are initialized."""
        topics = self.group.topics or ShareTopics()
        return {topic_id: set(state.partitions) for topic_id, state in topics.initialized.items()}

    def settle(self, clients: Collection[ShareClient], rounds: int = 4) -> None:
        """Let clients send heartbeats until nothing changes any more."""
        for _ in range(rounds):
            for client in clients:
                self.beat(client)
            self.initialize()
            self.now_ms += 5_000
        for client in clients:
            assert not self.beat(client).records, "not settled"
