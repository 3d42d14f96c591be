"""What ShareFetch and ShareAcknowledge have in common: the member, and what it says about records.

Source in Kafka: `KafkaApis.handleAcknowledgements`, `KafkaApis.validateAcknowledgementBatches`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request
from odradek.broker.errors import NO_ERROR, ApiError, code_of, message_of
from odradek.broker.protocol import Message, given
from odradek.broker.state_topic import check_storable
from odradek.broker.turns import Work, rest
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.coordination.shares.changes import Acknowledgement
from odradek.coordination.shares.record_states import AcknowledgeType
from odradek.coordination.shares.sessions import MemberKey, TopicIdPartition
from odradek.errors import OdradekError
from odradek.messages.coordinators.share_records import ShareKey
from odradek.messages.uuids import ZERO_UUID

_LONGEST_MEMBER_ID = 36
FIRST_WITH_RENEWAL = 2
_TURNS_TO_BEGIN = 2
"""One for the request, one for each of its partitions: these begin at once."""


def failed(request: Request, code: int, text: str) -> Message:
    """Return the answer to a request that failed as a whole; it has no text."""
    return {"error_code": code, "acquisition_lock_timeout_ms": 0, "responses": []}


def member_of(request: Request) -> MemberKey:
    """Return the group and the member that a request comes from.

    Raises:
        ApiError: It does not say, or share groups are off.
    """
    request.broker.shares.check_enabled()
    group_id, member_id = request.body.group_id, request.body.member_id
    if group_id is None:
        raise ApiError(ErrorCode.invalid_request)
    request.check(Operation.READ, ResourceType.GROUP, group_id)
    if not member_id or len(member_id) > _LONGEST_MEMBER_ID:
        raise ApiError(ErrorCode.invalid_request)
    check_storable(group_id)
    return group_id, member_id


def topic_id_of(topic: Any) -> UUID:
    """Return the id of a topic of a request."""
    return topic.topic_id or ZERO_UUID


def said(request: Request) -> Work[dict[TopicIdPartition, list[Acknowledgement] | None]]:
    """Work: return what a request says about the records of each partition; None for what makes no sense."""
    found: dict[TopicIdPartition, list[Acknowledgement] | None] = {}
    is_renewal = bool(given(request.body, "is_renew_ack", False))
    last_type = AcknowledgeType.RENEW if request.version >= FIRST_WITH_RENEWAL else AcknowledgeType.REJECT
    for topic in request.body.topics:
        for partition in topic.partitions:
            batches = partition.acknowledgement_batches
            key = topic_id_of(topic), partition.partition_index
            ok = yield from _make_sense(batches, last_type, is_renewal=is_renewal)
            found[key] = [Acknowledgement(*_fields(one)) for one in batches] if ok else None
            yield
        yield
    return found


def _fields(batch: Any) -> tuple[int, int, Sequence[int]]:
    return batch.first_offset, batch.last_offset, batch.acknowledge_types


def _make_sense(batches: Iterable[Any], last_type: int, *, is_renewal: bool) -> Work[bool]:
    before = -1
    for batch in batches:
        yield
        first, last, types = _fields(batch)
        if first > last or first < before or not types:
            return False
        if len(types) > 1 and last - first != len(types) - 1:
            return False
        kinds = set(types)
        if min(kinds) < 0 or max(kinds) > last_type or (AcknowledgeType.RENEW in kinds and not is_renewal):
            return False
        before = last
    return True


async def has_begun(acknowledgements: Mapping[TopicIdPartition, object]) -> None:
    """Let acknowledgements that have just started change the states of records, before these are written."""
    for _ in range(_TURNS_TO_BEGIN if acknowledgements else 0):
        await asyncio.sleep(0)


async def acknowledged(
    request: Request, member: MemberKey, acknowledgements: Mapping[TopicIdPartition, list[Acknowledgement] | None]
) -> dict[TopicIdPartition, tuple[int, str | None]]:
    """Take over what a member says, and return the error of each partition."""
    answers: dict[TopicIdPartition, tuple[int, str | None]] = {}
    nothing_said: list[TopicIdPartition] = []
    group_id, member_id = member
    shares, waiting = request.broker.shares, dict[TopicIdPartition, asyncio.Future[None]]()
    for number, (key, batches) in enumerate(acknowledgements.items()):
        name = shares.topic_name(key[0])
        if name is None:
            answers[key] = int(ErrorCode.unknown_topic_id), None
        elif batches is None:
            answers[key] = int(ErrorCode.invalid_request), None
        elif not request.may(Operation.READ, ResourceType.TOPIC, name):
            answers[key] = int(ErrorCode.topic_authorization_failed), None
        elif not shares.exists(*key):
            answers[key] = int(ErrorCode.unknown_topic_or_partition), None
        elif not batches:
            nothing_said.append(key)
        else:
            acting = shares.acknowledge(ShareKey(group_id, *key), member_id, batches)
            waiting[key] = asyncio.ensure_future(acting)
        if number % 50 == 49:
            await asyncio.sleep(0)
    if waiting:
        await asyncio.wait(waiting.values())
        answers |= dict.fromkeys(nothing_said, (NO_ERROR, None))
    for number, (key, ended) in enumerate(waiting.items()):
        error = ended.exception()
        if error is not None and not isinstance(error, OdradekError | OSError):
            raise error
        answers[key] = (NO_ERROR, None) if error is None else (code_of(error), message_of(error))
        if error is None:
            for one in acknowledgements[key] or ():
                request.broker.metrics.acknowledgement(*one)
        await rest(number)
    return answers
