"""Timestamps that no calendar has, as micro- and nanoseconds are that a producer gave: outside of the years 1 to 9999.

Kafka keeps any 64 bits. Arrow's milliseconds hold them too, but what comes after (Spark's and DuckDB's microseconds,
Python's dates) does not: it fails without a place, or counts on from the other end. So all that gives rows as a table
has one rule: an error that names the record, or null and a count. `read`, `dump` and `replay` have the number itself.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Generator, Iterable

import pyarrow as pa
import pyarrow.compute as pc

from odradek.errors import OptionError, TimestampOutOfRangeError
from odradek.records.timestamps import FIRST_MS, LAST_MS, OnFarTimestamps, warn_caller
from odradek.storage.names import TopicPartition


def int64_scalar(number: int) -> pa.Scalar:
    """Return a number as Arrow has it: to convert one of Python's, pyarrow imports pandas."""
    return pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(array("q", [number]))])[0]


_FIRST, _LAST = int64_scalar(FIRST_MS), int64_scalar(LAST_MS)


def far_rows(timestamps: pa.Array) -> pa.Array | None:
    """Return which rows have a far timestamp, as booleans; None if there is none.

    Args:
        timestamps: In ms, int64.
    """
    bounds = pc.min_max(timestamps)
    least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
    if least is None or (least >= FIRST_MS and greatest <= LAST_MS):
        return None
    return pc.or_(pc.less(timestamps, _FIRST), pc.greater(timestamps, _LAST))


class FarTimestamps:
    """What one reader does about them, and how many it met. Any thread may use it.

    Args:
        chosen: `error`, or `null`.
        name: What the caller calls this choice, for errors.

    Raises:
        OptionError: It is neither.
    """

    def __init__(self, chosen: OnFarTimestamps = "error", name: str = "far_timestamps") -> None:
        if chosen not in ("error", "null"):
            raise OptionError(f"{name} must be error or null, not {chosen!r}")
        self.chosen: OnFarTimestamps = chosen
        self._name = name
        self._lock = threading.Lock()
        self._count = 0
        self._first: TimestampOutOfRangeError | None = None

    def __reduce__(self) -> tuple[type[FarTimestamps], tuple[OnFarTimestamps, str]]:
        return type(self), (self.chosen, self._name)

    def met(self, place: TopicPartition, offset: int, timestamp: int, count: int) -> TimestampOutOfRangeError | None:
        """Take note of rows with far timestamps.

        Args:
            place: The partition.
            offset: The offset of the first.
            timestamp: Its timestamp, in ms.
            count: How many there are.

        Returns:
            The error to raise, after the rows before that record; None if they are null.
        """
        error = TimestampOutOfRangeError(*place, offset, timestamp, option=self._name)
        if self.chosen == "error":
            return error
        self.add(count, error)
        return None

    def add(self, count: int, first: TimestampOutOfRangeError | None) -> None:
        """Count what another reader of the same gave as null: what its `taken` says."""
        with self._lock:
            self._count += count
            self._first = self._first or first

    def taken(self) -> tuple[int, TimestampOutOfRangeError | None]:
        """Return how many were given as null since the last call, and the first of them."""
        with self._lock:
            count, first, self._count, self._first = self._count, self._first, 0, None
        return count, first

    def counted(self, batches: Iterable[pa.RecordBatch]) -> Generator[pa.RecordBatch]:
        """Give what is read, then warn of those that were given as null, however the reading ends."""
        try:
            yield from batches
        finally:
            self.warn()

    def warn(self) -> None:
        """Warn of those that were given as null since the last call, if any."""
        count, first = self.taken()
        if first is not None:
            which, are = ("timestamp", "is") if count == 1 else ("timestamps", "are")
            warn_caller(f"{count} {which} outside of the years 1 to 9999 {are} null; the first: {first.record}")
