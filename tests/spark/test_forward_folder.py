"""Forwarding into a log directory, without any broker."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import odradek
from odradek.errors import SinkError
from odradek.inspection import verify
from odradek.spark.pipeline import Job, Pipeline
from odradek.spark.pipeline.claimed_store import ClaimedStore

JOB = """
name = "forward"
[source]
path = "external"
subscribe = "tea,coffee"
includeHeaders = true
[offsets]
store = "file:offsets.json"
[trigger]
max_offsets_per_batch = 70
[[transform]]
view = "routed"
sql = "SELECT *, concat('internal.', topic) AS target FROM records"
[[sink]]
type = "topic"
view = "routed"
topic_column = "target"
path = "internal"
compression = "zstd"
"""


def test_each_record_is_there_once_after_crashes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = {
        ("tea", 0): [odradek.Record(b"k%d" % n, b"tea %d" % n, [("n", b"%d" % n)], n) for n in range(100)],
        ("tea", 1): [odradek.Record(None, None, (), 7)],
        ("coffee", 0): [odradek.Record(b"", b"x" * 5000 * n, (), n) for n in range(50)],
    }
    with odradek.open(tmp_path / "external") as logs:
        logs.create_topic("tea", partitions=2)
        logs.create_topic("coffee")
        for name, records in sent.items():
            logs[name].append(records)
    with odradek.open(tmp_path / "internal") as logs:
        logs.create_topic("internal.tea", partitions=2)
        logs.create_topic("internal.coffee")
    (tmp_path / "job.toml").write_text(JOB, encoding="utf-8")
    work = Job.read(tmp_path / "job.toml")

    class CrashError(BaseException):
        pass

    def crash(*_: object) -> None:
        raise CrashError

    # The sink has the batch, and the store never hears of it.
    with monkeypatch.context() as patched:
        patched.setattr(ClaimedStore, "done", crash)
        for _ in range(2):
            with pytest.raises(CrashError):
                Pipeline(work, spark).run()
    assert Pipeline(work, spark).run() >= 2
    assert Pipeline(work, spark).run() == 0
    with odradek.open(tmp_path / "internal", mode="r") as forwarded:
        for (topic, number), records in sent.items():
            found = list(forwarded[f"internal.{topic}", number].read(isolation="read_committed"))
            assert [(r.key, r.value, r.headers, r.timestamp) for r in found] == [
                (r.key, r.value, r.headers, r.timestamp) for r in records
            ]
    assert list(verify(tmp_path / "internal")) == []
    assert not (tmp_path / "internal.odradek-staging").exists()


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("5 AS key, value", "the column key of the view routed is int; it must be binary or string"),
        ("struct(value) AS value", "the column value of the view routed is struct<value:binary>; it must be binary or"),
        ("value, current_date() AS timestamp", "the column timestamp of the view routed is date; it must be timestamp"),
        ("value, 5 AS target", "the column target of the view routed is int; it must be string"),
    ],
)
def test_a_column_of_a_wrong_type_is_named(spark: SparkSession, tmp_path: Path, columns: str, told: str) -> None:
    for folder, topic in (("external", "tea"), ("internal", "internal.tea")):
        with odradek.open(tmp_path / folder) as logs:
            logs.create_topic(topic)
    with odradek.open(tmp_path / "external") as logs:
        logs["tea", 0].append([odradek.Record(value=b"x")])
    target = "" if "target" in columns else "concat('internal.', topic) AS target, "
    query = f"SELECT topic, partition, offset, {target}{columns} FROM records"
    text = re.sub("SELECT .* FROM records", query, JOB).replace("tea,coffee", "tea")
    (tmp_path / "job.toml").write_text(text, encoding="utf-8")
    with pytest.raises(SinkError, match=re.escape(told)):
        Pipeline(Job.read(tmp_path / "job.toml"), spark).run()
