"""ShareFetch (KIP-932): a member of a share group gets records for itself, and says what became of others.

    epoch 0     begins a session with all partitions; nothing is acknowledged
    1, 2, ...   what is new or forgotten; acknowledgements go along
    -1          acknowledges, ends the session, and releases what the member still has

The answer names the partitions that have records, an error, an acknowledgement, or are new in the session. v2
(KIP-1206, KIP-1222) adds the mode `record_limit`, and renews the time that a member has: then nothing is fetched.

Source in Kafka: `KafkaApis.handleShareFetchRequest`, `ShareSessionContext`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.api.share_requests import acknowledged, failed, has_begun, member_of, said, topic_id_of
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.protocol import Message, given, milliseconds
from odradek.broker.shares.fetches import FetchLimits, ShareFetch, partition_answer
from odradek.broker.turns import Work
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.coordination.errors import RefusedError, ShareErrorCode
from odradek.coordination.shares.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    MemberKey,
    ShareSession,
    TopicIdPartition,
)

_RECORD_LIMIT = 1
_MUST_BE_ZERO = ("max_bytes", "min_bytes", "max_records", "max_wait")


@api(78, "ShareFetch", range(1, 3), failed=failed, ends_with_client=True)
async def share_fetch(request: Request) -> Message:
    """Give records."""
    broker, body = request.broker, request.body
    member = member_of(request)
    is_renewal = bool(given(body, "is_renew_ack", False))
    if is_renewal and any(getattr(body, name) for name in _MUST_BE_ZERO):
        raise ApiError(ErrorCode.invalid_request)
    wanted = await broker.turns.finish(_wanted(request))
    acknowledgements = await broker.turns.finish(said(request)) if _says_something(body) else {}
    session = await _session(request, member, wanted)
    # As in Kafka, the fetch does not wait until the acknowledgements are written, and does not see their effect.
    acknowledging = asyncio.ensure_future(acknowledged(request, member, acknowledgements))
    acknowledging.add_done_callback(lambda done: done.cancelled() or done.exception())
    names = wanted if session is None or body.share_session_epoch == INITIAL_EPOCH else session.partitions
    epoch_after = None if session is None else session.epoch
    answers: dict[TopicIdPartition, dict[str, Any]] = {}
    if session is not None and not is_renewal:
        await has_begun(acknowledgements)
        answers = await _fetched(request, member, names)
    results = await acknowledging
    if body.share_session_epoch == FINAL_EPOCH:
        broker.shares.end_session(member)
    lock_ms = broker.shares.settings.number(member[0], "share.record.lock.duration.ms")
    if session is not None and body.share_session_epoch != INITIAL_EPOCH:
        if session.epoch != epoch_after:
            # The member has sent the next request without waiting for this answer.
            return failed(request, ShareErrorCode.INVALID_SHARE_SESSION_EPOCH, "")
        answers = await broker.turns.finish(_told(session, answers))
    return {
        "error_code": NO_ERROR,
        "acquisition_lock_timeout_ms": lock_ms,
        "responses": await broker.turns.finish(_responses(answers, results)),
    }


def _says_something(body: Any) -> bool:
    return any(one.acknowledgement_batches for topic in body.topics for one in topic.partitions)


def _wanted(request: Request) -> Work[dict[TopicIdPartition, str | None]]:
    """Work: return the partitions of a request, with the names of their topics, as far as there are any."""
    found: dict[TopicIdPartition, str | None] = {}
    for topic in request.body.topics:
        topic_id = topic_id_of(topic)
        name = request.broker.shares.topic_name(topic_id)
        for one in topic.partitions:
            found[topic_id, one.partition_index] = name
            yield
        yield
    return found


async def _session(
    request: Request, member: MemberKey, wanted: Mapping[TopicIdPartition, str | None]
) -> ShareSession | None:
    """Return the session of a request; None if it ends one.

    Raises:
        ApiError: It acknowledges what it cannot have yet.
        RefusedError: There is no such session, or there are too many.
    """
    body, sessions = request.body, request.broker.shares.sessions
    if body.share_session_epoch == FINAL_EPOCH:
        sessions.known(member)
        return None
    if body.share_session_epoch != INITIAL_EPOCH:
        session = sessions.go_on(member, body.share_session_epoch)
        await request.broker.turns.finish(_update(session, body, wanted))
        return session
    if _says_something(body):
        raise ApiError(ErrorCode.invalid_request)
    try:
        session = sessions.begin(member, wanted, request.connection)
    except RefusedError:
        # Otherwise clients would ask again without a pause.
        await request.broker.clock.sleep(milliseconds(body.max_wait))
        raise
    if request.connection.is_closed:
        request.broker.shares.disconnected(request.connection)
    return session


def _update(session: ShareSession, body: Any, wanted: Mapping[TopicIdPartition, str | None]) -> Work[None]:
    session.update(wanted, ())
    for topic in body.forgotten_topics_data:
        session.update({}, [(topic_id_of(topic), number) for number in topic.partitions])
        yield


async def _fetched(
    request: Request, member: MemberKey, names: Mapping[TopicIdPartition, str | None]
) -> dict[TopicIdPartition, dict[str, Any]]:
    """Return the answers for the partitions of a session."""
    broker, body = request.broker, request.body
    answers, valid = await broker.turns.finish(_checked(request, names))
    max_bytes = min(body.max_bytes, broker.config["fetch.max.bytes"])
    if request.loop_time is not None:
        # As in Kafka, that is all that the quota limits here.
        max_bytes = int(min(max_bytes, broker.quotas.fetch.most(request.user, request.client_id)))
    limits = FetchLimits(
        max_bytes,
        min(body.min_bytes, max_bytes),
        body.max_records,
        body.batch_size,
        given(body, "share_acquire_mode", 0) == _RECORD_LIMIT,
    )
    turn = body.share_session_epoch % len(valid) if valid and body.share_session_epoch > 0 else 0
    may_read = None if broker.authorization is None else partial(_may_read, request)
    fetch = ShareFetch(broker.shares, *member, [*valid[turn:], *valid[:turn]], limits, may_read)
    answers.update(await fetch.answer(milliseconds(body.max_wait)))
    return answers


def _may_read(request: Request, topic_id: UUID) -> bool:
    name = request.broker.shares.topic_name(topic_id)
    # What became of a topic that is no more is told elsewhere.
    return name is None or request.may(Operation.READ, ResourceType.TOPIC, name)


def _checked(
    request: Request, names: Mapping[TopicIdPartition, str | None]
) -> Work[tuple[dict[TopicIdPartition, dict[str, Any]], Sequence[TopicIdPartition]]]:
    """Work: return answers for the partitions that do not exist, and the other partitions."""
    answers: dict[TopicIdPartition, dict[str, Any]] = {}
    valid = []
    for key, name in list(names.items()):
        if name is None:
            answers[key] = partition_answer(key[1], int(ErrorCode.unknown_topic_id))
        elif not request.may(Operation.READ, ResourceType.TOPIC, name):
            answers[key] = partition_answer(key[1], int(ErrorCode.topic_authorization_failed))
        elif not request.broker.shares.exists(*key):
            answers[key] = partition_answer(key[1], int(ErrorCode.unknown_topic_or_partition))
        else:
            valid.append(key)
        yield
    return answers, valid


def _told(
    session: ShareSession, answers: Mapping[TopicIdPartition, dict[str, Any]]
) -> Work[dict[TopicIdPartition, dict[str, Any]]]:
    """Work: return the answers for the member."""
    told = {}
    for key, one in answers.items():
        if session.tells(key, has_records=bool(one["acquired_records"]), failed=bool(one["error_code"])):
            told[key] = one
        yield
    return told


def _responses(
    answers: Mapping[TopicIdPartition, dict[str, Any]], results: Mapping[TopicIdPartition, tuple[int, str | None]]
) -> Work[list[Message]]:
    """Work: return the answers and the results of acknowledgements by topics."""
    topics: dict[Any, list[Message]] = {}
    for key in {**answers, **results}:
        answer = answers.get(key) or partition_answer(key[1])
        if key in results:
            code, text = results[key]
            answer = {**answer, "acknowledge_error_code": code, "acknowledge_error_message": text}
        topics.setdefault(key[0], []).append(answer)
        yield
    return [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in topics.items()]
