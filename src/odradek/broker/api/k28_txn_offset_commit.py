"""TxnOffsetCommit: a group's offsets are written as part of a producer's transaction.

They count when the transaction is committed. v2 (KIP-320) adds the leader epoch, v3 (KIP-447) the member, so that one
that has lost its partitions is refused; v4 knows TRANSACTION_ABORTABLE, v5 (KIP-890) adds the partition of
`__consumer_offsets` to the transaction, so that AddOffsetsToTxn need not; v6 (KIP-1319) names topics by their ids,
which are kept with the offsets, and answers GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH.

Source in Kafka: `KafkaApis.handleTxnOffsetCommitRequest`, `OffsetMetadataManager.commitTransactionalOffset`.
"""

from __future__ import annotations

from functools import partial

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.api.k08_offset_commit import commits, failed_topics
from odradek.broker.errors import ApiError, code_of
from odradek.broker.groups.answers import PartitionAnswers
from odradek.broker.protocol import Message, given
from odradek.broker.transactions.verification import ClientLevel
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.coordination.transactions.rules import ProducerIdAndEpoch
from odradek.errors import BrokerError

_FIRST_THAT_KNOWS_LOADING = 2
_FIRST_WITH_TOPIC_IDS = 6


def _failed(request: Request, code: int, text: str) -> Message:
    return {"topics": failed_topics(request, request.body.topics, _as_known(request, code))}


def _as_known(request: Request, code: int) -> int:
    if request.version < _FIRST_THAT_KNOWS_LOADING and code == ErrorCode.coordinator_load_in_progress:
        # Old producers die of it.
        return int(ErrorCode.coordinator_not_available)
    return code


@api(28, "TxnOffsetCommit", range(7), failed=_failed, group_ids=lambda request: [request.body.group_id])
async def txn_offset_commit(request: Request) -> Message:
    """Write offsets of a transaction."""
    body, broker = request.body, request.broker
    answers = PartitionAnswers(broker.logs.metadata_image, partial(request.may, Operation.READ, ResourceType.TOPIC))
    await broker.turns.finish(answers.look_up(body.topics))
    if not answers.found:
        return {"topics": answers.topics()}
    try:
        if not body.group_id:
            raise ApiError(ErrorCode.invalid_group_id)
        by_id = request.version >= _FIRST_WITH_TOPIC_IDS
        kept, too_large = await broker.turns.finish(
            commits(request, body.group_id, answers.found, broker.clock.now_ms())
        )
        shard = broker.groups.shard(body.group_id)
        producer = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
        level = ClientLevel.of_offset_commit(request.version)
        verified = broker.verification.verify_offset_commit(body.transactional_id, producer, shard.partition, level)
        if verified is not None:
            await verified
        shard.check_commit(
            body.group_id,
            given(body, "member_id", ""),
            given(body, "group_instance_id"),
            body.generation_id_or_member_epoch if by_id else given(body, "generation_id", -1),
            is_transactional=True,
            partitions=answers.found,
            version=request.version,
            unknown=ErrorCode.group_id_not_found if by_id else ErrorCode.illegal_generation,
            knows_epochs=by_id,
        )
        shard.commit(kept, *producer)
    except BrokerError as error:
        answers.answer_all(_as_known(request, code_of(error)))
    else:
        answers.answer_committed(too_large)
    return {"topics": answers.topics()}
