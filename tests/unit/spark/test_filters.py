from __future__ import annotations

import datetime as dt

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from odradek.columnar.decode import MAX_TIMESTAMP, MIN_TIMESTAMP
from odradek.spark.filters import Narrowing
from odradek.spark.ranges import OffsetRange
from odradek.storage.names import TopicPartition

RANGES = [OffsetRange(TopicPartition("a", 0), 0, 100), OffsetRange(TopicPartition("b", 1), 50, 60)]
TIME = dt.datetime(1970, 1, 1, 0, 0, 1, 500, tzinfo=dt.UTC)  # 1000.5 ms


def narrowed(*filters: Filter) -> Narrowing:
    narrowing = Narrowing()
    for condition in filters:
        narrowing.add(condition)
    return narrowing


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([], [(0, 100), (50, 60)]),
        ([EqualTo(("topic",), "b")], [(50, 60)]),
        ([In(("partition",), (0, 7))], [(0, 100)]),
        ([EqualTo(("topic",), "a"), EqualTo(("partition",), 1)], []),
        ([GreaterThan(("offset",), 55)], [(56, 100), (56, 60)]),
        ([GreaterThanOrEqual(("offset",), 55), LessThan(("offset",), 57)], [(55, 57), (55, 57)]),
        ([LessThanOrEqual(("offset",), 50)], [(0, 51), (50, 51)]),
        ([In(("offset",), (52, 58))], [(52, 59), (52, 59)]),
        ([EqualTo(("offset",), 3)], [(3, 4)]),
        ([IsNotNull(("offset",)), Not(EqualTo(("partition",), 0)), EqualTo(("key",), b"k")], [(0, 100), (50, 60)]),
    ],
)
def test_narrows_ranges(filters: list[Filter], left: list[tuple[int, int]]) -> None:
    assert [(start, end) for _, start, end in narrowed(*filters).cut(RANGES)] == left


@pytest.mark.parametrize(
    ("condition", "ends"),
    [
        (GreaterThan(("timestamp",), TIME), (1000, MAX_TIMESTAMP)),
        (GreaterThanOrEqual(("timestamp",), TIME), (1000, MAX_TIMESTAMP)),
        (LessThan(("timestamp",), TIME), (MIN_TIMESTAMP, 1001)),
        (LessThanOrEqual(("timestamp",), TIME), (MIN_TIMESTAMP, 1001)),
        (EqualTo(("timestamp",), TIME), (1000, 1001)),
        (EqualTo(("timestamp",), TIME.replace(tzinfo=None)), (MIN_TIMESTAMP, MAX_TIMESTAMP)),
    ],
)
def test_narrows_times_to_whole_milliseconds(condition: Filter, ends: tuple[int, int]) -> None:
    narrowing = narrowed(condition)
    assert (narrowing.start_timestamp, narrowing.end_timestamp) == ends
