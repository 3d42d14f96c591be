"""`odradek salvage`: of a sound folder nothing changes, of a damaged one only the damage is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from odradek.cli.app import main
from odradek.records import BatchHeader, scan_batches
from odradek.storage.log.read_only_log import ReadOnlyLog
from peers.kafka_fixture import KafkaFixture


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    return result


def test_a_sound_folder_comes_out_byte_for_byte(fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    target = tmp_path / "salvaged"
    result = run("salvage", fixture_4_3_1.log_dir, target)
    assert (result.exit_code, result.stdout) == (0, "")
    compared = 0
    for path in sorted(fixture_4_3_1.log_dir.glob("*/*")):
        if path.suffix in {".log", ".index", ".timeindex", ".txnindex"}:
            assert (target / path.parent.name / path.name).read_bytes() == path.read_bytes(), path
            compared += 1
    assert compared > 100
    assert run("verify", target).exit_code == 0
    assert not (target / ".kafka_cleanshutdown").exists()


def test_old_formats_keep_every_batch(fixture_2_8_2: KafkaFixture, tmp_path: Path) -> None:
    assert run("salvage", fixture_2_8_2.log_dir, tmp_path / "salvaged").exit_code == 0
    for path in fixture_2_8_2.log_dir.glob("*/*.log"):
        assert (tmp_path / "salvaged" / path.parent.name / path.name).read_bytes() == path.read_bytes(), path
    assert run("verify", tmp_path / "salvaged").exit_code == 0


def overwrite(path: Path, header: BatchHeader, data: bytes, at: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(header.position + at)
        file.write(data)


def test_only_what_is_damaged_is_lost(writable_log_dir: Path, tmp_path: Path) -> None:
    folder = writable_log_dir / "keyed-0"
    first, second, third = sorted(folder.glob("*.log"))
    flipped = list(scan_batches(first.read_bytes()))[2]
    zeroed = next(iter(scan_batches(second.read_bytes())))
    *_, previous, last = scan_batches(third.read_bytes())
    overwrite(first, flipped, b"\xff", at=flipped.size_bytes - 3)
    overwrite(second, zeroed, bytes(zeroed.size_bytes))
    with third.open("r+b") as file:
        file.truncate(last.end_position - 1)
    result = run("salvage", "--format", "jsonl", folder, tmp_path / "out")
    assert result.exit_code == 1
    losses = [json.loads(line) for line in result.stdout.splitlines()]
    expected = [
        (first, flipped, flipped.next_offset),
        (second, zeroed, zeroed.next_offset),
        (third, last, None),
    ]
    assert [(loss["file"], loss["position"], loss["end_offset"]) for loss in losses] == [
        (str(path), header.position, end) for path, header, end in expected
    ]
    assert [loss["start_offset"] for loss in losses] == [header.base_offset for _, header, _ in expected]
    lost = {offset for header in (flipped, zeroed, last) for offset in range(header.base_offset, header.next_offset)}
    with ReadOnlyLog(tmp_path / "out" / "keyed-0") as salvaged:
        offsets = [record.offset for record in salvaged.read()]
        assert offsets == [offset for offset in range(last.next_offset) if offset not in lost]
        assert salvaged.log_end_offset == previous.next_offset
        assert salvaged.damage == []
    kinds = [
        json.loads(line)["kind"] for line in run("verify", "--format", "jsonl", tmp_path / "out").stdout.splitlines()
    ]
    assert set(kinds) == {"gap"}


def test_a_lost_marker_is_told(writable_log_dir: Path, tmp_path: Path) -> None:
    folder = writable_log_dir / "transactional-0"
    segment = max(folder.glob("*.log"))
    *_, marker = (header for header in scan_batches(segment.read_bytes()) if header.is_control)
    overwrite(segment, marker, b"\xff", at=70)
    result = run("salvage", folder, tmp_path / "out")
    assert result.exit_code == 1
    assert "has no marker" in result.stderr


def test_a_segment_of_which_nothing_is_left(writable_log_dir: Path, tmp_path: Path) -> None:
    folder = writable_log_dir / "keyed-1"
    *_, last = sorted(folder.glob("*.log"))
    last.write_bytes(bytes(100))
    assert run("salvage", folder, tmp_path / "out").exit_code == 1
    assert (tmp_path / "out" / "keyed-1" / last.name).stat().st_size == 0
    with ReadOnlyLog(tmp_path / "out" / "keyed-1") as log:
        assert log.log_end_offset == int(last.stem)


def test_a_checkpoint_that_cannot_be_read_is_left_out(writable_log_dir: Path, tmp_path: Path) -> None:
    """Apache Kafka takes a log directory offline for one, and does without one that is missing."""
    broken = ("keyed-0/leader-epoch-checkpoint", "keyed-1/partition.metadata", "log-start-offset-checkpoint")
    for name in broken:
        (writable_log_dir / name).write_bytes(b"0\n5\n\xff")
    result = run("salvage", writable_log_dir, tmp_path / "out")
    assert result.exit_code == 1
    for name in broken:
        assert f"{writable_log_dir / name}" in result.stderr
        assert not (tmp_path / "out" / name).exists()
    assert (tmp_path / "out" / "keyed-2" / "leader-epoch-checkpoint").exists()
    assert run("verify", tmp_path / "out").exit_code == 0


def test_nothing_is_written_over(writable_log_dir: Path) -> None:
    result = run("salvage", writable_log_dir / "keyed-0", writable_log_dir)
    assert result.exit_code == 3
    assert "is not empty" in result.stderr


@pytest.mark.parametrize("size", [0, 17, 5000])
def test_a_folder_that_is_no_log_is_refused(tmp_path: Path, size: int) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "notes").write_bytes(bytes(size))
    result = run("salvage", tmp_path / "source", tmp_path / "target")
    assert result.exit_code == 3
    assert not (tmp_path / "target").exists()
