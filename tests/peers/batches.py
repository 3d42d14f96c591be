"""Batches as producers send them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from odradek.records import Record, read_records, scan_batches
from odradek.records.builder import build_batch


def transactional(
    records: Sequence[Record], producer_id: int, base_sequence: int = 0, *, producer_epoch: int = 0, **fields: Any
) -> bytes:
    """Return a batch of a transaction; for `fields` see `build_batch`."""
    return build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=True,
        **fields,
    )


def records_of(data: bytes) -> list[Record]:
    """Return the records of whole batches.

    Raises:
        FormatError: They are damaged.
    """
    scan = scan_batches(data)
    found = [record for header in scan for record in read_records(data, header)]
    if scan.damage is not None:
        raise scan.damage
    return found
