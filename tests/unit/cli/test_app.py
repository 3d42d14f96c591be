"""The command itself: exit codes, one-line messages, and that it starts without what it does not need."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import pytest

import odradek
from odradek.cli import app
from odradek.cli.app import COMMANDS
from odradek.errors import CheckpointError, LogError
from odradek.inspection.record_json import LineWriter
from odradek.records import Record
from odradek.storage.names import TopicPartition
from odradek.testing import Broker
from peers.command import run
from peers.kafka_fixture import KafkaFixture

ODRADEK = [sys.executable, "-c", "from odradek.cli.app import main; main(prog_name='odradek')"]


@pytest.mark.slow
def test_help_needs_neither_arrow_nor_spark_nor_the_commands() -> None:
    program = """
import sys
from odradek.cli.app import main
try:
    main(["--help"], prog_name="odradek")
except SystemExit as end:
    assert end.code == 0
heavy = {"pyarrow", "pyspark", "rich", "kafka", "odradek.cli.dump", "odradek.cli.verify"} & set(sys.modules)
assert not heavy, heavy
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    assert all(name in result.stdout for name in COMMANDS)


def test_the_help_begins_with_what_it_is_and_the_version_is_one_line() -> None:
    assert "Odradek reads, verifies, repairs and serves" in run("--help", code=0).stdout.splitlines()[2]
    assert run("--version", code=0).stdout == f"odradek {version('odradek')}\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("odradek top", "plain,topics"),
        ("odradek dump --offsets-d", "plain,--offsets-decoder"),
        ("odradek pipeline ch", "plain,check"),
        ("odradek dump da", "file,da"),
        ("odradek topics da", "dir,da"),
        ("odradek verify --format js", "plain,jsonl"),
    ],
)
def test_the_shell_completes(words: str, completed: str) -> None:
    count = str(len(words.split()) - 1)
    environment = {**os.environ, "_ODRADEK_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": count}
    result = subprocess.run(ODRADEK, capture_output=True, text=True, env=environment, timeout=60)
    assert (result.returncode, result.stdout.split()) == (0, [completed])


@pytest.mark.sampled
@pytest.mark.parametrize(
    "words",
    [
        "produce data events --key-separator \udcff",
        "sql \udcff data",
        "offsets set folder:data?group=\udcff --to-latest --topic events",
        "offsets show redis://\udcff:1/0?group=g",
    ],
)
def test_an_argument_that_is_no_text_is_one_line_and_2(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with odradek.open("data") as logs:
        logs.create_topic("events")
    (told,) = run(*words.split(), given=b"a\n", code=2).stderr.splitlines()
    assert "\\udcff" in told


@pytest.mark.slow
def test_ctrl_c_is_one_line_and_130(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_text("0\n100000\n" + "".join(f"t {number} {number}\n" for number in range(100_000)))
    module = [sys.executable, "-m", "odradek.cli", "dump", str(path)]
    with subprocess.Popen(module, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        # It is in the middle of its output, which nobody takes.
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b"odradek: interrupted\n"
        process.stdout.close()
        assert process.wait(60) == 130


WAITS = [
    *((f"{command} BROKER", "ApiVersions") for command in ("dump", "stat", "tail", "grep x")),
    ("export BROKER --to exported", "Metadata"),
    ("export BROKER --to exported", "Fetch"),
    ("replay BROKER --to copy", "Fetch"),
    ("replay DIR --to BROKER --map events=copied", "Produce"),
    ("import records.jsonl --to BROKER", "Produce"),
    ("tail BROKER", "Fetch"),
    ("grep a BROKER", "Fetch"),
    ("stat BROKER", "ListOffsets"),
    ("topics BROKER", "Metadata"),
    ("produce BROKER events", "Produce"),
]
OTHER_SIGNALS = [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP)]
"""The program ends by them as by Ctrl-C, whatever the command: a few are enough."""


def waits_and_signals() -> Iterator[Any]:
    for words, hanging in WAITS:
        yield pytest.param(words, hanging, signal.SIGINT, 130)
        marks = () if (words, hanging) in (WAITS[0], WAITS[5], WAITS[-1]) else pytest.mark.laboratory
        for number, code in OTHER_SIGNALS:
            yield pytest.param(words, hanging, number, code, marks=marks)


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize(("words", "hanging", "number", "code"), list(waits_and_signals()))
def test_a_signal_ends_a_wait_for_a_broker(tmp_path: Path, words: str, hanging: str, number: int, code: int) -> None:
    (tmp_path / "records.jsonl").write_text('{"topic":"events","partition":0,"value":"b"}\n')
    with Broker() as broker, broker.fault(hanging, drop=True) as fault:
        broker.create_topic("events")
        broker.logs["events", 0].append([odradek.Record(b"a")])
        address = f"kafka://{broker.bootstrap_servers}?default.api.timeout.ms=999999999&request.timeout.ms=999999999"
        named = {"BROKER": address, "DIR": str(broker.path)}
        command = [sys.executable, "-m", "odradek", *(named.get(word, word) for word in words.split())]
        with (
            (tmp_path / "records.jsonl").open() as given,
            subprocess.Popen(command, stdin=given, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process,
        ):
            while not fault.fired:
                assert process.poll() is None
                time.sleep(0.01)
            process.send_signal(number)
            _, told = process.communicate(timeout=60)
        assert (process.returncode, told.splitlines()[-1]) == (code, "odradek: interrupted")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000, "it is nested too deeply"),
        ("{", "it is not JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1))"),
        ('{"positions": {}}', "the field version is missing"),
        ("[]", "a field does not hold what it should"),
    ],
)
def test_a_file_without_positions_is_one_line_and_3(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_text(text)
    told = run("offsets", "show", f"file://{path}", code=3).stderr
    assert told == f"odradek: file://{path}: this is not a file of positions: {reason}\n"


@pytest.mark.parametrize(
    "arguments", [["topics", ""], ["verify", ""], ["dump", ""], ["salvage", "", "x"], ["salvage", ".", ""]]
)
def test_an_empty_path_is_not_the_working_directory(arguments: list[str]) -> None:
    assert "the path is empty" in run(*arguments, code=2).stderr


@pytest.mark.slow
def test_a_name_that_the_locale_cannot_write_is_one_line(tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text(
        'source = {path = "caf\u00e9", subscribe = "t"}\noffsets = {store = "file:o.json"}\n', encoding="utf-8"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    result = subprocess.run(
        [*ODRADEK, "pipeline", "check", str(job)], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (result.returncode, result.stderr) == (1, "")
    assert "line 1: source.path: the path cannot be a file's name in the locale's encoding, ascii" in result.stdout


def test_a_working_directory_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    told = run("offsets", "show", "file:offsets.json", code=3).stderr
    assert told == "odradek: the working directory: No such file or directory\n"


@pytest.mark.slow
def test_zookeeper_that_is_not_there_is_one_line_and_3() -> None:
    address = "zookeeper://127.0.0.1:1/g"
    result = subprocess.run([*ODRADEK, "offsets", "show", f"{address}?timeout_ms=500"], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (3, f"odradek: {address}: no answer, after 0.5 s\n")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (CheckpointError("line 3 is odd", path="x"), 1, "odradek: x: line 3 is odd\n"),
        (LogError("no such log"), 3, "odradek: no such log\n"),
        (OSError(28, "No space left on device", "/a\nb"), 3, "odradek: /a\\nb: No space left on device\n"),
        (
            ModuleNotFoundError("x", name="pyarrow"),
            3,
            'odradek: this needs the package pyarrow, which is not installed: pip install "odradek[arrow]"\n',
        ),
        (KeyboardInterrupt(), 130, "odradek: interrupted\n"),
        (BrokenPipeError(), 3, ""),
        (RecursionError("maximum recursion depth"), 3, "odradek: the input is nested too deeply to be read\n"),
    ],
)
def test_errors_become_codes(error: BaseException, code: int, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command("break")
    def broken() -> None:
        raise error

    monkeypatch.setattr(app.Application, "get_command", lambda *_: broken)
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    assert run("break", code=code).stderr.strip() == message.strip()


@pytest.mark.parametrize("start", ["runpy.run_module('odradek', run_name='__main__')", "import odradek.__main__"])
def test_an_interrupt_while_the_command_is_imported_shows_no_traceback(start: str) -> None:
    program = f"""
import os, runpy, signal, sys
# Tests may run where it is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupting:
    def find_spec(self, name, *_):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
{start}
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, b"", b"")


def test_an_interrupt_before_a_command_runs_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(app.Application, "format_commands", interrupt)
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    assert run("--help", code=130).output == "odradek: interrupted\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["topics", "list"], "odradek topics list: Missing argument 'SOURCE'. See odradek topics list --help"),
        (["salvage", "."], "odradek salvage: Missing argument 'DST'. See odradek salvage --help"),
        (["dump"], "odradek dump: Missing argument 'PATH...'. See odradek dump --help"),
        (["pipeline", "run"], "odradek pipeline run: Missing argument 'FILE'. See odradek pipeline run --help"),
        (
            ["offsets", "set", "file:x"],
            "odradek offsets set: give either TOPIC-PARTITION=OFFSET, or one of the ",
        ),
        (["dmup"], "odradek: No such command 'dmup'. Did you mean 'dump'? See odradek --help"),
        (["xyzzy"], "odradek: No such command 'xyzzy'. See odradek --help"),
        (["pipeline", "chek"], "odradek pipeline: No such command 'chek'. Did you mean 'check'? See "),
        (
            ["offsets", "set", "file:x", "\udce6-0=1"],
            "odradek offsets set: Invalid value for '[TOPIC-PARTITION=OFFSET...]': a topic's name ",
        ),
        (["verify", "--recods", "."], "odradek verify: No such option '--recods'. Did you mean '--records'? See "),
        (["dump", "--contrl", "."], "odradek dump: No such option '--contrl'. (Did you mean one of: '--control', "),
        (
            ["dump", "--print-data-log", "."],
            "odradek dump: --print-data-log and the options of Kafka's tool need --kafka-compat.",
        ),
        (
            ["dump", "--offsets", "5:3", "."],
            "odradek dump: Invalid value for '--offsets': '5:3' ends before it begins. ",
        ),
        (
            ["dump", "--since", "20260101", "."],
            "odradek dump: Invalid value for '--since': '20260101' may be 2026-01-01 or 1970-01-01T05:37:40.101+00:00: "
            "write the one that is meant. See ",
        ),
        (["dump", "--control\nx", "."], "odradek dump: No such option '--control\\nx'."),
    ],
)
def test_wrong_usage_is_one_line_that_names_it(arguments: list[str], told: str) -> None:
    result = run(*arguments, code=2)
    assert (result.stdout, result.stderr.count("\n")) == ("", 1)
    assert result.stderr.startswith(told)


def test_a_number_of_seconds_is_taken_as_it_is_and_told(tmp_path: Path) -> None:
    empty = tmp_path / "00000000000000000000.log"
    empty.touch()
    result = run("dump", "--since", "1767225600", "--until", "1767225601", empty, code=0)
    assert result.stdout == ""
    first, second = result.stderr.splitlines()
    assert first.startswith("odradek: timestamp 1767225600 is 1970-01-21 in milliseconds, as Kafka has them; if these")
    assert second.startswith("odradek: timestamp 1767225601 is ")


@pytest.mark.parametrize(
    "time", ["12345678", "1767225600000", "2026-01-01", "20260101T000000Z", "1970-01-01T05:37:40.101+00:00", "-1"]
)
def test_a_time_that_is_one_is_taken_without_a_word(time: str, tmp_path: Path) -> None:
    empty = tmp_path / "00000000000000000000.log"
    empty.touch()
    assert run("dump", f"--since={time}", empty, code=0).output == ""


def test_no_command_is_the_help_and_2() -> None:
    told = run(code=2).stderr
    assert all(name in told for name in COMMANDS)


@pytest.mark.parametrize("name", ["topics", "salvage", "pipeline run", "pipeline compact", "offsets from-checkpoint"])
def test_what_is_no_such_thing_is_named(name: str, tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    (tmp_path / "file").touch()
    other = tmp_path if name.startswith("pipeline") else tmp_path / "file"
    reason = "Is a directory" if name.startswith("pipeline") else "Not a directory"
    rest = ["new"] if name == "salvage" else ["file:x"] if name.startswith("offsets") else []
    for path, told in ((loop, "Too many levels of symbolic links"), (other, reason)):
        result = run(*name.split(), path, *rest, code=3)
        assert (result.stdout, result.stderr) == ("", f"odradek: {path}: {told}\n")
    (line,) = run(*name.split(), fifo, *rest, code=3).stderr.splitlines()
    assert line.startswith(f"odradek: {fifo}: ")


def test_a_path_that_is_none_is_3_and_the_others_follow(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    paths = [tmp_path / "absent", tmp_path / "*.log", tmp_path / "notes.txt", tmp_path / "meta.properties"]
    result = run("dump", "--format", "jsonl", *paths, code=3)
    assert json.loads(result.stdout)["cluster_id"] == "c"
    assert result.stderr.count("\n") == 3


@pytest.mark.sampled
def test_topics_of_what_is_no_log_directory(kafka_fixture: KafkaFixture, tmp_path: Path) -> None:
    for directory, reason in (
        (tmp_path, "not a log directory"),
        (kafka_fixture.log_dir / "keyed-0", "the folder of a partition, not a log directory"),
    ):
        result = run("topics", directory, code=3)
        assert (result.stdout, result.stderr) == ("", f"odradek: {directory}: {reason}\n")
    with odradek.open(tmp_path / "new"):
        run("topics", tmp_path / "new", code=0)


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    lines = "".join(f"t {number} {number}\n" for number in range(100_000))
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_text(f"0\n100000\n{lines}")
    with subprocess.Popen([*ODRADEK, "dump", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 3


@pytest.mark.slow
def test_a_closed_stdout_is_one_line_and_3() -> None:
    command = " ".join(map(shlex.quote, map(str, [*ODRADEK, "--help"])))
    result = subprocess.run(f"{command} >&-", shell=True, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (3, "odradek: stdout is closed\n")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["--help", "topics {}", "dump {}", "verify {} --format jsonl"])
def test_a_full_disk_under_stdout_is_one_line_and_3(arguments: str, kafka_fixture: KafkaFixture) -> None:
    words = arguments.format(kafka_fixture.log_dir).split()
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run([*ODRADEK, *words], stdout=full, stderr=subprocess.PIPE, text=True)
    told = "" if words[0] == "verify" else "odradek: stdout: No space left on device\n"
    assert (result.returncode, result.stderr) == (3 if told else 0, told)


@pytest.mark.slow
def test_a_stderr_that_cannot_be_written_changes_no_code(kafka_fixture: KafkaFixture) -> None:
    for arguments, code in ((["verify", kafka_fixture.log_dir], 0), (["dump", "/absent"], 3), (["topics"], 2)):
        with Path("/dev/full").open("wb") as full:
            result = subprocess.run([*ODRADEK, *arguments], stdout=subprocess.DEVNULL, stderr=full)
        assert result.returncode == code


@pytest.mark.slow
def test_a_name_that_the_terminal_cannot_print_is_escaped(kafka_fixture: KafkaFixture, tmp_path: Path) -> None:
    folder = tmp_path / "日" / "keyed-0"
    shutil.copytree(kafka_fixture.log_dir / "keyed-0", folder)
    next(folder.glob("*.timeindex")).write_bytes(b"12345")
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    result = subprocess.run([*ODRADEK, "verify", folder.parent], capture_output=True, text=True, env=environment)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "keyed-0/" in result.stdout
    assert result.stdout.isascii()


HOSTILE = [
    b'x\n{"topic":"forged"}',
    b"a\r\nb",
    b"esc \x1b[2J",
    "line \u2028 and \u2029 and \x85".encode(),
    "\u202egnp.exe".encode(),
    b"\x00\xff\xfe\x80",
    b'"quoted\\"',
    b"\x7f\xc2\x9b31m",
    b"",
    None,
]


@pytest.mark.parametrize("data", HOSTILE)
def test_a_value_cannot_forge_a_line(data: bytes | None) -> None:
    owner = TopicPartition("t", 0)
    name = "header" if data is None else data.decode("utf-8", "replace")
    record = Record(data, data, [(name, data)], 5, 7, "CreateTime")
    for form in ("jsonl", "text"):
        for base64 in (False, True):
            line = LineWriter(form, owner, base64=base64)(record).decode("utf-8", "surrogatepass")
            assert line.endswith("\n")
            assert line[:-1].isprintable() or form == "jsonl"
            assert len(line.splitlines()) == 1
            assert "\x1b" not in line
    decoded = json.loads(LineWriter("jsonl", owner)(record))
    if isinstance(decoded["value"], str):
        assert decoded["value"].encode() == data
    assert decoded["headers"][0][0] == name
