"""`pipeline check --spark` finds what only Spark's analysis can, and lets no bad job through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from jobs.bad_jobs import ANALYSED, FOUND, SOUND, place_files
from odradek.spark.pipeline.check import check_job
from odradek.spark.pipeline.spark_grammar import SparkGrammar


@pytest.fixture
def job(tmp_path: Path) -> Path:
    place_files(tmp_path)
    return tmp_path / "job.toml"


@pytest.mark.laboratory  # 200 jobs; unit/spark has each mistake that needs no Spark
def test_no_bad_job_passes(job: Path, spark: SparkSession) -> None:
    job.write_text(SOUND, encoding="utf-8")
    assert check_job(job, lambda: spark) == []
    # Spark's catalog does not know functions whose names are words of SQL.
    job.write_text(SOUND.replace("my_length", "case"), encoding="utf-8")
    assert check_job(job, lambda: spark) == []
    missed = []
    for bad in [*FOUND, *ANALYSED]:
        job.write_text(bad.text, encoding="utf-8")
        findings = check_job(job, lambda: spark)
        if not any(found.line == bad.line and bad.hint in found.reason for found in findings):
            missed.append((bad.line, bad.hint, bad.text, [str(found) for found in findings]))
    assert missed == []


STATEFUL = """
[state]
path = "state"
watermark = "1 minute"

[[transform]]
view = "counts"
sql = "{sql}"

[[transform]]
view = "named"
sql = "{later}"

[[sink]]
type = "parquet"
view = "named"
path = "counts"
"""
HEAD = 'name = "c"\noffsets.store = "file:o.json"\n[source]\npath = "log-dir"\nsubscribe = "keyed"\n'
COUNTS = "SELECT window.start, count(*) AS n FROM records GROUP BY window(timestamp, '1 minute')"


@pytest.mark.parametrize(
    ("sql", "later", "told"),
    [
        (COUNTS, "SELECT * FROM counts", None),
        (COUNTS, "SELECT m FROM counts", "there is no column m"),
        (COUNTS, "SELECT uppr(n) AS u FROM counts", "uppr"),
        ("SELECT topic, count(*) AS n FROM records GROUP BY topic", "SELECT * FROM counts", "watermark"),
        ("SELECT 1 AS n", "SELECT * FROM counts", "does not read the stream"),
    ],
)
def test_the_stream_of_a_job_with_state_is_analysed(
    job: Path, spark: SparkSession, sql: str, later: str, told: str | None
) -> None:
    text = STATEFUL.format(sql=sql, later=later).replace('view = "counts"', 'view = "counts"', 1)
    job.write_text(HEAD + text.replace('path = "state"', 'path = "state"\nview = "counts"'), encoding="utf-8")
    findings = [str(found) for found in check_job(job, lambda: spark)]
    assert findings == [] if told is None else told in findings[0]
    # Spark asks the settings of the active session, such as whether errors show Java's stack.
    assert SparkSession.getActiveSession() is spark
    jvm: Any = spark._jvm
    assert jvm.org.apache.spark.sql.classic.SparkSession.active().equals(spark._jsparkSession)


def test_a_session_that_starts_after_the_grammar_does_not_take_its_errors_for_its_own(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    grammar = SparkGrammar()
    with monkeypatch.context() as patched:
        patched.setattr(SparkContext, "_gateway", None)
        grammar.start()
    # Each JVM numbers what it gives to Python: by then, the number of an error is that of the session.
    count = int(spark._jsparkSession._target_id.removeprefix("o")) + 1
    problems = {grammar.query("SELEC 1").problem for _ in range(count)}
    assert [problem and problem.reason for problem in problems] == ["Syntax error at or near 'SELEC'"]
