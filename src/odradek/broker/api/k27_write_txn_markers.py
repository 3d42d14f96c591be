"""WriteTxnMarkers: ends producers' transactions in partitions, whatever the coordinator thinks.

Brokers send it to each other, and `kafka-transactions.sh abort` for a transaction that hangs (KIP-664). v2 (KIP-1228)
adds the `transaction.version`, by which the epoch of the marker is checked.

Source in Kafka: `KafkaApis.handleWriteTxnMarkersRequest`.
"""

from __future__ import annotations

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, code_of
from odradek.broker.protocol import Message, given
from odradek.broker.transactions.markers import Marker, write_markers
from odradek.storage.names import TopicPartition


def _failed(request: Request, code: int, text: str) -> Message:
    return {
        "markers": [
            {
                "producer_id": marker.producer_id,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            {"partition_index": number, "error_code": code} for number in topic.partition_indexes
                        ],
                    }
                    for topic in marker.topics
                ],
            }
            for marker in request.body.markers
        ]
    }


@api(27, "WriteTxnMarkers", range(1, 3), failed=_failed)
async def write_txn_markers(request: Request) -> Message:
    """Append the markers."""
    answered: dict[int, dict[TopicPartition, int]] = {}
    for one in request.body.markers:
        marker = Marker(
            one.producer_id,
            one.producer_epoch,
            one.transaction_result,
            one.coordinator_epoch,
            given(one, "transaction_version", 0),
        )
        named = [TopicPartition(topic.name, number) for topic in one.topics for number in topic.partition_indexes]
        written = await write_markers(request.broker, named, marker)
        answered.setdefault(one.producer_id, {}).update(
            {partition: NO_ERROR if error is None else code_of(error) for partition, error in written.items()}
        )
    return {
        "markers": [{"producer_id": producer_id, "topics": _by_topic(codes)} for producer_id, codes in answered.items()]
    }


def _by_topic(codes: dict[TopicPartition, int]) -> list[Message]:
    topics: dict[str, list[Message]] = {}
    for (topic, number), code in codes.items():
        topics.setdefault(topic, []).append({"partition_index": number, "error_code": code})
    return [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
