"""`odradek salvage`: of a sound folder nothing changes, of a damaged one only the damage is missing."""

from __future__ import annotations

import errno
import functools
import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import odradek.cli.salvage
from flips.breakage import flip_bit_of_number
from odradek.errors import OptionError
from odradek.inspection import salvage, verify
from odradek.records import BatchHeader, scan_batches
from odradek.storage.log.read_only_log import ReadOnlyLog
from odradek.testing.disk import Operation
from odradek.testing.faults import FaultyFileSystem
from peers.command import run
from peers.files import refuse
from peers.kafka_fixture import KafkaFixture

SmallLogDirectory = Callable[..., Path]


@pytest.mark.slow
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


@pytest.mark.slow
def test_old_formats_keep_every_batch(fixture_2_8_2: KafkaFixture, tmp_path: Path) -> None:
    assert run("salvage", fixture_2_8_2.log_dir, tmp_path / "salvaged").exit_code == 0
    for path in fixture_2_8_2.log_dir.glob("*/*.log"):
        assert (tmp_path / "salvaged" / path.parent.name / path.name).read_bytes() == path.read_bytes(), path
    assert run("verify", tmp_path / "salvaged").exit_code == 0


def overwrite(path: Path, header: BatchHeader, data: bytes, at: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(header.position + at)
        file.write(data)


@pytest.mark.slow
def test_only_what_is_damaged_is_lost(small_log_dir: SmallLogDirectory, tmp_path: Path) -> None:
    root = small_log_dir("keyed-0")
    folder = root / "keyed-0"
    first, second, third = sorted(folder.glob("*.log"))
    flipped = list(scan_batches(first.read_bytes()))[2]
    zeroed = next(iter(scan_batches(second.read_bytes())))
    *_, previous, last = scan_batches(third.read_bytes())
    overwrite(first, flipped, b"\xff", at=flipped.size_bytes - 3)
    overwrite(second, zeroed, bytes(zeroed.size_bytes))
    with third.open("r+b") as file:
        file.truncate(last.end_position - 1)
    result = run("salvage", "--format", "jsonl", root, tmp_path / "out", code=1)
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


@pytest.mark.slow
def test_a_lost_marker_is_told(writable_log_dir: Path, tmp_path: Path) -> None:
    folder = writable_log_dir / "transactional-0"
    segment = max(folder.glob("*.log"))
    *_, marker = (header for header in scan_batches(segment.read_bytes()) if header.is_control)
    overwrite(segment, marker, b"\xff", at=70)
    result = run("salvage", folder, tmp_path / "out", code=1)
    assert "has no marker" in result.stderr


@pytest.mark.slow
def test_a_segment_of_which_nothing_is_left(writable_log_dir: Path, tmp_path: Path) -> None:
    folder = writable_log_dir / "keyed-1"
    *_, last = sorted(folder.glob("*.log"))
    last.write_bytes(bytes(100))
    assert run("salvage", folder, tmp_path / "out").exit_code == 1
    assert (tmp_path / "out" / "keyed-1" / last.name).stat().st_size == 0
    with ReadOnlyLog(tmp_path / "out" / "keyed-1") as log:
        assert log.log_end_offset == int(last.stem)


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_read_is_left_out(writable_log_dir: Path, tmp_path: Path) -> None:
    """Apache Kafka takes a log directory offline for one, and does without one that is missing."""
    broken = ("keyed-0/leader-epoch-checkpoint", "keyed-1/partition.metadata", "log-start-offset-checkpoint")
    for name in broken:
        (writable_log_dir / name).write_bytes(b"0\n5\n\xff")
    result = run("salvage", writable_log_dir, tmp_path / "out", code=1)
    for name in broken:
        assert f"{writable_log_dir / name}" in result.stderr
        assert not (tmp_path / "out" / name).exists()
    assert (tmp_path / "out" / "keyed-2" / "leader-epoch-checkpoint").exists()
    assert run("verify", tmp_path / "out").exit_code == 0


@pytest.mark.slow
def test_nothing_is_written_over(writable_log_dir: Path) -> None:
    result = run("salvage", writable_log_dir / "keyed-0", writable_log_dir, code=3)
    assert "is not empty" in result.stderr


@pytest.mark.parametrize("size", [0, 17, 5000])
def test_a_folder_that_is_no_log_is_refused(tmp_path: Path, size: int) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "notes").write_bytes(bytes(size))
    run("salvage", tmp_path / "source", tmp_path / "target", code=3)
    assert not (tmp_path / "target").exists()


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
    }


# -- what is outside of the checksum


@pytest.mark.sampled
@pytest.mark.parametrize("bit", [0, 4, 20, 40, 62, 63])
@pytest.mark.parametrize(("number", "which"), [(0, 0), (0, 3), (0, -1), (2, 0), (2, -1)])
def test_a_wrong_base_offset_is_put_right(
    small_log_dir: SmallLogDirectory, tmp_path: Path, number: int, which: int, bit: int
) -> None:
    """It cost all the batches after it: their offsets were taken for those of batches that come again."""
    root = small_log_dir("keyed-0")
    segment = sorted((root / "keyed-0").glob("*.log"))[number]
    whole = segment.read_bytes()
    header = list(scan_batches(whole))[which]
    flip_bit_of_number(segment, header.position, 8, bit)
    result = run("salvage", root, tmp_path / "out")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"the base offset should be {header.base_offset}: put right" in result.stderr
    assert (tmp_path / "out" / "keyed-0" / segment.name).read_bytes() == whole
    assert list(verify(tmp_path / "out", decode=True)) == []


@pytest.mark.slow
def test_a_batch_of_which_nobody_knows_where_it_belongs_is_lost_alone(
    small_log_dir: SmallLogDirectory, tmp_path: Path
) -> None:
    root = small_log_dir("compacted-0")
    segment = min((root / "compacted-0").glob("*.log"))
    headers = list(scan_batches(segment.read_bytes()))
    overwrite(segment, headers[5], (123456789).to_bytes(8, "big"))
    result = run("salvage", "--format", "jsonl", root, tmp_path / "out")
    [loss] = [json.loads(line) for line in result.stdout.splitlines()]
    assert (loss["position"], loss["size_bytes"]) == (headers[5].position, headers[5].size_bytes)
    kept = list(scan_batches((tmp_path / "out" / "compacted-0" / segment.name).read_bytes()))
    assert [header.base_offset for header in kept] == [header.base_offset for header in headers if header != headers[5]]


def test_batches_that_are_there_twice_are_there_once(small_log_dir: SmallLogDirectory, tmp_path: Path) -> None:
    root = small_log_dir("keyed-0")
    segment = max((root / "keyed-0").glob("*.log"))
    whole = segment.read_bytes()
    last = list(scan_batches(whole))[-3]
    segment.write_bytes(whole + whole[last.position :])
    result = run("salvage", root, tmp_path / "out")
    assert (result.exit_code, result.stdout) == (0, "")
    assert (tmp_path / "out" / "keyed-0" / segment.name).read_bytes() == whole


# -- what cannot be read


@pytest.mark.sampled
@pytest.mark.parametrize("number", [0, 1, 2])
def test_one_segment_that_cannot_be_read_ends_nothing(
    small_log_dir: SmallLogDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    root = small_log_dir("keyed-0", "keyed-1")
    segments = sorted((root / "keyed-0").glob("*.log"))
    bases = [*(int(path.stem) for path in segments), None]
    refuse(monkeypatch, lambda path: path == segments[number])
    result = run("salvage", "--format", "jsonl", root, tmp_path / "out", code=3)
    [loss] = [json.loads(line) for line in result.stdout.splitlines()]
    assert loss == {
        "file": str(segments[number]),
        "position": 0,
        "size_bytes": segments[number].stat().st_size,
        "start_offset": bases[number],
        "end_offset": bases[number + 1],
        "reason": "Input/output error",
    }
    monkeypatch.undo()
    for path in sorted(root.glob("keyed-*/*.log")):
        target = tmp_path / "out" / path.parent.name / path.name
        if path != segments[number]:
            assert target.read_bytes() == path.read_bytes()
        else:
            # The last one tells where the log goes on.
            assert target.exists() == (number == 2)


def test_where_nothing_can_be_read_nothing_is_written(
    small_log_dir: SmallLogDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = small_log_dir("keyed-0")
    refuse(monkeypatch, lambda path: path.is_relative_to(root))
    result = run("salvage", root, tmp_path / "new" / "out", code=3)
    assert result.stderr.startswith(f"odradek: nothing of {root} could be read: ")
    assert result.stderr.count("\n") == 1
    assert list((tmp_path / "new").iterdir()) == []


# -- where to


@pytest.mark.slow
def test_a_target_within_its_source_is_refused_before_anything_is_written(
    small_log_dir: SmallLogDirectory, tmp_path: Path
) -> None:
    root = small_log_dir("keyed-0", "keyed-1")
    (tmp_path / "elsewhere").mkdir()
    (root / "keyed-1").rename(tmp_path / "elsewhere" / "keyed-1")
    (root / "keyed-1").symlink_to(tmp_path / "elsewhere" / "keyed-1")
    (tmp_path / "link").symlink_to(root)
    (root / "empty").mkdir()
    (tmp_path / "to-empty").symlink_to(root / "empty")
    before = content(tmp_path)
    for source, target in [
        (root, root / "sub"),
        (root, root / "new" / "sub"),
        (root, root / "empty"),
        (root, tmp_path / "to-empty"),
        (root, tmp_path / "link" / "sub"),
        (tmp_path / "link", root / "sub"),
        (root, tmp_path / "elsewhere" / "keyed-1" / "sub"),
        (root / "keyed-0", root / "keyed-0" / "sub"),
        (root, tmp_path / "elsewhere" / ".." / "data" / "sub"),
    ]:
        result = run("salvage", source, target)
        assert (result.exit_code, result.stdout) == (3, ""), target
        assert "which is only read" in result.stderr
        assert content(tmp_path) == before
    # Kafka does not start on a log directory with a folder of another kind in it.
    result = run("salvage", root / "keyed-0", root / "rescued")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "is within the log directory" in result.stderr
    assert content(tmp_path) == before
    # One that holds its source is not empty.
    for target in (tmp_path, root, tmp_path / "link"):
        assert "is not empty" in run("salvage", root, target).stderr
        assert content(tmp_path) == before


def test_an_empty_target_is_taken_also_through_a_link(small_log_dir: SmallLogDirectory, tmp_path: Path) -> None:
    root = small_log_dir("keyed-0")
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "out")
    assert run("salvage", root, tmp_path / "link").exit_code == 0
    assert (tmp_path / "out" / "keyed-0").is_dir()
    assert (tmp_path / "link").is_symlink()
    (tmp_path / "file").write_text("x")
    assert "is not empty" in run("salvage", root, tmp_path / "file").stderr


def test_what_is_left_of_another_salvage_is_not_written_over(small_log_dir: SmallLogDirectory, tmp_path: Path) -> None:
    root = small_log_dir("keyed-0")
    (tmp_path / "out.incomplete").mkdir()
    result = run("salvage", root, tmp_path / "out", code=3)
    assert result.stderr.count("\n") == 1
    assert f"{tmp_path / 'out.incomplete'} is there already" in result.stderr


# -- interrupted


class InterruptedDisk(FaultyFileSystem):
    """Is interrupted at one of the changes that are made to it."""

    def __init__(self, root: Path, at: int, error: BaseException) -> None:
        root.mkdir()
        super().__init__(root)
        self.changes = 0
        self._at = at
        self._error = error

    def run(self, operation: Operation) -> None:
        self.changes += 1
        if self.changes == self._at:
            raise self._error
        super().run(operation)


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")], ids=repr)
def test_whatever_ends_it_early_leaves_nothing_that_looks_whole(
    small_log_dir: SmallLogDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    root = small_log_dir("empty-0", "v2-zstd-0")
    disk = InterruptedDisk(tmp_path / "whole", 0, error)
    salvage(root, tmp_path / "whole" / "out", disk)
    whole = content(tmp_path / "whole" / "out")
    for at in sorted({*range(1, disk.changes, 13), *range(disk.changes - 5, disk.changes + 1)}):
        target = tmp_path / str(at) / "out"
        interrupted = functools.partial(salvage, files=InterruptedDisk(target.parent, at, error))
        monkeypatch.setattr(odradek.cli.salvage, "salvage", interrupted)
        result = run("salvage", root, target, code=130 if isinstance(error, KeyboardInterrupt) else 3)
        if target.exists():
            # It was renamed, and only its name is not on the disk yet.
            assert content(target) == whole
            continue
        left = target.with_name("out.incomplete")
        if left.exists():
            assert f"{left} is not whole: the salvage has not ended\n" in result.stderr
            assert not (left / "meta.properties").exists() or content(left) == whole
        for path in target.parent.iterdir():
            assert path.name.endswith(".incomplete")


@pytest.mark.slow
@pytest.mark.usefixtures("real_locks", "leftovers_frozen")
def test_an_interrupt_at_any_moment(
    small_log_dir: SmallLogDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ctrl-C comes: wherever the program is."""
    root = small_log_dir("v2-zstd-0")
    calls = 0
    at = -1

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        if "__del__" in {frame.f_code.co_name, "" if frame.f_back is None else frame.f_back.f_code.co_name}:
            # What comes out of a finalizer nobody gets.
            return
        calls += 1
        if calls == at:
            sys.setprofile(None)
            raise KeyboardInterrupt

    def interrupted(source: Path, target: Path, **options: Any) -> object:
        nonlocal calls
        calls = 0
        gc.disable()  # what Hypothesis does after each collection would be interrupted
        sys.setprofile(count)
        try:
            return salvage(source, target, **options)
        finally:
            sys.setprofile(None)
            gc.enable()

    # What is imported the first time must not count.
    assert run("salvage", root, tmp_path / "first").exit_code == 0
    monkeypatch.setattr(odradek.cli.salvage, "salvage", interrupted)
    assert run("salvage", root, tmp_path / "whole").exit_code == 0
    whole, total = content(tmp_path / "whole"), calls
    seen = set()
    for number in range(30):
        at = 1 + number * (total - 1) // 29
        target = tmp_path / f"{number}"
        result = run("salvage", root, target, code=130)
        left = tmp_path / f"{number}.incomplete"
        seen.add((target.exists(), left.exists()))
        if target.exists():
            assert content(target) == whole
        elif left.exists():
            assert f"{left} is not whole" in result.stderr
            assert not (left / "meta.properties").exists() or content(left) == whole
    assert (False, True) in seen
    assert (True, True) not in seen


def test_a_target_by_way_of_a_folder_that_does_not_exist_is_where_it_leads(
    small_log_dir: SmallLogDirectory, tmp_path: Path
) -> None:
    root = small_log_dir("keyed-0")
    before = content(tmp_path)
    for target in (tmp_path / "new" / "..", root / "new" / ".."):
        result = run("salvage", root, target)
        assert (result.exit_code, result.stdout) == (3, ""), target
        assert "is not empty" in result.stderr
        assert content(tmp_path) == before


def test_the_root_and_a_name_with_a_nul_are_refused(small_log_dir: SmallLogDirectory, tmp_path: Path) -> None:
    root = small_log_dir("keyed-0")
    result = run("salvage", root, "/")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "is the root" in result.stderr
    for call in (lambda: salvage("a\0b", tmp_path / "new"), lambda: salvage(root, "a\0b"), lambda: verify("a\0b")):
        with pytest.raises(OptionError, match="has a character that no file's name has"):
            call()
