"""ListTransactions: the transactional ids and their states (KIP-664).

v1 (KIP-994) can ask for those whose transaction began some time ago, v2 (KIP-1152) for those whose id matches a
pattern: Python's, where Apache Kafka takes Java's.

Source in Kafka: `KafkaApis.handleListTransactionsRequest`, `TransactionStateManager.listTransactionStates`.
"""

from __future__ import annotations

import re

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.protocol import Message, given
from odradek.broker.transactions.metadata import STATE_NAMES, Transaction


def _failed(request: Request, code: int, text: str) -> Message:
    return {"error_code": code, "unknown_state_filters": [], "transaction_states": []}


@api(66, "ListTransactions", range(3), failed=_failed)
def list_transactions(request: Request) -> Message:
    """Answer the transactional ids."""
    body = request.body
    states = request.broker.transactions.states
    if states.is_loading:
        raise ApiError(ErrorCode.coordinator_load_in_progress)
    try:
        pattern = re.compile(given(body, "transactional_id_pattern") or "(?s).*")
    except re.error as error:
        raise ApiError(ErrorCode.invalid_regular_expression, str(error)) from None
    known = {name: state for state, name in STATE_NAMES.items()}
    wanted_states = {known[name] for name in body.state_filters if name in known}
    duration_ms = given(body, "duration_filter", -1)
    now_ms = request.broker.clock.now_ms()

    def is_wanted(transaction: Transaction) -> bool:
        metadata = transaction.metadata
        return (
            (not body.producer_id_filters or metadata.producer_id in body.producer_id_filters)
            and (not body.state_filters or metadata.state in wanted_states)
            and (duration_ms < 0 or now_ms - metadata.start_ms > duration_ms)
            and pattern.fullmatch(transaction.transactional_id) is not None
        )

    return {
        "error_code": NO_ERROR,
        "unknown_state_filters": [name for name in body.state_filters if name not in known],
        "transaction_states": [
            {
                "transactional_id": transaction.transactional_id,
                "producer_id": transaction.metadata.producer_id,
                "transaction_state": STATE_NAMES[transaction.metadata.state],
            }
            for transaction in states
            if is_wanted(transaction)
        ],
    }
