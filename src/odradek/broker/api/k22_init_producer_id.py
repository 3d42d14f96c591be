"""InitProducerId: gives a producer its id and epoch, and fences the producers that had the transactional id before.

An open transaction is aborted first: the client gets CONCURRENT_TRANSACTIONS and asks again. v3 (KIP-360) lets a
producer continue after an error, by its id and epoch; v4 (KIP-588) answers PRODUCER_FENCED instead of
INVALID_PRODUCER_EPOCH; v5 (KIP-890) only says that the client knows TRANSACTION_ABORTABLE. Two-phase commits (KIP-939)
are v6, which Apache Kafka 4.3 does not advertise either.

Source in Kafka: `KafkaApis.handleInitProducerIdRequest`, `TransactionCoordinator.handleInitProducerId`.
"""

from __future__ import annotations

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR
from odradek.broker.protocol import Message, given, milliseconds
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.coordination.transactions.metadata import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from odradek.coordination.transactions.rules import ProducerIdAndEpoch


@api(22, "InitProducerId", range(6), fenced_since=4)
async def init_producer_id(request: Request) -> Message:
    """Answer the id and the epoch."""
    body = request.body
    _check_access(request)
    expected = ProducerIdAndEpoch(
        given(body, "producer_id", NO_PRODUCER_ID), given(body, "producer_epoch", NO_PRODUCER_EPOCH)
    )
    producer = await request.broker.transactions.init_producer_id(
        body.transactional_id, milliseconds(body.transaction_timeout), expected
    )
    return {"error_code": NO_ERROR, **producer._asdict()}


def _check_access(request: Request) -> None:
    """Check that a client may have a producer id.

    Raises:
        ApiError: It may not.
    """
    transactional_id = request.body.transactional_id
    if transactional_id is not None:
        request.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        return
    # Who may write to any topic may do so with an idempotent producer (KIP-679).
    if not request.may(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, is_told=False) and not request.may_with_any(
        Operation.WRITE, ResourceType.TOPIC
    ):
        request.check(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
