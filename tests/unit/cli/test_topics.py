"""`odradek topics`: people get sizes, times and a total; programs get exact numbers and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import odradek
from odradek.cli.app import main
from peers.kafka_fixture import KafkaFixture


def listed(path: Path, *options: str) -> list[str]:
    result = CliRunner().invoke(main, ["topics", str(path), *options])
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.splitlines()


def test_people_get_sizes_times_and_a_total(kafka_fixture: KafkaFixture) -> None:
    lines = listed(kafka_fixture.log_dir)
    rows = [json.loads(line) for line in listed(kafka_fixture.log_dir, "--format", "jsonl")]
    assert lines[0].split() == ["TOPIC", "PARTITION", "LOG_START", "LOG_END", "SEGMENTS", "SIZE", "LAST_RECORD"]
    topics = len({row["topic"] for row in rows})
    segments = sum(row["segments"] for row in rows)
    size = sum(row["bytes"] for row in rows)
    shown = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"
    assert lines[-1] == f"{topics} topics, {len(rows)} partitions, {segments} segments, {shown}"
    assert len(lines) == len(rows) + 3


def test_programs_get_exact_numbers(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events", partitions=1)
        logs["events", 0].append([odradek.Record(value=b"x" * 5000, timestamp=1_600_000_000_000)])
    (segment,) = (tmp_path / "data" / "events-0").glob("*.log")
    size = segment.stat().st_size
    (line,) = listed(tmp_path / "data", "--format", "jsonl")[-1:]
    assert json.loads(line) == {
        "topic": "events", "partition": 0, "log_start_offset": 0, "log_end_offset": 1, "segments": 1, "bytes": size,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("timestamp", "shown"),
    [
        (1_600_000_000_999, "2020-09-13 12:26:40Z"),
        (0, "1970-01-01 00:00:00Z"),
        (2**62, f"{2**62} ms"),
    ],
)
def test_the_time_of_the_last_record(timestamp: int, shown: str, tmp_path: Path) -> None:
    config = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events", partitions=2, config=config)
        logs["events", 0].append([odradek.Record(value=b"x", timestamp=timestamp)])
    first, second, _, total = [line for line in listed(tmp_path / "data") if not line.startswith("TOPIC")]
    assert first.endswith(f"  {shown}")
    assert second.endswith("  0 bytes  " + "-".rjust(len(shown)))
    assert total.startswith("1 topic, 2 partitions, 1 segment, ")
