"""AddPartitionsToTxn: a producer tells which partitions its transaction will write to.

If one of them does not exist, none is added. v2 (KIP-588) tells PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; v4
and v5 (KIP-890) are sent by brokers, for several transactions at a time, to add partitions or only to verify that they
were added. Clients of `transaction.version` 2 do not send this request at all.

Source in Kafka: `KafkaApis.handleAddPartitionsToTxnRequest`, `TransactionCoordinator.handleAddPartitionsToTransaction`,
`TransactionCoordinator.handleVerifyPartitionsInTransaction`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, fenced_as_before
from odradek.broker.protocol import Message
from odradek.broker.turns import Work, rest
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.coordination.transactions.metadata import EPOCH_BUMPS
from odradek.coordination.transactions.rules import ProducerIdAndEpoch
from odradek.errors import BrokerError
from odradek.storage.names import TopicPartition, is_internal

_FIRST_WITH_FENCED = 2
_FIRST_OF_BROKERS = 4


def _named(topics: Iterable[Any]) -> Iterator[TopicPartition]:
    return (TopicPartition(topic.name, number) for topic in topics for number in topic.partitions)


def _results(codes: Mapping[TopicPartition, int]) -> Work[list[Message]]:
    topics: dict[str, list[Message]] = {}
    for (topic, number), code in codes.items():
        topics.setdefault(topic, []).append({"partition_index": number, "partition_error_code": code})
        yield
    return [{"name": topic, "results_by_partition": partitions} for topic, partitions in topics.items()]


@api(24, "AddPartitionsToTxn", range(6))
async def add_partitions_to_txn(request: Request) -> Message:
    """Add the partitions."""
    body, turns = request.body, request.broker.turns
    if request.version < _FIRST_OF_BROKERS:
        producer = ProducerIdAndEpoch(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
        named = _named(body.v3_and_below_topics)
        if request.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, body.v3_and_below_transactional_id):
            codes = await _add(request, body.v3_and_below_transactional_id, producer, named, verify_only=False)
        else:
            codes = dict.fromkeys(named, int(ErrorCode.transactional_id_authorization_failed))
        return {"results_by_topic_v3_and_below": await turns.finish(_results(codes))}
    request.check(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    results = []
    for at, one in enumerate(body.transactions):
        await rest(at)
        producer = ProducerIdAndEpoch(one.producer_id, one.producer_epoch)
        codes = await _add(request, one.transactional_id, producer, _named(one.topics), verify_only=one.verify_only)
        topics = await turns.finish(_results(codes))
        results.append({"transactional_id": one.transactional_id, "topic_results": topics})
    return {"error_code": NO_ERROR, "results_by_transaction": results}


def _missing(
    request: Request, named: Iterable[TopicPartition]
) -> Work[tuple[dict[TopicPartition, int], list[TopicPartition]]]:
    """Return which of some partitions do not exist or may not be written to, and the others."""
    topics = request.broker.logs.metadata_image.topics
    missing: dict[TopicPartition, int] = {}
    present: dict[TopicPartition, None] = {}
    of_brokers = request.version >= _FIRST_OF_BROKERS
    for one in named:
        # As in Apache Kafka, clients add no partition of an internal topic, whatever they may do.
        may_write = of_brokers or (
            not is_internal(one.topic) and request.may(Operation.WRITE, ResourceType.TOPIC, one.topic)
        )
        if not may_write:
            missing[one] = int(ErrorCode.topic_authorization_failed)
        elif one.topic in topics and one.partition in topics[one.topic].partitions:
            present[one] = None
        else:
            missing[one] = int(ErrorCode.unknown_topic_or_partition)
        yield
    return missing, list(present)


async def _add(
    request: Request,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    named: Iterable[TopicPartition],
    *,
    verify_only: bool,
) -> Mapping[TopicPartition, int]:
    missing, partitions = await request.broker.turns.finish(_missing(request, named))
    if missing:
        return missing | dict.fromkeys(partitions, int(ErrorCode.operation_not_attempted))
    coordinator = request.broker.transactions
    try:
        if verify_only:
            found = coordinator.verify_partitions(transactional_id, producer, partitions)
            return {one: int(code) for one, code in found.items()}
        client_version = EPOCH_BUMPS if request.version >= _FIRST_OF_BROKERS else 0
        await coordinator.add_partitions(transactional_id, producer, partitions, client_version)
    except BrokerError as error:
        code = fenced_as_before(error.error_code, is_old=request.version < _FIRST_WITH_FENCED)
        return dict.fromkeys(partitions, code)
    return dict.fromkeys(partitions, NO_ERROR)
