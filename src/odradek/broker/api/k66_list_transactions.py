"""ListTransactions: the transactional ids and their states (KIP-664).

v1 (KIP-994) can ask for those whose transaction began some time ago, v2 (KIP-1152) for those whose id matches a
pattern, which is RE2's as in Apache Kafka: no pattern takes time that grows faster than the id. But a pattern of some
bytes can take microseconds for each character, so ids are matched in another thread, for one request at a time.

Source in Kafka: `KafkaApis.handleListTransactionsRequest`, `TransactionStateManager.listTransactionStates`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any

import re2
from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.protocol import Message, given
from odradek.broker.turns import each
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.coordination.patterns import compiled
from odradek.coordination.transactions.metadata import Transaction
from odradek.messages.coordinators.transaction_records import STATE_NAMES

_MOST_MATCHED = 1 << 15
"""After this many characters of ids others may use the thread; the longest id has as many."""


@api(66, "ListTransactions", range(3))
async def list_transactions(request: Request) -> Message:
    """Answer the transactional ids."""
    body, broker = request.body, request.broker
    states = broker.transactions.states
    if states.is_loading:
        raise ApiError(ErrorCode.coordinator_load_in_progress)
    pattern = _pattern(request)
    known = {name: state for state, name in STATE_NAMES.items()}
    producer_ids = set(body.producer_id_filters)
    wanted_states = {known[name] for name in body.state_filters if name in known}
    duration_ms = given(body, "duration_filter", -1)
    now_ms = broker.clock.now_ms()

    def is_wanted(transaction: Transaction) -> bool:
        metadata = transaction.metadata
        return (
            (not producer_ids or metadata.producer_id in producer_ids)
            and (not body.state_filters or metadata.state in wanted_states)
            and (duration_ms < 0 or now_ms - metadata.start_ms > duration_ms)
        )

    transactions = list(states)
    wanted = await broker.turns.finish(each(transactions, is_wanted))
    found = list(compress(transactions, wanted))
    if pattern is not None:
        found = await _matching(request, pattern, found)
    ids = [one.transactional_id for one in found]
    shown, _ = await broker.turns.finish(request.split(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, ids))
    found = [one for one in found if one.transactional_id in shown]
    return {
        "error_code": NO_ERROR,
        "unknown_state_filters": [name for name in body.state_filters if name not in known],
        "transaction_states": await broker.turns.finish(each(found, _answer)),
    }


def _pattern(request: Request) -> Any:
    """Return the pattern that a client wants ids to match, or None."""
    pattern = given(request.body, "transactional_id_pattern")
    try:
        return compiled(pattern) if pattern else None
    except re2.error as error:
        raise ApiError(ErrorCode.invalid_regular_expression, str(error)) from None


async def _matching(request: Request, pattern: Any, transactions: Sequence[Transaction]) -> list[Transaction]:
    """Return the transactions whose id matches a pattern."""
    broker, found = request.broker, list[Transaction]()
    for part in _parts(transactions):

        def match(part: Sequence[Transaction] = part) -> list[Transaction]:
            return [one for one in part if pattern.fullmatch(one.transactional_id) is not None]

        # A fair lock: requests that wait for it match their parts in turns.
        async with broker.transactions.states.matching:
            found += await broker.run(match)
    return found


def _parts(transactions: Sequence[Transaction]) -> Iterator[Sequence[Transaction]]:
    begin = size = 0
    for number, one in enumerate(transactions):
        size += len(one.transactional_id)
        if size > _MOST_MATCHED:
            yield transactions[begin:number]
            begin, size = number, len(one.transactional_id)
    yield transactions[begin:]


def _answer(transaction: Transaction) -> Message:
    return {
        "transactional_id": transaction.transactional_id,
        "producer_id": transaction.metadata.producer_id,
        "transaction_state": STATE_NAMES[transaction.metadata.state],
    }
