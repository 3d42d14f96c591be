"""Members of the classic protocol in consumer groups: while a group moves from one protocol to the other.

    JoinGroup    changes the group as a heartbeat does, and is answered at once
    SyncGroup    is answered what the member has
    Heartbeat    tells the member to join again
    timers       a member that was told to join again, or that has joined, has the time-out of a rebalance to continue

Their rules are in `odradek.coordination.groups.classic_members`; a group that becomes a classic one is in `membership`.

Source in Kafka: `GroupMetadataManager` (`classicGroupJoinToConsumerGroup` and its neighbours).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from kio.schema.errors import ErrorCode

from odradek.broker.errors import NO_ERROR
from odradek.broker.groups.clients import join_answer, sync_answer
from odradek.broker.groups.consumers import Consumers, TopicFilter
from odradek.broker.groups.image_topics import ImageTopics
from odradek.broker.groups.membership import JoinRequest
from odradek.broker.protocol import Message
from odradek.broker.state_topic import check_storable
from odradek.broker.turns import Work
from odradek.coordination.errors import GroupErrorCode, RefusedError
from odradek.coordination.groups.classic_members import (
    assignment,
    check_join,
    check_sync,
    join_request,
    joins_again,
    syncs_in_vain,
    validate,
)
from odradek.coordination.groups.consumer import ConsumerGroup
from odradek.coordination.groups.heartbeat import HeartbeatRequest
from odradek.coordination.groups.replay import Group
from odradek.messages.coordinators.group_records import CONSUMER_PROTOCOL
from odradek.messages.uuids import format_uuid

_FIRST_THAT_REQUIRES_MEMBER_ID = 4


class _MovedError(Exception):
    """The group is no consumer group with members any more."""


class ClassicConsumers:
    """The classic members of the consumer groups of one partition of `__consumer_offsets`; of the loop's thread.

    Args:
        groups: The groups by their ids.
        consumers: The members of consumer groups.
        topics: Returns the topics as they are now.
    """

    def __init__(self, groups: dict[str, Group], consumers: Consumers, topics: Callable[[], ImageTopics]) -> None:
        self._groups = groups
        self._consumers = consumers
        self._topics = topics

    def has(self, group_id: str) -> bool:
        """Return whether a group is a consumer group with members: classic ones are answered here."""
        group = self._groups.get(group_id)
        return isinstance(group, ConsumerGroup) and not group.is_empty

    def _group(self, group_id: str) -> ConsumerGroup:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or group.is_empty:
            raise _MovedError
        return group

    def join(self, request: JoinRequest, may_see: TopicFilter | None = None) -> Work[Message | None]:
        """Work: let a member join; None if the group has become another one, where it has to join.

        Args:
            request: What the member says.
            may_see: Which topics patterns may match that are tried because it joins; None for all.

        Raises:
            RefusedError: It may not.
            ApiError: The change could not be written.
        """
        is_new = not request.member_id
        member_id = request.member_id or format_uuid(uuid.uuid4())
        for text in (member_id, request.instance_id or "", *(name for name, _ in request.protocols)):
            check_storable(text)
            yield
        try:
            self._check_join(request, member_id)
            needs_id = request.version >= _FIRST_THAT_REQUIRES_MEMBER_ID and request.instance_id is None
            if is_new and needs_id:
                return join_answer(int(ErrorCode.member_id_required), member_id)

            def joining() -> Work[HeartbeatRequest]:
                self._check_join(request, member_id)
                return join_request(
                    member_id,
                    request.instance_id,
                    request.protocols,
                    self._topics(),
                    is_new=is_new,
                    session_timeout_ms=request.session_timeout_ms,
                    rebalance_timeout_ms=request.rebalance_timeout_ms,
                    client_id=request.client_id,
                    client_host=request.client_host,
                )

            member = yield from self._consumers.join_classic(request.group_id, joining, may_see)
        except _MovedError:
            return None
        return {
            "error_code": NO_ERROR,
            "generation_id": member.member_epoch,
            "protocol_type": CONSUMER_PROTOCOL,
            "protocol_name": request.protocols[0][0],
            "leader": "",
            "skip_assignment": False,
            "member_id": member_id,
            "members": [],
        }

    def _check_join(self, request: JoinRequest, member_id: str) -> None:
        settings = self._consumers.settings(request.group_id)
        check_join(self._group(request.group_id), member_id, request.protocol_type, request.protocols, settings)

    def sync(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        protocol_type: str | None,
        protocol: str | None,
    ) -> Message:
        """Return what a member has.

        Raises:
            RefusedError: It is not in this epoch of the group, or has to join again.
        """
        group = self._group(group_id)
        member, classic = validate(group, member_id, instance_id, generation_id)
        check_sync(classic, protocol_type, protocol)
        if syncs_in_vain(group, member):
            self._consumers.await_join(group_id, member)
            raise RefusedError(GroupErrorCode.REBALANCE_IN_PROGRESS)
        self._consumers.has_synced(group_id, member)
        return sync_answer(NO_ERROR, assignment(member, classic, self._topics()), protocol_type, protocol)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation_id: int) -> None:
        """Keep a member in its group.

        Raises:
            RefusedError: It is not in this epoch of the group, or has to join again.
        """
        group = self._group(group_id)
        member, _ = validate(group, member_id, instance_id, generation_id)
        self._consumers.heard_of_classic(group_id, member)
        if joins_again(group, member):
            self._consumers.await_join(group_id, member)
            raise RefusedError(GroupErrorCode.REBALANCE_IN_PROGRESS)
