"""Where an option names a file to be written: a link stays, a pipe is written, and nobody else's data is lost."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import odradek
from odradek.cli.app import main

COMMANDS = {
    "export": "export data --to {}.csv",
    "export into jsonl": "export data --to {}.jsonl",
    "export into parquet": "export data --to {}.parquet",
    "export into arrow": "export data --to {}.arrow",
    "sql": "sql SELECT(value)FROM(events) data --format csv -o {}.csv",
    "sql into parquet": "sql SELECT(value)FROM(raw.events) data --format parquet -o {}.parquet",
    "stat": "stat data --plot {}.html",
    "offsets": "offsets set file:{}.json events-0=1",
}
SLOW = {"stat"}
NO_STREAMS = {"export into parquet", "export into arrow"}

each_command = pytest.mark.parametrize(
    "command",
    [pytest.param(text, id=name, marks=[pytest.mark.slow] if name in SLOW else []) for name, text in COMMANDS.items()],
)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    with odradek.open("data", sync="off") as logs:
        logs.create_topic("events")
        logs["events", 0].append([odradek.Record(b"k", b"v%d" % number) for number in range(3)])
    return tmp_path / "data"


def run(command: str, name: str) -> Result:
    if "--plot" in command:
        pytest.importorskip("matplotlib")
    return CliRunner().invoke(main, command.format(name).split())


def target_of(command: str) -> Path:
    return Path(next(word for word in command.split() if "{}" in word).removeprefix("file:").format("new"))


@each_command
def test_a_link_is_followed(command: str) -> None:
    link, file = target_of(command), Path("elsewhere/file")
    file.parent.mkdir()
    link.symlink_to(file)
    # Of a link that leads nowhere, a shell makes the file, too.
    assert run(command, "new").exit_code == 0
    first = file.read_bytes()
    assert first
    file.chmod(0o600)
    if not command.startswith("offsets"):
        file.write_bytes(b"before")
    assert run(command, "new").exit_code == 0
    assert link.is_symlink()
    assert len(file.read_bytes()) == len(first)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {path.name for path in file.parent.iterdir()} <= {"file", ".file.lock"}


@each_command
def test_a_link_to_itself_is_named(command: str) -> None:
    link = target_of(command)
    link.symlink_to(link.name)
    ended = run(command, "new")
    assert (ended.exit_code, ended.stderr.count("\n")) == (3, 1)
    assert link.name in ended.stderr
    assert ended.stderr.endswith(": Too many levels of symbolic links\n")
    assert link.is_symlink()


@each_command
def test_other_files_stay(command: str) -> None:
    target = target_of(command)
    beside = [target.with_name(f"{target.name}.tmp"), target.with_name("other")]
    for path in beside:
        path.write_bytes(b"mine")
    # What an earlier run that was killed might have left, or somebody else: what it leads to is not touched.
    target.with_name(f".{target.name}.tmp").symlink_to("other")
    assert run(command, "new").exit_code == 0
    assert [path.read_bytes() for path in beside] == [b"mine", b"mine"]
    assert target.is_file()
    assert not target.is_symlink()
    assert not target.with_name(f".{target.name}.tmp").exists()


@each_command
def test_a_pipe_is_written_itself_or_refused(command: str) -> None:
    pipe = target_of(command)
    os.mkfifo(pipe)
    name = next(name for name, text in COMMANDS.items() if text == command)
    if name in NO_STREAMS or name == "offsets":
        ended = run(command, "new")
        assert (ended.exit_code, ended.output.count("\n")) == (3 if name == "offsets" else 2, 1)
        assert pipe.is_fifo()
        return
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    ended = run(command, "new")
    reader.join(60)
    pipe.unlink()
    if name == "sql into parquet":
        # DuckDB decides.
        return
    assert ended.exit_code == 0, ended.output
    run(command, "new")
    assert found == [pipe.read_bytes()]


def test_a_pipe_without_a_format_in_its_name_gets_json_lines() -> None:
    os.mkfifo("pipe")
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(Path("pipe").read_text()))
    reader.start()
    assert run("export data --to {}", "pipe").exit_code == 0
    reader.join(60)
    assert found == [run("export data --to -", "").stdout]
    assert run("export data --to {} --format csv", "/dev/null").exit_code == 0
    assert run("export data --to {} --format parquet", "/dev/null").exit_code == 2


def test_the_reader_of_a_pipe_may_go() -> None:
    with odradek.open("data", sync="off") as logs:
        logs["events", 0].append([odradek.Record(None, bytes(900)) for _ in range(1000)])
    os.mkfifo("pipe.csv")

    def read() -> None:
        with Path("pipe.csv").open("rb") as pipe:
            pipe.read(10)

    reader = threading.Thread(target=read)
    reader.start()
    ended = run("export data --to {}.csv", "pipe")
    reader.join(60)
    assert (ended.exit_code, ended.output) == (3, "")
