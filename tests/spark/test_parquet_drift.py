"""What becomes of a Parquet folder when the columns of its view change between runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import odradek
from odradek.errors import SinkError
from odradek.spark.pipeline import Job, Pipeline

JOB = """
name = "drift"
[source]
path = "source"
subscribe = "orders"
[offsets]
store = "file:offsets.json"
[[transform]]
view = "rows"
sql = "SELECT topic, partition, offset, {columns} FROM records"
[[sink]]
type = "parquet"
view = "rows"
path = "out"
name = "so_far"
partition_by = ["topic"]
"""


def append_and_run(spark: SparkSession, folder: Path, columns: str, by: str = "topic") -> None:
    """Appends a record to the source in a folder, and runs a job with these columns there."""
    with odradek.open(folder / "source") as logs:
        if ("orders", 0) not in logs:
            logs.create_topic("orders")
        logs["orders", 0].append([odradek.Record(None, b"1")])
    Pipeline(Job.parse(JOB.replace('["topic"]', f'["{by}"]').format(columns=columns), folder), spark).run()


def test_the_files_of_a_folder_keep_their_columns(spark: SparkSession, tmp_path: Path) -> None:
    run = partial(append_and_run, spark, tmp_path)

    def files() -> list[Path]:
        return sorted((tmp_path / "out").rglob("*.parquet"))

    run("CAST(offset AS BIGINT) AS number")
    # As an earlier version left it.
    commit = tmp_path / "out" / "_odradek" / "commit.json"
    commit.write_text(commit.read_text().replace('"columns":', '"other":'), encoding="utf-8")
    run("CAST(offset AS INT) AS Number, 'new' AS extra")
    for wrong in ("CAST(offset AS STRING) AS number", "CAST(offset AS DOUBLE) AS number, 'x' AS extra"):
        with pytest.raises(
            SinkError, match=r"the column number of the view rows is .*, and the files of the folder have"
        ):
            run(wrong)
        assert len(files()) == 2
    run("CAST(offset AS BIGINT) AS number")
    assert [pq.read_schema(file).field("number").type for file in files()] == [pa.int64()] * 3
    assert [pq.read_schema(file).names[2:] for file in files()] == [
        ["number"],
        ["number", "extra"],
        ["number", "extra"],
    ]
    rows = spark.sql("SELECT topic, offset, number, extra FROM so_far ORDER BY offset").collect()
    assert [tuple(row) for row in rows] == [
        ("orders", 0, 0, None),
        ("orders", 1, 1, "new"),
        *(("orders", number, number, None) for number in (2, 3, 4)),
    ]


def test_what_is_in_a_struct_that_is_null_is_null(spark: SparkSession, tmp_path: Path) -> None:
    """Spark says of the parts of `struct(1)` that they are never null, and its own writer does not believe it."""
    with odradek.open(tmp_path / "source") as logs:
        logs.create_topic("orders")
        logs["orders", 0].append([odradek.Record(None, b"1"), odradek.Record(None, b"2")])
    parts = {
        "struct": ("struct(1 AS a)", {"a": 1}),
        "list": ("array(1)", [1]),
        "map": ("map('a', 1)", [("a", 1)]),
        "structs": ("array(struct(1 AS a))", [{"a": 1}]),
    }
    columns = ", ".join(f"IF(offset = 1, {sql}, NULL) AS {name}" for name, (sql, _) in parts.items())
    Pipeline(Job.parse(JOB.format(columns=columns), tmp_path), spark).run()
    rows = pq.read_table(tmp_path / "out").select(list(parts)).to_pylist()
    assert rows == [dict.fromkeys(parts), {name: value for name, (_, value) in parts.items()}]
    # A column that the view does not have any more.
    append_and_run(spark, tmp_path, "1 AS more")
    last = spark.sql("SELECT struct, list, map, structs, more FROM so_far WHERE offset = 2").collect()
    assert [tuple(row) for row in last] == [(None, None, None, None, 1)]


def test_a_column_that_names_folders_keeps_its_type(spark: SparkSession, tmp_path: Path) -> None:
    def run(kind: str) -> None:
        append_and_run(spark, tmp_path, f"CAST(offset AS {kind}) AS day", by="day")

    run("INT")
    run("BIGINT")
    with pytest.raises(SinkError, match=r"the column day of the view rows is string, and folders are named .* bigint:"):
        run("STRING")
    run("INT")
    rows = spark.sql("SELECT day, offset FROM so_far ORDER BY offset").collect()
    assert [tuple(row) for row in rows] == [(number, number) for number in range(4)]
