"""A coordinator's state in an internal topic: records by key, of which the last one counts.

Source in Kafka: `CoordinatorRuntime`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from odradek.broker.errors import ApiError
from odradek.broker.partitions import Partition
from odradek.records.append.validator import AppendOrigin
from odradek.records.batch import read_records
from odradek.records.builder import build_batch
from odradek.records.header import BatchHeader
from odradek.records.kernels.objects import Record
from odradek.records.scan import scan_batches

_LONGEST_TEXT = 0x7FFF


def check_storable(text: str) -> None:
    """Check whether an id of a client fits a record.

    Raises:
        ApiError: It is too long.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > _LONGEST_TEXT:
        reason = f"an id of {size} bytes cannot be stored, as it is longer than {_LONGEST_TEXT}"
        raise ApiError(ErrorCode.unknown_server_error, reason)


class StateRecord(NamedTuple):
    """A record of the state, and the batch that it is in."""

    record: Record
    batch: BatchHeader


def append_state(
    partition: Partition,
    records: Iterable[tuple[bytes, bytes | None]],
    now_ms: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    is_transactional: bool = False,
) -> int:
    """Append records to the state, in one batch: all of them, or none.

    Args:
        partition: The partition of the internal topic.
        records: Their keys and values; None is a tombstone.
        now_ms: Their timestamp.
        producer_id: The producer that the offsets of a transaction belong to.
        producer_epoch: Its epoch.
        is_transactional: Whether they belong to a transaction.

    Returns:
        The offset of the first record.

    Raises:
        BrokerError: They are refused.
        LogError: The disk failed.
    """
    made = [
        Record(offset=number, timestamp=now_ms, key=key, value=value) for number, (key, value) in enumerate(records)
    ]
    data = build_batch(made, producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=is_transactional)
    return partition.append(bytearray(data), origin=AppendOrigin.COORDINATOR).first_offset


def load_state(partition: Partition) -> Iterator[StateRecord]:
    """Yield all records of the state, control records among them, from the first to the last.

    Raises:
        FormatError: A batch is damaged.
        LogError: The log cannot be read.
    """
    for part in partition.log.slices():
        for header in scan_batches(part.data, part.position, part.end_position, origin=part.origin):
            for record in read_records(part.data, header, origin=part.origin):
                yield StateRecord(record, header)
