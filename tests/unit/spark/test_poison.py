"""Which failures of a batch are a record's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from odradek.errors import JobError
from odradek.spark.pipeline import Job, poison
from odradek.spark.pipeline.batch import Batch
from odradek.spark.pipeline.forwarding import format_offsets, parse_offsets
from odradek.spark.ranges import OffsetRange
from odradek.storage.names import TopicPartition

NAME = TopicPartition("orders", 0)
JOB = """
name = "orders"
source = { path = "data", subscribe = "orders" }
offsets.store = "file:offsets.json"
[[sink]]
type = "parquet"
path = "out"
"""
POISON = "[CAST_INVALID_INPUT] The value 'nine' cannot be cast"
AWAY = "Traceback ...\nodradek.errors.BrokerUnavailableError: 127.0.0.1:9092 does not answer"


def test_a_broker_that_is_away_makes_no_record_a_bad_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """While the record that fails is looked for, its broker goes: the others are not put aside for that."""
    probes = 0

    class Frame:
        """What Spark is asked to compute."""

        def __init__(self, batch: Batch) -> None:
            self._ranges = batch.ranges

        def __getattr__(self, name: str) -> Any:
            return self if name == "write" else lambda *_: self

        def save(self) -> None:
            nonlocal probes
            probes += 1
            if probes > 2:
                raise PySparkException(AWAY)
            if any(start <= 5 < end for _, start, end in self._ranges):
                raise PySparkException(POISON)

    @contextmanager
    def views(_: Batch) -> Iterator[None]:
        yield

    monkeypatch.setattr(Batch, "views", views)
    monkeypatch.setattr(poison, "_frames", lambda batch: [Frame(batch)])
    nothing: Any = None
    batch = Batch(Job.parse(JOB, tmp_path), nothing, [OffsetRange(NAME, 0, 8)], nothing)
    with pytest.raises(JobError, match="does not answer"):
        list(poison.find_poison(batch, 100))
    probes = -100
    assert list(poison.find_poison(batch, 100)) == [poison.PoisonRecord(NAME, 5, POISON, is_of_a_function=False)]


def test_which_records_have_a_letter_fits_beside_a_position() -> None:
    # Those of a batch, and as many of the time before a crash, far from each other, as in a compacted log.
    offsets = sorted(random.Random(1).sample(range(10**12, 10**12 + 10**9), 2 * poison.MOST_RECORDS))
    text = format_offsets(offsets)
    assert list(parse_offsets(text)) == offsets
    assert len(text) < 3_800
    assert list(parse_offsets(format_offsets([]))) == []


def test_a_long_value_is_not_quoted_in_full() -> None:
    said = "[CAST_INVALID_INPUT] The value '" + "a" * 600_000 + "' of the type STRING cannot be cast to INT"
    found = poison.shortened(said)
    assert len(found) < 2100
    assert found.startswith("[CAST_INVALID_INPUT] The value 'aaa")
    assert found.endswith("aaa' of the type STRING cannot be cast to INT")
    assert f"... ({len(said) - 2000} characters) ..." in found
    assert poison.shortened("short") == "short"
