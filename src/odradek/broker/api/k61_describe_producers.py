"""DescribeProducers: the producers that a partition knows, and where their open transactions begin (KIP-664).

Source in Kafka: `KafkaApis.handleDescribeProducersRequest`, `UnifiedLog.activeProducers`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError, code_of
from odradek.broker.protocol import Message
from odradek.broker.topic_names import check_topic_name, shown_topic
from odradek.broker.turns import Work, each
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.errors import OdradekError


def _error(number: int, code: int, text: str | None) -> Message:
    return {"partition_index": number, "error_code": code, "error_message": text}


@api(61, "DescribeProducers", range(1))
def describe_producers(request: Request) -> Message | Awaitable[Message]:
    """Answer the producers."""
    named = ((topic.name, number) for topic in request.body.topics for number in topic.partition_indexes)
    return request.broker.partitions.when_open(named, lambda: request.broker.turns.take(_describe_all(request)))


def _describe_all(request: Request) -> Work[Message]:
    asked: dict[str, dict[int, None]] = {}
    for topic in request.body.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        yield
    topics = []
    for name, numbers in asked.items():
        topics.append({"name": name, "partitions": (yield from each(numbers, partial(_describe, request, name)))})
        yield
    return {"topics": topics}


def _describe(request: Request, topic: str, number: int) -> Message:
    try:
        check_topic_name(shown_topic(topic))
        request.check(Operation.READ, ResourceType.TOPIC, topic)
        if topic not in request.broker.logs.metadata_image.topics:
            raise ApiError(ErrorCode.unknown_topic_or_partition)
    except ApiError as error:
        return _error(number, error.error_code, error.reason)
    try:
        states = list(request.broker.partitions.get(topic, number).log.producers.producers.values())
    except OdradekError as error:
        return _error(number, code_of(error), None)
    producers = [
        {
            "producer_id": state.producer_id,
            "producer_epoch": state.producer_epoch,
            "last_sequence": state.last_sequence,
            "last_timestamp": state.last_timestamp,
            "coordinator_epoch": state.coordinator_epoch,
            "current_txn_start_offset": (
                -1 if state.current_transaction_first_offset is None else state.current_transaction_first_offset
            ),
        }
        for state in sorted(states, key=lambda state: state.producer_id)
    ]
    return {
        "partition_index": number,
        "error_code": NO_ERROR,
        "error_message": None,
        "active_producers": producers,
    }
