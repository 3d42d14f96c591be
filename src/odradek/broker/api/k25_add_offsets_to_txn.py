"""AddOffsetsToTxn: a producer tells the group whose offsets its transaction will commit.

What is added is the partition of `__consumer_offsets` that has the group's offsets. v2 (KIP-588) tells PRODUCER_FENCED
instead of INVALID_PRODUCER_EPOCH; v4 (KIP-890) only says that the client knows TRANSACTION_ABORTABLE. Clients of
`transaction.version` 2 do not send this request: TxnOffsetCommit adds the partition.

Source in Kafka: `KafkaApis.handleAddOffsetsToTxnRequest`.
"""

from __future__ import annotations

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR
from odradek.broker.protocol import Message
from odradek.broker.state_topic import check_storable
from odradek.coordination.transactions.rules import ProducerIdAndEpoch
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, TopicPartition


@api(25, "AddOffsetsToTxn", range(5), fenced_since=2)
async def add_offsets_to_txn(request: Request) -> Message:
    """Add the partition."""
    body = request.body
    # Before its hash is computed: that of an id of megabytes takes a second.
    check_storable(body.group_id)
    await request.broker.topics.internal(CONSUMER_OFFSETS_TOPIC)
    partition = TopicPartition(CONSUMER_OFFSETS_TOPIC, request.broker.groups.partition_for(body.group_id))
    producer = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
    await request.broker.transactions.add_partitions(body.transactional_id, producer, [partition], 0)
    return {"error_code": NO_ERROR}
