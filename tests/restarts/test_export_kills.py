"""Exports and imports that are killed or interrupted again and again, by signals, as users and machines do it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import odradek
from odradek.places.opening import open_place
from odradek.sources.arrow import record_batches
from odradek.storage.names import TopicPartition
from odradek.testing import Broker

pytestmark = pytest.mark.laboratory

_KILLS = 20
_DEADLINE_S = 120


def _size(path: Path) -> int:
    found = 0
    for file in path.rglob("*"):
        try:
            found += file.stat().st_size if file.is_file() and not file.name.endswith(".tmp") else 0
        except FileNotFoundError:
            continue
    return found


def _run_to_the_end(
    command: list[str], progress: Callable[[], int], chance: random.Random, longest_s: float = 0.05
) -> int:
    """Run a command again and again, each time until it got further and then was killed; return how often."""
    kills = 0
    while True:
        before = progress()
        process = subprocess.Popen([sys.executable, "-m", "odradek", *command], stderr=subprocess.PIPE)
        deadline = time.monotonic() + _DEADLINE_S
        if kills < _KILLS:
            while process.poll() is None and progress() == before and time.monotonic() < deadline:
                time.sleep(0.002)
            time.sleep(chance.random() * longest_s)
            process.send_signal(chance.choice([signal.SIGINT, signal.SIGKILL]))
        _, told = process.communicate(timeout=_DEADLINE_S)
        # While the interpreter ends, SIGINT does what it does to any program.
        assert process.returncode in (0, 130, -signal.SIGINT, -signal.SIGKILL), told
        if process.returncode == 0:
            return kills
        kills += 1


def test_nothing_is_missing_and_nothing_is_twice(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events", 3)
        for number in range(600):
            log = logs["events", number % 3]
            log.append([odradek.Record(value=b"%d" % (number * 1000 + n) * 5) for n in range(400)])
    export = ["export", str(tmp_path / "data"), "--to", str(tmp_path / "files"), "--format", "arrow"]
    kills = _run_to_the_end([*export, "--file-bytes", "1"], lambda: _size(tmp_path / "files"), chance)
    again = ["import", str(tmp_path / "files"), "--to", str(tmp_path / "again")]
    kills += _run_to_the_end(again, lambda: _size(tmp_path / "again"), chance)
    print(f"seed {seed}, {kills} kills")
    wanted, found = odradek.scan(tmp_path / "data").read_all(), odradek.scan(tmp_path / "again").read_all()
    assert found.equals(wanted), seed


def test_an_import_into_a_broker(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    names = [TopicPartition("events", partition) for partition in range(2)]
    wanted = [b"%08d" % number * 60 for number in range(50_000)]
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events", len(names))
        for name in names:
            for start in range(0, len(wanted), 1000):
                logs[name].append([odradek.Record(value=value) for value in wanted[start : start + 1000]])
    command = ["export", str(tmp_path / "data"), "--to", str(tmp_path / "files"), "--file-bytes", "1"]
    subprocess.run([sys.executable, "-m", "odradek", *command], check=True, stderr=subprocess.PIPE)
    with Broker() as broker:
        address = f"kafka://{broker.bootstrap_servers}"

        def sent() -> int:
            there = broker.logs.topic_partitions()
            return sum(broker.logs[name].log_end_offset for name in names if name in there)

        kills = _run_to_the_end(["import", str(tmp_path / "files"), "--to", address], sent, chance, 0.5)
        print(f"seed {seed}, {kills} kills, {sent()} records and markers were sent")
        with open_place(address) as source:
            for name in names:
                found = record_batches(source, name, isolation="read_committed")
                assert [value for rows in found for value in rows.column("value").to_pylist()] == wanted, seed
