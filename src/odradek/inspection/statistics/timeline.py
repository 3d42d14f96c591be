"""How many bytes and records a log got in each stretch of time, however long its time is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

_FIRST_WIDTH_MS = 1000
_MOST_STRETCHES = 1024


class Stretch(NamedTuple):
    """What was written in a stretch of time, by the timestamps of the batches.

    Attributes:
        start_ms: When it begins.
        size_bytes: The bytes of its batches.
        records: Their records.
    """

    start_ms: int
    size_bytes: int
    records: int


class Timeline:
    """Bytes and records by time. Stretches without any take no room; if there are too many, they become longer.

    Attributes:
        width_ms: How long a stretch is.
    """

    def __init__(self) -> None:
        self.width_ms = _FIRST_WIDTH_MS
        self._stretches: dict[int, list[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._stretches)

    @property
    def stretches(self) -> list[Stretch]:
        """The stretches in which something was written, in order."""
        return [Stretch(number * self.width_ms, *self._stretches[number]) for number in sorted(self._stretches)]

    def add(self, runs: Iterable[tuple[int, int, int]]) -> None:
        """Add bytes and records by the numbers of their stretches, as `BatchTally.add` gives them."""
        for number, size_bytes, records in runs:
            stretch = self._stretches.setdefault(number, [0, 0])
            stretch[0] += size_bytes
            stretch[1] += records
        while len(self._stretches) > _MOST_STRETCHES:
            self._widen()

    def merge(self, other: Timeline) -> None:
        """Add those of another log."""
        while self.width_ms < other.width_ms:
            self._widen()
        factor = self.width_ms // other.width_ms
        self.add((number // factor, *counts) for number, counts in other._stretches.items())  # type: ignore[misc]

    def _widen(self) -> None:
        narrow, self._stretches = self._stretches, {}
        self.width_ms *= 2
        for number, (size_bytes, records) in narrow.items():
            stretch = self._stretches.setdefault(number // 2, [0, 0])
            stretch[0] += size_bytes
            stretch[1] += records
