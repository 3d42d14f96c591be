"""`pipeline check`: each thing that can be wrong with a job is found with its line, its key and the nearest name."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import odradek
from odradek.spark.pipeline.check import check_job
from odradek.spark.pipeline.job_lines import JobLines
from peers.kafka_fixture import KafkaFixture

SOUND = """\
name = "words"

[source]
path = "log-dir"
subscribe = "keyed"

[offsets]
store = "file:offsets.json"

[spark]
conf = { "spark.sql.shuffle.partitions" = 2 }

[[transform]]
view = "words"
sql = \"\"\"
SELECT topic, partition, offset, timestamp,
       explode(split(CAST(value AS STRING), ' ')) AS word
FROM records
\"\"\"

[[sink]]
type = "parquet"
view = "words"
path = "words"
name = "so_far"
partition_by = ["date"]

[[sink]]
type = "console"
sql = "SELECT word, date, count(*) AS n FROM so_far GROUP BY word, date ORDER BY n"
"""


@pytest.fixture
def job(kafka_fixture: KafkaFixture, tmp_path: Path) -> Path:
    (tmp_path / "log-dir").symlink_to(kafka_fixture.log_dir)
    return tmp_path / "job.toml"


@pytest.mark.slow
def test_a_sound_job_has_no_findings(job: Path) -> None:
    job.write_text(SOUND, encoding="utf-8")
    assert check_job(job) == []
    assert sorted(path.name for path in job.parent.iterdir()) == ["job.toml", "log-dir"]


def test_a_store_that_cannot_take_the_positions(job: Path) -> None:
    odradek.open(job.parent / "other").close()
    store = f'"folder://{job.parent}/other?group=words"\nreset = "none"'
    job.write_text(SOUND.replace('"file:offsets.json"', store), encoding="utf-8")
    assert [(found.line, found.key, found.reason) for found in check_job(job)] == [
        (8, "offsets.store", "it cannot keep positions of keyed: it has no keyed-0 itself"),
        (9, "offsets.reset", "the store has no positions of the job, so it cannot start by none"),
    ]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("replaced", "by", "told"),
    [
        (
            '"parquet"',
            '"parket"',
            "line 22: sink[0].type: one of parquet, topic, console, python, jdbc, delta, iceberg, n",
        ),
        ("file:offsets.json", "zookeeper://127.0.0.1:1/g", "line 8: offsets.store: zookeeper://127.0.0.1:1/g: no an"),
        ("timestamp,\n", "\n", "line 26: sink[0].partition_by: the view words has no column timestamp"),
        ('name = "words"', "name = [", "line 3: Invalid value (at line 3, column 2)"),
        ('name = "words"', "name = " + "[" * 100_000, "nested too deeply to be read"),
    ],
)
def test_what_is_wrong_is_found_with_its_line(job: Path, replaced: str, by: str, told: str) -> None:
    assert replaced in SOUND
    text = SOUND.replace(replaced, by, 1)
    job.write_text(text, encoding="utf-8")
    findings = [str(finding) for finding in check_job(job)]
    assert len(findings) == 1, findings
    assert findings[0].startswith(f"{job}: {told}")
    assert "\n" not in findings[0]


def test_everything_wrong_is_told_at_once_in_the_order_of_the_lines(job: Path) -> None:
    text = SOUND
    mistakes = [("keyed", "kyed"), ("offset, t", "ofset, t"), ("SELECT word", "SELECT wrod"), ('name = "w', 'nam = "w')]
    for was, now in mistakes:
        text = text.replace(was, now, 1)
    job.write_text(text, encoding="utf-8")
    assert [finding.line for finding in check_job(job)] == [1, 5, 16, 30]


def check_alone(job: Path) -> tuple[int, list[str], str]:
    """Check in a process of its own: kafka-python leaves the sockets open that it could not connect."""
    arguments = [sys.executable, "-m", "odradek.cli", "pipeline", "check", str(job)]
    result = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
    return result.returncode, result.stdout.splitlines(), result.stderr


@pytest.mark.slow
def test_a_sink_of_a_topic_needs_the_position_and_the_value(job: Path) -> None:
    sink = '[[sink]]\ntype = "topic"\ntopic = "x"\nview = "words"\nkafka.bootstrap.servers = "127.0.0.1:1"\n'
    job.write_text(SOUND + sink, encoding="utf-8")
    code, (view, broker), errors = check_alone(job)
    assert (code, errors) == (1, "")
    assert "line 34: sink[2].view: the view words has no column value" in view
    assert "line 35: sink[2].kafka.bootstrap.servers: BROKER_NOT_AVAILABLE (8): 127.0.0.1:1: " in broker


@pytest.mark.slow
def test_brokers_that_do_not_answer_are_named(job: Path) -> None:
    text = SOUND.replace('path = "log-dir"', 'kafka.bootstrap.servers = "127.0.0.1:1"')
    job.write_text(text.replace("file:offsets.json", "kafka://127.0.0.1:1/g"), encoding="utf-8")
    code, (source, store), errors = check_alone(job)
    assert (code, errors) == (1, "")
    assert "line 4: source.kafka.bootstrap.servers: BROKER_NOT_AVAILABLE (8): 127.0.0.1:1: " in source
    assert "line 8: offsets.store: kafka://127.0.0.1:1/g: " in store


@pytest.mark.slow
@pytest.mark.parametrize("has_sql", [True, False])
def test_it_starts_no_process_but_a_parser_and_loads_no_client_that_it_does_not_need(
    job: Path, has_sql: bool, request: pytest.FixtureRequest
) -> None:
    if has_sql:
        request.getfixturevalue("spark_parser")
    without_sql = SOUND.partition("[[transform]]")[0] + '[[sink]]\ntype = "parquet"\npath = "words"\n'
    job.write_text(SOUND if has_sql else without_sql, encoding="utf-8")
    program = f"""
        import subprocess, sys
        from odradek.cli.app import main
        start, started = subprocess.Popen, []
        def noted(command, *arguments, **options):
            started.append("py4j.GatewayServer" in command)
            return start(command, *arguments, **options)
        subprocess.Popen = noted
        try:
            main(["pipeline", "check", {str(job)!r}], prog_name="odradek")
        except SystemExit as end:
            assert end.code == 0, end.code
        assert started == [True] * {has_sql}, started
        assert not {{"kafka", "redis", "kazoo"}} & set(sys.modules)
        assert {has_sql} or "py4j" not in sys.modules
    """
    arguments = [sys.executable, "-c", textwrap.dedent(program)]
    result = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, f"odradek: {job}: nothing wrong was found\n")


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("name", 1),
        ("source.path", 4),
        ("offsets.store", 8),
        ("spark.conf.spark.sql.shuffle.partitions", 11),
        ("transform[0].view", 14),
        ("transform[0].sql", 15),
        ("sink[0].path", 24),
        ("sink[1].type", 29),
        ("sink[1].rows", 28),
        ("sink", 21),
        ("trigger.interval", None),
    ],
)
def test_the_lines_of_keys(key: str, line: int | None) -> None:
    assert JobLines(SOUND).line(key) == line


def test_lines_end_as_in_toml() -> None:
    assert JobLines('# \x85 \u2028\r\nname = "words"\r\n').line("name") == 2


def test_keys_within_texts_are_none_and_quoted_ones_are() -> None:
    text = "[a]\nsql = '''\nx = 1\n[b]\n'''\n\"y\" = 2\n[ c . 'd' ]  # comment\nz='[e]'\n"
    text += 'long = """one\nq = 1"""\nw = 1\n'
    lines = JobLines(text)
    assert [lines.line(key) for key in ("a.y", "c.d.z", "c.d.w", "a.x", "b", "e")] == [6, 8, 11, 1, None, None]
    assert lines.text_line("a.sql", 2) == 4
    assert lines.text_line("c.d.long", 2) == 10


MERGED = """\
[source]
path = "log-dir"
subscribe = "keyed"

[offsets]
store = "file:offsets.json"

[[transform]]
view = "counts"
sql = "SELECT key, count(*) AS n FROM records GROUP BY key"

[[sink]]
type = "parquet"
view = "counts"
path = "totals"
name = "totals"
merge = "SELECT key, sum(n) AS n FROM totals GROUP BY key"

[[sink]]
type = "console"
sql = "SELECT n FROM totals"
"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("replaced", "by", "told"),
    [
        ("", "", None),
        ("AS n FROM totals", "AS m FROM totals", "line 17: sink[0].merge: the query gives no column n, which the view"),
        ("sum(n)", "sum(m)", "line 17: sink[0].merge: "),
        ('name = "totals"\n', "", "sink[0].name: merge is a query over the sink's name"),
        ('name = "totals"\n', 'name = "totals"\npartition_by = ["topic"]\n', "sink[0].partition_by: a folder whose"),
    ],
)
def test_a_merge_is_a_query_over_the_sink(job: Path, replaced: str, by: str, told: str | None) -> None:
    job.write_text(MERGED.replace(replaced, by, 1), encoding="utf-8")
    findings = [str(finding) for finding in check_job(job)]
    assert len(findings) == (told is not None), findings
    assert told is None or told in findings[0]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ('topic = "kyed"', "sink[2].topic: there is no topic kyed in "),
        ("", "sink[2].topic_column: the topic of each record is the one that the source reads it from"),
        ('topic_column = "word"', "sink[2].view: the view words has no column value"),
        ('topic_column = "target"', "sink[2].view: the view words has no column target"),
        ('topic_column = "word"\npartition_column = "prat"', "sink[2].view: the view words has no column prat"),
        ('topic = "keyed"\ntopic_column = "word"', "sink[2].topic_column: unknown key"),
        (
            'topic = "keyed"\nkafka.acks = "all"',
            "sink[2].kafka.acks: this is for a broker, and path is a folder: leave",
        ),
        (
            'topic = "keyed"\nkafka.bootstrap.servers = "h:1"',
            "sink[2].kafka: give either path (a log directory) or kaf",
        ),
    ],
)
def test_a_topic_sink_of_a_folder(job: Path, keys: str, told: str) -> None:
    sound = SOUND.replace("SELECT topic,", "SELECT value,\n       topic,") if "keyed" in keys else SOUND
    job.write_text(f'{sound}\n[[sink]]\ntype = "topic"\nview = "words"\npath = "log-dir"\n{keys}\n', encoding="utf-8")
    assert any(told in str(finding) for finding in check_job(job)), [str(finding) for finding in check_job(job)]
