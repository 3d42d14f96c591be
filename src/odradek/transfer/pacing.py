"""The pace of a replay: records a second, bytes a second, or the distances of the timestamps."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pyarrow as pa

from odradek.records.header import NO_TIMESTAMP

_STEP_S = 0.1


class Pace:
    """Cuts rows into parts and says when each may go. Any thread may use it; all of them share one rate.

    Args:
        records: The most records a second, or None.
        size_bytes: The most bytes a second, or None.
        speed: How fast the time of the timestamps passes: 1.0 as it did, 2.0 twice as fast; None ignores timestamps.
    """

    def __init__(
        self, *, records: float | None = None, size_bytes: float | None = None, speed: float | None = None
    ) -> None:
        self.speed = speed
        self._rate = records if records is not None else size_bytes
        self._counts_bytes = records is None
        self._lock = threading.Lock()
        self._next_s = 0.0
        self._begun_s = 0.0
        self._first_ms: int | None = None

    def begin(self, first_ms: int | None) -> None:
        """Start the clock: records with this timestamp go now."""
        self._begun_s, self._first_ms = time.monotonic(), first_ms

    def parts(self, rows: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, float]]:
        """Yield parts of rows, each with the time (`time.monotonic`) before which it must not go."""
        if self.speed is not None and self._first_ms is not None:
            yield from self._by_timestamps(rows, self.speed, self._first_ms)
        elif self._rate is not None:
            yield from self._by_rate(rows, self._rate)
        else:
            yield rows, 0.0

    def _by_rate(self, rows: pa.RecordBatch, rate: float) -> Iterator[tuple[pa.RecordBatch, float]]:
        cost = rows.nbytes / rows.num_rows if self._counts_bytes else 1.0
        count = max(1, int(rate * _STEP_S / cost))
        for start in range(0, rows.num_rows, count):
            part = rows.slice(start, count)
            with self._lock:
                at_s = max(self._next_s, time.monotonic())
                self._next_s = at_s + part.num_rows * cost / rate
            yield part, at_s

    def _by_timestamps(
        self, rows: pa.RecordBatch, speed: float, first_ms: int
    ) -> Iterator[tuple[pa.RecordBatch, float]]:
        times = rows.column("timestamp").cast(pa.int64()).fill_null(NO_TIMESTAMP).to_pylist()
        start, at_s = 0, 0.0
        for number, timestamp in enumerate(times):
            due_s = self._begun_s + (timestamp - first_ms) / 1000 / speed
            # A record with an earlier timestamp than the one before it goes with that one: the order stays.
            if due_s > at_s + _STEP_S:
                if number > start:
                    yield rows.slice(start, number - start), at_s
                start, at_s = number, due_s
        yield rows.slice(start), at_s
