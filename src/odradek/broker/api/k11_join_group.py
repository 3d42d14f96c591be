"""JoinGroup: a member joins a group, and learns of its generation when all others have joined.

v1 adds the time-out of the rebalance, which is that of the session before; v4 (KIP-394) makes a new member ask again
with the id that it was given; v5 (KIP-345) adds static members, v7 (KIP-559) the protocol's type, v8 (KIP-800) the
reason, v9 (KIP-814) whether a static leader may leave the assignment as it is. In a consumer group (KIP-848) that has
members it is answered at once.

Source in Kafka: `KafkaApis.handleJoinGroupRequest`, `GroupCoordinatorService.joinGroup`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.api.group_answers import topic_filter
from odradek.broker.groups.clients import join_answer
from odradek.broker.groups.consumers import TopicFilter
from odradek.broker.groups.membership import JoinRequest
from odradek.broker.groups.shard import Shard
from odradek.broker.protocol import Encoded, Message, RequestHeader, encode_response, given, milliseconds
from odradek.broker.turns import Work, result_of

_FIRST_WITHOUT_PROTOCOL = 7
_MOST_PROTOCOLS = 100
"""All members' protocols are compared in one turn of the loop. Clients have one for each assignor: three at most."""


def _encode(header: RequestHeader, message: Message) -> Encoded:
    """Write an answer with the protocol's name as this version has it: null and empty mean the same."""
    name = message.get("protocol_name") or None
    name = name if header.version >= _FIRST_WITHOUT_PROTOCOL else name or ""
    return encode_response(header, {**message, "protocol_name": name})


@api(
    11,
    "JoinGroup",
    range(10),
    encode=_encode,
    ends_with_client=True,
    group_ids=lambda request: [request.body.group_id],
)
def join_group(request: Request) -> Message | Awaitable[Message]:
    """Let a member join."""
    body, config = request.body, request.broker.config
    if not body.group_id:
        return join_answer(int(ErrorCode.invalid_group_id), body.member_id)
    session_timeout_ms = milliseconds(body.session_timeout)
    rebalance_timeout = given(body, "rebalance_timeout")
    shortest, longest = config["group.min.session.timeout.ms"], config["group.max.session.timeout.ms"]
    if not shortest <= session_timeout_ms <= longest:
        return join_answer(int(ErrorCode.invalid_session_timeout), body.member_id)
    if len(body.protocols) > _MOST_PROTOCOLS:
        return join_answer(int(ErrorCode.inconsistent_group_protocol), body.member_id)
    joining = JoinRequest(
        version=request.version,
        group_id=body.group_id,
        member_id=body.member_id,
        instance_id=given(body, "group_instance_id"),
        client_id=request.client_id,
        client_host=f"/{request.connection.peer}",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout is None else milliseconds(rebalance_timeout),
        protocol_type=body.protocol_type,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in body.protocols),
        reason=given(body, "reason") or "not provided",
    )
    shard = request.broker.groups.shard(body.group_id)
    if shard.classic_consumers.has(body.group_id):
        found = request.broker.turns.take(_join_consumers(shard, joining, topic_filter(request)))
        # A change of the group does not end with its client.
        return asyncio.shield(found) if isinstance(found, Awaitable) else found
    return shard.members.join(joining)


def _join_consumers(shard: Shard, joining: JoinRequest, may_see: TopicFilter | None) -> Work[Message]:
    found = yield from shard.classic_consumers.join(joining, may_see)
    if found is not None:
        return found
    # It has become a classic group meanwhile.
    answer = shard.members.join(joining)
    return (yield from result_of(answer)) if isinstance(answer, Awaitable) else answer
