"""`odradek verify` and `odradek topics`: real folders are clean, and each way of breaking them is found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from odradek.cli.app import main
from odradek.records import scan_batches
from peers.kafka_fixture import KafkaFixture


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    return result


def verify(*arguments: str | Path, code: int = 1) -> list[dict[str, Any]]:
    result = run("verify", "--format", "jsonl", *arguments)
    assert result.exit_code == code, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("folder", ["log-dir", "log-dir-unclean"])
def test_what_kafka_wrote_is_clean(kafka_fixture: KafkaFixture, folder: str) -> None:
    result = run("verify", "--records", kafka_fixture.path / folder)
    assert (result.stdout, result.exit_code) == ("", 0)
    assert " files, " in result.stderr
    assert result.stderr.endswith(" batches: clean\n")


def flip(path: Path, position: int, mask: int = 0x01) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def repeat_a_batch(path: Path) -> None:
    data = path.read_bytes()
    first = next(iter(scan_batches(data)))
    path.write_bytes(data + data[: first.size_bytes])


def leave_out_a_batch(path: Path) -> None:
    data = path.read_bytes()
    second = list(scan_batches(data))[1]
    path.write_bytes(data[: second.position] + data[second.end_position :])


BASE = f"{0:020d}"
BREAKAGES: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "a flipped bit in a batch": ("v2-none-0/BASE.log", lambda path: flip(path, 90), "damage"),
    "a torn tail": ("v2-none-0/BASE.log", lambda path: cut(path, path.stat().st_size - 1), "damage"),
    "a batch written twice": ("v2-none-0/BASE.log", repeat_a_batch, "order"),
    "a batch that is missing": ("v2-none-0/BASE.log", leave_out_a_batch, "gap"),
    "a segment that is missing": ("v2-none-0/BASE.log", lambda path: path.unlink(), "index"),
    "an index that points elsewhere": ("v2-none-0/BASE.index", lambda path: flip(path, 15), "index"),
    "an index that goes back": ("v2-none-0/BASE.index", lambda path: flip(path, 0, 0x40), "index"),
    "an index of odd size": ("v2-none-0/BASE.index", lambda path: cut(path, 13), "index"),
    "a time index that lies": ("v2-none-0/BASE.timeindex", lambda path: flip(path, 7), "index"),
    "a time index past the end": (
        "v2-none-0/BASE.timeindex",
        lambda path: flip(path, path.stat().st_size - 3),
        "index",
    ),
    "an abort that never was": (f"transactional-0/{8:020d}.txnindex", lambda path: flip(path, 9), "index"),
    "a txnindex of another version": (f"transactional-0/{8:020d}.txnindex", lambda path: flip(path, 0), "index"),
    "a snapshot that is damaged": (f"transactional-0/{276:020d}.snapshot", lambda path: flip(path, 20), "file"),
    "epochs that are no numbers": ("keyed-0/leader-epoch-checkpoint", lambda path: flip(path, 4, 0x40), "file"),
    "metadata without an id": ("keyed-0/partition.metadata", lambda path: cut(path, 11), "file"),
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_every_breakage_is_found(fixture_4_3_1: KafkaFixture, tmp_path: Path, name: str) -> None:
    file, damage, kind = BREAKAGES[name]
    topic, _, file_name = file.replace("BASE", BASE).partition("/")
    folder = Path(shutil.copytree(fixture_4_3_1.log_dir / topic, tmp_path / topic))
    assert verify(folder, code=0) == []
    damage(folder / file_name)
    findings = verify(folder)
    assert kind in {finding["kind"] for finding in findings}
    assert all(list(finding) == ["file", "position", "kind", "reason"] for finding in findings)
    if kind in {"damage", "file"}:
        assert findings[0]["file"] == str(folder / file_name)
    text = run("verify", folder)
    assert text.exit_code == 1
    assert len(text.stdout.splitlines()) == len(findings)
    assert text.stderr.endswith("not clean\n")


def test_a_missing_segment_in_the_middle_is_a_gap(fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(fixture_4_3_1.log_dir / "keyed-0", tmp_path / "keyed-0"))
    for path in folder.glob(f"{146:020d}.*"):
        path.unlink()
    [finding] = verify(folder)
    assert finding["kind"] == "gap"
    assert finding["reason"].startswith("offsets 146 to 285 are missing")


def test_a_malformed_checkpoint_of_the_root(writable_log_dir: Path) -> None:
    (writable_log_dir / "recovery-point-offset-checkpoint").write_text("0\n1\nkeyed zero 1\n")
    [finding] = verify(writable_log_dir)
    assert finding["file"] == str(writable_log_dir / "recovery-point-offset-checkpoint")


def test_topics_as_consumers_saw_them(kafka_fixture: KafkaFixture) -> None:
    result = run("topics", "--format", "jsonl", kafka_fixture.log_dir)
    assert result.exit_code == 0
    rows = {f"{row['topic']}-{row['partition']}": row for row in map(json.loads, result.stdout.splitlines())}
    for name, consumed in kafka_fixture.consumed.items():
        offsets = (rows[name]["log_start_offset"], rows[name]["log_end_offset"])
        assert offsets == (consumed["logStartOffset"], consumed["highWatermark"])
        segments = list((kafka_fixture.log_dir / name).glob("*.log"))
        assert rows[name]["segments"] == len(segments)
        assert rows[name]["bytes"] == sum(path.stat().st_size for path in segments)
    table = run("topics", kafka_fixture.log_dir).stdout.splitlines()
    assert len(table) == len(rows) + 1
    assert table[0].split() == ["TOPIC", "PARTITION", "LOG_START_OFFSET", "LOG_END_OFFSET", "SEGMENTS", "BYTES"]


def test_topics_reports_a_torn_tail(writable_log_dir: Path) -> None:
    segment = max((writable_log_dir / "v2-none-0").glob("*.log"))
    cut(segment, segment.stat().st_size - 1)
    result = run("topics", writable_log_dir)
    assert result.exit_code == 1
    assert str(segment) in result.stderr
