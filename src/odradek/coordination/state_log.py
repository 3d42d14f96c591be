"""A change of a coordinator's state, as its topic has it: one batch of records, all of which count or none.

Source in Kafka: `CoordinatorRuntime`.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.records.builder import build_batch
from odradek.records.kernels.objects import Record

KeyValue = tuple[bytes, bytes | None]
"""The key and the value of a record of the state; a value of None is a tombstone."""


def state_batch(records: Iterable[KeyValue], now_ms: int, producer: tuple[int, int] = (-1, -1)) -> bytearray:
    """Return a change of the state as a batch.

    Args:
        records: The keys and values.
        now_ms: Their timestamp.
        producer: The producer id and epoch whose transaction they belong to, if they belong to one.
    """
    made = [
        Record(offset=number, timestamp=now_ms, key=key, value=value) for number, (key, value) in enumerate(records)
    ]
    producer_id, producer_epoch = producer
    return bytearray(
        build_batch(made, producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=producer_id >= 0)
    )
