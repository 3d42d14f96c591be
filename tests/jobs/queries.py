"""Queries that Spark takes, and queries that it does not: for Spark itself, and for what judges SQL without it."""

from __future__ import annotations

RECORDS_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key string, value binary>>"
)
WORDS_SCHEMA = "topic string, word string"
VIEWS = {
    "records": tuple(field.split()[0] for field in RECORDS_SCHEMA.split(", ")),
    "words": ("topic", "word"),
}

_NESTED = "(SELECT struct(struct(1 AS y, 2 AS z) AS x) AS s)"
_VARIANT = "(SELECT parse_json(string(value)) AS v FROM records)"

ACCEPTED = (
    # Pivots.
    "SELECT a, b FROM (SELECT topic, offset FROM records) PIVOT (count(offset) FOR topic IN ('a' AS a, 'b' AS b))",
    "SELECT p.* FROM (SELECT topic, offset FROM records) PIVOT (count(offset) FOR topic IN ('a', 'b')) p",
    "SELECT * FROM records PIVOT (count(offset) n, max(offset) m FOR (topic, `partition`) IN (('a', 1) AS a1))",
    "WITH s AS (SELECT topic, offset FROM records) SELECT a FROM s PIVOT (sum(offset) FOR topic IN ('x' AS a))",
    "SELECT n, val FROM (SELECT topic, offset FROM records) UNPIVOT (val FOR n IN (offset AS o))",
    "SELECT n, a, b FROM (SELECT 1 AS a1, 2 AS b1, 3 AS a2, 4 AS b2) UNPIVOT ((a, b) FOR n IN ((a1, b1), (a2, b2)))",
    "SELECT u.val FROM records UNPIVOT INCLUDE NULLS (val FOR name IN (key, value)) AS u",
    # Fields of fields.
    f"SELECT s.x.y FROM {_NESTED} WHERE s.x.y = 1 GROUP BY s.x.y HAVING s.x.y > 0 ORDER BY s.x.y",
    f"SELECT a.s.x.y, a.s.x.* FROM {_NESTED} a JOIN words w ON w.topic = a.s.x.y",
    f"SELECT y FROM (SELECT s.x.y FROM {_NESTED})",
    "SELECT from_json(string(value), 'a STRUCT<b: STRUCT<c: INT>>') AS j, j.a.b.c AS c FROM records",
    "SELECT headers.key, headers[0].value, element_at(headers, 1).key FROM records",
    "SELECT `headers[0].key` FROM (SELECT headers[0].key FROM records)",
    "SELECT struct(topic, offset).topic, named_struct('a', topic).a AS a FROM records",
    "SELECT m.a, m['b'] AS b, l.key FROM (SELECT map('a', 1, 'b', 2) AS m, headers[0] AS l FROM records)",
    "SELECT max(struct(offset, value)).value AS latest FROM records GROUP BY key",
    "SELECT t.i.a.b AS b FROM words LATERAL VIEW explode(array(struct(struct(1 AS b) AS a))) t AS i",
    # Columns named by what reads a table.
    "SELECT x.a, b FROM words AS x(a, b)",
    "SELECT t.* FROM words AS t (a, b)",
    "SELECT a, offset FROM words AS x(a, b) JOIN records ON a = topic",
    "WITH c(a, b) AS (SELECT * FROM words) SELECT c.a, d.y FROM c JOIN c AS d(x, y) ON c.a = d.x",
    "SELECT col1 FROM VALUES (1), (2)",
    "SELECT t.n, topic FROM words, LATERAL (VALUES (1), (2)) AS t(n)",
    "SELECT num, id FROM explode(array(1, 2)) AS t(num), range(3)",
    # Pipes.
    "FROM words |> SET word = upper(word) |> SELECT word",
    "FROM words |> DROP word |> SELECT topic",
    "FROM words |> EXTEND length(word) AS n |> WHERE n > 1 |> SELECT topic, n",
    "FROM words |> AGGREGATE count(*) AS c GROUP BY topic |> WHERE c > 1 |> SELECT topic, c",
    "FROM words |> JOIN LATERAL (SELECT count(*) AS n FROM records r WHERE r.topic = words.topic) |> SELECT word, n",
    "FROM words |> UNION ALL SELECT topic, string(key) FROM records",
    "TABLE words |> SELECT word",
    "VALUES (0), (1) AS tab(col) |> SELECT col * 2 AS result",
    # Paths of variants.
    f"SELECT v:a.b FROM {_VARIANT}",
    f"SELECT s.v:a[0].b::int AS x, v:['k'] AS y FROM {_VARIANT} s WHERE v:b.c::int > 1",
    f"SELECT t.key FROM {_VARIANT}, LATERAL variant_explode(v) AS t",
    # Generators and lambda functions.
    "SELECT w1, w2 FROM words LATERAL VIEW explode(split(topic, '')) AS w1 LATERAL VIEW explode(split(w1, '')) b AS w2",
    "SELECT a FROM records LATERAL VIEW OUTER inline(array(struct(1 AS a, 2 AS b))) t",
    "SELECT x FROM (SELECT stack(2, 1, 2, 3, 4) AS (x, y) FROM records)",
    "SELECT e.h.key FROM records, LATERAL explode(headers) AS e(h)",
    "SELECT a FROM (SELECT TRANSFORM(topic, offset) USING 'cat' AS (a STRING, b STRING) FROM records)",
    "SELECT transform(headers, h -> transform(array(1), n -> concat(h.key, n, topic))) AS x FROM records",
    "SELECT transform(array(struct(1 AS a, struct(2 AS c) AS b)), s -> s.b.c) AS x FROM words",
    "SELECT aggregate(headers, '', (acc, h) -> acc || h.key, acc -> upper(acc)) AS s FROM records",
    "SELECT map_filter(map('a', 1), (k, v) -> v > 0) AS m, exists(headers, h -> h.key = 'a') AS e FROM records",
    # Columns that are not all written.
    "SELECT topic FROM (SELECT * EXCEPT (value, key) FROM records)",
    "SELECT r.* EXCEPT (r.value) FROM records r",
    "SELECT `count(1)` FROM (SELECT count(*) FROM records)",
    "SELECT offset + 1 AS a, a + 1 AS b FROM records",
    # Groups and windows.
    "SELECT topic, `partition`, count(*) AS n FROM records GROUP BY GROUPING SETS ((topic), (topic, `partition`), ())",
    "SELECT topic, grouping_id() AS i, count(*) AS n FROM records GROUP BY CUBE (topic, `partition`) ORDER BY ALL",
    "SELECT topic, row_number() OVER w AS n FROM records WINDOW w AS (PARTITION BY topic ORDER BY offset)",
    "SELECT topic, row_number() OVER (PARTITION BY topic ORDER BY offset) AS n FROM records QUALIFY n = 1",
    "SELECT window.start, count(*) AS n FROM records GROUP BY window(timestamp, '10 minutes', '5 minutes'), topic",
    "SELECT listagg(topic, ',') WITHIN GROUP (ORDER BY offset) AS l, max(offset) FILTER (WHERE true) AS m FROM records",
    # Queries within queries.
    "WITH RECURSIVE t(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT n FROM t",
    "WITH RECURSIVE t(n) MAX RECURSION LEVEL 9 AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT n FROM t",
    "SELECT topic, (SELECT max(word) FROM words w WHERE w.topic = r.topic) AS m FROM records r",
    "SELECT r.topic, n FROM records r LEFT JOIN LATERAL (SELECT count(*) AS n FROM words w WHERE w.topic = r.topic)",
    "SELECT topic FROM (TABLE words)",
    "FROM (FROM records SELECT topic, offset) SELECT topic",
    "SELECT topic, a.word, b.word AS other FROM words a FULL JOIN words b USING (topic)",
    # Names and literals.
    "SELECT IDENTIFIER('topic') AS t, IDENTIFIER('upper')(topic) AS u FROM IDENTIFIER('rec' || 'ords')",
    r"SELECT topic FROM records WHERE topic RLIKE r'^\w+\.x$' OR topic = 'it\'s'",
    "SELECT `a b`, `c``d`, s.`x.y`.z FROM (SELECT 1 AS `a b`, 2 AS `c``d`, struct(struct(1 AS z) AS `x.y`) AS s)",
    "SELECT topic AS select, offset AS from FROM records",
    "SELECT drop, alter.a FROM (SELECT 1 AS drop, struct(1 AS a) AS alter) WHERE drop > 1 ORDER BY drop",
    "WITH create AS (SELECT 1 AS between) SELECT between FROM create",
    "SELECT topic FROM records TABLESAMPLE (10 PERCENT) REPEATABLE (42) WHERE offset !> 1",
    "SELECT date_format(timestamp, 'HH:mm') AS t, CAST(NULL AS STRUCT<a: INT>).a AS a FROM records",
)
"""What Spark takes."""

REFUSED = (
    "SELECT topi FROM records",
    "SELECT j.b FROM records",
    "SELECT j.b.c FROM records",
    "SELECT topic FROM words AS x(a, b)",
    "SELECT x.topic FROM words AS x(a, b)",
    "WITH c(a, b) AS (SELECT * FROM words) SELECT d.a FROM c AS d(x, y)",
    "WITH a AS (SELECT topic AS t FROM records) SELECT topic FROM a",
    "SELECT r.topic FROM records r JOIN words w ON r.topic = w.topc",
    "SELECT h.key FROM records LATERAL VIEW explode(hedaers) t AS h",
    "SELECT transform(headers, h -> h.key || zz) AS x FROM records",
    "SELECT topic FROM recrds",
    "FROM recrds |> SELECT topic",
    "SELECT topic FORM records",
    "SELECT topic FROM records WHER offset > 1",
    "SELECT topic FROM records GROUP BU topic",
    "SELECT topic FROM records WHERE topic > 'a",
    "SELECT (topic FROM records",
    "SELECT topic FROM records)",
    "SELECT count( FROM records",
    "SELECT topic AS t u FROM records",
    "SELECT CASE WHEN topic = 'a' THEN 1 FROM records",
)
"""What Spark does not take, and what is found without it too."""
