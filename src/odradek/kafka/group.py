"""The part of Kafka's group protocol that an offset store needs: one static member that reads and commits offsets.

    JoinGroup 11, SyncGroup 14   become the group's only member (classic protocol, KIP-345 instance id)
    OffsetFetch 9                all offsets of the group
    OffsetCommit 8               with member id, instance id and generation, which the coordinator checks
    OffsetDelete 47              of a group that it has left
    LeaveGroup 13                on close

Nothing runs in the background: no heartbeat is sent, because a commit counts as one, and a member whose session timed
out joins again.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from kafka import errors
from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.consumer import (
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest, MetadataRequest

from odradek.kafka.cluster import Cluster, check
from odradek.kafka.committed_offset import CommittedOffset
from odradek.messages.uuids import format_uuid
from odradek.storage.names import TopicPartition

CLIENT_ID = "odradek"
GROUP_INSTANCE_ID = "odradek"
PROTOCOL_TYPE = "consumer"
PROTOCOL_NAME = "odradek"
SESSION_TIMEOUT_MS = 45_000

NO_LEADER_EPOCH = -1
NO_GENERATION = -1
_NO_OFFSET = -1
_OFFSET_FETCH_STABLE = 7
_OFFSET_FETCH_OF_GROUPS = 8
_METADATA_WITH_IDS = 10
_OFFSET_COMMIT_OF_MEMBERS = 9
"""The first version that members of the consumer protocol (KIP-848) may use, and the last one with topics' names."""
_MAX_RESPONSE_BYTES = 100_000_000


class _Member(NamedTuple):
    member_id: str
    generation_id: int


class GroupClient:
    """A connection to the coordinator of one group. Every method ends by its deadline, in `time.monotonic` seconds.

    Its methods raise kafka-python's errors, and OSError.
    """

    def __init__(self, bootstrap_servers: list[str], group: str, config: Mapping[str, Any]) -> None:
        self._group = group
        self._cluster = Cluster(bootstrap_servers, CLIENT_ID, config, max_response_bytes=_MAX_RESPONSE_BYTES)
        self._coordinator: Any = None
        self._member: _Member | None = None

    @property
    def is_member(self) -> bool:
        """Whether this client joined the group, and the coordinator has not since said that it is no member."""
        return self._member is not None

    def forget_membership(self) -> None:
        """Note that another client has become the member."""
        self._member = None

    def forget_coordinator(self) -> None:
        """Look the coordinator up again before the next request."""
        self._coordinator = None

    def fetch(self, deadline: float) -> dict[TopicPartition, CommittedOffset]:
        """Return all offsets of the group; wait for those that an open transaction is about to set."""
        manager = self._cluster.connected(_left_ms(deadline))
        version = manager.broker_version_data.api_version(OffsetFetchRequest)
        asked = functools.partial(self._ask_coordinator, deadline=deadline)
        stable = version >= _OFFSET_FETCH_STABLE
        return fetch_offsets([self._group], asked, version, require_stable=stable)[self._group]

    def join(self, partitions: Collection[TopicPartition], deadline: float) -> None:
        """Become the only member of the group, and replace the member before.

        Args:
            partitions: The partitions that the member says it reads. Kafka's tools show it as their owner, and the
                broker does not let their offsets expire while the group has a member.
        """
        subscription = ConsumerProtocolSubscription(topics=sorted(_by_topic(partitions)), user_data=None, version=0)
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name=PROTOCOL_NAME, metadata=subscription.encode())
        response = self._ask_coordinator(
            JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=SESSION_TIMEOUT_MS,
                member_id="",
                group_instance_id=GROUP_INSTANCE_ID,
                protocol_type=PROTOCOL_TYPE,
                protocols=[protocol],
                min_version=5,
            ),
            deadline,
        )
        check(response.error_code, "JoinGroup")
        member = _Member(response.member_id, response.generation_id)
        assignments = []
        if response.leader == member.member_id and not response.skip_assignment:
            assignment = ConsumerProtocolAssignment(
                assigned_partitions=[
                    ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=numbers)
                    for topic, numbers in sorted(_by_topic(partitions).items())
                ],
                user_data=None,
                version=0,
            )
            assignments.append(
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=member.member_id, assignment=assignment.encode())
            )
        synced = self._ask_coordinator(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=member.generation_id,
                member_id=member.member_id,
                group_instance_id=GROUP_INSTANCE_ID,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=PROTOCOL_NAME,
                assignments=assignments,
                min_version=3,
            ),
            deadline,
        )
        check(synced.error_code, "SyncGroup")
        self._member = member

    def is_of_live_consumers(self, deadline: float) -> bool:
        """Return whether it is a group of KIP-848 that has members: a broker would let one of the classic protocol in.

        A member of a classic group is replaced, or keeps this client out, when it joins.
        """
        request = ListGroupsRequest(states_filter=[], types_filter=["consumer"], min_version=0, max_version=5)
        answered = self._ask_coordinator(request, deadline)
        # Before version 5 there were only groups of the classic protocol.
        if answered.API_VERSION < 5:
            return False
        check(answered.error_code, "ListGroups")
        return any(found.group_id == self._group and found.group_state != "Empty" for found in answered.groups)

    def unknown(self, partitions: Collection[TopicPartition], deadline: float) -> set[TopicPartition]:
        """Return the partitions that the broker does not have, and would leave out of a commit."""
        if not partitions:
            return set()
        known = {
            TopicPartition(topic.name, partition.partition_index)
            for topic in self._metadata(_by_topic(partitions), deadline).topics
            for partition in topic.partitions
        }
        return set(partitions) - known

    def topic_ids(self, topics: Collection[str], deadline: float) -> dict[str, str | None]:
        """Return the ids of those topics that exist; None if the broker has no ids."""
        response = self._metadata(topics, deadline)
        return {
            topic.name: format_uuid(topic.topic_id) if response.API_VERSION >= _METADATA_WITH_IDS else None
            for topic in response.topics
            if topic.error_code != errors.UnknownTopicOrPartitionError.errno
        }

    def _metadata(self, topics: Collection[str], deadline: float) -> Any:
        asked = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in sorted(topics)]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False, min_version=4, max_version=12)
        return self._ask(request, None, deadline)

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset], deadline: float) -> None:
        """Commit as the member of the group; do nothing if this client is no member."""
        if not offsets or self._member is None:
            return
        member = {**self._member._asdict(), "group_instance_id": GROUP_INSTANCE_ID}
        check_commit(self._ask_coordinator(commit_request(self._group, offsets, **member), deadline))

    def delete(self, partitions: Collection[TopicPartition], deadline: float) -> None:
        """Delete the offsets of partitions; the group must have no members."""
        topic_type = OffsetDeleteRequest.OffsetDeleteRequestTopic
        topics = [
            topic_type(
                name=topic,
                partitions=[topic_type.OffsetDeleteRequestPartition(partition_index=number) for number in numbers],
            )
            for topic, numbers in sorted(_by_topic(partitions).items())
        ]
        response = self._ask_coordinator(OffsetDeleteRequest(group_id=self._group, topics=topics), deadline)
        check(response.error_code, "OffsetDelete")
        for topic in response.topics:
            for partition in topic.partitions:
                check(partition.error_code, f"OffsetDelete of {topic.name}-{partition.partition_index}")

    def leave(self, deadline: float) -> None:
        """Leave the group, if this client is its member."""
        member, self._member = self._member, None
        if member is not None:
            self._leave(member, deadline)

    def close(self, deadline: float) -> None:
        """Leave the group and close the connections."""
        if not self._cluster.is_open:
            return
        try:
            self.leave(deadline)
        finally:
            self._cluster.close()
            self._coordinator = None

    def _leave(self, member: _Member, deadline: float) -> None:
        identity = LeaveGroupRequest.MemberIdentity(member_id=member.member_id, group_instance_id=GROUP_INSTANCE_ID)
        # If this fails, the session times out; the next member need not wait for that.
        with suppress(errors.KafkaError, OSError):
            self._ask_coordinator(LeaveGroupRequest(group_id=self._group, members=[identity], min_version=3), deadline)

    def _ask(self, request: Any, node_id: Any, deadline: float) -> Any:
        self._cluster.connected(_left_ms(deadline))
        return self._cluster.ask(request, node_id, timeout_ms=_left_ms(deadline))

    def _ask_coordinator(self, request: Any, deadline: float) -> Any:
        if self._coordinator is None:
            self._coordinator = self._find_coordinator(deadline)
        return self._ask(request, self._coordinator, deadline)

    def _find_coordinator(self, deadline: float) -> Any:
        manager = self._cluster.connected(_left_ms(deadline))
        request = FindCoordinatorRequest(key=self._group, key_type=CoordinatorType.GROUP.value, max_version=3)
        response = self._ask(request, None, deadline)
        return manager.cluster.add_coordinator(response, CoordinatorType.GROUP, self._group, synthesize_node_id=False)


def fetch_offsets(
    groups: Sequence[str], ask: Callable[[Any], Any], newest_version: int, *, require_stable: bool
) -> dict[str, dict[TopicPartition, CommittedOffset]]:
    """Ask for all offsets of groups, in a version that their coordinator has; partitions without one are left out.

    Args:
        groups: The groups, all of one coordinator.
        ask: Sends the coordinator a request, and returns its answer.
        newest_version: The newest version of the request that both sides have.
        require_stable: Whether an offset that an open transaction is about to replace is refused; else its last
            committed value is returned. To continue from the offset needs True; to show it, False is enough.
    """
    if newest_version < _OFFSET_FETCH_OF_GROUPS:
        oldest = _OFFSET_FETCH_STABLE if require_stable else 2
        requests = {
            group: OffsetFetchRequest(
                group_id=group, topics=None, require_stable=require_stable, min_version=oldest, max_version=7
            )
            for group in groups
        }
        return {group: _offsets_of(ask(request)) for group, request in requests.items()}
    whole = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
    request = OffsetFetchRequest(
        groups=whole, require_stable=require_stable, min_version=_OFFSET_FETCH_OF_GROUPS, max_version=8
    )
    return {found.group_id: _offsets_of(found) for found in ask(request).groups}


def commit_request(
    group: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    *,
    member_id: str = "",
    generation_id: int = NO_GENERATION,
    group_instance_id: str | None = None,
) -> OffsetCommitRequest:
    """Return the request that commits offsets: by a member of the group, or of a group that has none."""
    topic_type = OffsetCommitRequest.OffsetCommitRequestTopic
    topics = [
        topic_type(
            name=topic,
            partitions=[
                topic_type.OffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=committed.offset,
                    committed_leader_epoch=NO_LEADER_EPOCH
                    if committed.leader_epoch is None
                    else committed.leader_epoch,
                    committed_metadata=committed.metadata,
                )
                for number in numbers
                for committed in [offsets[TopicPartition(topic, number)]]
            ],
        )
        for topic, numbers in sorted(_by_topic(offsets).items())
    ]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        group_instance_id=group_instance_id,
        topics=topics,
        min_version=7,
        max_version=_OFFSET_COMMIT_OF_MEMBERS,
    )


def check_commit(response: Any) -> None:
    """Raise kafka-python's error if an offset was refused."""
    for topic in response.topics:
        for partition in topic.partitions:
            check(partition.error_code, f"OffsetCommit of {topic.name}-{partition.partition_index}")


def _offsets_of(group: Any) -> dict[TopicPartition, CommittedOffset]:
    check(group.error_code, "OffsetFetch")
    offsets = {}
    for topic in group.topics:
        for partition in topic.partitions:
            check(partition.error_code, f"OffsetFetch of {topic.name}-{partition.partition_index}")
            if partition.committed_offset != _NO_OFFSET:
                epoch = partition.committed_leader_epoch
                offsets[TopicPartition(topic.name, partition.partition_index)] = CommittedOffset(
                    partition.committed_offset,
                    None if epoch == NO_LEADER_EPOCH else epoch,
                    partition.metadata or "",
                )
    return offsets


def _left_ms(deadline: float) -> float:
    return max(1.0, (deadline - time.monotonic()) * 1000)


def _by_topic(partitions: Collection[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return topics
