"""DescribeProducers: the producers that a partition knows, and where their open transactions begin (KIP-664).

Source in Kafka: `KafkaApis.handleDescribeProducersRequest`, `UnifiedLog.activeProducers`.
"""

from __future__ import annotations

from collections.abc import Awaitable

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError, code_of
from odradek.broker.protocol import Message
from odradek.broker.topic_names import check_topic_name
from odradek.errors import OdradekError


def _failed(request: Request, code: int, text: str) -> Message:
    return {
        "topics": [
            {"name": topic.name, "partitions": [_error(number, code, text) for number in topic.partition_indexes]}
            for topic in request.body.topics
        ]
    }


def _error(number: int, code: int, text: str | None) -> Message:
    return {"partition_index": number, "error_code": code, "error_message": text, "active_producers": []}


@api(61, "DescribeProducers", range(1), failed=_failed)
def describe_producers(request: Request) -> Message | Awaitable[Message]:
    """Answer the producers."""
    named = ((topic.name, number) for topic in request.body.topics for number in topic.partition_indexes)
    return request.broker.partitions.when_open(named, lambda: _describe_all(request))


def _describe_all(request: Request) -> Message:
    return {
        "topics": [
            {"name": topic.name, "partitions": [_describe(request, topic.name, one) for one in topic.partition_indexes]}
            for topic in request.body.topics
        ]
    }


def _describe(request: Request, topic: str, number: int) -> Message:
    try:
        check_topic_name(topic)
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
