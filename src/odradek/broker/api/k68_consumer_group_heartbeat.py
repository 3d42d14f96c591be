"""ConsumerGroupHeartbeat (KIP-848): a member joins a consumer group, stays in it, learns what it has, and leaves.

    epoch 0    joins     the client says all of itself
    > 0        stays     it says what has changed, and what it has
    -1, -2     leaves    -2: a static member that comes back

v1 (KIP-848) adds patterns (RE2), and lets the client choose its member id. The first member turns
a classic group into a consumer group; see `broker.groups.consumers`.

Source in Kafka: `KafkaApis.handleConsumerGroupHeartbeat`, `GroupCoordinatorService.consumerGroupHeartbeat`.
"""

from __future__ import annotations

import uuid
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.api.group_answers import (
    check_subscription,
    check_text,
    heartbeat_answer,
    heartbeat_refused,
    subscribed_names,
    topic_filter,
)
from odradek.broker.consumer_protocol import check_enabled
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.groups.consumers import check_assignor
from odradek.broker.protocol import Message, given, milliseconds
from odradek.broker.state_topic import check_storable
from odradek.broker.turns import Work
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.coordination.groups.assignors.subscribers import TopicPartitions
from odradek.coordination.groups.heartbeat import HeartbeatRequest
from odradek.coordination.groups.reconciliation import JOINING_EPOCH, LEAVING_EPOCH, LEAVING_STATIC_EPOCH
from odradek.messages.uuids import format_uuid

_FIRST_WITH_MEMBER_ID = 1
_NOT_GIVEN = -1


@api(
    68, "ConsumerGroupHeartbeat", range(2), failed=heartbeat_refused, group_ids=lambda request: [request.body.group_id]
)
def consumer_group_heartbeat(request: Request) -> Work[Message]:
    """Keep a member in its group."""
    body, broker = request.body, request.broker
    check_enabled(broker)
    request.check(Operation.READ, ResourceType.GROUP, body.group_id)
    yield from check_subscription(request, body.subscribed_topic_names)
    _check(request)
    consumers = broker.groups.shard(body.group_id).consumers
    names = yield from subscribed_names(body.subscribed_topic_names)
    asked = HeartbeatRequest(
        body.member_id or format_uuid(uuid.uuid4()),
        body.member_epoch,
        body.instance_id,
        body.rack_id,
        milliseconds(body.rebalance_timeout),
        names,
        given(body, "subscribed_topic_regex"),
        body.server_assignor,
        (yield from _owned(body.topic_partitions)),
        request.client_id,
        f"/{request.connection.peer}",
    )
    if body.member_epoch in (LEAVING_EPOCH, LEAVING_STATIC_EPOCH):
        yield from consumers.leave(body.group_id, asked)
        return {"error_code": NO_ERROR, "member_id": body.member_id, "member_epoch": body.member_epoch}
    outcome = yield from consumers.heartbeat(body.group_id, asked, topic_filter(request))
    assert outcome.member is not None
    interval_ms = consumers.heartbeat_interval_ms(body.group_id)
    return heartbeat_answer(outcome.member, interval_ms, shows_assignment=outcome.shows_assignment)


def _owned(topics: Any) -> Work[TopicPartitions | None]:
    """Work: return the partitions that a client says that it has."""
    if topics is None:
        return None
    found: dict[UUID, set[int]] = {}
    for topic in topics:
        found.setdefault(topic.topic_id, set()).update(topic.partitions)
        yield
    return found


def _check(request: Request) -> None:
    """Check what a request says.

    Raises:
        ApiError: It says too little, or what contradicts itself.
    """
    body, epoch = request.body, request.body.member_epoch
    if request.version >= _FIRST_WITH_MEMBER_ID or epoch > 0 or epoch == LEAVING_EPOCH:
        check_text(body.member_id, "MemberId")
    for text, name in ((body.group_id, "GroupId"), (body.instance_id, "InstanceId"), (body.rack_id, "RackId")):
        check_text(text, name)
    if epoch == JOINING_EPOCH:
        if milliseconds(body.rebalance_timeout) == _NOT_GIVEN:
            raise ApiError(ErrorCode.invalid_request, "RebalanceTimeoutMs must be provided in first request.")
        if body.topic_partitions is None or body.topic_partitions:
            raise ApiError(ErrorCode.invalid_request, "TopicPartitions must be empty when (re-)joining.")
        if body.subscribed_topic_names is None and given(body, "subscribed_topic_regex") is None:
            reason = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            raise ApiError(ErrorCode.invalid_request, reason)
    elif epoch == LEAVING_STATIC_EPOCH and body.instance_id is None:
        raise ApiError(ErrorCode.invalid_request, "InstanceId can't be null.")
    elif epoch < LEAVING_STATIC_EPOCH:
        raise ApiError(ErrorCode.invalid_request, "MemberEpoch is invalid.")
    check_assignor(body.server_assignor, request.broker.config["group.consumer.assignors"])
    for text in (body.member_id, body.instance_id, body.rack_id, given(body, "subscribed_topic_regex")):
        check_storable(text or "")
