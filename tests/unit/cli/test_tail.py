"""`odradek tail`: what it prints, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import odradek
from odradek.records import Record
from peers import command
from peers.kafka_fixture import KafkaFixture


def run(*arguments: str | Path, code: int = 0) -> list[str]:
    return command.run(*arguments, code=code).stdout_bytes.decode().splitlines()


@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_its_lines_are_the_last_of_the_dump(fixture_4_3_1: KafkaFixture, form: str) -> None:
    folder = fixture_4_3_1.log_dir / "keyed-1"
    dumped = run("dump", folder, "--format", form)
    assert run("tail", folder, "--format", form) == dumped[-10:]
    assert run("tail", folder, "--format", form, "-n", "3") == dumped[-3:]


def test_what_is_wrong(fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    run("tail", tmp_path / "nothing", code=3)
    run("tail", tmp_path, code=3)
    run("tail", fixture_4_3_1.log_dir, "--topic", "nothing", code=3)
    run("tail", "-f", next((fixture_4_3_1.log_dir / "keyed-1").glob("*.log")), code=2)


@pytest.mark.slow
def test_following_ends_with_its_reader_and_by_ctrl_c(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        logs["t", 0].append([Record(None, b"0")])

        def start() -> subprocess.Popen[bytes]:
            arguments = [sys.executable, "-m", "odradek", "tail", "-f", str(tmp_path)]
            return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ)

        with start() as tail:
            assert tail.stdout is not None
            assert b'value="0"' in tail.stdout.readline()
            # Nothing more is written, and it ends all the same.
            tail.stdout.close()
            assert tail.wait(60) == 3
            assert tail.stderr is not None
            assert tail.stderr.read() == b""
        with start() as tail:
            assert tail.stdout is not None
            assert tail.stdout.readline()
            logs["t", 0].append([Record(None, b"1")])
            assert b'value="1"' in tail.stdout.readline()
            tail.send_signal(signal.SIGINT)
            assert tail.wait(60) == 130
