"""`odradek verify` and `odradek topics`: real folders are clean, and each way of breaking them is found."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from flips.breakage import THINGS
from odradek.records import scan_batches
from peers.command import rows, run
from peers.files import refuse
from peers.kafka_fixture import KafkaFixture

verify = partial(rows, "verify", code=1)


@pytest.mark.slow
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
SmallLogDirectory = Callable[..., Path]
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


@pytest.mark.slow
@pytest.mark.parametrize("name", BREAKAGES)
def test_every_breakage_is_found(writable_log_dir: Path, name: str) -> None:
    file, damage, kind = BREAKAGES[name]
    topic, _, file_name = file.replace("BASE", BASE).partition("/")
    folder = writable_log_dir / topic
    assert verify(folder, code=0) == []
    damage(folder / file_name)
    findings = verify(folder)
    # Where a batch is missing, the entries for those after it name other places, too.
    also = ["index"] if name == "a batch that is missing" else []
    assert [finding["kind"] for finding in findings] == [kind, *also]
    assert list(findings[0]) == ["file", "position", "kind", "reason"]
    if kind != "index":
        assert findings[0]["file"] == str(folder / file_name)
    text = run("verify", folder, code=1)
    assert len(text.stdout.splitlines()) == len(findings)
    assert text.stderr.endswith("not clean\n")


@pytest.mark.slow
def test_a_malformed_checkpoint_of_the_root(writable_log_dir: Path) -> None:
    (writable_log_dir / "recovery-point-offset-checkpoint").write_text("0\n1\nkeyed zero 1\n")
    [finding] = verify(writable_log_dir)
    assert finding["file"] == str(writable_log_dir / "recovery-point-offset-checkpoint")


@pytest.mark.sampled
def test_topics_as_consumers_saw_them(kafka_fixture: KafkaFixture) -> None:
    result = run("topics", "--format", "jsonl", kafka_fixture.log_dir, code=0)
    rows = {f"{row['topic']}-{row['partition']}": row for row in map(json.loads, result.stdout.splitlines())}
    for name, consumed in kafka_fixture.consumed.items():
        offsets = (rows[name]["log_start_offset"], rows[name]["log_end_offset"])
        assert offsets == (consumed["logStartOffset"], consumed["highWatermark"])
        segments = list((kafka_fixture.log_dir / name).glob("*.log"))
        assert rows[name]["segments"] == len(segments)
        assert rows[name]["bytes"] == sum(path.stat().st_size for path in segments)
    table = run("topics", kafka_fixture.log_dir).stdout.splitlines()
    assert len(table) == 1 + len(rows) + 2


@pytest.mark.slow
def test_topics_reports_a_torn_tail(writable_log_dir: Path) -> None:
    segment = max((writable_log_dir / "v2-none-0").glob("*.log"))
    cut(segment, segment.stat().st_size - 1)
    result = run("topics", writable_log_dir, code=1)
    assert str(segment) in result.stderr


@pytest.mark.slow
def test_what_cannot_be_read_is_told_on_stderr_and_is_3(
    writable_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong with the others is on stdout all the same."""
    segment = min((writable_log_dir / "keyed-0").glob("*.log"))
    flip(max((writable_log_dir / "keyed-0").glob("*.log")), 90)
    refuse(monkeypatch, lambda path: path == segment)
    for form, lines in (("text", 2), ("jsonl", 1)):
        result = run("verify", "--format", form, writable_log_dir / "keyed-0", code=3)
        assert result.stderr.startswith(f"odradek: {segment}: Input/output error\n")
        assert (len(result.stdout.splitlines()), len(result.stderr.splitlines())) == (1, lines)


COMMANDS = ["topics", "dump", "dump --batches", "dump --since 0", "dump --kafka-compat", "verify"]
SHOWN = {"dump --kafka-compat": {".index", ".timeindex", ".txnindex", ".snapshot"}}
"""What a command shows of a folder beside the records."""


def matters(command: str, path: Path) -> bool:
    if command == "topics" and path.name == "log-start-offset-checkpoint":
        return True
    return command == "verify" or path.suffix in {".log"} | SHOWN.get(command, set())


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_hangs_or_ends_at_what_is_no_file(small_log_dir: SmallLogDirectory, command: str) -> None:
    """A FIFO, a device, a folder in the place of a file: a line names it, and the others are dealt with."""
    root = small_log_dir("transactional-0", "empty-1")
    lines = len(run(*command.split(), root).stdout.splitlines())
    paths = [path for path in (root / "transactional-0").iterdir() if path.suffix != ".deleted"]
    for number, path in enumerate(sorted([*paths, root / "log-start-offset-checkpoint"])):
        thing = list(THINGS)[number % len(THINGS)]
        path.rename(root.parent / "aside")
        THINGS[thing](path)
        result, named = run(*command.split(), root), run(*command.split(), path)
        path.rmdir() if thing == "a directory" else path.unlink()
        (root.parent / "aside").rename(path)
        assert result.exit_code in ({1, 3} if matters(command, path) else {0}), (path, thing, result.stderr)
        assert not matters(command, path) or str(path) in result.output
        if command == "topics":
            assert len(result.stdout.splitlines()) == lines
        if command != "dump --kafka-compat" or matters(command, path):
            assert named.exit_code in {1, 3}, (path, thing)
            assert str(path) in named.output


@pytest.mark.sampled
@pytest.mark.timeout(20)
@pytest.mark.parametrize("thing", [thing for thing in THINGS if thing != "a directory"])
@pytest.mark.parametrize("command", ["topics", "dump", "verify", "salvage"])
def test_what_lies_in_the_place_of_a_partition(
    small_log_dir: SmallLogDirectory, tmp_path: Path, command: str, thing: str
) -> None:
    root = small_log_dir("empty-0")
    THINGS[thing](root / "other-0")
    target = [tmp_path / "target"] if command == "salvage" else []
    result = run(command, root, *target, code=3)
    assert result.stderr.startswith(f"odradek: {root / 'other-0'}: ")


@pytest.mark.slow
def test_topics_goes_on_after_a_segment_that_cannot_be_read(
    writable_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run("topics", "--format", "jsonl", writable_log_dir).stdout.splitlines()
    first, *_, last = sorted((writable_log_dir / "keyed-1").glob("*.log"))
    refuse(monkeypatch, lambda path: path in {first, last}, errno.EACCES)
    result = run("topics", "--format", "jsonl", writable_log_dir, code=3)
    assert result.stderr.splitlines() == [f"odradek: {path}: Permission denied" for path in (first, last)]
    after = result.stdout.splitlines()
    [(was, now)] = [
        (json.loads(one), json.loads(other)) for one, other in zip(before, after, strict=True) if one != other
    ]
    assert now == was | {"log_end_offset": None, "bytes": now["bytes"]}
    assert was["bytes"] - now["bytes"] == first.stat().st_size + last.stat().st_size
    table = run("topics", writable_log_dir).stdout
    assert [line.split()[3] for line in table.splitlines() if line.startswith("keyed ")][1] == "-"


@pytest.mark.slow
def test_topics_of_which_nothing_can_be_read_is_3(writable_log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, lambda path: True, errno.EACCES)
    result = run("topics", writable_log_dir, code=3)
    assert len(result.stdout.splitlines()) == 1 + 18 + 2


def test_topics_of_a_log_directory_without_topics(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    assert run("topics", tmp_path).exit_code == 0
