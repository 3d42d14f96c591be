"""OffsetCommit: a group's offsets are written, of a member of it or of a consumer that assigns partitions to itself.

The answer comes when they are in the log. v2 to v4 may say how long an offset is kept; a sum that an int64 does not
hold overflows as in Kafka, to a time in the past. v6 (KIP-320) adds the leader epoch, v7 (KIP-345) static members; v9
(KIP-848) answers GROUP_ID_NOT_FOUND for a group that there is not; v10 (KIP-848) names topics by their ids.

Source in Kafka: `KafkaApis.handleOffsetCommitRequest`, `OffsetMetadataManager.commitOffset`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import code_of
from odradek.broker.groups.answers import AskedPartition, PartitionAnswers
from odradek.broker.groups.shard import Commit
from odradek.broker.protocol import Message, RequestHeader, given
from odradek.broker.request_body import decode_request
from odradek.broker.state_topic import check_storable
from odradek.broker.turns import Work
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.errors import BrokerError
from odradek.messages.coordinators.group_records import NO_EXPIRY, NO_LEADER_EPOCH, OffsetCommitValue
from odradek.records.kernels.frames import WireReader

_FIRST_WITH_GROUP_ID_NOT_FOUND = 9
_WITH_RETENTION = range(2, 5)
_NOT_GIVEN = -1
_RETENTION = struct.Struct(">q")


class OffsetCommitBody(NamedTuple):
    """The body of a request.

    Attributes:
        asked: The object of kio's class, but for the retention time: it cannot hold all that there are.
        retention_ms: How long the offsets are kept; -1 if it does not say.
    """

    asked: Any
    retention_ms: int

    @property
    def group_id(self) -> str:
        """The group."""
        group_id: str = self.asked.group_id
        return group_id


def decode(frame: bytearray, header: RequestHeader) -> OffsetCommitBody:
    """Read the body of a request.

    Raises:
        ProtocolError: It does not follow its schema.
    """
    retention_ms = _NOT_GIVEN
    if header.version in _WITH_RETENTION:
        reader = WireReader(frame, header.body_position, is_flexible=False)
        reader.skip_text()
        reader.int32()
        reader.skip_text()
        position, retention_ms = reader.position, reader.int64()
        _RETENTION.pack_into(frame, position, _NOT_GIVEN)
    return OffsetCommitBody(decode_request(frame, header), retention_ms)


def _failed(request: Request, code: int, text: str) -> Message:
    return {"topics": failed_topics(request, request.body.asked.topics, code)}


def failed_topics(request: Request, topics: Iterable[Any], code: int) -> list[Message]:
    """Return the answers to a request that failed as a whole."""
    if request.broker.authorization is not None:
        # The client may be one that must not learn which topics there are.
        return PartitionAnswers.of_refused(topics, code)
    return PartitionAnswers.of_failed(request.broker.logs.metadata_image, topics, code)


@api(
    8,
    "OffsetCommit",
    range(2, 11),
    failed=_failed,
    decode=decode,
    group_ids=lambda request: [request.body.asked.group_id],
)
def offset_commit(request: Request) -> Work[Message]:
    """Write offsets."""
    body, broker = request.body.asked, request.broker
    answers = PartitionAnswers(broker.logs.metadata_image, partial(request.may, Operation.READ, ResourceType.TOPIC))
    yield from answers.look_up(body.topics)
    if answers.found:
        is_late = request.version >= _FIRST_WITH_GROUP_ID_NOT_FOUND
        now_ms = broker.clock.now_ms()
        kept_ms = request.body.retention_ms
        expiry = NO_EXPIRY if kept_ms == _NOT_GIVEN else _as_int64(now_ms + kept_ms)
        try:
            kept, too_large = yield from commits(request, body.group_id, answers.found, now_ms, expiry)
            # The rest is one step: the member that may commit now may not after another turn.
            shard = broker.groups.shard(body.group_id)
            shard.check_commit(
                body.group_id,
                body.member_id,
                given(body, "group_instance_id"),
                body.generation_id_or_member_epoch,
                is_transactional=False,
                partitions=answers.found,
                version=request.version,
                unknown=ErrorCode.group_id_not_found if is_late else ErrorCode.illegal_generation,
            )
            shard.commit(kept)
        except BrokerError as error:
            answers.answer_all(code_of(error))
        else:
            answers.answer_committed(too_large)
    return {"topics": answers.topics()}


def _as_int64(value: int) -> int:
    """Return a sum as Java's `long` holds it, with overflow."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def commits(
    request: Request,
    group_id: str,
    found: list[AskedPartition],
    now_ms: int,
    expiry: int = NO_EXPIRY,
) -> Work[tuple[list[Commit], set[int]]]:
    """Work: return the offsets to be written, and the places of those whose metadata is too large.

    Raises:
        ApiError: No group can have this id.
    """
    limit = request.broker.config["offset.metadata.max.bytes"]
    check_storable(group_id)
    kept, too_large = [], set()
    for place, one in enumerate(found):
        yield
        metadata = one.asked.committed_metadata or ""
        # Kafka counts Java's characters, which are units of UTF-16.
        if len(metadata.encode("utf-16-le", "surrogatepass")) // 2 > limit:
            too_large.add(place)
            continue
        epoch = given(one.asked, "committed_leader_epoch", NO_LEADER_EPOCH)
        value = OffsetCommitValue(one.asked.committed_offset, metadata, now_ms, epoch, expiry, one.topic_id)
        kept.append(Commit.of(group_id, one.topic_partition, value))
    return kept, too_large
