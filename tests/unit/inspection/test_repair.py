"""`verify --repair`: what is made again is what Kafka had written, and what cannot be made again is left as it is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import odradek
from flips.breakage import cut, flip_bit
from odradek.errors import LogDirectoryLockedError
from odradek.inspection import FindingKind, UnknownPathError, repair, verify
from odradek.records import scan_batches
from peers import command

SmallLogDirectory = Callable[..., Path]

BASE = f"{0:020d}"
TXN = "transactional-0"


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _first_entry(path: Path) -> None:
    flip_bit(path, 7)


MADE_AGAIN: dict[str, tuple[str, Callable[[Path], None]]] = {
    "an index that points elsewhere": (f"v2-none-0/{BASE}.index", lambda path: flip_bit(path, 15)),
    "an index of odd size": (f"v2-none-0/{BASE}.index", lambda path: cut(path, 13)),
    "an index that is missing": (f"v2-none-0/{BASE}.index", Path.unlink),
    "a time index that lies": (f"v2-none-0/{BASE}.timeindex", _first_entry),
    "a time index that is missing": (f"v2-none-0/{BASE}.timeindex", Path.unlink),
    "an index of a compressed log": (f"v2-zstd-0/{BASE}.index", _first_entry),
    "an abort that never was": (f"{TXN}/{8:020d}.txnindex", lambda path: flip_bit(path, 9)),
    "aborts that are missing": (f"{TXN}/{8:020d}.txnindex", Path.unlink),
    "a txnindex of another version": (f"{TXN}/{218:020d}.txnindex", lambda path: flip_bit(path, 0)),
    "the first snapshot": (f"{TXN}/{8:020d}.snapshot", lambda path: flip_bit(path, 20)),
    "the last snapshot": (f"{TXN}/{276:020d}.snapshot", lambda path: flip_bit(path, 20)),
    "an empty snapshot": (f"{TXN}/{218:020d}.snapshot", _empty),
    "epochs that are no numbers": (f"{TXN}/leader-epoch-checkpoint", lambda path: flip_bit(path, 4, 6)),
    "metadata without an id": (f"{TXN}/partition.metadata", lambda path: cut(path, 11)),
}


def state(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE_AGAIN)
def test_it_is_made_again_as_kafka_had_it(small_log_dir: SmallLogDirectory, name: str) -> None:
    file, damage = MADE_AGAIN[name]
    root = small_log_dir(file.partition("/")[0])
    assert list(verify(root)) == []
    whole = state(root)
    damage(root / file)
    broken = state(root)
    assert broken != whole
    planned = repair(root, dry_run=True)
    assert state(root) == broken
    done = repair(root)
    assert planned.repairs == done.repairs
    assert [made.path for made in done.repairs] == [root / file]
    assert planned.left == done.left == []
    assert state(root) == whole
    assert repair(root).repairs == []


@pytest.mark.slow
def test_all_at_once(small_log_dir: SmallLogDirectory) -> None:
    """Also what follows from what has to be made again first."""
    root = small_log_dir(TXN)
    whole = state(root)
    broken = [path for path in (root / TXN).iterdir() if path.suffix != ".log"]
    for path in broken:
        if path.stat().st_size:
            # Of `partition.metadata` nobody reads the first bytes.
            flip_bit(path, path.stat().st_size - 1 if path.name == "partition.metadata" else 3, 7)
    report = repair(root)
    assert report.left == []
    assert {made.path for made in report.repairs} >= {path for path in broken if path.suffix == ".snapshot"}
    assert state(root) == whole


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "replication-offset-checkpoint", "cleaner-offset-checkpoint"]
)
def test_checkpoints_that_kafka_finds_out_again(small_log_dir: SmallLogDirectory, name: str) -> None:
    root = small_log_dir("v2-none-0")
    (root / name).write_text("0\n1\nv2-none zero 1\n")
    report = repair(root)
    assert [made.path for made in report.repairs] == [root / name]
    assert report.left == []
    assert (root / name).read_text() == "0\n0\n"


@pytest.mark.slow
def test_data_and_what_only_a_checkpoint_knows_are_left(small_log_dir: SmallLogDirectory) -> None:
    root = small_log_dir(TXN, "v2-none-0")
    (root / "log-start-offset-checkpoint").write_text("0\n1\nv2-none zero 1\n")
    segment = root / TXN / f"{8:020d}.log"
    flip_bit(segment, list(scan_batches(segment.read_bytes()))[3].position + 90)
    # What follows from a damaged log would be wrong.
    flip_bit(root / TXN / f"{276:020d}.snapshot", 20)
    flip_bit(root / TXN / f"{8:020d}.txnindex", 9)
    flip_bit(root / "v2-none-0" / f"{BASE}.index", 15)
    broken = state(root)
    report = repair(root)
    assert [made.path for made in report.repairs] == [root / "v2-none-0" / f"{BASE}.index"]
    changed = {name for name, content in state(root).items() if broken.get(name) != content}
    assert changed == {f"v2-none-0/{BASE}.index"}
    assert {finding.path.name for finding in report.left} >= {
        "log-start-offset-checkpoint",
        segment.name,
        f"{276:020d}.snapshot",
    }
    assert any(finding.kind is FindingKind.DAMAGE for finding in report.left)


@pytest.mark.slow
def test_a_log_directory_that_is_open_is_refused(small_log_dir: SmallLogDirectory) -> None:
    root = small_log_dir("v2-none-0")
    with odradek.open(root):
        flip_bit(root / "v2-none-0" / f"{BASE}.index", 15)
        broken = state(root)
        for path in (root, root / "v2-none-0"):
            with pytest.raises(LogDirectoryLockedError):
                repair(path)
        assert state(root) == broken
        assert len(repair(root, dry_run=True).repairs) == 1
        assert run("--repair", root).exit_code == 3
    assert not (root / ".lock").exists()


def test_a_partition_by_itself(small_log_dir: SmallLogDirectory, tmp_path: Path) -> None:
    root = small_log_dir("v2-none-0")
    alone = tmp_path / "elsewhere" / "v2-none-0"
    alone.parent.mkdir()
    (root / "v2-none-0").rename(alone)
    whole = state(alone)
    flip_bit(alone / f"{BASE}.index", 15)
    assert repair(alone).left == []
    assert state(alone) == whole
    assert [path.name for path in alone.parent.iterdir()] == ["v2-none-0"]
    with pytest.raises(UnknownPathError):
        repair(alone / f"{BASE}.index")


@pytest.mark.slow
def test_a_file_that_cannot_be_written_keeps_none_of_the_others(small_log_dir: SmallLogDirectory) -> None:
    root = small_log_dir("v2-none-0", "v2-zstd-0")
    wrong = [root / name / f"{BASE}.index" for name in ("v2-none-0", "v2-zstd-0")]
    for path in wrong:
        flip_bit(path, 15)
    # In the way of what is written.
    (wrong[0].with_name(f"{wrong[0].name}.tmp") / "x").mkdir(parents=True)
    report = repair(root)
    assert [made.path for made in report.repairs] == wrong[1:]
    assert [(finding.path, finding.kind) for finding in report.left] == [
        (wrong[0], FindingKind.UNREADABLE),
        (wrong[0], FindingKind.INDEX),
    ]
    result = run("--repair", root)
    assert (result.exit_code, result.stderr.splitlines()[0]) == (3, f"odradek: {wrong[0]}: Is a directory")


@pytest.mark.slow
def test_a_link_into_a_log_directory_that_is_open_is_refused(small_log_dir: SmallLogDirectory, tmp_path: Path) -> None:
    root = small_log_dir("v2-none-0")
    other = tmp_path / "other"
    other.mkdir()
    (other / "meta.properties").write_bytes((root / "meta.properties").read_bytes())
    (other / "v2-none-0").symlink_to(root / "v2-none-0")
    with odradek.open(root):
        flip_bit(root / "v2-none-0" / f"{BASE}.index", 15)
        broken = state(root)
        with pytest.raises(LogDirectoryLockedError):
            repair(other)
        assert state(root) == broken
    assert [made.path.name for made in repair(other).repairs] == [f"{BASE}.index"]


run = partial(command.run, "verify")


@pytest.mark.slow
def test_the_command_line(small_log_dir: SmallLogDirectory) -> None:
    root = small_log_dir("v2-none-0")
    index = root / "v2-none-0" / f"{BASE}.index"
    index.unlink()
    dry = run("--repair", "--dry-run", root)
    assert (dry.exit_code, dry.stdout) == (1, f"{index}: to be made again: it is missing\n")
    assert dry.stderr == "1 file to be made again, 0 findings left\n"
    assert not index.exists()
    done = run("--repair", root, "--format", "jsonl")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {"file": str(index), "repair": "made again", "reason": "it is missing"}
    clean = run("--repair", root)
    assert (clean.exit_code, clean.stdout, clean.stderr) == (0, "", "0 files made again, 0 findings left\n")
    assert run("--dry-run", root).exit_code == 2
