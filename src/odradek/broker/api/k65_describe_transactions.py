"""DescribeTransactions: the state of transactional ids (KIP-664).

While a transaction ends, its partitions are those that have no marker yet.

Source in Kafka: `KafkaApis.handleDescribeTransactionsRequest`, `TransactionCoordinator.handleDescribeTransactions`.
"""

from __future__ import annotations

from functools import partial

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.protocol import Message
from odradek.broker.turns import Work, each
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.messages.coordinators.transaction_records import STATE_NAMES


def _error(transactional_id: str, code: int) -> Message:
    return {
        "error_code": code,
        "transactional_id": transactional_id,
        "transaction_state": "",
        "transaction_timeout_ms": 0,
        "transaction_start_time_ms": 0,
        "producer_id": 0,
        "producer_epoch": 0,
        "topics": [],
    }


def _failed(request: Request, code: int, text: str) -> Message:
    return {"transaction_states": [_error(one, code) for one in request.body.transactional_ids]}


@api(65, "DescribeTransactions", range(1), failed=_failed)
def describe_transactions(request: Request) -> Work[Message]:
    """Answer the states."""
    return {
        "transaction_states": (
            yield from each(dict.fromkeys(request.body.transactional_ids), partial(_describe, request))
        )
    }


def _describe(request: Request, transactional_id: str) -> Message:
    try:
        request.check(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        if not transactional_id:
            raise ApiError(ErrorCode.invalid_request)
        transaction = request.broker.transactions.states.get(transactional_id)
        if transaction is None:
            raise ApiError(ErrorCode.transactional_id_not_found)
    except ApiError as error:
        return _error(transactional_id, error.error_code)
    metadata = transaction.metadata
    return {
        "error_code": NO_ERROR,
        "transactional_id": transactional_id,
        "transaction_state": STATE_NAMES[metadata.state],
        "transaction_timeout_ms": metadata.timeout_ms,
        "transaction_start_time_ms": metadata.start_ms,
        "producer_id": metadata.producer_id,
        "producer_epoch": metadata.producer_epoch,
        "topics": [
            {"topic": topic, "partitions": numbers}
            for topic, numbers in metadata.by_topic().items()
            if request.may(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        ],
    }
