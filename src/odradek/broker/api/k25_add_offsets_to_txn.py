"""AddOffsetsToTxn: a producer tells the group whose offsets its transaction will commit.

What is added is the partition of `__consumer_offsets` that has the group's offsets. v2 (KIP-588) tells PRODUCER_FENCED
instead of INVALID_PRODUCER_EPOCH; v4 (KIP-890) only says that the client knows TRANSACTION_ABORTABLE. Clients of
`transaction.version` 2 do not send this request: TxnOffsetCommit adds the partition.

Source in Kafka: `KafkaApis.handleAddOffsetsToTxnRequest`.
"""

from __future__ import annotations

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.protocol import Message
from odradek.broker.transactions.rules import ProducerIdAndEpoch
from odradek.coordination.placement import partition_for
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, TopicPartition

_FIRST_WITH_FENCED = 2


def _failed(request: Request, code: int, text: str) -> Message:
    return {"error_code": code}


@api(25, "AddOffsetsToTxn", range(5), failed=_failed)
async def add_offsets_to_txn(request: Request) -> Message:
    """Add the partition."""
    body = request.body
    count = len(request.broker.topics.internal(CONSUMER_OFFSETS_TOPIC).partitions)
    partition = TopicPartition(CONSUMER_OFFSETS_TOPIC, partition_for(body.group_id, count))
    producer = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
    try:
        await request.broker.transactions.add_partitions(body.transactional_id, producer, [partition], 0)
    except ApiError as error:
        raise error.fenced_as_before(is_old=request.version < _FIRST_WITH_FENCED) from None
    return {"error_code": NO_ERROR}
