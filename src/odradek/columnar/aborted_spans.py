"""The spans of the transactions that `isolation="read_committed"` leaves out, as the decoders take them."""

from __future__ import annotations

from odradek.records.isolation import Isolation
from odradek.storage.log.log import Log


def aborted_spans(log: Log, start_offset: int, end_offset: int, isolation: Isolation) -> list[tuple[int, int, int]]:
    """Return the aborted transactions of a range: producer id, first and last offset; none for `read_uncommitted`."""
    if isolation != "read_committed":
        return []
    return [transaction[:3] for transaction in log.aborted_transactions(start_offset, end_offset)]
