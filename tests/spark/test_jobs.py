"""Several jobs of one file, in one Spark: one after another, or at the same time."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.dataset
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

import odradek
from odradek.cli.app import main

# Views and functions have the same names in all jobs, and mean others.
JOBS = """
[source]
path = "data"
[offsets]
store = "file:{name}.json"
[trigger]
max_offsets_per_batch = 4

[[job]]
name = "forward"
source.subscribe = "orders"
[[job.udf]]
name = "changed"
function = "MODULE:twice"
returns = "string"
[[job.transform]]
view = "changed"
sql = "SELECT topic, partition, offset, changed(CAST(value AS STRING)) AS value FROM records"
[[job.sink]]
type = "topic"
topic = "internal"
view = "changed"
path = "data"

[[job]]
name = "wrong"
source.subscribe = "orders"
[[job.transform]]
view = "changed"
sql = "SELECT CAST(concat(CAST(value AS STRING), '!') AS INT) AS number FROM records"
[[job.sink]]
type = "parquet"
view = "changed"
path = "wrong"

[[job]]
name = "store"
source.subscribe = "SUBSCRIBED"
[[job.udf]]
name = "changed"
function = "MODULE:negative"
returns = "string"
[[job.transform]]
view = "changed"
sql = "SELECT offset, changed(CAST(value AS STRING)) AS value FROM records"
[[job.sink]]
type = "parquet"
view = "changed"
path = "stored"
"""
FUNCTIONS = """
def twice(text):
    return str(int(text) * 2)


def negative(text):
    return "-" + text
"""


pytestmark = pytest.mark.usefixtures("signals_as_before")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topics([odradek.NewTopic("orders"), odradek.NewTopic("internal")])
        logs["orders", 0].append([odradek.Record(value=b"%d" % number) for number in range(1, 9)])
    (tmp_path / f"{tmp_path.name}.py").write_text(FUNCTIONS, encoding="utf-8")
    return tmp_path


def run(folder: Path, subscribed: str, *options: str) -> Result:
    file = folder / "jobs.toml"
    file.write_text(JOBS.replace("SUBSCRIBED", subscribed).replace("MODULE", folder.name), encoding="utf-8")
    return CliRunner().invoke(main, ["pipeline", "run", str(file), *options])


def events(done: Result) -> list[tuple[str, str]]:
    return [(line["job"], line["event"]) for line in map(json.loads, done.stdout.splitlines())]


def forwarded(folder: Path) -> list[bytes | None]:
    with odradek.open(folder / "data", "r") as logs:
        return [record.value for record in logs["internal", 0].read(isolation="read_committed")]


def stored(folder: Path) -> list[str]:
    files = pyarrow.dataset.dataset(folder / "stored", partitioning=None, exclude_invalid_files=True)
    return [row["value"] for row in files.to_table().sort_by("offset").to_pylist()]


WRONG = (
    "jobs.toml: line 31: job wrong: sink[0]: the record at offset 0 of orders-0 cannot be processed: "
    "[CAST_INVALID_INPUT] The value '1!'"
)


def test_without_an_interval_each_job_finds_what_those_before_it_wrote(spark: SparkSession, folder: Path) -> None:
    done = run(folder, "internal")
    # The one that failed is told, and the next one runs all the same.
    assert done.exit_code == 3
    assert [line for line in done.stderr.splitlines() if WRONG in line]
    assert forwarded(folder) == [b"%d" % (2 * number) for number in range(1, 9)]
    assert stored(folder) == [f"-{2 * number}" for number in range(1, 9)]
    batches = [line.partition(": batch")[0] for line in done.stdout.splitlines() if " offsets of " in line]
    assert batches == ["forward"] * 2 + ["store"] * 3  # the transactions' markers have offsets, too
    again = run(folder, "internal", "--job", "store", "--format", "jsonl")
    assert (again.exit_code, events(again)) == (0, [("store", "ended")])


def test_jobs_that_follow_run_at_the_same_time_and_each_to_its_end(spark: SparkSession, folder: Path) -> None:
    done = run(folder, "orders", "--follow", "1", "--format", "jsonl")
    assert done.exit_code == 3
    assert [line for line in done.stderr.splitlines() if WRONG in line]
    assert forwarded(folder) == [b"%d" % (2 * number) for number in range(1, 9)]
    assert stored(folder) == [f"-{number}" for number in range(1, 9)]
    assert {("wrong", "failed"), ("forward", "ended"), ("store", "ended")} < set(events(done))
    lines = map(json.loads, done.stdout.splitlines())
    lags = {line["job"]: line["lag"] for line in lines if line["event"] == "batch"}
    assert lags == {"forward": 0, "store": 0}
