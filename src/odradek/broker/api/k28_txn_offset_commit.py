"""TxnOffsetCommit: a group's offsets are written as part of a producer's transaction.

They count when the transaction is committed. v2 (KIP-320) adds the leader epoch, v3 (KIP-447) the member, so that one
that has lost its partitions is refused; v4 knows TRANSACTION_ABORTABLE, v5 (KIP-890) adds the partition of
`__consumer_offsets` to the transaction, so that AddOffsetsToTxn need not.

Source in Kafka: `KafkaApis.handleTxnOffsetCommitRequest`, `OffsetMetadataManager.commitTransactionalOffset`.
"""

from __future__ import annotations

from collections.abc import Awaitable

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.api.k08_offset_commit import committed_values
from odradek.broker.errors import ApiError, code_of
from odradek.broker.groups.answers import PartitionAnswers
from odradek.broker.groups.shard import Shard
from odradek.broker.protocol import Message, given
from odradek.broker.transactions.verification import verify_offset_commit
from odradek.errors import BrokerError

_FIRST_THAT_KNOWS_LOADING = 2


def _failed(request: Request, code: int, text: str) -> Message:
    answers = PartitionAnswers(request.broker.logs.metadata_image, request.body.topics)
    return _refused(request, answers, code)


def _refused(request: Request, answers: PartitionAnswers, code: int) -> Message:
    if request.version < _FIRST_THAT_KNOWS_LOADING and code == ErrorCode.coordinator_load_in_progress:
        # Old producers die of it.
        code = int(ErrorCode.coordinator_not_available)
    answers.answer_all(code)
    return {"topics": answers.topics()}


@api(28, "TxnOffsetCommit", range(6), failed=_failed)
def txn_offset_commit(request: Request) -> Message | Awaitable[Message]:
    """Write offsets of a transaction."""
    body, broker = request.body, request.broker
    answers = PartitionAnswers(broker.logs.metadata_image, body.topics)
    if not answers.found:
        return {"topics": answers.topics()}
    if not body.group_id:
        raise ApiError(ErrorCode.invalid_group_id)
    shard = broker.groups.shard(body.group_id)
    verified = verify_offset_commit(request, shard.partition)
    if verified is None:
        return _commit(request, shard, answers)
    return _commit_verified(request, shard, answers, verified)


async def _commit_verified(
    request: Request, shard: Shard, answers: PartitionAnswers, verified: Awaitable[None]
) -> Message:
    try:
        await verified
    except BrokerError as error:
        return _refused(request, answers, code_of(error))
    return _commit(request, shard, answers)


def _commit(request: Request, shard: Shard, answers: PartitionAnswers) -> Message:
    body = request.body
    try:
        shard.check_commit(
            body.group_id,
            given(body, "member_id", ""),
            given(body, "group_instance_id"),
            given(body, "generation_id", -1),
            is_transactional=True,
        )
        # Apache Kafka writes no topic ids here.
        kept, too_large = committed_values(request, answers.found, request.broker.clock.now_ms(), with_ids=False)
        shard.commit(body.group_id, kept, body.producer_id, body.producer_epoch)
    except BrokerError as error:
        return _refused(request, answers, code_of(error))
    for place, one in enumerate(answers.found):
        is_large = place in too_large
        answers.answer(one, int(ErrorCode.offset_metadata_too_large if is_large else ErrorCode.none))
    return {"topics": answers.topics()}
