"""EndTxn: commits or aborts a producer's transaction.

The answer comes when the end is decided; the markers follow. An end of a transaction that never began is refused with
INVALID_TXN_STATE below v5. v2 (KIP-588) tells PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; v4 (KIP-890) only says
that the client knows TRANSACTION_ABORTABLE; v5 (KIP-890) is of `transaction.version` 2: it answers the id and the epoch
of the next transaction, and an abort is accepted though nothing reached the broker.

Source in Kafka: `KafkaApis.handleEndTxnRequest`, `TransactionCoordinator.handleEndTransaction`.
"""

from __future__ import annotations

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR
from odradek.broker.protocol import Message
from odradek.coordination.transactions.metadata import EPOCH_BUMPS
from odradek.coordination.transactions.rules import ProducerIdAndEpoch

_FIRST_WITH_NEW_EPOCHS = 5


@api(26, "EndTxn", range(6), fenced_since=2)
async def end_txn(request: Request) -> Message:
    """End the transaction."""
    body = request.body
    client_version = EPOCH_BUMPS if request.version >= _FIRST_WITH_NEW_EPOCHS else 0
    producer = await request.broker.transactions.end(
        body.transactional_id,
        ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
        commit=body.committed,
        client_version=client_version,
    )
    return {"error_code": NO_ERROR, **producer._asdict()}
