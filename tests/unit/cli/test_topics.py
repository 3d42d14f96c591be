"""`odradek topics`: people get sizes, times and a total; programs get exact numbers and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

import odradek
from peers import command
from peers.files import create_log
from peers.kafka_fixture import KafkaFixture


def listed(path: Path, *options: str) -> list[str]:
    result = command.run("topics", path, *options, code=0)
    assert result.stderr == ""
    return result.stdout.splitlines()


@pytest.mark.slow
def test_people_get_sizes_times_and_a_total(kafka_fixture: KafkaFixture) -> None:
    lines = listed(kafka_fixture.log_dir)
    rows = command.rows("topics", kafka_fixture.log_dir)
    assert lines[0].split() == ["TOPIC", "PARTITION", "LOG_START", "LOG_END", "SEGMENTS", "SIZE", "LAST_RECORD"]
    topics = len({row["topic"] for row in rows})
    segments = sum(row["segments"] for row in rows)
    size = sum(row["bytes"] for row in rows)
    shown = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"
    assert lines[-1] == f"{topics} topics, {len(rows)} partitions, {segments} segments, {shown}"
    assert len(lines) == len(rows) + 3


def test_programs_get_exact_numbers(tmp_path: Path) -> None:
    create_log(tmp_path / "data", "events", [odradek.Record(value=b"x" * 5000, timestamp=1_600_000_000_000)])
    (segment,) = (tmp_path / "data" / "events-0").glob("*.log")
    size = segment.stat().st_size
    offsets = {"log_start_offset": 0, "log_end_offset": 1}
    (row,) = command.rows("topics", tmp_path / "data")
    assert row == {"topic": "events", "partition": 0, **offsets, "segments": 1, "bytes": size}


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
    create_log(
        tmp_path / "data", "events", [odradek.Record(value=b"x", timestamp=timestamp)], partitions=2, config=config
    )
    first, second, _, total = [line for line in listed(tmp_path / "data") if not line.startswith("TOPIC")]
    assert first.endswith(f"  {shown}")
    assert second.endswith("  0 bytes  " + "-".rjust(len(shown)))
    assert total.startswith("1 topic, 2 partitions, 1 segment, ")
