"""What holds for each command of the program, and for those that are still to come: they are found in click's tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import odradek
from odradek.cli.app import COMMANDS, main
from odradek.cli.options import Existing, Name, NonEmptyPath
from peers.kafka_fixture import KafkaFixture
from peers.rights import without_overrides

ARGUMENTS = {
    "address": "folder:data?group=group-1",
    "address of conformance": "127.0.0.1:1",
    "checkpoint": "checkpoint",
    "destination": "new",
    "dst": "new",
    "expression": "1 = 1",
    "file": "job.toml",
    "groups": "group-1",
    "offset": "0",
    "partitions of offsets delete": "keyed-0",
    "path of explain": "data/keyed-0",
    "pattern": "k",
    "places": "keyed-0=1",
    "source of offsets copy": "folder:data?group=group-1",
    "target of offsets copy": "file:positions.json",
    "topic": "keyed",
    "topic of topics create": "made",
    "topics": "keyed",
    "user": "alice",
    "user of users remove": "nobody",
}
"""What an argument is given, by its name, or by that and its command; any other one gets the log directory `data`."""

OPTIONS = {
    "export": ["--to", "exported"],
    "grep": ["k"],
    "groups reset": ["--to-earliest"],
    "import": ["--to", "imported"],
    "replay": ["--to", "replayed"],
    "sql": ["SELECT 1 FROM keyed"],
    "topics alter": ["--partitions", "4"],
    "topics delete-records": ["--to-latest"],
    "users add": ["--password-file", "password"],
}
"""What a command does not go without, beside one word for each of its arguments."""

TEXT_ADDRESSES = {"address", "source", "target"}
"""Arguments that are no paths to click, and name a store, a folder or a broker all the same."""

BAD = ["missing", "file", "folder", "fifo", "loop", "locked", "kafka://127.0.0.1:1"]

NOT_BAD = {
    ("serve", "missing"): "it makes the folder",
    ("pipeline check", "file"): "what is wrong with the file is a finding",
}


def walk(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    if name:
        yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for word in command.list_commands(context):
            part = command.get_command(context, word)
            assert part is not None
            yield from walk(part, f"{name} {word}".strip())


ALL = dict(walk(main))
LEAVES = {name: command for name, command in ALL.items() if not isinstance(command, click.Group)}


def words(name: str, bad: str | None = None, instead_of: str | None = None) -> list[str]:
    """Return a command line that works, or one with one bad argument."""
    found = [*name.split(), *OPTIONS.get(name, [])]
    for parameter in LEAVES[name].params:
        if isinstance(parameter, click.Argument):
            argument = parameter.name or ""
            given = ARGUMENTS.get(f"{argument} of {name}", ARGUMENTS.get(argument, "data"))
            found.append(bad if bad is not None and argument == instead_of else given)
    return found


def paths() -> Iterator[tuple[str, str]]:
    """Yield the arguments that name files, folders or brokers."""
    for name, command in LEAVES.items():
        for parameter in command.params:
            is_path = isinstance(parameter.type, NonEmptyPath | Existing) or parameter.name in TEXT_ADDRESSES
            if isinstance(parameter, click.Argument) and is_path:
                assert parameter.name is not None
                yield name, parameter.name


def bad_input() -> Iterator[tuple[str, str, str]]:
    """Yield the arguments with what is bad for them. To a folder, and to what is missing, `dst` writes."""
    for name, argument in paths():
        for bad in BAD:
            if (name, bad) not in NOT_BAD and not (argument == "dst" and bad in ("missing", "folder")):
                yield name, argument, bad


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("notes")
    (tmp_path / "password").write_text("secret")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("notes")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "locked").mkdir(0o000)
    return tmp_path


def test_every_command_of_the_list_is_walked() -> None:
    assert {name.split()[0] for name in LEAVES} == set(COMMANDS)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ALL)
def test_every_help_has_its_usage_and_one_example(name: str) -> None:
    shown = CliRunner().invoke(main, [*name.split(), "--help"], prog_name="odradek", terminal_width=200)
    assert (shown.exit_code, shown.stdout.count(f"Example: odradek {name} ")) == (0, 1)
    assert shown.stdout.startswith(f"Usage: odradek {name} ")


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "argument", "bad"), list(bad_input()))
def test_bad_input_is_one_line_and_2_or_3(name: str, argument: str, bad: str, folder: Path) -> None:
    if bad.startswith("kafka:"):
        (parameter,) = (one for one in LEAVES[name].params if one.name == argument)
        # A store's address names a group, and a source's may name settings.
        bad += "/group?timeout_ms=300" if isinstance(parameter.type, Name) else "?default.api.timeout.ms=300"
    given = words(name, bad, argument)
    with without_overrides():
        result = CliRunner().invoke(main, given, prog_name="odradek", input=b"")
    if (name, bad) == ("topics create", "missing"):
        # This one makes it.
        assert (result.exit_code, result.output) == (0, "")
        return
    # What is missing is an input error; for `conformance` it is no address.
    assert result.exit_code in ((3,) if bad == "missing" and argument != "address" else (2, 3)), result.output
    assert bad != "missing" or not (folder / "imported").exists()
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.stdout == ""
    told, *more = result.stderr.splitlines()
    assert told.startswith("odradek")
    # `verify` says how much of the paths it has verified, whatever that was; a broker's address is no path.
    has_summary = name == "verify" and not bad.startswith("kafka:")
    assert more == (["0 files, 0 batches: not clean"] if has_summary else [])


def test_what_reaches_a_broker_takes_passwords_from_a_file() -> None:
    for name, command in LEAVES.items():
        told = [command.help or "", *(getattr(one, "help", None) or "" for one in command.params)]
        reaches = name.startswith("offsets") or any("kafka://" in text for text in told)
        has = any("--command-config" in one.opts for one in command.params)
        assert has == (reaches or name.startswith(("topics", "groups"))), name


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize("name", list(LEAVES))
def test_a_closed_pipe_ends_quietly(name: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "odradek", *name.split(), "--help"],
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=120,
        )
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (3, b"")


WITHOUT_PROGRESS = {
    "conformance": "it prints each check",
    "dump": "it prints all the time, unless its output goes into a file",
    "explain": "it reads one batch",
    "grep": "it prints what it finds, unless its output goes into a file",
    "import": "there is nothing to import in a log directory",
    "offsets from-checkpoint": "the checkpoint is missing here",
    "pipeline check": "it takes a second",
    "pipeline compact": "it prints each folder",
    "pipeline start-over": "it sets a few positions",
    "pipeline replay-dead-letters": "it has a table of its own",
    "mcp": "it runs until it is ended",
    "pipeline run": "it has a table of its own",
    "pipeline status": "there is no job here",
    "produce": "only for a file, as it may wait for lines",
    "restore": "there is no backup here",
    "serve": "it runs until it is ended",
    "tail": "it reads the ends of partitions",
    "ui": "it runs until it is ended",
}


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LEAVES if name not in WITHOUT_PROGRESS])
def test_what_may_take_long_shows_its_progress(
    name: str, folder: Path, kafka_fixture: KafkaFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(kafka_fixture.log_dir, folder / "data")
    asked: list[str] = []

    def is_shown() -> bool:
        asked.append(name)
        return False

    monkeypatch.setattr("odradek.cli.progress.is_shown", is_shown)
    result = CliRunner().invoke(main, words(name))
    assert asked, result.output


INTERRUPTED = """
import os, signal, sys
from odradek.cli.__main__ import run
came = False
def touch(event, arguments):
    # Ctrl-C, as soon as the command touches what it is about.
    global came
    path = str(arguments[0]) if event in ("open", "os.scandir", "os.listdir") else ""
    is_data = "/" not in path.lstrip("/").partition("data")[0] and "data" in path
    if not came and (is_data or os.getcwd() in path or event == "socket.connect"):
        came = True
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(touch)
sys.argv[0] = "odradek"
run()
"""

ENDS_OTHERWISE = {
    "serve": "a broker ends with 0",
    "pipeline check": "it reads no data here",
    "pipeline replay-dead-letters": "it finishes the batch",
    "pipeline run": "it finishes the batch",
    "pipeline compact": "it reads no data here",
    "pipeline start-over": "there is no job here",
    "pipeline status": "there is no job here",
}


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LEAVES if name not in ENDS_OTHERWISE])
def test_ctrl_c_is_130_wherever_it_comes(name: str, folder: Path, kafka_fixture: KafkaFixture) -> None:
    shutil.copytree(kafka_fixture.log_dir, folder / "data")
    checkpoint = folder / "checkpoint-data"
    for part in ("offsets", "commits"):
        (checkpoint / part).mkdir(parents=True)
    (checkpoint / "offsets" / "0").write_text('v1\n{}\n{"keyed":{"0":1}}')
    (checkpoint / "commits" / "0").write_text("v1\n{}")
    given = ["checkpoint-data" if word == "checkpoint" else word for word in words(name)]
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED, *given], input=b"{}\n", capture_output=True, timeout=120)
    assert ended.returncode == 130, ended.stderr.decode()
    assert ended.stderr.decode().endswith("odradek: interrupted\n")
    assert b"Traceback" not in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    ["sql SELECT(1) data --format csv -o kept.csv", "export data --to kept.csv"],
)
def test_a_file_that_may_not_be_written_is_not_replaced(
    command: str, folder: Path, kafka_fixture: KafkaFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(kafka_fixture.log_dir, folder / "data")
    kept = folder / "kept.csv"
    kept.write_text("kept")
    may = os.access
    # Root may write everything.
    asked = lambda path, mode: (Path(path).name, mode) != (kept.name, os.W_OK) and may(path, mode)  # noqa: E731
    monkeypatch.setattr(os, "access", asked)
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(main, command.split())
    assert (result.exit_code, result.stderr) == (3, "odradek: kept.csv: Permission denied\n")
    assert kept.read_text() == "kept"


@pytest.mark.parametrize(
    "line",
    [
        "import - --to new",
        "restore - new",
        "offsets set file:new --from-file -",
        "sql -i data",
        "mcp data",
        "users add data alice",
        "users add data alice --password-file -",
    ],
)
def test_a_closed_stdin_is_named(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odradek.open(folder / "data").close()
    name, *given = line.split()
    command = main.get_command(click.Context(main), name)
    assert command is not None
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(OSError, match="it is closed") as closed:
        command.main(given, standalone_mode=False)
    assert (closed.value.filename, (folder / "new").exists()) == ("stdin", False)


@pytest.mark.slow
def test_a_lock_that_cannot_be_opened_is_named(folder: Path, kafka_fixture: KafkaFixture) -> None:
    shutil.copytree(kafka_fixture.log_dir, folder / "data")
    (folder / "data" / ".lock").mkdir()
    result = CliRunner().invoke(main, ["verify", "--repair", str(folder / "data")])
    assert (result.exit_code, result.stderr) == (3, f"odradek: {folder}/data/.lock: Is a directory\n")
