"""What is told of SQL without Spark: wrong views and columns are found, and what Spark would run is let through."""

from __future__ import annotations

import pytest

from jobs.queries import ACCEPTED, REFUSED
from jobs.queries import VIEWS as SPARK_VIEWS
from odradek.spark.pipeline.sql_check import Query

RECORDS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
VIEWS = {
    "records": RECORDS,
    "words": ("topic", "word"),
    "anything": None,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT Topic, `OFFSET` AS o, offset + 1 AS p FROM records", ("topic", "o", "p")),
        ("SELECT *, explode(split(CAST(value AS STRING), ' ')) AS word FROM records", (*RECORDS, "word")),
        ("SELECT * FROM words", ("topic", "word")),
        ("SELECT w FROM records LATERAL VIEW explode(split(string(value), ' ')) AS w", ("w",)),
        ("WITH a AS (SELECT topic t FROM records), b AS (SELECT t FROM a) SELECT t FROM b", ("t",)),
        ("SELECT topic FROM records UNION ALL SELECT word FROM words", ("topic",)),
        ("SELECT /*+ BROADCAST(b) */ a.topic FROM records a JOIN records b ON a.offset = b.offset", ("topic",)),
        ("FROM records |> WHERE offset > 1 |> SELECT topic", ("topic",)),
    ],
)
def test_the_columns_of_a_query(sql: str, columns: tuple[str, ...]) -> None:
    query = Query(sql, VIEWS)
    assert query.findings == []
    assert [name.lower() for name in query.columns or ()] == [name.lower() for name in columns]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT window.start, count(*) AS c FROM records GROUP BY window(timestamp, '1 minute')",
        "SELECT topic, count(*) AS n FROM records GROUP BY ALL HAVING n > 1 ORDER BY n",
        "SELECT col FROM (SELECT explode(split('a b', ' ')) FROM records)",
        "SELECT x, p FROM (SELECT posexplode(split(string(value), ' ')) AS (p, x) FROM records)",
        "SELECT transform(split(string(value), ' '), x -> upper(x)) AS w FROM records",
        "SELECT s.a FROM (SELECT struct(1 AS a) AS s FROM records)",
        "SELECT t.a, b FROM records LATERAL VIEW json_tuple(string(value), 'a', 'b') t AS a, b",
        "SELECT r.topic FROM records r WHERE EXISTS (SELECT 1 FROM words w WHERE w.topic = r.topic)",
        "SELECT topic FROM records WHERE topic IN (SELECT topic FROM words WHERE word = string(key))",
        "SELECT lag FROM (SELECT lag(offset) OVER (ORDER BY offset) AS lag FROM records)",
        "SELECT r.*, x.w FROM records r, LATERAL (SELECT r.topic AS w) x",
        "SELECT a, b FROM (SELECT * FROM records PIVOT (count(offset) FOR topic IN ('a' AS a, 'b' AS b)))",
        "SELECT id FROM range(10)",
        "SELECT foo FROM parquet.`/x`",
        "SELECT whatever, w.word FROM words w JOIN anything a ON w.topic = a.topic",
        "SELECT topic FROM records QUALIFY row_number() OVER (PARTITION BY topic ORDER BY offset) = 1",
        "VALUES (1, 2)",
        "TABLE words",
    ],
)
def test_what_spark_runs_is_let_through(sql: str) -> None:
    assert Query(sql, VIEWS).findings == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize("sql", ACCEPTED)
def test_nothing_is_found_in_what_spark_takes(sql: str) -> None:
    assert Query(sql, SPARK_VIEWS).findings == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize("sql", REFUSED)
def test_what_spark_does_not_take_is_found(sql: str) -> None:
    assert Query(sql, SPARK_VIEWS).findings


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("sql", "line", "reason"),
    [
        ("SELECT a.wrd FROM words AS a", 1, "there is no column wrd in what is read; did you mean word?"),
        ("SELECT topic, wrod FROM (SELECT topic, word FROM words)", 1, "there is no column wrod in what is read; did"),
        ("SELECT h.key FROM records LATERAL VIEW explode(headers) t AS h", 1, "there is no column headers in records"),
        ("SELECT j.b.c FROM records", 1, "there is no view or alias j"),
        ("SELECT topic FROM words AS x(a, b)", 1, "there is no column topic in what is read"),
        ("SELECT w AS FROM WHERE", 1, "not valid SQL"),
        ("SELECT 1 AS one\nFROM recrds", 2, "there is no view recrds; did you mean records?"),
        ("SELECT substr(value\nFROM records", 2, "not valid SQL: Syntax error at or near end of input"),
        ("SELECT " + "(" * 20_000, 1, "this is nested too deeply to be read"),
    ],
)
def test_what_is_wrong_is_found(sql: str, line: int, reason: str) -> None:
    (finding,) = Query(sql, VIEWS).findings
    assert finding.reason.startswith(reason)
    assert finding.line == line


def test_tables_of_a_catalog_are_not_known() -> None:
    query = Query("SELECT name FROM people", VIEWS, has_catalog=True)
    assert query.findings == []
    assert query.columns is None
