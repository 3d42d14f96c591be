"""A process that appends is killed with `kill -9`: what it was told is there, and nothing else.

`test_kill_under_load` does so again and again, with threads, transactions and the maintenance at work.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import odradek
from odradek.storage.log.recovery_report import RecoveryReport
from peers.appender import value_of

CONFIG = {"internal.segment.bytes": "30000", "index.interval.bytes": "500", "retention.ms": "-1"}


def append_until_killed(folder: Path, topic: str, seed: int) -> int:
    """Let a process append, kill it at some moment, and return the end of what it acknowledged."""
    process = subprocess.Popen(
        [sys.executable, "-m", "peers.appender", str(folder), topic, str(seed)],
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": ":".join(str(Path(path).absolute()) for path in sys.path if path)},
        text=True,
    )
    assert process.stdout is not None
    end = 0
    for _, line in zip(range(random.Random(seed).randrange(1, 400)), process.stdout, strict=False):
        end = int(line.split()[-1])
    process.kill()
    # What it still said before it died counts, but for a line that is cut short.
    for line in process.stdout.read().splitlines(keepends=True):
        if line.endswith("\n"):
            end = int(line.split()[-1])
    process.stdout.close()
    assert process.wait(30) == -signal.SIGKILL, "it ended by itself"
    return end


def check(folder: Path, topic: str, end: int) -> None:
    with odradek.open(folder) as logs:
        log = logs[topic, 0]
        assert log.log_end_offset >= end
        # At most one append was under way.
        assert log.log_end_offset <= end + 200
        start = log.log_start_offset
        offsets = []
        for record in log.read():
            assert record.value == value_of(record.offset or 0)
            offsets.append(record.offset)
        if not log.config.is_compacted:
            assert offsets == list(range(start, log.log_end_offset))
        else:
            newest = {offset % 50: offset for offset in range(log.log_end_offset)}
            assert set(newest.values()) <= set(offsets)
        for segment in log.segments:
            segment.offset_index.check()
            segment.time_index.check()
            for entry in segment.offset_index.entries():
                header = segment.batch_at(entry.position)
                assert header is not None
                assert header.last_offset == entry.offset


def test_a_killed_writer_loses_nothing(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, range(3))


def kill_again_and_again(folder: Path, seeds: range) -> None:
    with odradek.open(folder) as logs:
        logs.create_topic("kept", config=CONFIG)
        logs.create_topic("keyed", config=CONFIG | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"})
    for seed in seeds:
        topic = "keyed" if seed % 4 == 3 else "kept"
        end = append_until_killed(folder, topic, seed)
        check(folder, topic, end)
        # Without the marker all is recovered once more, and found in order.
        (folder / ".kafka_cleanshutdown").unlink()
        with odradek.open(folder) as logs:
            assert logs.report.actions == RecoveryReport().actions
            for kept in logs:
                if kept.topic_partition.topic == "kept" and seed % 20 == 19:
                    kept.delete_records(kept.log_end_offset - 1000 if kept.log_end_offset > 1000 else 0)
