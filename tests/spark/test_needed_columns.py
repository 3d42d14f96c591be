"""Which columns of the source a pipeline reads, and that its sinks get the same rows as if it read all."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

import odradek
from jobs.queries import ACCEPTED
from jobs.random_queries import RECORDS, RandomQueries
from odradek.spark.pipeline import Job, JobError, Pipeline
from odradek.spark.pipeline.batch import Batch
from odradek.spark.pipeline.functions import FunctionName, Transform
from odradek.spark.pipeline.needed_columns import needed_columns
from odradek.spark.pipeline.parquet import ParquetSink
from odradek.spark.pipeline.sink import Sink
from odradek.spark.pipeline.sink_specs import ConsoleSinkSpec, ParquetSinkSpec, PythonSinkSpec, SinkSpec, TopicSinkSpec
from odradek.spark.pipeline.value_format import ValueFormat
from odradek.spark.ranges import plan_batch
from odradek.spark.source_topics import open_topics

WORDS = Transform("words", "SELECT topic, partition, offset, explode(split(string(value), ' ')) AS word FROM records")
COUNTS = Transform("counts", "SELECT word, count(*) AS n FROM words GROUP BY word")
EVERY = set(RECORDS)
NOTHING_NEEDED = {"offset"}
"""Rows are counted by a narrow column."""


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with odradek.open(path) as logs:
        for topic in ("a", "b"):
            logs.create_topic(topic, partitions=2)
            for number in range(12):
                logs[topic, number % 2].append(
                    [
                        odradek.Record(
                            key=(b"k%d" % (number % 3), b"", None)[number % 4 % 3],
                            value=None if number == 5 else b"a b%d %s" % (number % 5, topic.encode() * (number % 3)),
                            headers=[("h", b"x"), (f"n{number}", None)][: number % 3],
                            timestamp=1_700_000_000_000 + 1_000_000 * (number % 7),
                        )
                    ]
                )
    return path


def job(log_dir: Path, sinks: Sequence[SinkSpec], transforms: Sequence[Transform] = (), **more: object) -> Job:
    source = {"path": str(log_dir), "subscribe": "a,b", "includeHeaders": "true"}
    store = (log_dir.parent / "offsets.json").as_uri()
    return Job(source, store, tuple(sinks), name="narrow", transforms=tuple(transforms), **more)  # type: ignore[arg-type]


def parquet(log_dir: Path, view: str, **more: object) -> ParquetSinkSpec:
    return ParquetSinkSpec(log_dir.parent / f"out-{view}", view, **more)  # type: ignore[arg-type]


class ViewSink(Sink):
    """What reads a view, and defines none."""

    def positions(self):  # type: ignore[no-untyped-def]
        raise NotImplementedError

    def write(self, batch: Batch) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


def needed(spark: SparkSession, work: Job) -> set[str]:
    return set(needed_columns(spark, work, [ViewSink() for _ in work.sinks]))


def of_query(spark: SparkSession, log_dir: Path, sql: str) -> set[str]:
    return needed(spark, job(log_dir, [parquet(log_dir, "q")], [WORDS, Transform("q", sql)]))


def test_what_a_query_needs(spark: SparkSession, log_dir: Path) -> None:
    cases = {
        "SELECT word, count(*) FROM words GROUP BY word": {"value"},
        "SELECT count(*) FROM records": NOTHING_NEEDED,
        "SELECT 1": NOTHING_NEEDED,
        "SELECT * FROM records": EVERY,
        "SELECT * EXCEPT (value, headers) FROM records": EVERY - {"value", "headers"},
        "SELECT topic FROM (SELECT *, length(value) AS n FROM records)": {"topic"},
        "SELECT headers[0].key FROM records WHERE offset > 3": {"headers", "offset"},
        "SELECT h.key FROM records LATERAL VIEW explode(headers) AS h": {"headers"},
        "SELECT r.offset FROM records r JOIN records s ON r.offset = s.partition WHERE s.key IS NULL": {
            "offset",
            "partition",
            "key",
        },
        "WITH c AS (SELECT * FROM words) SELECT a.word FROM c a JOIN c b ON a.offset = b.offset": {
            "value",
            "topic",
            "partition",
            "offset",
        },
        # By their places, not by names.
        "SELECT word FROM words UNION ALL SELECT string(key) FROM records": {"value", "key"},
        "SELECT topic FROM records INTERSECT SELECT string(key) FROM records": {"topic", "key"},
        "SELECT topic, rank() OVER (PARTITION BY key ORDER BY timestamp) FROM records": {"topic", "key", "timestamp"},
        "SELECT topic, count(DISTINCT key) FROM records GROUP BY ROLLUP (topic, partition)": {
            "topic",
            "partition",
            "key",
        },
        # Today no row, or only one branch: tomorrow another.
        "SELECT IF(current_date() > DATE'2200-01-01', key, value) AS v FROM records": {"key", "value"},
        "SELECT key FROM records WHERE current_date() > DATE'2200-01-01'": {"key"},
        "SELECT offset FROM records WHERE key = value AND 1 = 2": {"offset", "key", "value"},
        # Queries within expressions.
        "SELECT topic FROM records WHERE key IN (SELECT value FROM records)": EVERY,
        "SELECT topic, k FROM records r, LATERAL (SELECT r.key AS k)": EVERY,
        # Tomorrow another name.
        "SELECT IDENTIFIER(IF(current_date() > DATE'2200-01-01', 'key', 'value')) AS v FROM records": EVERY,
    }
    assert {sql: of_query(spark, log_dir, sql) for sql in cases} == cases


def test_what_the_sinks_of_a_job_need(spark: SparkSession, log_dir: Path) -> None:
    keys = Transform("keys", "SELECT key, count(*) AS n FROM records GROUP BY key")
    typed = ValueFormat("json", b"id BIGINT")
    counts = parquet(log_dir, "counts")

    def of(*sinks: SinkSpec, **more: object) -> set[str]:
        return needed(spark, job(log_dir, sinks, [WORDS, COUNTS, keys], **more))

    assert of(counts) == {"value"}
    assert of(counts, parquet(log_dir, "keys")) == {"value", "key"}
    assert of(counts, ConsoleSinkSpec("SELECT max(timestamp) FROM records")) == {"value", "timestamp"}
    # It is kept for both, with all that it has.
    assert of(counts, ConsoleSinkSpec("SELECT count(*) FROM words")) == {"value", "topic", "partition", "offset"}
    # `records` is kept too, but no function is called for its columns.
    assert of(parquet(log_dir, "keys"), ConsoleSinkSpec("SELECT count(*) FROM records")) == {"key"}
    assert of(TopicSinkSpec("t", {}, path=log_dir)) == EVERY
    assert of(ConsoleSinkSpec("SELECT data.id FROM records"), value=typed) == {"value"}
    assert of(ConsoleSinkSpec("SELECT topic FROM records"), value=typed) == {"topic"}
    # The sink will tell.
    assert of(counts, ConsoleSinkSpec("SELECT nothing FROM records")) == EVERY


def test_tables_and_functions_may_need_anything(spark: SparkSession, log_dir: Path) -> None:
    spark.createDataFrame([("k",)], "name string").createOrReplaceTempView("people")
    assert of_query(spark, log_dir, "SELECT name FROM people JOIN records ON name = topic") == EVERY
    function = FunctionName.parse("shop:clean", "transform[0].python", log_dir)
    clean = Transform("clean", python=function)
    assert needed(spark, job(log_dir, [parquet(log_dir, "counts")], [WORDS, COUNTS, clean])) == EVERY
    assert needed(spark, job(log_dir, [PythonSinkSpec(function, "counts")], [WORDS, COUNTS])) == EVERY
    # Each would be done once more.
    for sql in ("INSERT INTO no_table SELECT 1", "WITH x AS (SELECT 1) INSERT INTO no_table SELECT * FROM x", "SHOW x"):
        assert needed(spark, job(log_dir, [parquet(log_dir, "words"), ConsoleSinkSpec(sql)], [WORDS])) == EVERY
    with_comment = Transform("q", "-- the topics\n  (SELECT topic FROM records)")
    assert needed(spark, job(log_dir, [parquet(log_dir, "q")], [with_comment])) == {"topic"}


def test_what_reads_the_folder_of_a_sink_before_it(spark: SparkSession, log_dir: Path) -> None:
    merge = "SELECT word, sum(n) AS n FROM totals GROUP BY word"
    joined = "SELECT t.word, sum(n) AS n FROM totals t JOIN records r ON t.word = string(r.key) GROUP BY t.word"

    def of(merge: str | None, *sqls: str) -> set[str]:
        spec = parquet(log_dir, "counts", name="totals", merge=merge)
        sinks = [ParquetSink(spec), *(ViewSink() for _ in sqls)]
        work = job(log_dir, [spec, *map(ConsoleSinkSpec, sqls)], [WORDS, COUNTS])
        found = set(needed_columns(spark, work, sinks))
        sinks[0].close()
        return found

    # The folder is empty now, and not in the next batch.
    assert of(None, "SELECT r.topic FROM totals t JOIN records r ON t.word = string(r.key)") == {
        "value",
        "key",
        "topic",
    }
    assert of(joined) == {"value", "key"}
    work = job(log_dir, [parquet(log_dir, "counts", name="totals", merge=merge)], [WORDS, COUNTS])
    assert Pipeline(work, spark).run() == 1
    assert of(merge, "SELECT * FROM totals") == {"value"}
    assert of(joined) == EVERY


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[frozenset[str] | None, list[str]]]:
    """The columns of each batch that a pipeline makes, and what its scan gives."""
    made: list[tuple[frozenset[str] | None, list[str]]] = []
    records = Batch.records

    def noted(batch: Batch) -> DataFrame:
        frame = records(batch)
        (leaf,) = [frame._jdf.queryExecution().executedPlan().collectLeaves().apply(0)]
        output = leaf.output()
        made.append((batch.columns, [output.apply(number).name() for number in range(output.size())]))
        return frame

    monkeypatch.setattr(Batch, "records", noted)
    return made


def test_a_word_count_reads_the_values_alone(
    spark: SparkSession, log_dir: Path, batches: list[tuple[frozenset[str] | None, list[str]]]
) -> None:
    work = job(log_dir, [parquet(log_dir, "counts")], [WORDS, COUNTS], max_offsets_per_batch=12)
    assert Pipeline(work, spark).run() == 2
    assert batches == [(frozenset({"value"}), ["value"])] * 2
    rows = pq.read_table(log_dir.parent / "out-counts").to_pylist()
    assert sum(row["n"] for row in rows if row["word"] == "a") >= 22
    assert {row["word"] for row in rows} >= {"a", "b0", "b4", "aa", "bb"}


def test_a_topic_gets_all_that_a_record_has(
    spark: SparkSession, log_dir: Path, batches: list[tuple[frozenset[str] | None, list[str]]]
) -> None:
    with odradek.open(log_dir.parent / "target") as logs:
        logs.create_topic("to", partitions=2)
    some = Transform("some", "SELECT * EXCEPT (timestampType) FROM records WHERE topic = 'a'")
    assert Pipeline(
        job(log_dir, [TopicSinkSpec("to", {}, "some", path=log_dir.parent / "target")], [some]), spark
    ).run()
    assert [set(columns) for _, columns in batches] == [EVERY - {"timestampType"}]
    with odradek.open(log_dir, mode="r") as logs, odradek.open(log_dir.parent / "target", mode="r") as target:
        for partition in range(2):
            sent, found = (
                [(r.key, r.value, r.headers, r.timestamp) for r in log.read(isolation="read_committed")]
                for log in (logs["a", partition], target["to", partition])
            )
            assert sent == found


def test_a_function_in_a_kept_view_is_given_what_there_is(
    spark: SparkSession, log_dir: Path, batches: list[tuple[frozenset[str] | None, list[str]]]
) -> None:
    # It is called for both, though neither asks for what it returns.
    view = Transform("v", "SELECT topic, assert_true(timestamp IS NOT NULL) AS checked FROM records")
    out = io.StringIO()
    sinks = [ConsoleSinkSpec("SELECT count(*) FROM v"), ConsoleSinkSpec("SELECT max(topic) FROM v")]
    assert Pipeline(job(log_dir, sinks, [view]), spark, console=Console(file=out)).run() == 1
    assert batches == [(frozenset({"topic", "timestamp"}), ["topic", "timestamp"])]
    assert "24" in out.getvalue()


def test_what_is_not_read_has_its_type(spark: SparkSession, log_dir: Path) -> None:
    work = job(log_dir, [parquet(log_dir, "words")], [WORDS])
    topics = open_topics(work.source_options())
    schema = Batch(work, spark, (), topics).records().schema
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        assert Batch(work, spark, (), topics, columns=frozenset({"value"})).records().schema == schema
    finally:
        spark.conf.unset("spark.sql.timestampType")
        topics.close()


def test_an_error_in_a_sink_is_told_as_before(spark: SparkSession, log_dir: Path) -> None:
    work = job(log_dir, [parquet(log_dir, "counts"), ConsoleSinkSpec("SELECT nothing FROM words")], [WORDS, COUNTS])
    with pytest.raises(JobError, match=r"sink\[1\]: .*nothing"):
        Pipeline(work, spark).run()
    # The sink before it has written.
    assert pq.read_table(log_dir.parent / "out-counts").num_rows


def rows(spark: SparkSession, work: Job, columns: frozenset[str] | None) -> list[list[str]]:
    """What each sink reads of all that there is."""
    options = work.source_options()
    topics = open_topics(options)
    try:
        with Batch(work, spark, plan_batch(topics, options), topics, columns=columns).views():
            frames = [
                spark.sql(sink.sql) if isinstance(sink, ConsoleSinkSpec) else spark.table(sink.view)
                for sink in work.sinks
            ]
            return [sorted(map(repr, frame.collect())) for frame in frames]
    finally:
        topics.close()


def random_job(log_dir: Path, seed: int) -> Job:
    queries = RandomQueries(seed)
    transforms = [Transform(f"v{number}", queries.query(f"v{number}")) for number in range(seed % 3 + 1)]
    sinks: list[SinkSpec] = [parquet(log_dir, transform.view) for transform in transforms[-2:]]
    if seed % 2:
        sinks.append(ConsoleSinkSpec(queries.query("console")))
    return job(log_dir, sinks, transforms)


def check_same_rows(spark: SparkSession, work: Job) -> frozenset[str]:
    columns = needed_columns(spark, work, [ViewSink() for _ in work.sinks])
    assert rows(spark, work, columns) == rows(spark, work, None), (work.transforms, work.sinks, columns)
    return columns


@pytest.fixture
def shout(spark: SparkSession) -> None:
    spark.udf.register("shout", lambda text: None if text is None else f"{text}!", "string")


@pytest.mark.usefixtures("shout")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.laboratory) for seed in range(1, 200))])
def test_random_queries_give_the_same_rows(spark: SparkSession, log_dir: Path, seed: int) -> None:
    columns = check_same_rows(spark, random_job(log_dir, seed))
    print(f"{len(columns)} columns")


@pytest.mark.laboratory
@pytest.mark.parametrize("sql", [sql for sql in ACCEPTED if "TABLESAMPLE" not in sql])
def test_queries_of_all_kinds_give_the_same_rows(spark: SparkSession, log_dir: Path, sql: str) -> None:
    words = Transform("words", "SELECT topic, explode(split(string(value), ' ')) AS word FROM records")
    columns = check_same_rows(spark, job(log_dir, [parquet(log_dir, "q")], [words, Transform("q", sql)]))
    print(f"{len(columns)} columns")
