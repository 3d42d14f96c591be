"""ShareGroupHeartbeat (KIP-932): a member joins a share group, stays in it, learns what it has, and leaves.

    epoch 0    joins     the client names the topics that it reads
    > 0        stays     it says what has changed
    -1         leaves

v1 is the first version that Apache Kafka has not removed again.

Source in Kafka: `KafkaApis.handleShareGroupHeartbeat`, `GroupCoordinatorService.shareGroupHeartbeat`.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.api.group_answers import (
    check_subscription,
    check_text,
    heartbeat_answer,
    heartbeat_refused,
    subscribed_names,
)
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.protocol import Message
from odradek.broker.share_protocol import check_share_groups_enabled, check_share_member_id
from odradek.broker.state_topic import check_storable
from odradek.broker.turns import Work
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.coordination.groups.reconciliation import JOINING_EPOCH, LEAVING_EPOCH
from odradek.coordination.groups.share_heartbeat import ShareHeartbeatRequest


@api(
    76, "ShareGroupHeartbeat", range(1, 2), failed=heartbeat_refused, group_ids=lambda request: [request.body.group_id]
)
def share_group_heartbeat(request: Request) -> Work[Message]:
    """Keep a member in its group."""
    body, broker = request.body, request.broker
    check_share_groups_enabled(broker)
    request.check(Operation.READ, ResourceType.GROUP, body.group_id)
    check_share_member_id(body.member_id)
    yield from check_subscription(request, body.subscribed_topic_names)
    _check(request)
    shares = broker.groups.shard(body.group_id).shares
    names = yield from subscribed_names(body.subscribed_topic_names)
    if body.member_epoch == LEAVING_EPOCH:
        yield from shares.leave(body.group_id, body.member_id)
        return {"error_code": NO_ERROR, "member_id": body.member_id, "member_epoch": body.member_epoch}
    asked = ShareHeartbeatRequest(
        body.member_id,
        body.member_epoch,
        body.rack_id,
        names,
        request.client_id,
        f"/{request.connection.peer}",
    )
    outcome = yield from shares.heartbeat(body.group_id, asked)
    assert outcome.member is not None
    interval_ms = shares.heartbeat_interval_ms(body.group_id)
    return heartbeat_answer(outcome.member, interval_ms, shows_assignment=outcome.shows_assignment)


def _check(request: Request) -> None:
    """Check what a request says.

    Raises:
        ApiError: It says too little.
    """
    body = request.body
    for text, name in ((body.member_id, "MemberId"), (body.group_id, "GroupId"), (body.rack_id, "RackId")):
        check_text(text, name)
    if body.member_epoch == JOINING_EPOCH and not body.subscribed_topic_names:
        raise ApiError(ErrorCode.invalid_request, "SubscribedTopicNames must be set in first request.")
    if body.member_epoch < LEAVING_EPOCH:
        raise ApiError(ErrorCode.invalid_request, "MemberEpoch is invalid.")
    check_storable(body.rack_id or "")
