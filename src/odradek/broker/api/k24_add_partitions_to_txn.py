"""AddPartitionsToTxn: a producer tells which partitions its transaction will write to.

If one of them does not exist, none is added. v2 (KIP-588) tells PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; v4
and v5 (KIP-890) are sent by brokers, for several transactions at a time, to add partitions or only to verify that they
were added. Clients of `transaction.version` 2 do not send this request at all.

Source in Kafka: `KafkaApis.handleAddPartitionsToTxnRequest`, `TransactionCoordinator.handleAddPartitionsToTransaction`,
`TransactionCoordinator.handleVerifyPartitionsInTransaction`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.protocol import Message
from odradek.broker.transactions.metadata import EPOCH_BUMPS
from odradek.broker.transactions.rules import ProducerIdAndEpoch
from odradek.storage.names import TopicPartition

_FIRST_WITH_FENCED = 2
_FIRST_OF_BROKERS = 4


def _failed(request: Request, code: int, text: str) -> Message:
    if request.version >= _FIRST_OF_BROKERS:
        return {"error_code": code, "results_by_transaction": []}
    partitions = _named(request.body.v3_and_below_topics)
    return {"results_by_topic_v3_and_below": _results(dict.fromkeys(partitions, code))}


def _named(topics: Iterable[Any]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]


def _results(codes: Mapping[TopicPartition, int]) -> list[Message]:
    topics: dict[str, list[Message]] = {}
    for (topic, number), code in codes.items():
        topics.setdefault(topic, []).append({"partition_index": number, "partition_error_code": code})
    return [{"name": topic, "results_by_partition": partitions} for topic, partitions in topics.items()]


@api(24, "AddPartitionsToTxn", range(6), failed=_failed)
async def add_partitions_to_txn(request: Request) -> Message:
    """Add the partitions."""
    body = request.body
    if request.version < _FIRST_OF_BROKERS:
        producer = ProducerIdAndEpoch(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
        partitions = _named(body.v3_and_below_topics)
        codes = await _add(request, body.v3_and_below_transactional_id, producer, partitions, verify_only=False)
        return {"results_by_topic_v3_and_below": _results(codes)}
    results = []
    for one in body.transactions:
        producer = ProducerIdAndEpoch(one.producer_id, one.producer_epoch)
        codes = await _add(request, one.transactional_id, producer, _named(one.topics), verify_only=one.verify_only)
        results.append({"transactional_id": one.transactional_id, "topic_results": _results(codes)})
    return {"error_code": NO_ERROR, "results_by_transaction": results}


async def _add(
    request: Request,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: list[TopicPartition],
    *,
    verify_only: bool,
) -> Mapping[TopicPartition, int]:
    topics = request.broker.logs.metadata_image.topics
    missing = [
        one for one in partitions if one.topic not in topics or one.partition not in topics[one.topic].partitions
    ]
    if missing:
        others = [one for one in partitions if one not in missing]
        return {
            **dict.fromkeys(missing, int(ErrorCode.unknown_topic_or_partition)),
            **dict.fromkeys(others, int(ErrorCode.operation_not_attempted)),
        }
    coordinator = request.broker.transactions
    try:
        if verify_only:
            found = coordinator.verify_partitions(transactional_id, producer, partitions)
            return {one: int(code) for one, code in found.items()}
        client_version = EPOCH_BUMPS if request.version >= _FIRST_OF_BROKERS else 0
        await coordinator.add_partitions(transactional_id, producer, partitions, client_version)
    except ApiError as error:
        code = error.fenced_as_before(is_old=request.version < _FIRST_WITH_FENCED).error_code
        return dict.fromkeys(partitions, code)
    return dict.fromkeys(partitions, NO_ERROR)
