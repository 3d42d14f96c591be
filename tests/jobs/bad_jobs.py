"""Two hundred job files that cannot run, and what `pipeline check` should say of each: the line, and a hint.

Each is a sound job with one mistake. Those of `ANALYSED` are found by Spark's own analysis (`--spark`), all others
without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import odradek

SOUND = """\
name = "orders"

[source]
path = "log-dir"
subscribe = "keyed"

[offsets]
store = "file:offsets.json"

[[transform]]
view = "orders"
sql = "SELECT topic, partition, offset, timestamp, value FROM records"

[[udf]]
name = "my_length"
function = "bad_job_helpers:length"
returns = "int"

[[sink]]
type = "parquet"
view = "orders"
path = "orders"
name = "so_far"

[[sink]]
type = "console"
sql = "SELECT count(*) AS n FROM so_far"
"""
HELPERS = """\
def length(value):
    return 0 if value is None else len(value)

def view(frame):
    return frame

def none(frame):
    return None

def raising(frame):
    raise ValueError("no rates for today")

def store(frame, batch):
    pass

async def later(value):
    return 1

def each(value):
    yield 1

async def each_later(value):
    yield 1

class _Later:
    async def __call__(self, value):
        return 1

called_later = _Later()
"""
TRANSFORM_LINE, SINK_LINE, CONSOLE_LINE = 12, 20, 28


def place_files(folder: Path) -> None:
    """Put beside the jobs' files what they name: log directories, functions, a schema."""
    for name in ("log-dir", "other-dir"):
        with odradek.open(folder / name) as logs:
            logs.create_topic("keyed", partitions=3)
    (folder / "bad_job_helpers.py").write_text(HELPERS, encoding="utf-8")
    (folder / "bad.ddl").write_text("id BIGINT, paid BIGNT", encoding="utf-8")


class BadJob(NamedTuple):
    """A file that cannot run.

    Attributes:
        text: The file.
        line: The line that should be named.
        hint: A part of what should be said.
    """

    text: str
    line: int | None
    hint: str


def _query(sql: str, hint: str) -> BadJob:
    """A job with another query as its transform."""
    before, _, after = SOUND.partition('sql = "SELECT topic, partition, offset, timestamp, value FROM records"')
    return BadJob(f"{before}sql = '''{sql}'''{after}", TRANSFORM_LINE, hint)


def _changed(replaced: str, by: str, line: int | None, hint: str) -> BadJob:
    """A job with another text in one place."""
    assert SOUND.count(replaced) >= 1, replaced
    return BadJob(SOUND.replace(replaced, by, 1), line, hint)


def _added(text: str, line: int, hint: str) -> BadJob:
    """A job with more at its end; the line is one of what was added."""
    return BadJob(f"{SOUND}\n{text}", SOUND.count("\n") + 1 + line, hint)


def _topic_sink(keys: str, line: int, hint: str, view: str = "orders") -> BadJob:
    return _added(f'[[sink]]\ntype = "topic"\nview = "{view}"\npath = "other-dir"\n{keys}', line, hint)


def _relabelled(sql: str, hint: str, keys: str = 'topic = "keyed"') -> BadJob:
    """A job that forwards a view of its own."""
    text = f"[[transform]]\nview = \"sent\"\nsql = '''{sql}'''\n\n[[sink]]\ntype = \"topic\"\nview = \"sent\"\n"
    return _added(f'{text}path = "other-dir"\n{keys}\n', 7, hint)


_SYNTAX_AT = "not valid SQL: Syntax error at or near "
SYNTAX = [
    _query(sql, hint)
    for sql, hint in [
        ("SELEC * FROM records", "'SELEC'"),
        ("SELECT key,, value FROM records", "','"),
        ("SELECT * records", "is FROM or a comma missing before records?"),
        ("SELECT substr(value FROM records", "end of input"),
        ("SELECT CAST(offset AS BIGNT) AS n FROM records", 'Unsupported data type "BIGNT"'),
        ("SELECT topic FORM records", "'records'"),
        ("SELECT topic FROM records WHER offset > 1", "'offset'"),
        ("SELECT topic FROM records WHERE", "something is missing after WHERE"),
        ("SELECT topic FROM", "something is missing after FROM"),
        ("SELECT topic FROM records GROUP BU topic", "'BU'"),
        ("SELECT topic FROM records GROUP topic", "'topic'"),
        ("SELECT topic FROM records ORDER offset", "'offset'"),
        ("SELECT topic FROM records WHERE topic > 'a", "'''"),
        ("SELECT (topic FROM records", "'FROM'"),
        ("SELECT topic FROM records)", "')'"),
        ("SELECT count( FROM records", "'records'"),
        ("SELECT topic AS t u FROM records", "'u'"),
        ("SELECT CASE WHEN topic = 'a' THEN 1 FROM records", "'topic'"),
        ("SELECT CASE topic WHEN 'a' THEN 1 ELSE FROM records", "'records'"),
        ("SELECT topic FROM records HAVING", "something is missing after HAVING"),
        ("SELECT topic FROM records LIMIT", "something is missing after LIMIT"),
        ("SELECT topic, FROM records", "something is missing before FROM"),
        ("SELECT topic partition offset FROM records", "'records'"),
        ("SELECT topic FROM records JOIN", ""),
        ("SELECT a.topic FROM records a JOIN records b ON", "end of input"),
        ("SELECT a.topic FROM records a JOIN records b USING topic", "'topic'"),
        ("SELECT topic FROM records WHERE topic IN", "'IN'"),
        ("SELECT topic FROM records WHERE topic IN ('a',)", "')'"),
        ("SELECT topic FROM records WHERE topic IN ('a'", "end of input"),
        ("SELECT topic FROM records WHERE offset BETWEEN 1", "end of input"),
        ("SELECT topic FROM records WHERE offset BETWEEN 1 OR 2", "missing 'AND'"),
        ("SELECT topic FROM records WHERE NOT", "something is missing after NOT"),
        ("SELECT topic FROM records WHERE offset >", "end of input"),
        ("SELECT topic FROM records WHERE offset => 1", ""),
        ("SELECT topic FROM records WHERE offset = = 1", ""),
        ("SELECT topic FROM records WHERE AND offset = 1", ""),
        ("SELECT topic FROM records WHERE offset = 1 AND", "'AND'"),
        ("SELECT topic FROM records WHERE (offset = 1", "end of input"),
        ("SELECT topic FROM records WHERE topic LIKE", "'LIKE'"),
        ("SELECT topic FROM records WHERE topic IS NULLL", "'IS'"),
        ("SELECT topic FROM records UNION", "end of input"),
        ("SELECT topic FROM records UNION ALLL SELECT topic FROM records", ""),
        ("WITH a AS SELECT topic FROM records SELECT topic FROM a", "'SELECT'"),
        ("WITH a (SELECT topic FROM records SELECT topic FROM a", ""),
        ("WITH a AS (SELECT topic FROM records)", "end of input"),
        ("SELECT topic FROM (SELECT topic FROM records", "end of input"),
        ("SELECT explode(split(value, ' ') AS word FROM records", "'AS'"),
        ("SELECT CAST(value AS) FROM records", ""),
        ("SELECT CAST(value STRING) AS v FROM records", "'STRING'"),
        ("SELECT CAST(value AS STRNG) AS v FROM records", 'Unsupported data type "STRNG"'),
        ("SELECT value::TXT AS v FROM records", 'Unsupported data type "TXT"'),
        ("SELECT CAST(value AS ARRAY<INT) AS v FROM records", ""),
        ("SELECT CAST(value AS MAP<STRING>) AS v FROM records", ""),
        ("SELECT CAST(offset AS DECIMAL(10,)) AS v FROM records", ""),
        ("SELECT topic, count(*) OVER (PARTITION topic) AS n FROM records", ""),
        ("SELECT topic, count(*) OVER PARTITION BY topic AS n FROM records", ""),
        ("SELECT topic, row_number() OVER (ORDER offset) AS n FROM records", ""),
        ("SELECT w FROM records LATERAL VIEW explode(split(value, ' ') AS w", ""),
        ("SELECT transform(array(1), x -> ) AS t FROM records", ""),
        ("SELECT timestamp - INTERVAL 5 MINUTS AS t FROM records", ""),
        ("SELECT `topic FROM records", ""),
        ("SELECT topic; FROM records", ""),
        ("SELECT topic FROM records; SELECT 1", "expected one query, not 2"),
        ("", "expected one query, not 0"),
        ("-- nothing yet", "expected one query, not 0"),
        ("INSERT INTO orders SELECT * FROM records", "expected a query, not INSERT"),
        ("DELETE FROM records", "expected a query, not DELETE"),
        ("CREATE TABLE t (a INT)", "expected a query, not CREATE"),
        ("DROP VIEW records", "expected a query, not DROP"),
        ("SELECT 1 +", "end of input"),
        ("SELECT * EXCEPT topic FROM records", ""),
        ("SELECT *, FROM records", "something is missing before FROM"),
        ("SELECT DISTINCT FROM records", "something is missing before FROM"),
        ("SELECT topic FROM records TABLESAMPLE (10 PERCNT)", ""),
        ("SELECT topic FROM records PIVOT (count(offset) FOR topic IN 'a')", ""),
        ("FROM records |> SELCT topic", ""),
        ("FROM records |> WHERE |> SELECT topic", ""),
        ("SELECT value[0 AS v FROM records", ""),
        ("SELECT topic || ,offset FROM records", "','"),
        ("SELECT x'0G' AS b FROM records", ""),
        ("SELECT DATE '2024-13-45' AS d FROM records", ""),
        ("SELECT TIMESTAMP 'yesterday-ish' AS d FROM records", ""),
        ("SELECT *", "a * needs a FROM"),
        ("SELECT * AS everything FROM records", "a * cannot have a name"),
    ]
]
NAMES = [
    _query(sql, hint)
    for sql, hint in [
        ("SELECT topi FROM records", "there is no column topi in records; did you mean topic?"),
        ("SELECT topic FROM recrds", "there is no view recrds; did you mean records?"),
        ("SELECT topic FROM records WHERE ofset > 1", "there is no column ofset in records; did you mean offset?"),
        ("SELECT topic FROM records ORDER BY ofset", "did you mean offset?"),
        ("SELECT count(*) AS n FROM records GROUP BY topc", "did you mean topic?"),
        ("SELECT r.topc FROM records AS r", "there is no column topc"),
        ("SELECT z.topic FROM records AS r", "there is no view or alias z"),
        ("SELECT topic, headers FROM records", "there is no column headers in records"),
        ("WITH a AS (SELECT topic FROM records) SELECT value FROM a", "there is no column value"),
        ("SELECT a.topic FROM records a JOIN recods b ON a.topic = b.topic", "there is no view recods"),
        ("SELECT topic FROM words AS x", "there is no view words"),
    ]
]
NAMES.append(_query("SELECT topic\nFROM records\nWHERE ofset > 1", "no column ofset")._replace(line=14))
KEYS = [
    _changed('name = "orders"\n\n', 'nmae = "orders"\n\n', 1, "unknown key; did you mean name?"),
    _changed('name = "orders"\n\n', "name = 3\n\n", 1, "expected a text, not 3"),
    _changed('name = "orders"\n\n', 'name = ""\n\n', 1, "a name that is not empty"),
    _changed('name = "orders"\n\n', 'name = "orders\n\n', 1, "Illegal character"),
    _changed('name = "orders"\n\n', 'name = "orders"\nname = "again"\n', 2, "Cannot overwrite a value"),
    _changed("[source]\n", "[sourc]\n", 3, "did you mean source?"),
    _changed("[source]\n", "[source\n", 3, "Expected ']'"),
    _changed('path = "log-dir"', 'path = "log-dri"', 4, "there is no such folder"),
    _changed('path = "log-dir"', 'path = "job.toml"', 4, "not a folder"),
    _changed('path = "log-dir"', 'pth = "log-dir"', 4, "did you mean path?"),
    _changed('subscribe = "keyed"', 'subscribe = "kyed"', 5, "there is no topic kyed"),
    _changed('subscribe = "keyed"', 'subscrib = "keyed"', 5, "did you mean subscribe?"),
    _changed('subscribe = "keyed"', 'subscribePattern = "^no.*"', 5, "no topic of "),
    _changed('subscribe = "keyed"', 'subscribePattern = "("', 5, ""),
    _changed('subscribe = "keyed"', "assign = '{\"keyed\": [7]}'", 5, "there is no partition keyed-7"),
    _changed('subscribe = "keyed"', "assign = '{\"keyed\"'", 5, ""),
    _changed('subscribe = "keyed"', 'subscribe = "keyed"\nstartingOffsets = "earliest"', 6, "see offsets.reset"),
    _changed('subscribe = "keyed"', 'subscribe = "keyed"\nincludeHeaders = "yes"', 6, ""),
    _changed('subscribe = "keyed"', 'subscribe = "keyed"\nminPartitions = 0', 6, ""),
    _changed('subscribe = "keyed"', 'subscribe = "keyed"\nfailOnDataLoss = "maybe"', 6, ""),
    _changed("store = ", "stoer = ", 8, "did you mean store?"),
    _changed("file:offsets.json", "fil:offsets.json", 8, "the address of an offset store must start with"),
    _changed("file:offsets.json", "file:log-dir", 8, "file:///"),
    _changed("file:offsets.json", "redis://127.0.0.1:1/0?group=g", 8, "redis://127.0.0.1:1/0"),
    _changed("file:offsets.json", "redis://127.0.0.1:6379/0", 8, "group"),
    _changed("file:offsets.json", "kafka://127.0.0.1:1", 8, "kafka://host:port/group"),
    _changed("file:offsets.json", "redis://127.0.0.1:x/0?group=g", 8, ""),
    _changed('offsets.json"', 'offsets.json"\nreset = "erliest"', 9, "earliest, latest, none or a time in ms"),
    _changed('offsets.json"', 'offsets.json"\nreset = -1', 9, "earliest, latest, none or a time in ms"),
    _changed('offsets.json"', 'offsets.json"\noptions = "x"', 9, "expected a table"),
    _changed('offsets.json"', 'offsets.json"\noptions = { timeout_ms = "x" }', 8, "timeout_ms must be a number"),
    _changed(
        'offsets.json"', 'offsets.json"\noptions = { timeout_ms = 99999999999999999999 }', 8, "timeout_ms must be"
    ),
    _changed('view = "orders"\nsql', 'veiw = "orders"\nsql', 11, "did you mean view?"),
    _changed('view = "orders"\nsql', 'view = "or-ders"\nsql', 11, "is not a new name of a view"),
    _changed('view = "orders"\nsql', 'view = "records"\nsql', 11, "is not a new name of a view"),
    _changed("sql = ", "sqll = ", 12, "did you mean sql?"),
    _changed("[[transform]]", "[[transforms]]", 10, "did you mean transform?"),
    _changed("[[transform]]", "[transform]", 10, "expected a list"),
    _changed('"my_length"', '"my-length"', 15, "is not a new name of a function"),
    _changed('"my_length"', '"length"', 15, "SQL has a function length"),
    _changed('"my_length"', '"upper"', 15, "SQL has a function upper"),
    _changed("bad_job_helpers:length", "bad_job_helpers:lenght", 16, "did you mean length?"),
    _changed("bad_job_helpers:length", "bad_job_helprs:length", 16, "there is no module bad_job_helprs"),
    _changed("bad_job_helpers:length", "bad_job_helpers.length", 16, '"module:function"'),
    _changed('returns = "int"', 'returns = "itn"', 17, 'Unsupported data type "ITN"'),
    _changed('returns = "int"', 'returns = "BIGNT"', 17, 'Unsupported data type "BIGNT"'),
    _changed('returns = "int"', 'returns = "array<int"', 17, "Syntax error"),
    _changed('returns = "int"', 'return = "int"', 17, "did you mean returns?"),
    _changed("[[udf]]", "[[udfs]]", 14, "did you mean udf?"),
    BadJob(SOUND.replace("[[sink]]", "[[sinks]]"), 19, "unknown key; did you mean sink?"),
    BadJob(SOUND.partition("[[sink]]")[0], None, "a job without a sink does nothing"),
    _changed('"parquet"', '"parket"', 20, "did you mean parquet?"),
    _changed('"parquet"', "3", 20, "expected a text, not 3"),
    _changed('view = "orders"\npath', 'view = "ordres"\npath', 21, "there is no view 'ordres'; did you mean orders?"),
    _changed('path = "orders"\n', "", 19, "this key is missing"),
    _changed('path = "orders"', 'path = "job.toml/orders"', 22, "not a folder"),
    _changed('path = "orders"', 'path = "log-dir/orders"', None, "the log directory that the source reads"),
    _changed('path = "orders"', 'path = "s3a://bucket/orders"', 22, "that is s3://"),
    _changed('path = "orders"', 'path = "s3://bucket"', 22, "not all of a bucket"),
    _changed('path = "orders"', 'path = "ftp://host/orders"', 22, "a URI that begins with"),
    _changed('name = "so_far"', 'name = "so far"', 23, "is not a new name of a view"),
    _changed('name = "so_far"', 'name = "orders"', 23, "is not a new name of a view"),
    _changed('name = "so_far"', 'name = "so_far"\npartition_by = ["day", "DAY"]', 24, "names of columns, each once"),
    _changed('name = "so_far"', 'name = "so_far"\npartition_by = "date"', 24, "expected a list"),
    _changed('name = "so_far"', 'name = "so_far"\ncompression = "zip"', 24, "one of none, snappy"),
    _changed('name = "so_far"', 'name = "so_far"\non_held = "ignore"', 24, "error or skip"),
    _changed('name = "so_far"', 'name = "so_far"\nmerge = "SELECT * FROM so_far WHER 1"', 24, ""),
    _changed('name = "so_far"', 'name = "so_far"\nmerge = "SELECT topic FROM so_far"', 24, "the query gives no column"),
    _changed("FROM so_far", "FROM sofar", 27, "there is no view sofar; did you mean so_far?"),
    _changed("count(*)", "count(*", 27, "Syntax error"),
    _changed("count(*)", "max(ofset)", 27, "there is no column ofset"),
    _changed('type = "console"', 'type = "console"\nrows = -1', 27, "a number of rows"),
    _changed('type = "console"', 'type = "console"\nrow = 5', 27, "did you mean rows?"),
    _changed('type = "console"', 'type = "consol"', 26, "did you mean console?"),
    _added('[spark]\nmaster = "locl[2]"\n', 2, "did you mean local?"),
    _added('[spark]\nmaster = "local[two]"\n', 2, "local[2]"),
    _added('[spark]\nmaster = "local(2)"\n', 2, "local[2]"),
    _added('[spark]\nmastr = "local[2]"\n', 2, "did you mean master?"),
    _added('[spark]\nconf = { "spark.master" = "lokal" }\n', 2, "did you mean local?"),
    _added('[spark]\nmaster = "sc://127.0.0.1:15002"\n', 2, "Spark Connect has none there: give local[*]"),
    _added('[spark]\nconf = { "spark.remote" = "sc://127.0.0.1" }\n', 2, "Spark Connect has none there"),
    _added('[spark]\nconf = { "spark.api.mode" = "connect" }\n', 2, "Spark Connect has none there"),
    _added('[trigger]\ninterval = "soon"\n', 2, "a time such as 500ms, 5s or 1m"),
    _added('[trigger]\ninterval = "0s"\n', 2, "at least 1ms"),
    _added("[trigger]\nmax_offsets_per_batch = 0\n", 2, "at least 1, not 0"),
    _added('[triger]\ninterval = "5s"\n', 1, "did you mean trigger?"),
    _added('[metrics]\nlisten = "9404"\n', 2, "an address such as 127.0.0.1:9404"),
    _added('[metrics]\nlisten = "127.0.0.1:99999"\n', 2, "an address such as 127.0.0.1:9404"),
    _added('[metrics]\nlisten = "203.0.113.1:9404"\n', 2, "203.0.113.1:9404: "),
    _added('[metrics]\nlisten = "a b:1"\n', 2, "an address such as 127.0.0.1:9404"),
    _added('[metrics]\nlistn = "127.0.0.1:9404"\n', 2, "did you mean listen?"),
    _added('[source.value]\nformat = "jsn"\nschema = "job.toml"\n', 2, "did you mean json?"),
    _added('[source.value]\nformat = "json"\nschema = "no.ddl"\n', 3, "No such file"),
    _added('[source.value]\nformat = "json"\nschema = "bad.ddl"\n', 3, 'Unsupported data type "BIGNT"'),
    _added('[source.value]\nformat = "avro"\nschema = "bad.ddl"\n', 3, "no schema"),
    _added('[state]\npath = "job.toml"\n', 2, "not a folder"),
    _added('[state]\npath = "state"\noutput_mode = "all"\n', 3, "one of append, update, complete"),
    _added('[state]\npath = "state"\nwatermark = "a while"\n', 3, 'a time such as "10 minutes"'),
    _added('[state]\npath = "state"\nview = "ordres"\n', 3, "did you mean orders?"),
    _changed('name = "orders"\n\n', 'name = "orders"\non_invalid = "drop"\n', 2, "error, skip or dead-letter"),
    _changed('name = "orders"\n\n', 'name = "orders"\non_invalid = "dead-letter"\n', None, "a topic for on_invalid"),
    _added('[dead_letters]\ntopic = "keyed"\npath = "other-dir"\n', 1, "and for nothing else"),
    _topic_sink('topic = "kyed"\n', 5, "there is no topic kyed"),
    _topic_sink('topic = "keyed"\non_invalid = "drop"\n', 6, "error, skip or dead-letter"),
    _topic_sink('topic = "keyed"\non_invalid = "dead-letter"\n', 1, 'a topic for on_invalid = "dead-letter"'),
    _topic_sink('topic = "keyed"\npartition_by = "random"\n', 6, "source or key"),
    _topic_sink('topic = "keyed"\ncompression = "zip"\n', 6, "one of Kafka's codecs"),
    _topic_sink('topic = "keyed"\nkafka.acks = "all"\n', 6, "this is for a broker"),
    _topic_sink('topic_column = "target"\n', 3, "has no column target"),
    _added('[[sink]]\ntype = "jdbc"\nurl = "postgresql://h/d"\ntable = "t"\n', 3, "jdbc:DATABASE"),
    _added('[[sink]]\ntype = "python"\nfunction = "bad_job_helpers:stor"\n', 3, "did you mean store?"),
]
"""What `check` finds."""
FOUND = [*SYNTAX, *NAMES, *KEYS]
ANALYSED = [
    *(
        _query(sql, hint)
        for sql, hint in [
            ("SELECT uppr(topic) AS t FROM records", "uppr"),
            ("SELECT my_lenght(value) AS n FROM records", "my_lenght"),
            ("SELECT topic, count(*) AS n FROM records", "GROUP BY"),
            ("SELECT topic, max(offset) AS m FROM records GROUP BY partition", "topic"),
            ("SELECT topic FROM records WHERE count(*) > 1", "WHERE"),
            ("SELECT topic FROM records WHERE topic", "Filter expression"),
            ("SELECT topic + array(1) AS t FROM records", "array(1)"),
            ("SELECT explode(topic) AS t FROM records", "explode(topic)"),
            ("SELECT array(1, map(1, 2)) AS a FROM records", ""),
            ("SELECT topic.name AS t FROM records", "topic"),
            ("SELECT substring(topic) AS t FROM records", "substring"),
            ("SELECT upper(topic, 1) AS t FROM records", "upper"),
            ("SELECT topic || FROM records", "`topic` cannot be resolved"),
            ("SELECT sum(headers) AS s FROM records", "headers"),
            ("SELECT topic FROM records UNION ALL SELECT topic, offset FROM records", "same number of columns"),
            ("SELECT sum(count(*)) AS n FROM records", ""),
            ("SELECT explode(array(1)) + 1 AS n FROM records", ""),
            ("SELECT row_number() AS n FROM records", ""),
            ("SELECT topic, (SELECT topic, offset FROM records) AS x FROM records", ""),
            ("SELECT CAST(timestamp AS ARRAY<INT>) AS a FROM records", ""),
            ("SELECT from_json(string(value), 'a BIGNT') AS j FROM records", "BIGNT"),
            ("SELECT topic FROM records LIMIT -1", ""),
            ("SELECT topic FROM other.table", "other"),
            ("SELECT topic FROM records LIMIT topic", ""),
        ]
    ),
    _query("SELECT timestamp AS a, offset AS A FROM records", "two columns A")._replace(line=21),
    _query("SELECT array() AS a FROM records", "array<void>")._replace(line=21),
    _query("SELECT my_length(value, 1) AS n FROM records", "length(value): too many positional"),
    _query("SELECT 1 + my_length() AS n FROM records", "length(value): missing a required argument"),
    _query("SELECT topic FROM records WHERE 1 IN (SELECT my_length(value, 1) FROM records)", "too many positional"),
    _query("SELECT topic FROM records WHERE EXISTS (SELECT my_length() FROM records)", "missing a required argument"),
    _query("SELECT (SELECT max(my_length()) FROM records) AS n FROM records", "missing a required argument"),
    _query("SELECT named_struct('a', 1, 'A', 2) AS s FROM records", "which Parquet does not have")._replace(line=21),
    _query("SELECT TIME'12:00:00' AS t FROM records", "which Parquet does not have")._replace(line=21),
    _changed("count(*) AS n FROM so_far", "my_length(topic, topic) AS n FROM so_far", 27, "too many"),
    _added('[spark.conf]\n"spark.sql.session.timeZone" = "Mars/Base"', 1, "timezone"),
    _added('[spark.conf]\n"spark.sql.parquet.compression.codec" = "bzip9"', 1, "bzip9"),
    _changed(":length", ":later", 16, "plain function"),
    _changed(":length", ":each", 16, "plain function"),
    _changed(":length", ":each_later", 16, "plain function"),
    _changed(":length", ":called_later", 16, "plain function"),
    _added(
        '[[sink]]\ntype = "python"\nview = "orders"\nfunction = "bad_job_helpers:view"', 4, "called with 2 arguments"
    ),
    _query("SELECT INTERVAL 1 MONTH AS span FROM records", "Parquet does not have")._replace(line=21),
    _relabelled("SELECT 'x' AS topic, partition, offset, value FROM records", "the column topic of the view sent"),
    _relabelled("SELECT topic, 0 AS partition, offset, value FROM records", "the column partition of the view sent"),
    _relabelled("SELECT topic, partition, offset + 1 AS offset, value FROM records", "the column offset of the view"),
    _relabelled("SELECT topic, partition, offset, 1 AS value FROM records", "it must be binary or string"),
    _relabelled("SELECT topic, partition, offset, value, 1 AS key FROM records", "it must be binary or string"),
    _relabelled("SELECT topic, partition, offset, value, true AS timestamp FROM records", "it must be timestamp or"),
    _relabelled("SELECT topic, partition, offset, value, 'x' AS headers FROM records", "it must be array<struct"),
    _relabelled("SELECT topic, partition, offset, value, array('a') AS headers FROM records", "it must be array<"),
    _relabelled("SELECT topic, partition, offset, value, array() AS headers FROM records", "it must be array<struct"),
    _relabelled(
        "SELECT topic, partition, offset, value, 'x' AS target FROM records",
        "it must be integer or",
        'topic = "keyed"\npartition_column = "target"',
    ),
    _changed(
        'sql = "SELECT topic, partition, offset, timestamp, value FROM records"',
        'python = "bad_job_helpers:none"',
        12,
        "must",
    ),
    _changed(
        'sql = "SELECT topic, partition, offset, timestamp, value FROM records"',
        'python = "bad_job_helpers:raising"',
        12,
        "no rates for today",
    ),
    _changed("count(*) AS n", "cuont(*) AS n", 27, "cuont"),
    _changed("count(*) AS n", "topic, count(*) AS n", 27, "GROUP BY"),
]
"""What `check --spark` finds, and `check` does not."""
