"""Jobs that start again after a failure, and workers of Spark that are killed in the middle of a batch."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow.dataset
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

import odradek
from chaos.job import Job
from odradek.cli.app import main
from peers.files import create_log

JOB = """
name = "orders"
source = { path = "data", subscribe = "orders" }
offsets.store = "file:offsets.json"
trigger.max_offsets_per_batch = 4
[[udf]]
name = "changed"
function = "MODULE:FUNCTION"
returns = "string"
[[transform]]
view = "changed"
sql = "SELECT topic, partition, offset, changed(CAST(value AS STRING)) AS value FROM records"
[[sink]]
type = "parquet"
view = "changed"
path = "out"
"""
STATE = """
[state]
path = "state"
view = "changed"
"""
FUNCTIONS = """
import os
import signal
from pathlib import Path


def times(limit):
    file = Path("TRIES")
    tries = file.read_text() if file.exists() else ""
    file.write_text(tries + ".")
    return len(tries) < limit


def killed(text):
    if text == "6" and times(2):
        os.kill(os.getpid(), signal.SIGKILL)
    return text


def raises(text):
    if text == "6" and not Path("TRIES").exists():
        raise ValueError("not yet")
    return text
"""

pytestmark = pytest.mark.usefixtures("signals_as_before")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    create_log(tmp_path / "data", "orders", [b"%d" % number for number in range(8)])
    functions = FUNCTIONS.replace("TRIES", str(tmp_path / "tries"))
    (tmp_path / f"{tmp_path.name}.py").write_text(functions, encoding="utf-8")
    return tmp_path


def run(folder: Path, function: str, more: str = "") -> Result:
    file = folder / "job.toml"
    file.write_text(JOB.replace("MODULE", folder.name).replace("FUNCTION", function) + more, encoding="utf-8")
    return CliRunner().invoke(main, ["pipeline", "run", str(file), "--format", "jsonl"])


def events(done: Result) -> list[tuple[str, int | None]]:
    lines = map(json.loads, done.stdout.splitlines())
    return [(line["event"], line.get("batch")) for line in lines]


def stored(folder: Path) -> list[str]:
    files = pyarrow.dataset.dataset(folder / "out", partitioning=None, exclude_invalid_files=True)
    return [row["value"] for row in files.to_table().sort_by("offset").to_pylist()]


@pytest.mark.parametrize("more", ["", STATE], ids=["plain", "state"])
def test_a_lost_worker_costs_a_batch_and_not_the_job(spark: SparkSession, folder: Path, more: str) -> None:
    done = run(folder, "killed", more)
    assert done.exit_code == 0, done.output
    assert events(done) == [("batch", 1), ("restart", None), ("restart", None), ("batch", 2), ("ended", None)]
    assert "a Python worker of Spark ended" in done.stderr
    assert stored(folder) == [str(number) for number in range(8)]


def test_a_job_starts_again_as_often_as_it_says(spark: SparkSession, folder: Path) -> None:
    done = run(folder, "raises", "[restart]\nattempts = 1\nbackoff = '10ms'")
    assert done.exit_code == 3
    assert events(done) == [("batch", 1), ("restart", None), ("failed", None)]
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert (told[1]["wait_s"], told[1]["job"]) == (0.01, "orders")
    assert "ValueError: not yet" in told[1]["error"]
    assert "ValueError: not yet" in told[2]["error"]
    (folder / "tries").touch()
    again = run(folder, "raises")
    assert (again.exit_code, events(again)) == (0, [("batch", 1), ("ended", None)])
    assert stored(folder) == [str(number) for number in range(8)]


@pytest.mark.laboratory  # it kills Java
def test_jobs_start_java_again_if_it_was_killed(tmp_path: Path) -> None:
    """As the system does if its memory is full."""
    create_log(tmp_path / "data", "orders", [b"0"])
    names = ("one", "other")
    jobs = [
        f'[[job]]\nname = "{name}"\n[[job.sink]]\ntype = "parquet"\npath = "{name}"\nview = "records"\n'
        for name in names
    ]
    (tmp_path / "jobs.toml").write_text(
        'source = { path = "data", subscribe = "orders" }\noffsets.store = "file:offsets-{name}.json"\n'
        'trigger.interval = "10ms"\nrestart = { attempts = 2, backoff = "10ms" }\n' + "".join(jobs),
        encoding="utf-8",
    )
    job = Job(tmp_path / "jobs.toml", tmp_path / "printed.txt")
    try:
        job.start()
        for number in range(2):
            assert job.wait_for_batches(dict.fromkeys(names, number), 300), job.printed()
            assert job.running, job.printed()
            if not number:
                assert job.kill("executor", random.Random())
                with odradek.open(tmp_path / "data") as logs:
                    logs["orders", 0].append([odradek.Record(value=b"1")])
        assert job.terminate(300) == 0, job.printed()
    finally:
        job.clean()
    assert job.restarts() == len(names)
    for name in names:
        table = pyarrow.dataset.dataset(tmp_path / name, exclude_invalid_files=True).to_table()
        assert sorted(table["value"].to_pylist()) == [b"0", b"1"]
