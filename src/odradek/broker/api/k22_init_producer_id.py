"""InitProducerId: gives a producer its id and epoch, and fences the producers that had the transactional id before.

A transaction that is open is aborted first: the client is told CONCURRENT_TRANSACTIONS and asks again. v3 (KIP-360)
lets a producer go on after an error, by its id and epoch; v4 (KIP-588) tells PRODUCER_FENCED instead of
INVALID_PRODUCER_EPOCH; v5 (KIP-890) only says that the client knows TRANSACTION_ABORTABLE. Two-phase commits (KIP-939)
are v6, which Apache Kafka 4.3 does not advertise either.

Source in Kafka: `KafkaApis.handleInitProducerIdRequest`, `TransactionCoordinator.handleInitProducerId`.
"""

from __future__ import annotations

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.protocol import Message, given, milliseconds
from odradek.broker.transactions.metadata import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from odradek.broker.transactions.rules import ProducerIdAndEpoch

_FIRST_WITH_FENCED = 4


def _failed(request: Request, code: int, text: str) -> Message:
    return {"error_code": code, "producer_id": NO_PRODUCER_ID, "producer_epoch": NO_PRODUCER_EPOCH}


@api(22, "InitProducerId", range(6), failed=_failed)
async def init_producer_id(request: Request) -> Message:
    """Answer the id and the epoch."""
    body = request.body
    expected = ProducerIdAndEpoch(
        given(body, "producer_id", NO_PRODUCER_ID), given(body, "producer_epoch", NO_PRODUCER_EPOCH)
    )
    try:
        producer = await request.broker.transactions.init_producer_id(
            body.transactional_id, milliseconds(body.transaction_timeout), expected
        )
    except ApiError as error:
        raise error.fenced_as_before(is_old=request.version < _FIRST_WITH_FENCED) from None
    return {"error_code": NO_ERROR, **producer._asdict()}
