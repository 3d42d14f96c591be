"""A backfill by Spark, through the command line, beside a job that has a batch of its own in between."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import odradek
from odradek.cli.app import main

JOB = """
name = "shop"
source = {{ path = "data", subscribe = "orders" }}
offsets = {{ store = "file:offsets.json", reset = "latest" }}
trigger = {{ max_offsets_per_batch = 40 }}

[[transform]]
view = "texts"
sql = "SELECT topic, partition, offset, CAST(value AS STRING) AS text FROM records"

[[sink]]
type = "parquet"
view = "texts"
path = "out"
{more}
"""
TOPIC = """
[[sink]]
type = "topic"
topic = "copy"
path = "copies"
"""

pytestmark = pytest.mark.usefixtures("signals_as_before")


def run(file: Path, *options: str, code: int = 0) -> str:
    ended = CliRunner().invoke(main, ["pipeline", "run", str(file), *options])
    assert ended.exit_code == code, ended.output
    return ended.output


def append(folder: Path, count: int) -> None:
    with odradek.open(folder / "data") as logs:
        for partition in range(2):
            start = logs["orders", partition].log_end_offset
            records = [odradek.Record(value=b"%d %d" % (partition, start + number)) for number in range(count)]
            logs["orders", partition].append(records)


def stored(path: Path) -> Counter[str]:
    return Counter(text for file in path.glob("*.parquet") for text in pq.read_table(file)["text"].to_pylist())


def texts(start: int, end: int) -> Counter[str]:
    return Counter(f"{partition} {offset}" for partition in range(2) for offset in range(start, end))


def test_a_range_of_the_past_is_written_once(tmp_path: Path) -> None:
    for name, topic in (("data", "orders"), ("copies", "copy")):
        with odradek.open(tmp_path / name) as logs:
            logs.create_topic(topic, partitions=2)
    append(tmp_path, 100)
    file = tmp_path / "shop.toml"
    file.write_text(JOB.format(more=TOPIC), encoding="utf-8")
    assert "the job has no position in orders-0" in run(file, "--from", "0", "--until", "9", "--assume-unheld", code=3)
    run(file)
    append(tmp_path, 20)
    run(file)
    position = json.loads((tmp_path / "offsets.json").read_text())["positions"]["orders"]["0"]["offset"]
    refused = run(file, "--from", "earliest", code=3)
    assert "line 16: sink[1]" in refused
    assert "give --assume-unheld" in refused
    options = ("--from", "earliest", "--until", "100", "--assume-unheld")
    for _ in range(2):
        run(file, *options)
        assert stored(tmp_path / "out") == texts(0, 120)
        with odradek.open(tmp_path / "copies", mode="r") as logs:
            found = Counter(record.value for name in logs.topic_partitions("copy") for record in logs[name])
        assert found == Counter({text.encode(): 1 for text in texts(0, 120)})
    assert json.loads((tmp_path / "offsets.json").read_text())["positions"]["orders"]["0"]["offset"] == position
    append(tmp_path, 5)
    run(file)
    assert stored(tmp_path / "out") == texts(0, 125)


def test_a_separate_output_and_files_that_were_removed(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("orders", partitions=2)
    append(tmp_path, 30)
    file = tmp_path / "shop.toml"
    file.write_text(JOB.format(more="").replace("latest", "earliest"), encoding="utf-8")
    run(file)
    for lost in (tmp_path / "out").glob("orders-0-*.parquet"):
        lost.unlink()
    run(file, "--from", "orders-0=5", "--into", "again")
    assert stored(tmp_path / "out.again") == Counter(f"0 {offset}" for offset in range(5, 30))
    run(file, "--from", "2026-01-01", "--until", "10")
    assert stored(tmp_path / "out") == texts(0, 30) - Counter(f"0 {offset}" for offset in range(10, 30))
    run(file, "--from", "0")
    assert stored(tmp_path / "out") == texts(0, 30)
    assert "nothing to write" in run(file, "--from", "30")
