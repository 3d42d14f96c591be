"""Commands on a full disk: one line that names the target, nothing that is taken for whole, and they go on later."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import odradek

pytestmark = pytest.mark.slow

FULL_AT_BYTES = 300_000
"""A file cannot grow beyond that, which is told as a full disk is (EFBIG for ENOSPC)."""

COMMANDS = {
    "export": ["export data --to target --file-bytes 200000", "import target --to back"],
    "export into one file": ["export data --to target.jsonl", "import target.jsonl --to back"],
    "import": ["export data --to exported", "import exported --to target", "replay target --to back"],
    "replay": ["replay data --to target", "replay target --to back"],
    "backup": ["backup data target --copy", "restore target back"],
    "restore": ["backup data copy", "restore copy target", "replay target --to back"],
    "sql": ["sql SELECT(key,value)FROM(events) data -o target.csv --format csv"],
    "sql into parquet": ["sql SELECT(value)FROM(raw.events) data -o target.parquet --format parquet"],
}
"""The command that finds the disk full is the first one that writes `target`; the last one shows that it is whole."""

TAKEN_FOR_WHOLE = ("target.jsonl", "target.csv", "target.parquet", "target/meta.properties", "target/events-0/backup")


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (FULL_AT_BYTES, FULL_AT_BYTES))


def run(words: str, path: Path, *, is_full: bool = False) -> tuple[int, str]:
    ended = subprocess.run(
        [sys.executable, "-m", "odradek", *words.split()],
        cwd=path,
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=limited if is_full else None,
    )
    return ended.returncode, ended.stderr


def content(path: Path) -> list[list[tuple[int | None, bytes | None]]]:
    with odradek.open(path, mode="r") as logs:
        return [[(record.offset, record.value) for record in logs["events", number].read()] for number in range(2)]


@pytest.mark.costly
@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_is_one_line_and_the_same_command_goes_on(name: str, tmp_path: Path) -> None:
    some = random.Random(1)
    with odradek.open(tmp_path / "data", sync="off") as logs:
        logs.create_topic("events", 2)
        for number in range(2):
            for _ in range(10):
                logs["events", number].append([odradek.Record(b"k", some.randbytes(1000)) for _ in range(60)])
    commands = COMMANDS[name]
    tested = next(words for words in commands if "target" in words)
    for words in commands:
        if words is tested:
            code, told = run(words, tmp_path, is_full=True)
            assert (code, told.count("\n")) == (3, 1), told
            assert "target" in told
            assert "File too large" in told
            for taken_for_whole in TAKEN_FOR_WHOLE:
                assert name in ("import", "replay") or not (tmp_path / taken_for_whole).exists()
        code, told = run(words, tmp_path)
        assert code == 0, told
    if (tmp_path / "back").exists():
        assert content(tmp_path / "back") == content(tmp_path / "data")
