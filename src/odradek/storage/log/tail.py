"""Parts of a log's records: the last ones, and those of a range of times."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from odradek.arguments import checked_index
from odradek.errors import OffsetOutOfRangeError, OptionError
from odradek.records.header import NO_TIMESTAMP
from odradek.records.isolation import Isolation
from odradek.records.kernels.objects import Record
from odradek.storage.log.readable_log import Bounded


def last_records(log: Bounded, count: int, isolation: Isolation) -> list[Record]:
    """Return the last records of a log; see `Log.tail`.

    They are searched for in ranges of offsets, from the end backwards, each twice as long as the one before it. In most
    logs the first range has them; if compaction or transactions left offsets without a record, more ranges are read.
    """
    wanted = checked_index("count", count)
    if wanted < 0:
        raise OptionError(f"the number of records is {wanted}, which is negative")
    parts: list[deque[Record]] = []
    end = log.end_offset(isolation)
    wanted = length = min(wanted, max(0, end - log.log_start_offset))
    while wanted and end > log.log_start_offset:
        start = max(log.log_start_offset, end - length)
        try:
            parts.append(deque(log.read(start, end, isolation=isolation), maxlen=wanted))
        except OffsetOutOfRangeError:
            if start >= log.log_start_offset:
                raise
            # The range was deleted meanwhile.
            continue
        wanted -= len(parts[-1])
        end, length = start, 2 * length
    return [record for part in reversed(parts) for record in part]


def within(records: Iterable[Record], since_ms: int | None, until_ms: int | None) -> Iterator[Record]:
    """Yield the records whose timestamps are in a range; no timestamp counts as -1, as in Kafka's files."""
    for record in records:
        timestamp = NO_TIMESTAMP if record.timestamp is None else record.timestamp
        if (since_ms is None or timestamp >= since_ms) and (until_ms is None or timestamp < until_ms):
            yield record
