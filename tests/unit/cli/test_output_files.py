"""Where an option names a file to be written: a link stays, a pipe is written, and nobody else's data is lost."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import odradek
from odradek.cli.app import main
from peers.files import create_log

COMMANDS = {
    "export": "export data --to {}.csv",
    "export into jsonl": "export data --to {}.jsonl",
    "export into parquet": "export data --to {}.parquet",
    "export into arrow": "export data --to {}.arrow",
    "sql": "sql SELECT(value)FROM(events) data --format csv -o {}.csv",
    "sql into parquet": "sql SELECT(value)FROM(raw.events) data --format parquet -o {}.parquet",
    "offsets": "offsets set file:{}.json events-0=1",
}
NO_STREAMS = {"export into parquet", "export into arrow"}

each_command = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    create_log("data", "events", [odradek.Record(b"k", b"v%d" % number) for number in range(3)])
    return tmp_path / "data"


def run(command: str, name: str) -> Result:
    return CliRunner().invoke(main, command.format(name).split())


def target_of(command: str) -> Path:
    return Path(next(word for word in command.split() if "{}" in word).removeprefix("file:").format("new"))


@pytest.mark.sampled
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


@pytest.mark.sampled(4)
@each_command
def test_a_link_to_itself_is_named(command: str) -> None:
    link = target_of(command)
    link.symlink_to(link.name)
    ended = run(command, "new")
    assert (ended.exit_code, ended.stderr.count("\n")) == (3, 1)
    assert link.name in ended.stderr
    assert ended.stderr.endswith(": Too many levels of symbolic links\n")
    assert link.is_symlink()


@pytest.mark.sampled(4)
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


@pytest.mark.sampled
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
    with ThreadPoolExecutor(1) as reader:
        read = reader.submit(pipe.read_bytes)
        ended = run(command, "new")
    pipe.unlink()
    if name == "sql into parquet":
        # DuckDB decides.
        return
    assert ended.exit_code == 0, ended.output
    run(command, "new")
    assert read.result() == pipe.read_bytes()


def test_a_pipe_without_a_format_in_its_name_gets_json_lines() -> None:
    os.mkfifo("pipe")
    with ThreadPoolExecutor(1) as reader:
        read = reader.submit(Path("pipe").read_text)
        assert run("export data --to {}", "pipe").exit_code == 0
    assert read.result() == run("export data --to -", "").stdout
    assert run("export data --to {} --format csv", "/dev/null").exit_code == 0
    assert run("export data --to {} --format parquet", "/dev/null").exit_code == 2


def test_the_reader_of_a_pipe_may_go() -> None:
    with odradek.open("data", sync="off") as logs:
        logs["events", 0].append([odradek.Record(None, bytes(900)) for _ in range(1000)])
    os.mkfifo("pipe.csv")

    def read() -> None:
        with Path("pipe.csv").open("rb") as pipe:
            pipe.read(10)

    with ThreadPoolExecutor(1) as reader:
        reader.submit(read)
        ended = run("export data --to {}.csv", "pipe")
    assert (ended.exit_code, ended.output) == (3, "")


@pytest.mark.parametrize("line", ["sql SELECT(1) data -o missing/x", "export data --to missing/x.csv"])
def test_a_folder_that_is_missing_is_not_told_by_the_name_of_a_temporary_file(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odradek.open(tmp_path / "data").close()
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, line.split())
    assert (result.exit_code, result.stderr) == (3, f"odradek: {line.split()[-1]}: No such file or directory\n")
