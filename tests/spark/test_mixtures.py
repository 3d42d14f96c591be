"""Logs with several things wrong at once: Spark is given what other readers of the folder are given, or their error."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import odradek
from odradek.errors import FormatError
from peers.mixtures import mixture_of, write

Rows = list[tuple[int, bytes]]


def test_spark_gives_what_other_readers_give(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(0)
    mixtures = [mixture_of(f"t{number}", rng) for number in range(40)]
    write(tmp_path / "data", mixtures)
    given: dict[str, Rows] = {}
    errors: dict[str, FormatError] = {}
    for mixture in mixtures:
        found: Rows = []
        try:
            for table in odradek.scan(tmp_path / "data", mixture.topic):
                found += zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)
        except FormatError as error:
            errors[mixture.topic] = error
        else:
            given[mixture.topic] = found
    frames = spark.read.format("odradek").option("subscribe", ",".join(given)).load(str(tmp_path / "data"))
    read: dict[str, Rows] = {topic: [] for topic in given}
    for row in frames.select("topic", "offset", "value").orderBy("topic", "offset").toArrow().to_pylist():
        read[row["topic"]].append((row["offset"], row["value"]))
    assert read == given
    # Some of each kind.
    assert len(given) > 10
    assert len(errors) > 5
    for topic in sorted(errors)[:3]:
        frame = spark.read.format("odradek").option("subscribe", topic).load(str(tmp_path / "data"))
        with pytest.raises(PySparkException, match=re.escape(errors[topic].reason)):
            frame.count()
