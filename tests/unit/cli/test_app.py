"""The command itself: exit codes, one-line messages, and that it starts without what it does not need."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import odradek
from odradek.cli import app
from odradek.cli.app import COMMANDS, main
from odradek.cli.record_json import json_line, text_line
from odradek.errors import CheckpointError, LogError
from odradek.inspection.log_files import FileKind, LogFile
from odradek.records import Record
from odradek.storage.names import TopicPartition
from peers.kafka_fixture import KafkaFixture

ODRADEK = [sys.executable, "-c", "from odradek.cli.app import main; main(prog_name='odradek')"]


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


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there_and_helps(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: main {name}")


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
    ],
)
def test_errors_become_codes(error: BaseException, code: int, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command("break")
    def broken() -> None:
        raise error

    monkeypatch.setattr(app.Application, "get_command", lambda *_: broken)
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    result = CliRunner().invoke(main, ["break"])
    assert (result.exit_code, result.stderr.strip()) == (code, message.strip())


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["dump"],
        ["dump", "--offsets", "b:a", "."],
        ["dump", "--offsets=-1:4", "."],
        ["dump", "--since", "yesterday", "."],
        ["dump", "--print-data-log", "."],
        ["dump", "--kafka-compat", "--control", "."],
        ["dump", "--offsets", "5:3", "."],
    ],
)
def test_wrong_usage_is_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_a_path_that_is_none_is_3_and_the_others_follow(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    paths = [tmp_path / "absent", tmp_path / "*.log", tmp_path / "notes.txt", tmp_path / "meta.properties"]
    result = CliRunner().invoke(main, ["dump", "--format", "jsonl", *map(str, paths)])
    assert result.exit_code == 3
    assert json.loads(result.stdout)["cluster_id"] == "c"
    assert result.stderr.count("\n") == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics"],
        ["salvage", "{}", "new"],
        ["pipeline", "run"],
        ["offsets", "from-checkpoint", "{}", "file:x"],
        ["dump"],
    ],
)
def test_what_is_missing_is_one_line_and_3(arguments: list[str], tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    given = [part.format(missing) for part in arguments]
    result = CliRunner().invoke(main, given if missing in given else [*given, missing])
    assert result.exit_code == 3
    assert result.stderr.startswith("odradek: ")
    assert missing in result.stderr
    assert result.stderr.count("\n") == 1


def test_topics_of_what_is_no_log_directory(kafka_fixture: KafkaFixture, tmp_path: Path) -> None:
    for directory, reason in (
        (tmp_path, "not a log directory"),
        (kafka_fixture.log_dir / "keyed-0", "the folder of a partition, not a log directory"),
    ):
        result = CliRunner().invoke(main, ["topics", str(directory)])
        assert (result.exit_code, result.stdout, result.stderr) == (3, "", f"odradek: {directory}: {reason}\n")
    with odradek.open(tmp_path / "new"):
        assert CliRunner().invoke(main, ["topics", str(tmp_path / "new")]).exit_code == 0


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


def test_a_closed_stdout_is_one_line_and_3() -> None:
    command = " ".join(map(shlex.quote, map(str, [*ODRADEK, "--help"])))
    result = subprocess.run(f"{command} >&-", shell=True, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (3, "odradek: stdout is closed\n")


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
    file = LogFile(Path("x.log"), FileKind.RECORDS, 0, TopicPartition("t", 0))
    name = "header" if data is None else data.decode("utf-8", "replace")
    record = Record(data, data, [(name, data)], 5, 7, "CreateTime")
    for make_line in (json_line, text_line):
        for base64 in (False, True):
            line = make_line(file, base64=base64)(record)
            assert line.endswith("\n")
            assert line[:-1].isprintable() or make_line is json_line
            assert len(line.splitlines()) == 1
            assert "\x1b" not in line
    decoded = json.loads(json_line(file, base64=False)(record))
    if isinstance(decoded["value"], str):
        assert decoded["value"].encode() == data
    assert decoded["headers"][0][0] == name
