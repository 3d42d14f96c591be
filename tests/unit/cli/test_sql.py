"""`odradek sql`, as it is called."""

from __future__ import annotations

import io
import json
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import odradek
from odradek.cli.app import main
from odradek.cli.sql import without_end
from peers.kafka_fixture import KafkaFixture


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sql") / "data"
    with odradek.open(path) as logs:
        logs.create_topic("web.clicks-2026", partitions=1)
        rows = [
            odradek.Record(b"k", b'{"name": "Ada", "n": [1, 2]}', [("trace", b"\x00\xff")], 1_700_000_000_000),
            odradek.Record(None, b"\x00\xff", timestamp=1_700_000_001_000),
            odradek.Record(b"k", None, timestamp=1_700_000_002_000),
        ]
        logs["web.clicks-2026", 0].append(rows)
    return path


def run(*arguments: object, feed: str | None = None) -> Result:
    return CliRunner().invoke(main, ["sql", *map(str, arguments)], input=feed)


def test_json_functions_work_on_values(folder: Path) -> None:
    result = run(
        """SELECT value->>'$.name' AS name, "offset" FROM "web.clicks-2026" WHERE key = 'k' ORDER BY 2""", folder
    )
    assert result.output == "name  offset\nAda        0\nNULL       2\n"
    assert result.exit_code == 0


@pytest.mark.slow
def test_the_formats(folder: Path, tmp_path: Path) -> None:
    sql = 'SELECT "offset", timestamp, key, value, headers FROM raw."web.clicks-2026" WHERE "offset" < 2'
    lines = run(sql, folder, "--format", "jsonl").output.splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "offset": 0,
            "timestamp": "2023-11-14T22:13:20Z",
            "key": "k",
            "value": '{"name": "Ada", "n": [1, 2]}',
            "headers": [{"key": "trace", "value": {"base64": "AP8="}}],
        },
        {"offset": 1, "timestamp": "2023-11-14T22:13:21Z", "key": None, "value": {"base64": "AP8="}, "headers": []},
    ]
    assert run('SELECT "offset", key, 1.5 AS x FROM "web.clicks-2026"', folder, "--format", "csv").output == (
        "offset,key,x\n0,k,1.5\n1,,1.5\n2,k,1.5\n"
    )
    for name, end in (("rows.parquet", "; -- all;"), ("it's.parquet", " -- all")):
        assert run(f"{sql}{end}", folder, "--format", "parquet", "--output", tmp_path / name).output == ""
        assert pq.read_table(tmp_path / name)["value"].to_pylist()[1] == b"\x00\xff"
    run(sql, folder, "--format", "csv", "-o", tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text(encoding="utf-8").count("\n") == 3


def test_the_end_of_a_query() -> None:
    for query in ("SELECT '\u00fc;' AS text", "SELECT 1 /* a; */ + 2", "-- \u00fc;\nSELECT 1"):
        for end in ("", ";", "; ;", " -- all", "; -- \u00fc;", " /* ; */ -- x\n ; -- y", " -- x\n;"):
            assert without_end(query + end).rstrip() == query


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("options", "count"),
    [
        ([], 3),
        (["--offsets", "1:"], 2),
        (["--since", "2023-11-14T22:13:21"], 2),
        (["--until", "1700000001000", "--read-committed"], 1),
    ],
)
def test_options_narrow_what_there_is(folder: Path, options: list[str], count: int) -> None:
    assert run('SELECT count(*) AS n FROM "web.clicks-2026"', folder, *options).output.split() == ["n", str(count)]


@pytest.mark.slow
def test_what_is_wrong_is_told_in_a_line(folder: Path, tmp_path: Path) -> None:
    for arguments, code, text in [
        (("SELEC 1", folder), 3, "syntax error"),
        (("SELECT * FROM clicks", folder), 3, "clicks does not exist"),
        (("SELECT 1", tmp_path), 3, "not a log directory"),
        (("SELECT 1", tmp_path / "none"), 3, "No such file"),
        ((folder,), 2, "give a query and a log directory"),
        (("SELECT 1", folder, "--format", "parquet"), 2, "--output"),
        (("SELECT 1", folder, "-i"), 2, "give DIR alone"),
    ]:
        result = run(*arguments)
        assert result.exit_code == code, result.output
        assert text in result.output
        assert result.output.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_file_is_left_as_it_was_unless_the_new_one_is_whole(folder: Path, tmp_path: Path, form: str) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("before")
    file.chmod(0o600)
    link.symlink_to(file)
    options = (folder, "--format", form, "-o", link)
    late = 'SELECT CASE WHEN "offset" < 2 THEN 1 ELSE error(\'late\') END AS n FROM "web.clicks-2026"'
    assert run(late, *options).exit_code == 3
    assert file.read_text() == "before"
    assert run('SELECT 1 AS n FROM "web.clicks-2026"', *options).exit_code == 0
    assert file.stat().st_size > 6
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(tmp_path.iterdir()) == [file, link]
    assert link.is_symlink()


@pytest.mark.slow
def test_topics_that_differ_in_case_are_told_apart(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        for count, topic in enumerate(["Events", "events", "other"], 1):
            logs.create_topic(topic, partitions=1)
            logs[topic, 0].append([odradek.Record(b"k")] * count)
    tables = run("SHOW TABLES", tmp_path / "data", "--format", "csv").output.splitlines()
    assert tables == ["name", "Events (1)", "events (2)", "other"]
    result = run('SELECT topic, count(*) AS n FROM "events (2)" GROUP BY topic', tmp_path / "data", "--format", "csv")
    assert result.output == "topic,n\nevents,2\n"
    assert run("FROM events", tmp_path / "data").exit_code == 3


@pytest.mark.slow
def test_a_topic_of_kafkas_own_is_a_table(fixture_4_3_1: KafkaFixture) -> None:
    result = run('SELECT count(*) > 0 AS held FROM "__consumer_offsets"', fixture_4_3_1.log_dir)
    assert (result.exit_code, result.output.split()) == (0, ["held", "true"])


@pytest.mark.slow
def test_damage_is_a_finding(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events", partitions=1)
        for _ in range(3):
            logs["events", 0].append([odradek.Record(b"k", b"v" * 100)] * 10)
            logs["events", 0].roll()
    first = tmp_path / "data" / "events-0" / f"{0:020d}.log"
    content = bytearray(first.read_bytes())
    content[-30] ^= 1
    first.write_bytes(content)
    for arguments, feed in [(("SELECT key FROM events",), None), (("-i",), "SELECT key FROM events;")]:
        result = run(*arguments, tmp_path / "data", feed=feed)
        assert result.exit_code == 1
        assert result.stderr.startswith(f"odradek: {first}, position 0: checksum mismatch")
        assert result.stderr.count("\n") == 1
    # What fails after that is told for what it is.
    for wrong in ("FROM none;", "nonsense;"):
        assert run("-i", tmp_path / "data", feed=f"SELECT key FROM events;\n{wrong}").exit_code == 3


def test_a_variable_of_the_program_is_no_table(folder: Path) -> None:
    assert "Table with name statement does not exist" in run("FROM statement", folder).output


@pytest.mark.slow
def test_statements_from_a_pipe(folder: Path) -> None:
    result = run("-i", folder, feed='SELECT count(*) AS n\nFROM "web.clicks-2026";\nnonsense;\nSELECT 2 AS two')
    assert result.stdout.split() == ["n", "3", "two", "2"]
    assert "syntax error" in result.stderr
    assert result.exit_code == 0
    assert run("-i", folder, feed="nonsense;").exit_code == 3


@pytest.mark.slow
def test_ctrl_c_ends_a_query(folder: Path) -> None:
    sql = "SELECT 'begun' AS x; SELECT count(*) FROM range(1000000000) a, range(1000) b WHERE a.range * b.range % 7 = 3"
    with subprocess.Popen(
        [sys.executable, "-m", "odradek", "sql", sql, folder], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        # Once it works, it takes time of its own: importing takes less than this.
        while float(Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").split()[13]) < 500:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (out, err.splitlines()[0], process.returncode) == ("", "odradek: interrupted", 130)


@pytest.mark.parametrize(
    ("form", "told"), [("jsonl", '{"value":"\u00e9"}\n'), ("csv", "value\n\u00e9\n"), ("text", "\\xe9")]
)
def test_what_programs_read_is_utf_8_on_every_terminal(
    folder: Path, monkeypatch: pytest.MonkeyPatch, form: str, told: str
) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="backslashreplace", write_through=True)
    monkeypatch.setattr(sys, "stdout", out)
    with pytest.raises(SystemExit) as ended:
        main(["sql", "SELECT chr(233) AS value", str(folder), "--format", form])
    # pytest has the stream back when it is closed.
    monkeypatch.undo()
    assert ended.value.code in (0, None)
    assert told in out.buffer.getvalue().decode()


@pytest.mark.slow
def test_a_prompt_ends_by_sigterm(folder: Path) -> None:
    command = [sys.executable, "-m", "odradek", "sql", "-i", str(folder), "--format", "csv"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"SELECT 1 AS one;\n")
        process.stdin.flush()
        assert [process.stdout.readline() for _ in range(2)] == [b"one\n", b"1\n"]
        process.send_signal(signal.SIGTERM)
        assert process.wait() == -signal.SIGTERM
