"""ShareAcknowledge (KIP-932): a member of a share group says what became of records, without fetching others.

It belongs to the session that a ShareFetch has begun; epoch -1 ends it. v2 (KIP-1222) renews the time that a member
has.

Source in Kafka: `KafkaApis.handleShareAcknowledgeRequest`, `SharePartitionManager.acknowledgeSessionUpdate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek.broker.api import Request, api
from odradek.broker.api.share_requests import acknowledged, failed, member_of, said
from odradek.broker.errors import NO_ERROR
from odradek.broker.protocol import Message
from odradek.broker.shares.fetches import NO_LEADER
from odradek.broker.turns import Work
from odradek.coordination.errors import RefusedError, ShareErrorCode
from odradek.coordination.shares.sessions import FINAL_EPOCH, INITIAL_EPOCH, TopicIdPartition


@api(79, "ShareAcknowledge", range(1, 3), failed=failed)
async def share_acknowledge(request: Request) -> Message:
    """Take over what a member says."""
    shares, epoch = request.broker.shares, request.body.share_session_epoch
    member = member_of(request)
    if epoch == INITIAL_EPOCH:
        raise RefusedError(ShareErrorCode.INVALID_SHARE_SESSION_EPOCH)
    if epoch == FINAL_EPOCH:
        shares.sessions.known(member)
    else:
        shares.sessions.go_on(member, epoch)
    results = await acknowledged(request, member, await request.broker.turns.finish(said(request)))
    if epoch == FINAL_EPOCH:
        shares.end_session(member)
    return {
        "error_code": NO_ERROR,
        "acquisition_lock_timeout_ms": shares.settings.number(member[0], "share.record.lock.duration.ms"),
        "responses": await request.broker.turns.finish(_responses(results)),
    }


def _responses(results: Mapping[TopicIdPartition, tuple[int, str | None]]) -> Work[list[Message]]:
    """Work: return the results by topics."""
    topics: dict[Any, list[Message]] = {}
    for (topic_id, number), (code, text) in results.items():
        answer = {"partition_index": number, "error_code": code, "error_message": text, "current_leader": NO_LEADER}
        topics.setdefault(topic_id, []).append(answer)
        yield
    return [{"topic_id": topic_id, "partitions": answers} for topic_id, answers in topics.items()]
