"""Sinks that append to tables of Delta Lake and Iceberg, with their own packages: what `docs/pipelines/sinks.md` says.

What Spark 4.3 cannot do with the newest Delta there is, which is made for Spark 4.2, is read: so the rows are read from
the files that the table's log names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import odradek
from peers.jars import classpath
from peers.process import PATIENCE

JOB = """
source = {{ path = "data", subscribe = "orders" }}
offsets = {{ store = "file:offsets.json", reset = "earliest" }}

[spark.conf]
"spark.jars" = "{jars}"
"spark.sql.extensions" = "io.delta.sql.DeltaSparkSessionExtension"
"spark.sql.catalog.spark_catalog" = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

[[sink]]
type = "delta"
path = "table"
view = "records"
"""


def rows_of(table: Path) -> list[int]:
    """Return the offsets in the files that the log of a table adds, in order."""
    commits = sorted((table / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for commit in commits for line in commit.read_text().splitlines()]
    files = [table / action["add"]["path"] for action in actions if "add" in action]
    return sorted(offset for file in files for offset in pq.read_table(file).column("offset").to_pylist())


@pytest.mark.laboratory
@pytest.mark.interop
def test_rows_are_appended_to_a_table_of_delta(tmp_path: Path) -> None:
    jars = classpath("delta").split(os.pathsep)[1:]
    (tmp_path / "job.toml").write_text(JOB.format(jars=",".join(jars)))
    command = [sys.executable, "-m", "odradek.cli", "pipeline", "run", "job.toml"]
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("orders")
    for end in (100, 150, 150):
        with odradek.open(tmp_path / "data") as logs:
            log = logs["orders", 0]
            for number in range(log.log_end_offset, end):
                log.append(value=b"%d" % number)
        subprocess.run(command, cwd=tmp_path, check=True, timeout=300 * PATIENCE)
        assert rows_of(tmp_path / "table") == list(range(end))


ICEBERG = """
source = {{ path = "data", subscribe = "orders" }}
offsets = {{ store = "file:offsets.json", reset = "earliest" }}

[spark.conf]
"spark.jars" = "{jars}"
"spark.sql.catalog.local" = "org.apache.iceberg.spark.SparkCatalog"
"spark.sql.catalog.local.type" = "hadoop"
"spark.sql.catalog.local.warehouse" = "{warehouse}"

[[sink]]
type = "iceberg"
table = "local.db.orders"
view = "records"
"""


@pytest.mark.laboratory
@pytest.mark.interop
def test_iceberg_says_which_class_spark_has_changed(tmp_path: Path) -> None:
    """A package for Spark 4.3 will make this fail: then the table in the documentation changes, too."""
    jars = classpath("iceberg").split(os.pathsep)[1:]
    job = ICEBERG.format(jars=",".join(jars), warehouse=tmp_path / "warehouse")
    (tmp_path / "job.toml").write_text(job, encoding="utf-8")
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("orders")
        logs["orders", 0].append(value=b"1")
    command = [sys.executable, "-m", "odradek.cli", "pipeline", "run", "job.toml"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 3
    assert "SparkView can not implement org.apache.spark.sql.connector.catalog.View" in ended.stderr.splitlines()[-1]
