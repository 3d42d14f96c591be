from __future__ import annotations

import datetime as dt
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from rich.console import Console

import odradek
from odradek.admin.folder import FolderAdmin
from odradek.cli.app import main
from odradek.errors import CommitConflictError, SinkError
from odradek.offsets.store import Position, open_store
from odradek.records import scan_batches
from odradek.spark.pipeline import BatchReport, Job, JobError, Pipeline
from odradek.spark.pipeline.claimed_store import ClaimedStore
from odradek.spark.pipeline.folder_topic import FolderTopicSink
from odradek.spark.pipeline.functions import Transform
from odradek.spark.pipeline.job import JobFile
from odradek.spark.pipeline.merging import compact
from odradek.spark.pipeline.parquet_folder import ParquetFolder
from odradek.spark.pipeline.run_note import newest_note
from odradek.spark.pipeline.sink_specs import ConsoleSinkSpec, ParquetSinkSpec, TopicSinkSpec
from odradek.spark.ranges import DataLossError, LossCause
from odradek.storage.names import TopicPartition
from peers.kafka_fixture import KafkaFixture
from peers.process import PATIENCE
from peers.walks import check_walk, trace_of, walks


def job(path: Path, log_dir: Path, **changes: object) -> Job:
    values: dict[str, object] = {
        "source": {"path": str(log_dir), "subscribe": "keyed"},
        "offset_store": (path / "offsets.json").as_uri(),
        "sinks": (ParquetSinkSpec(path / "out", "records", on_held="skip"),),
    }
    return Job(**{**values, **changes})  # type: ignore[arg-type]


def stored(path: Path) -> Counter[tuple[str, int, int]]:
    """What any reader finds, with pyarrow and with DuckDB."""
    files = sorted(file for file in path.rglob("*.parquet"))
    if not files:
        return Counter()
    rows = pq.read_table(path, columns=["topic", "partition", "offset"]).to_pylist()
    found = Counter((row["topic"], row["partition"], row["offset"]) for row in rows)
    again = duckdb.sql(f"SELECT topic, partition, \"offset\" FROM '{path}/**/*.parquet'")
    assert again is not None
    assert Counter(again.fetchall()) == found
    return found


def consumed(fixture: KafkaFixture, *names: str) -> Counter[tuple[str, int, int]]:
    return Counter(
        (name.rpartition("-")[0], int(name.rpartition("-")[2]), record["offset"])
        for name in names
        for record in fixture.consumed[name]["records"]
    )


def test_does_nothing_twice(spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    work = job(tmp_path, fixture_4_3_1.log_dir)
    assert Pipeline(work, spark).run() == 1
    assert stored(tmp_path / "out") == consumed(fixture_4_3_1, "keyed-0", "keyed-1", "keyed-2")
    assert sorted(file.name.rsplit("-", 2)[0] for file in (tmp_path / "out").glob("*.parquet")) == [
        "keyed-0",
        "keyed-1",
        "keyed-2",
    ]
    assert Pipeline(work, spark).run() == 0
    assert stored(tmp_path / "out") == consumed(fixture_4_3_1, "keyed-0", "keyed-1", "keyed-2")


def test_a_batch_goes_down_the_walks_of_the_driver(
    spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path
) -> None:
    trace = trace_of(Pipeline(job(tmp_path, fixture_4_3_1.log_dir), spark).run)
    names = [name for name in walks() if name.startswith("a batch of a pipeline: ") and "a task" not in name]
    assert len(names) == 4
    for name in names:
        check_walk(name, trace)


def test_reads_only_what_was_added(spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    grown = fixture_4_3_1.log_dir / "v2-none-0"
    segments = sorted(grown.glob("*.log"))
    log_dir = tmp_path / "log-dir"
    (log_dir / "v2-none-0").mkdir(parents=True)
    for segment in segments[:3]:
        shutil.copy(segment, log_dir / "v2-none-0")
    work = job(tmp_path, log_dir, source={"path": str(log_dir), "subscribe": "v2-none"})
    assert Pipeline(work, spark).run() == 1
    border = int(segments[3].stem)
    assert max(offset for _, _, offset in stored(tmp_path / "out")) == border - 1
    for segment in segments[3:]:
        shutil.copy(segment, log_dir / "v2-none-0")
    reports: list[BatchReport] = []
    assert Pipeline(work, spark).run(reports.append) == 1
    assert [part.start_offset for part in reports[0].ranges] == [border]
    assert stored(tmp_path / "out") == consumed(fixture_4_3_1, "v2-none-0")


def test_a_folder_without_its_state_goes_on_after_a_batch_that_left_no_rows(
    spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path
) -> None:
    segments = sorted((fixture_4_3_1.log_dir / "v2-none-0").glob("*.log"))
    log_dir = tmp_path / "log-dir"
    (log_dir / "v2-none-0").mkdir(parents=True)
    borders = [int(segment.stem) for segment in segments]
    work = job(
        tmp_path,
        log_dir,
        source={"path": str(log_dir), "subscribe": "v2-none"},
        transforms=(Transform("some", f"SELECT * FROM records WHERE offset < {borders[1]} OR offset >= {borders[3]}"),),
        sinks=(ParquetSinkSpec(tmp_path / "out", "some"),),
    )
    for number, segment in enumerate(segments[:4]):
        shutil.copy(segment, log_dir / "v2-none-0")
        assert Pipeline(work, spark).run() == 1
        if number == 2:
            shutil.rmtree(tmp_path / "out" / "_odradek")
    end = borders[4] if len(borders) > 4 else 1 << 62
    wanted = Counter({row: 1 for row in consumed(fixture_4_3_1, "v2-none-0") if row[2] < borders[1]})
    wanted.update(row for row in consumed(fixture_4_3_1, "v2-none-0") if borders[3] <= row[2] < end)
    assert stored(tmp_path / "out") == wanted


def test_a_view_of_several_sinks_is_computed_once(
    spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path
) -> None:
    (tmp_path / "seen").mkdir()
    seen = str(tmp_path / "seen")

    def noted(text: bytes) -> bytes:
        with tempfile.NamedTemporaryFile(dir=seen, delete=False):
            return text

    spark.udf.register("noted", noted, "binary")
    out = io.StringIO()
    work = job(
        tmp_path,
        fixture_4_3_1.log_dir,
        transforms=(Transform("some", "SELECT *, noted(value) AS again FROM records WHERE offset < 50"),),
        sinks=(
            ParquetSinkSpec(tmp_path / "one", "some"),
            ParquetSinkSpec(tmp_path / "other", "some"),
            ConsoleSinkSpec("SELECT count(offset) AS n, max(again) FROM some"),
        ),
    )
    assert Pipeline(work, spark, console=Console(file=out)).run() == 1
    wanted = Counter(row for row in consumed(fixture_4_3_1, "keyed-0", "keyed-1", "keyed-2").elements() if row[2] < 50)
    assert stored(tmp_path / "one") == stored(tmp_path / "other") == wanted
    assert str(wanted.total()) in out.getvalue()
    assert len(list((tmp_path / "seen").iterdir())) == wanted.total()
    assert not spark._jsparkSession.sharedState().cacheManager().numCachedEntries()
    # A file is named after its records, as if nothing were kept.
    assert {path.name[:7] for path in (tmp_path / "one").glob("*.parquet")} == {"keyed-0", "keyed-1", "keyed-2"}


def test_no_record_commands_the_terminal(spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    out = io.StringIO()
    text = "concat('[/x] \ta', char(27), '[31m', char(7), char(155), char(10), 'b')"
    console = ConsoleSinkSpec(
        f"SELECT {text} AS `[/c]\x1b`, encode({text}, 'utf-8') AS d FROM records LIMIT 1", title="[/t]\x1b"
    )
    work = job(tmp_path, fixture_4_3_1.log_dir, sinks=(console,))
    Pipeline(work, spark, console=Console(file=out, width=100)).run()
    told = out.getvalue()
    assert told.replace("\n", "").isprintable()
    for shown in ("[/t]\\x1b", "[/c]\\x1b", "a\\x1b[31m\\x07\\x9b", "\u2502 b "):
        assert shown in told


def test_running_totals_are_merged_exactly_once(
    spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path
) -> None:
    totals = ParquetSinkSpec(
        tmp_path / "out",
        "counts",
        name="totals",
        merge="SELECT part, sum(count) AS count, max(last) AS last FROM totals GROUP BY part",
        on_held="skip",
    )
    counted = job(
        tmp_path,
        fixture_4_3_1.log_dir,
        transforms=(
            Transform(
                "counts",
                "SELECT partition AS part, count(*) AS count, max(offset) AS last FROM records GROUP BY partition",
            ),
        ),
        sinks=(totals,),
        max_offsets_per_batch=500,
    )

    def held() -> list[tuple[int, int, int]]:
        rows = pq.read_table(tmp_path / "out").to_pylist()
        return sorted((row["part"], row["count"], row["last"]) for row in rows)

    records = [fixture_4_3_1.consumed[f"keyed-{partition}"]["records"] for partition in range(3)]
    wanted = [(number, len(part), part[-1]["offset"]) for number, part in enumerate(records)]
    assert Pipeline(counted, spark).run() == 3
    assert held() == wanted
    # As after a crash, and also where the pipeline's own notes are gone.
    for lost in ("offsets.json", "out/_odradek/commit.json"):
        (tmp_path / lost).unlink()
        (tmp_path / "offsets.json").unlink(missing_ok=True)
        Pipeline(counted, spark).run()
        assert held() == wanted
    wrong = replace(counted, sinks=(replace(totals, path=tmp_path / "other", merge="SELECT part FROM totals"),))
    (tmp_path / "offsets.json").unlink()
    with pytest.raises(SinkError, match="merge gives the columns part, and the view counts has part, count, last"):
        Pipeline(wrong, spark).run()


def test_batches_are_bounded(spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    work = job(tmp_path, fixture_4_3_1.log_dir, max_offsets_per_batch=500)
    reports: list[BatchReport] = []
    batches = Pipeline(work, spark).run(reports.append)
    assert batches == 3
    assert all(report.offsets <= 500 for report in reports)
    assert reports[-1].lag == 0
    assert stored(tmp_path / "out") == consumed(fixture_4_3_1, "keyed-0", "keyed-1", "keyed-2")


def test_a_store_left_behind_by_a_crash_is_caught_up(
    spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path
) -> None:
    work = job(tmp_path, fixture_4_3_1.log_dir, max_offsets_per_batch=500)
    Pipeline(work, spark).run()
    # The files are in, and the store never heard of it; another border between the batches must not matter.
    (tmp_path / "offsets.json").unlink()
    Pipeline(job(tmp_path, fixture_4_3_1.log_dir, max_offsets_per_batch=333), spark).run()
    assert stored(tmp_path / "out") == consumed(fixture_4_3_1, "keyed-0", "keyed-1", "keyed-2")


def test_a_store_ahead_of_the_files_is_an_error(
    spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path
) -> None:
    work = job(tmp_path, fixture_4_3_1.log_dir, max_offsets_per_batch=500)
    pipeline = Pipeline(work, spark)
    pipeline.run(lambda report: pipeline.stop())
    held = ParquetFolder(tmp_path / "out")
    reached = held.positions[TopicPartition("keyed", 0)].offset
    held.close()
    with open_store(work.offset_store) as store:
        store.commit({TopicPartition("keyed", 0): Position(reached + 1)}, expected=store.load())
    with pytest.raises(SinkError, match=f"ends at offset {reached} of keyed-0"):
        Pipeline(work, spark).run()


def test_a_driver_that_was_replaced_writes_and_stores_nothing(
    spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path
) -> None:
    work = job(tmp_path, fixture_4_3_1.log_dir, max_offsets_per_batch=500)

    def replace(_: object) -> None:
        with open_store(work.offset_store) as store:
            store.claim()

    with pytest.raises(CommitConflictError):
        Pipeline(work, spark).run(replace)
    # Nor did it write another batch, which the other one may be about to write.
    assert stored(tmp_path / "out").total() == 500
    Pipeline(work, spark).run()
    assert stored(tmp_path / "out") == consumed(fixture_4_3_1, "keyed-0", "keyed-1", "keyed-2")


def test_two_pipelines_cannot_write_to_one_folder(tmp_path: Path) -> None:
    held = ParquetFolder(tmp_path / "out")
    with pytest.raises(SinkError, match="another pipeline writes here"):
        ParquetFolder(tmp_path / "out")
    # Nor did the refused one give the lock away to another process.
    code = (
        "import sys; from pathlib import Path; "
        "from odradek.spark.pipeline.parquet_folder import ParquetFolder; ParquetFolder(Path(sys.argv[1]))"
    )
    try:
        refused = subprocess.run(
            [sys.executable, "-c", code, str(held.path)], capture_output=True, text=True, check=False
        )
    finally:
        held.close()
    assert "another pipeline writes here" in refused.stderr


def test_partitions_folders_by_topic_and_date(spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    work = job(
        tmp_path,
        fixture_4_3_1.log_dir,
        sinks=(ParquetSinkSpec(tmp_path / "out", "records", partition_by=("topic", "date")),),
    )
    Pipeline(work, spark).run()
    assert stored(tmp_path / "out") == consumed(fixture_4_3_1, "keyed-0", "keyed-1", "keyed-2")
    assert {file.parent.name for file in (tmp_path / "out").rglob("*.parquet")} == {"date=2020-09-13"}


def test_columns_of_any_name_and_times_of_any_year(spark: SparkSession, tmp_path: Path) -> None:
    day_ms = 24 * 60 * 60 * 1000
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t", config={"message.timestamp.after.max.ms": str((1 << 63) - 1)})
        # The second one is in microseconds, by a mistake that producers make.
        logs["t", 0].append([odradek.Record(value=b"a"), odradek.Record(value=b"b", timestamp=20_000 * day_ms * 1000)])
        logs["t", 0].append([odradek.Record(value=b"c", timestamp=20_000 * day_ms)])
    dotted = Transform(
        "dotted", "SELECT topic, partition, offset, timestamp, value AS `a.b`, 1 AS `x y``z` FROM records"
    )
    sink = ParquetSinkSpec(tmp_path / "out", "dotted", partition_by=("date",))
    source = {"path": str(tmp_path / "data"), "subscribe": "t"}
    with pytest.raises(Exception, match=r"t-0, offset 1: 1728000000000000 .are these microseconds"):
        Pipeline(job(tmp_path, tmp_path, source=source, transforms=(dotted,), sinks=(sink,)), spark).run()
    source["farTimestamps"] = "null"
    assert Pipeline(job(tmp_path, tmp_path, source=source, transforms=(dotted,), sinks=(sink,)), spark).run() == 1
    assert compact(tmp_path / "out", 1 << 20)[0] == 0
    found = {
        path.parent.name: pq.read_table(path, partitioning=None).column("a.b").to_pylist()
        for path in (tmp_path / "out").rglob("*.parquet")
    }
    assert found.pop("date=__HIVE_DEFAULT_PARTITION__") == [b"b"]
    assert found.pop("date=2024-10-04") == [b"c"]
    assert list(found.values()) == [[b"a"]]


def test_folders_of_any_columns_of_the_view(spark: SparkSession, tmp_path: Path) -> None:
    """The view's own date is not the record's. Readers pass over files whose names begin with _."""
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("_t", partitions=1)
        logs["_t", 0].append([odradek.Record(value=value) for value in (b"a/b", b"", "c=%é 日".encode())])
    view = Transform(
        "days",
        "SELECT topic, partition, offset, CAST(value AS STRING) AS status, offset = 1 AS flag, 2024 AS year, "
        "DATE'2024-02-29' + CAST(offset AS INT) AS date FROM records",
    )
    columns = "SELECT year, date, status, flag, offset FROM {} ORDER BY offset"
    seen: list[list[tuple[Any, ...]]] = []
    sinks = (
        ParquetSinkSpec(tmp_path / "out", "days", name="all_days", partition_by=("year", "date", "status", "flag")),
        ConsoleSinkSpec(columns.format("all_days"), title="all"),
    )
    source = {"path": str(tmp_path / "data"), "subscribe": "_t"}
    planned = job(tmp_path, tmp_path, source=source, transforms=(view,), sinks=sinks)

    def look(_: BatchReport) -> None:
        seen.append([tuple(row) for row in spark.sql(columns.format("all_days")).collect()])

    Pipeline(planned, spark).run(on_batch=look)
    expected = [
        (2024, dt.date(2024, 2, 29), "a/b", False, 0),
        (2024, dt.date(2024, 3, 1), None, True, 1),
        (2024, dt.date(2024, 3, 2), "c=%é 日", False, 2),
    ]
    assert seen == [expected]
    # Spark infers no booleans of the names of folders.
    read = columns.replace("flag", "CAST(flag AS BOOLEAN)").format(f"parquet.`{tmp_path / 'out'}`")
    assert [tuple(row) for row in spark.sql(read).collect()] == expected
    folders = {str(path.parent.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.parquet")}
    assert folders == {
        "year=2024/date=2024-02-29/status=a%2Fb/flag=false",
        "year=2024/date=2024-03-01/status=__HIVE_DEFAULT_PARTITION__/flag=true",
        "year=2024/date=2024-03-02/status=c%3D%25é 日/flag=false",
    }
    assert compact(tmp_path / "out", 1 << 20)[0] == 0
    with odradek.open(tmp_path / "data") as logs:
        logs["_t", 0].append(value=b"d")
    other = (ParquetSinkSpec(tmp_path / "out", "days", partition_by=("date", "year")),)
    with pytest.raises(
        SinkError, match=r"in folders by \['year', 'date', 'status', 'flag'\], and partition_by is \['da"
    ):
        Pipeline(replace(planned, sinks=other), spark).run()


def test_counts_are_stored_once_a_batch(spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    counted = job(
        tmp_path,
        fixture_4_3_1.log_dir,
        transforms=(
            Transform("counts", "SELECT partition AS part, count(*) AS count FROM records GROUP BY partition"),
        ),
        sinks=(ParquetSinkSpec(tmp_path / "out", "counts", name="counts_so_far", on_held="skip"),),
        max_offsets_per_batch=700,
    )
    assert Pipeline(counted, spark).run() == 2
    (tmp_path / "offsets.json").unlink()
    Pipeline(counted, spark).run()
    totals = spark.sql("SELECT part, sum(count) AS count FROM counts_so_far GROUP BY part ORDER BY part").collect()
    assert [row["count"] for row in totals] == [
        len(fixture_4_3_1.consumed[f"keyed-{partition}"]["records"]) for partition in range(3)
    ]


@pytest.mark.parametrize("partition_by", [(), ("date",)])
def test_small_files_are_merged(
    spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    sinks = (ParquetSinkSpec(tmp_path / "out", "records", partition_by=partition_by, on_held="skip"),)
    work = job(tmp_path, fixture_4_3_1.log_dir, max_offsets_per_batch=300, sinks=sinks)
    Pipeline(work, spark).run()
    assert compact(tmp_path / "out") == (12, 3)
    assert len(list((tmp_path / "out").rglob("*.parquet"))) == 3
    assert stored(tmp_path / "out") == consumed(fixture_4_3_1, "keyed-0", "keyed-1", "keyed-2")
    assert compact(tmp_path / "out") == (0, 0)
    # Neither the pipeline's own notes nor the offset store are needed to go on from here.
    shutil.rmtree(tmp_path / "out" / "_odradek")
    (tmp_path / "offsets.json").unlink()
    Pipeline(work, spark).run()
    assert stored(tmp_path / "out") == consumed(fixture_4_3_1, "keyed-0", "keyed-1", "keyed-2")


@pytest.mark.parametrize("done", [0, 1, 2])
def test_a_commit_that_was_cut_short_is_finished(tmp_path: Path, done: int) -> None:
    path = tmp_path / "out"
    folder = ParquetFolder(path)
    staging = folder.files.stage()
    old = path / "old.parquet"
    old.write_bytes(b"old")
    staged = [path / staging / f"{number}.staged" for number in range(2)]
    for file in staged:
        file.write_bytes(file.name.encode())
    folder.commit(
        staging,
        [(str(file.relative_to(path)), f"topic=a/{file.stem}.parquet") for file in staged],
        {TopicPartition("a", 0): Position(7, topic_id="id")},
        ["old.parquet"],
    )
    folder.close()
    # As it was before the renames, or in the middle of them.
    for file in staged[done:]:
        file.parent.mkdir(parents=True, exist_ok=True)
        (path / f"topic=a/{file.stem}.parquet").rename(file)
    old.write_bytes(b"old")
    folder = ParquetFolder(path)
    folder.close()
    assert folder.positions == {TopicPartition("a", 0): Position(7, topic_id="id")}
    assert folder.files.names() == ["topic=a/0.parquet", "topic=a/1.parquet"]
    assert not list((path / "_odradek" / "staged").glob("*"))


def test_a_sink_that_holds_what_the_store_knows_nothing_of_asks(
    spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path
) -> None:
    asking = job(tmp_path, fixture_4_3_1.log_dir, sinks=(ParquetSinkSpec(tmp_path / "out", "records"),))
    assert Pipeline(asking, spark).run() == 1
    (tmp_path / "offsets.json").unlink()
    with pytest.raises(SinkError, match=r"holds keyed-0 up to offset \d+ already.*on_held"):
        Pipeline(asking, spark).run()
    assert Pipeline(job(tmp_path, fixture_4_3_1.log_dir), spark).run() == 1
    assert stored(tmp_path / "out") == consumed(fixture_4_3_1, "keyed-0", "keyed-1", "keyed-2")


def test_a_folder_is_not_gone_on_with_for_another_topic_of_that_name(
    spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path
) -> None:
    log_dir = tmp_path / "log-dir"
    shutil.copytree(fixture_4_3_1.log_dir / "keyed-0", log_dir / "keyed-0")
    work = job(tmp_path, log_dir, source={"path": str(log_dir), "subscribe": "keyed"})
    assert Pipeline(work, spark).run() == 1
    (log_dir / "keyed-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAEQ")
    (tmp_path / "offsets.json").unlink()
    with pytest.raises(SinkError, match="another topic of that name"):
        Pipeline(work, spark).run()
    # Where nothing was read yet, the store has the id all the same.
    latest = job(
        tmp_path,
        log_dir,
        source={"path": str(log_dir), "subscribe": "keyed"},
        reset="latest",
        offset_store=(tmp_path / "latest.json").as_uri(),
        sinks=(ParquetSinkSpec(tmp_path / "latest", "records"),),
    )
    assert Pipeline(latest, spark).run() == 0
    (log_dir / "keyed-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAFQ")
    with pytest.raises(DataLossError, match="created again under the same name"):
        Pipeline(latest, spark).run()


@pytest.mark.parametrize(
    "columns",
    ["'orders' AS topic, partition, offset", "topic, 0 AS partition, offset", "topic, partition, 10L AS offset"],
)
def test_columns_that_only_have_the_name_of_the_sources_lose_nothing(
    spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path, columns: str
) -> None:
    work = job(
        tmp_path,
        fixture_4_3_1.log_dir,
        source={"path": str(fixture_4_3_1.log_dir), "subscribe": "keyed,v2-none"},
        transforms=(Transform("renamed", f"SELECT {columns}, topic AS t, partition AS p, offset AS o FROM records"),),
        sinks=(ParquetSinkSpec(tmp_path / "out", "renamed"),),
        max_offsets_per_batch=500,
    )
    assert Pipeline(work, spark).run() > 1
    rows = pq.read_table(tmp_path / "out", columns=["t", "p", "o"]).to_pylist()
    found = Counter((row["t"], row["p"], row["o"]) for row in rows)
    assert found == consumed(fixture_4_3_1, "keyed-0", "keyed-1", "keyed-2", "v2-none-0")


def test_what_retention_took_in_between_is_passed_over_where_that_is_wanted(
    spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path
) -> None:
    log_dir = tmp_path / "log-dir"
    folder = log_dir / "v2-none-0"
    shutil.copytree(fixture_4_3_1.log_dir / "v2-none-0", folder)
    bases = sorted(int(path.stem) for path in folder.glob("*.log"))
    source = {"path": str(log_dir), "subscribe": "v2-none", "failOnDataLoss": "false"}
    work = job(tmp_path, log_dir, source=source, max_offsets_per_batch=50)
    pipeline = Pipeline(work, spark)
    pipeline.run(lambda report: pipeline.stop())
    assert bases[1] < bases[2]
    for path in [path for base in bases[:2] for path in folder.glob(f"{base:020d}.*")]:
        path.unlink()
    assert Pipeline(work, spark).run() >= 1
    assert Pipeline(work, spark).run() == 0
    everything = consumed(fixture_4_3_1, "v2-none-0")
    assert stored(tmp_path / "out") == Counter(
        {entry: 1 for entry in everything if entry[2] < 50 or entry[2] >= bases[2]}
    )


def test_what_sql_cannot_do_is_one_line(spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    broken = job(tmp_path, fixture_4_3_1.log_dir, transforms=(Transform("broken", "SELECT nothing FROM records"),))
    with pytest.raises(JobError, match="nothing") as caught:
        Pipeline(broken, spark).run()
    assert "\n" not in str(caught.value)


def test_a_topic_made_anew_is_not_gone_on_with(
    spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path
) -> None:
    log_dir = tmp_path / "log-dir"
    shutil.copytree(fixture_4_3_1.log_dir / "keyed-0", log_dir / "keyed-0")
    work = job(tmp_path, log_dir, source={"path": str(log_dir), "subscribe": "keyed", "failOnDataLoss": "false"})
    assert Pipeline(work, spark).run() == 1
    metadata = log_dir / "keyed-0" / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAEQ")
    with pytest.raises(DataLossError, match="created again under the same name") as caught:
        Pipeline(work, spark).run()
    assert caught.value.cause is LossCause.NEW_TOPIC


def test_a_log_that_was_cut_is_gone_on_with_where_that_is_wanted(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The position far beyond the end waited there for good, and took what came after it for nothing."""
    log_dir = tmp_path / "log-dir"

    def append(*values: bytes) -> None:
        with odradek.open(log_dir) as logs:
            logs["t", 0].append([odradek.Record(value=value) for value in values])

    with odradek.open(log_dir) as logs:
        logs.create_topic("t", partitions=1)
        logs.create_topic("u", partitions=1)
    source = {"path": str(log_dir), "subscribe": "t", "failOnDataLoss": "false"}
    work = job(
        tmp_path,
        log_dir,
        name="cut",
        source=source,
        sinks=(ParquetSinkSpec(tmp_path / "out", "records"), TopicSinkSpec("u", {}, "records", path=log_dir)),
    )
    append(b"a", b"b")
    assert Pipeline(work, spark).run() == 1
    append(b"c", b"d")
    assert Pipeline(work, spark).run() == 1
    (segment,) = (log_dir / "t-0").glob("*.log")
    _, second = scan_batches(segment.read_bytes())
    os.truncate(segment, second.position)
    assert Pipeline(work, spark).run() == 0
    assert "t-0: offsets [2, 4): lost, as the log was cut; it is read on from its end" in caplog.messages
    with open_store(work.offset_store) as store:
        assert store.load()[TopicPartition("t", 0)].offset == 2
    # As many as there were: a file of them would have the name of one that is there.
    append(b"C", b"D")
    assert Pipeline(work, spark).run() == 1
    assert Pipeline(work, spark).run() == 0
    assert sorted(pq.read_table(tmp_path / "out")["value"].to_pylist()) == [b"C", b"D", b"a", b"b", b"c", b"d"]
    with odradek.open(log_dir, "r") as read:
        assert [record.value for record in read["u", 0].read()] == [b"a", b"b", b"c", b"d", b"C", b"D"]
    assert compact(tmp_path / "out", 1 << 20)[0] >= 2
    assert sorted(pq.read_table(tmp_path / "out")["value"].to_pylist()) == [b"C", b"D", b"a", b"b", b"c", b"d"]


def test_a_kill_on_the_way_past_a_cut(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sinks are ahead of the store, and the log ends between them; then it grows."""
    log_dir = tmp_path / "log-dir"

    def append(*values: bytes) -> None:
        with odradek.open(log_dir) as logs:
            for value in values:
                logs["t", 0].append([odradek.Record(value=value)])

    def seen() -> tuple[list[bytes], list[bytes]]:
        with odradek.open(log_dir, "r") as read:
            forwarded = [record.value or b"" for record in read["u", 0].read(isolation="read_committed")]
        return sorted(pq.read_table(tmp_path / "out")["value"].to_pylist()), sorted(forwarded)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with odradek.open(log_dir) as logs:
        logs.create_topic("t", partitions=1)
        logs.create_topic("u", partitions=1)
    work = job(
        tmp_path,
        log_dir,
        name="cut",
        source={"path": str(log_dir), "subscribe": "t", "failOnDataLoss": "false"},
        sinks=(ParquetSinkSpec(tmp_path / "out", "records"), TopicSinkSpec("u", {}, "records", path=log_dir)),
    )
    append(b"a", b"b")
    assert Pipeline(work, spark).run() == 1
    append(b"c", b"d", b"e")
    with monkeypatch.context() as patched:
        patched.setattr(ClaimedStore, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            Pipeline(work, spark).run()
    (segment,) = (log_dir / "t-0").glob("*.log")
    *_, last = scan_batches(segment.read_bytes())
    os.truncate(segment, last.position)
    with monkeypatch.context() as patched:
        patched.setattr(FolderTopicSink, "replay", die)
        with pytest.raises(KeyboardInterrupt):
            Pipeline(work, spark).run()
    append(b"E", b"F")
    assert Pipeline(work, spark).run() == 1
    expected = sorted([b"a", b"b", b"c", b"d", b"e", b"E", b"F"])
    assert seen() == (expected, expected)
    with open_store(work.offset_store) as store:
        loss = newest_note(store.load().values()).loss
    # The store was not there yet, but the sinks were.
    assert loss is not None
    assert loss.text == "t-0: offsets [4, 5)"
    # What the files say is not what they held before.
    shutil.rmtree(tmp_path / "out" / "_odradek")
    append(b"G")
    assert Pipeline(work, spark).run() == 1
    expected = sorted([*expected, b"G"])
    assert seen() == (expected, expected)
    assert Pipeline(work, spark).run() == 0
    # A range of the log as it is now is written again, whatever files of the old one hold.
    with closing(ParquetFolder(tmp_path / "out")) as folder:
        held = [part for part in folder.ranges() if part.end_offset > 4]
        assert [(part.start_offset, part.end_offset) for part in held] == [(4, 6), (6, 7)]


def test_a_job_starts_over_with_a_topic_made_anew_as_its_error_says(spark: SparkSession, tmp_path: Path) -> None:
    log_dir, file = tmp_path / "log-dir", tmp_path / "job.toml"
    file.write_text(
        f"""
        name = "anew"
        source = {{ path = "{log_dir}", subscribe = "t,other" }}
        offsets = {{ store = "{(tmp_path / "offsets.json").as_uri()}" }}
        [[sink]]
        type = "parquet"
        path = "{tmp_path / "out"}"
        view = "records"
        [[sink]]
        type = "topic"
        topic = "u"
        path = "{log_dir}"
        view = "records"
        """
    )
    with odradek.open(log_dir) as logs:
        for name, partitions in (("t", 2), ("other", 1), ("u", 2)):
            logs.create_topic(name, partitions=partitions)
        for name, partition in (("t", 0), ("t", 1), ("other", 0)):
            logs[name, partition].append([odradek.Record(value=b"%s-%d" % (name.encode(), partition))])
    (work,) = JobFile.read(file).jobs
    assert Pipeline(work, spark).run() == 1
    with odradek.open(log_dir) as logs:
        logs.delete_topic("t")
        logs.create_topic("t", partitions=1)
        logs["t", 0].append([odradek.Record(value=b"new")])
    with pytest.raises(DataLossError) as caught:
        Pipeline(work, spark).run()
    advice = re.findall("`odradek (.*?)`", str(caught.value))
    assert advice == ["pipeline start-over FILE t"]
    done = CliRunner().invoke(main, advice[0].replace("FILE", str(file)).split())
    assert (done.exit_code, done.stdout) == (0, "anew: t-0 begins at offset 0\n")
    assert Pipeline(work, spark).run() == 1
    assert Pipeline(work, spark).run() == 0
    with FolderAdmin(log_dir) as admin:
        admin.create_partitions("t", 2)
    with odradek.open(log_dir) as logs:
        logs["t", 1].append([odradek.Record(value=b"newer")])
    assert Pipeline(work, spark).run() == 1
    expected = [b"new", b"newer", b"other-0", b"t-0", b"t-1"]
    assert sorted(pq.read_table(tmp_path / "out")["value"].to_pylist()) == expected
    with odradek.open(log_dir, "r") as read:
        held = [record.value for number in (0, 1) for record in read["u", number].read(isolation="read_committed")]
    assert sorted(value for value in held if value) == expected
    unknown = CliRunner().invoke(main, ["pipeline", "start-over", str(file), "nothing"])
    assert unknown.exit_code == 3
    assert unknown.stderr == f"odradek: {file}: there is no topic nothing that a job asks for\n"
    # One killed on the way takes only the last step again.
    with open_store(work.offset_store) as store:
        positions = store.load()
        kept = positions[TopicPartition("t", 1)]
        store.delete([TopicPartition("t", 1)], expected=positions)
        store.commit({TopicPartition("t", 7): replace(kept, topic_id="AAAAAAAAAAAAAAAAAAAAAA")}, expected=store.load())
        store.commit({TopicPartition("t", 1): kept}, expected=store.load())
    CliRunner().invoke(main, ["pipeline", "start-over", str(file), "t"], catch_exceptions=False)
    with open_store(work.offset_store) as store:
        assert store.load()[TopicPartition("t", 1)].offset == kept.offset
        assert TopicPartition("t", 7) not in store.load()
    assert Pipeline(work, spark).run() == 0
    for topic in ("t", "other"):
        refused = CliRunner().invoke(main, ["pipeline", "start-over", str(file), topic])
        assert refused.exit_code == 3
        assert f"{topic} was not made anew: it is the topic that the job reads" in refused.stderr


def test_a_deleted_head_fails_unless_told_otherwise(
    spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path
) -> None:
    source = {"path": str(fixture_4_3_1.log_dir), "subscribe": "truncated-head"}
    work = job(tmp_path, fixture_4_3_1.log_dir, source=source)
    with open_store(work.offset_store) as store:
        store.commit({TopicPartition("truncated-head", 0): Position(700)}, expected=store.load())
    with pytest.raises(DataLossError, match=r"\[777, 1200\)") as caught:
        Pipeline(work, spark).run()
    assert caught.value.cause is LossCause.RETENTION
    Pipeline(job(tmp_path, fixture_4_3_1.log_dir, source={**source, "failOnDataLoss": "false"}), spark).run()
    assert stored(tmp_path / "out") == consumed(fixture_4_3_1, "truncated-head-0")


def test_a_tail_or_a_partition_that_is_gone_is_named_for_what_it_is(
    spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path
) -> None:
    log_dir = tmp_path / "log-dir"
    for name in ("keyed-0", "keyed-1", "keyed-2"):
        shutil.copytree(fixture_4_3_1.log_dir / name, log_dir / name)
    work = job(tmp_path, log_dir, source={"path": str(log_dir), "subscribe": "keyed"})
    lenient = job(tmp_path, log_dir, source={"path": str(log_dir), "subscribe": "keyed", "failOnDataLoss": "false"})
    assert Pipeline(work, spark).run() == 1
    segment = max((log_dir / "keyed-0").glob("*.log"))
    last = list(scan_batches(segment.read_bytes()))[-1]
    os.truncate(segment, last.position)
    with pytest.raises(DataLossError, match=r"keyed-0: .*\): truncated \(failOnDataLoss") as caught:
        Pipeline(work, spark).run()
    assert caught.value.cause is LossCause.TRUNCATION
    assert Pipeline(lenient, spark).run() == 0
    for deleted, left in (("keyed-1", 2), ("keyed-*", 0)):
        for path in log_dir.glob(deleted):
            shutil.rmtree(path)
        assert len(list(log_dir.glob("keyed-*"))) == left
        with pytest.raises(DataLossError, match=r"it is gone: deleted with its topic"):
            Pipeline(job(tmp_path, log_dir, source={"path": str(log_dir), "assign": '{"keyed": [1]}'}), spark).run()
        assert Pipeline(lenient, spark).run() == 0


def test_compacted_and_transactional_topics_have_no_losses(
    spark: SparkSession, fixture_4_3_1: KafkaFixture, tmp_path: Path
) -> None:
    source = {
        "path": str(fixture_4_3_1.log_dir),
        "subscribe": "compacted,compacted-zstd,transactional",
        "isolation.level": "read_committed",
    }
    Pipeline(job(tmp_path, fixture_4_3_1.log_dir, source=source, max_offsets_per_batch=1000), spark).run()
    expected = Counter(
        (name.rpartition("-")[0], 0, record["offset"])
        for name in ("compacted-0", "compacted-zstd-0", "transactional-0")
        for record in fixture_4_3_1.consumed_committed[name]["records"]
    )
    assert stored(tmp_path / "out") == expected


@pytest.mark.laboratory  # a Spark of its own; unit/cli has the signals
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_the_batch(number: signal.Signals, fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(
        f"""
        [source]
        path = "{fixture_4_3_1.log_dir}"
        subscribe = "keyed"
        [offsets]
        store = "file:offsets.json"
        [trigger]
        interval = "10ms"
        max_offsets_per_batch = 100
        [spark]
        master = "local[1]"
        [[sink]]
        type = "parquet"
        path = "out"
        """
    )
    command = [sys.executable, "-m", "odradek.cli", "pipeline", "run", str(tmp_path / "job.toml")]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert job.stdout is not None
    try:
        lines = []
        for line in job.stdout:
            lines.append(line)
            if line.startswith("batch 1:"):
                job.send_signal(number)
        assert job.wait(60 * PATIENCE) == 0, "".join(lines)[-2000:]
    finally:
        job.kill()
        job.wait()
        job.stdout.close()
    assert any(line.startswith(f"{number.name}: stopping after this batch") for line in lines)
    with open_store((tmp_path / "offsets.json").as_uri()) as store:
        places = store.load()
    assert stored(tmp_path / "out") == Counter(
        {
            entry: 1
            for entry in consumed(fixture_4_3_1, "keyed-0", "keyed-1", "keyed-2")
            if entry[2] < places[TopicPartition(entry[0], entry[1])].offset
        }
    )
    assert not any("Traceback" in line for line in lines)
