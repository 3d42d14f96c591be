"""The recipes in `examples/deploy`, run: as cron does, and as Airflow does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset
import pytest

import odradek
from peers.environments import environment

RECIPES = Path(__file__).parents[2] / "examples" / "deploy"
ODRADEK = str(Path(sys.executable).parent / "odradek")
JOB = """
source = { path = "data", subscribe = "orders" }
offsets = { store = "file:offsets.json" }
spark = { master = "local[1]" }
[[sink]]
type = "parquet"
path = "orders"
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    file = tmp_path / "orders.toml"
    file.write_text(JOB, encoding="utf-8")
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("orders")
    append(tmp_path, 0, 3)
    return file


def append(folder: Path, start: int, end: int) -> None:
    with odradek.open(folder / "data") as logs:
        logs["orders", 0].append([odradek.Record(value=b"%d" % number) for number in range(start, end)])


def values(folder: Path) -> list[bytes]:
    return sorted(pyarrow.dataset.dataset(folder / "orders").to_table()["value"].to_pylist())


@pytest.mark.laboratory  # cron begins with each minute
def test_cron_runs_the_job(job: Path, tmp_path: Path) -> None:
    lines = (RECIPES / "crontab").read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in lines if line.startswith("*/15 "))
    path = next(line.removeprefix("PATH=") for line in lines if line.startswith("PATH="))
    java = str(Path(shutil.which("java") or "").parent)
    names = {
        "/opt/odradek/bin": str(Path(ODRADEK).parent),
        "/etc/odradek": str(tmp_path),
        "/var/log/odradek": str(tmp_path),
    }
    command = line.split(maxsplit=5)[5]
    for name, other in names.items():
        command, path = command.replace(name, other), path.replace(name, other)
    cron = {"HOME": str(tmp_path), "LOGNAME": "odradek", "SHELL": "/bin/sh", "PATH": f"{path}:{java}"}
    for end in (None, 5):
        if end is not None:
            append(tmp_path, 3, end)
        ended = subprocess.run(
            ["/bin/sh", "-c", command], env=cron, cwd=tmp_path, capture_output=True, timeout=300, check=False
        )
        # What it prints is mailed.
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
    events = [json.loads(line) for line in (tmp_path / "orders.jsonl").read_text().splitlines()]
    assert [event["offsets"] for event in events if event.get("event", "batch") == "batch"] == [3, 2]
    assert values(tmp_path) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.laboratory
@pytest.mark.interop
def test_airflow_runs_the_dag(job: Path, tmp_path: Path) -> None:
    dags = tmp_path / "dags"
    dags.mkdir()
    text = (RECIPES / "airflow_dag.py").read_text(encoding="utf-8")
    for name, other in {"/opt/odradek/bin/odradek": ODRADEK, "/etc/odradek/orders.toml": str(job)}.items():
        assert text.count(name) == 1
        text = text.replace(name, other)
    (dags / "orders.py").write_text(text, encoding="utf-8")
    settings = {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
    }

    def airflow(*arguments: str) -> str:
        command = [environment("airflow"), "-m", "airflow", *arguments]
        ended = subprocess.run(
            command, env=os.environ | settings, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    airflow("db", "migrate")
    assert "No data found" in airflow("dags", "list-import-errors")
    told = airflow("dags", "test", "odradek_orders", "2026-11-01")
    assert values(tmp_path) == [b"0", b"1", b"2"], told
