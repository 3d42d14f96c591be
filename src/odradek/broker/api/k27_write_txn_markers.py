"""WriteTxnMarkers: ends producers' transactions in partitions, whatever the coordinator thinks.

Brokers send it to each other, and `kafka-transactions.sh abort` for a transaction that hangs (KIP-664). v2 (KIP-1228)
adds the `transaction.version`, by which the epoch of the marker is checked.

Source in Kafka: `KafkaApis.handleWriteTxnMarkersRequest`.
"""

from __future__ import annotations

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, code_of
from odradek.broker.protocol import Message, given
from odradek.broker.transactions.markers import Marker
from odradek.broker.turns import rest
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.storage.names import TopicPartition


@api(27, "WriteTxnMarkers", range(1, 3))
async def write_txn_markers(request: Request) -> Message:
    """Append the markers."""
    if not request.may(Operation.ALTER, ResourceType.CLUSTER, is_told=False):
        request.check(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    answered: dict[int, dict[TopicPartition, int]] = {}
    for at, one in enumerate(request.body.markers):
        await rest(at)
        marker = Marker(
            one.producer_id,
            one.producer_epoch,
            one.transaction_result,
            one.coordinator_epoch,
            given(one, "transaction_version", 0),
        )
        named = [TopicPartition(topic.name, number) for topic in one.topics for number in topic.partition_indexes]
        written = await request.broker.markers.write(named, marker)
        answered.setdefault(one.producer_id, {}).update(
            {partition: NO_ERROR if error is None else code_of(error) for partition, error in written.items()}
        )
    return {
        "markers": [
            {"producer_id": producer_id, "topics": _by_topic(codes)} for producer_id, codes in answered.items() if codes
        ]
    }


def _by_topic(codes: dict[TopicPartition, int]) -> list[Message]:
    topics: dict[str, list[Message]] = {}
    for (topic, number), code in codes.items():
        topics.setdefault(topic, []).append({"partition_index": number, "error_code": code})
    return [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
