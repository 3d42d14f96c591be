"""Filter pushdown: filters on `topic`, `partition`, `offset` and `timestamp` narrow what is read.

Spark pushes filters down if `spark.sql.python.filterPushdown.enabled` is set, and refuses a source that takes filters
if it is not; so the option `pushDownFilters` must say that it is. Every filter is also returned to Spark, which applies
it again: here only records that fail a filter may be skipped, and not all of them need be.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from odradek.columnar.decode import MAX_OFFSET, MAX_TIMESTAMP, MIN_TIMESTAMP
from odradek.records.timestamps import floor_ms
from odradek.spark.ranges import OffsetRange


@dataclass
class Narrowing:
    """What remains to be read after the filters.

    Attributes:
        topics: The topics; all if None.
        partitions: The partitions' numbers; all if None.
        start_offset: The first offset.
        end_offset: The offset after the last one.
        start_timestamp: The first timestamp, in ms.
        end_timestamp: The timestamp after the last one, in ms.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    start_offset: int = 0
    end_offset: int = MAX_OFFSET
    start_timestamp: int = MIN_TIMESTAMP
    end_timestamp: int = MAX_TIMESTAMP

    def add(self, condition: Filter) -> None:
        """Take a filter into account, if it is of a kind that narrows what is read."""
        match condition:
            case EqualTo((name,), value):
                self._within(name, (value,))
            case In((name,), values):
                self._within(name, values)
            case GreaterThan((name,), value) | GreaterThanOrEqual((name,), value):
                low = _number(name, value)
                if low is not None:
                    self._above(name, low + (name == "offset" and isinstance(condition, GreaterThan)))
            case LessThan((name,), value) | LessThanOrEqual((name,), value):
                high = _number(name, value)
                if high is not None:
                    # A timestamp is cut to ms, so the whole millisecond may still match.
                    self._below(name, high + (name == "timestamp" or isinstance(condition, LessThanOrEqual)))

    def _within(self, name: str, values: Iterable[Any]) -> None:
        wanted = frozenset(values)
        if name == "topic":
            self.topics = wanted if self.topics is None else self.topics & wanted
        elif name == "partition":
            self.partitions = wanted if self.partitions is None else self.partitions & wanted
        else:
            numbers = [_number(name, value) for value in wanted]
            known = [number for number in numbers if number is not None]
            if known and len(known) == len(numbers):
                self._above(name, min(known))
                self._below(name, max(known) + 1)

    def _above(self, name: str, low: int) -> None:
        if name == "offset":
            self.start_offset = max(self.start_offset, low)
        else:
            self.start_timestamp = max(self.start_timestamp, low)

    def _below(self, name: str, end: int) -> None:
        if name == "offset":
            self.end_offset = min(self.end_offset, end)
        else:
            self.end_timestamp = min(self.end_timestamp, end)

    def cut(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Cut from ranges the offsets that fail a filter."""
        left = []
        for name, start, end in ranges:
            if self.topics is not None and name.topic not in self.topics:
                continue
            if self.partitions is not None and name.partition not in self.partitions:
                continue
            first, after = max(start, self.start_offset), min(end, self.end_offset)
            if first < after:
                left.append(OffsetRange(name, first, after))
        return left


def _number(name: str, value: Any) -> int | None:
    """Return an offset, or a timestamp in ms, rounded down."""
    if name == "offset" and isinstance(value, int):
        return value
    if name == "timestamp" and isinstance(value, dt.datetime) and value.tzinfo is not None:
        return floor_ms(value)
    return None
