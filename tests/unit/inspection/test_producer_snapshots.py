"""Producer snapshots against what the batches give: only what cannot have been right is told."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.inspection import FindingKind, verify
from odradek.storage.formats.producer_snapshot import ProducerSnapshotEntry, format_snapshot, read_snapshot

SmallLogDirectory = Callable[..., Path]


@pytest.fixture
def snapshot(small_log_dir: SmallLogDirectory) -> Path:
    """The snapshot of an orderly stop, of one producer whose last transaction was aborted."""
    return small_log_dir("transactional-0") / "transactional-0" / f"{276:020d}.snapshot"


def reasons(path: Path, *entries: ProducerSnapshotEntry) -> list[str]:
    path.write_bytes(format_snapshot(entries))
    found = list(verify(path.parent))
    assert all((finding.path, finding.kind) == (path, FindingKind.CONTRADICTION) for finding in found)
    return [finding.reason for finding in found]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"last_offset": 300}, "the last offset 300 is not below the snapshot's"),
        ({"last_offset": 270}, "its last batch ends at offset {last_offset}, not at 270"),
        ({"last_offset": -2}, "the last offset -2 is not below the snapshot's"),
        ({"last_sequence": 7}, "up to sequence {last_sequence}, not "),
        ({"offset_delta": 70}, "not 71 up to {last_sequence}"),
        ({"producer_epoch": 99}, "its epoch is {producer_epoch}, not 99"),
        ({"last_timestamp": 5}, "its last timestamp is {last_timestamp}, not 5"),
        ({"coordinator_epoch": 3}, "the coordinator's epoch is {coordinator_epoch}, not 3"),
        ({"current_transaction_first_offset": 270}, "no transaction of it is open, let alone since 270"),
        ({"producer_id": 4711}, "no batch of it ends at offset {last_offset}"),
    ],
)
def test_each_field_that_cannot_be_is_one_finding(snapshot: Path, change: dict[str, int], reason: str) -> None:
    [entry] = read_snapshot(snapshot)
    if entry.last_offset < 0:
        # With `transaction.version` 2 the last marker has an epoch of its own, and the batches before it are forgotten.
        pytest.skip("this snapshot names no batch")
    changed = replace(entry, **change)
    expected = reason.format(**{name: getattr(entry, name) for name in type(entry).__slots__})
    assert [expected in found for found in reasons(snapshot, changed)] == [True]


def test_an_open_transaction_must_be_named(small_log_dir: SmallLogDirectory) -> None:
    path = small_log_dir("transactional-0") / "transactional-0" / f"{215:020d}.snapshot"
    [entry] = read_snapshot(path)
    opened = entry.current_transaction_first_offset
    assert opened >= 0, entry
    none = replace(entry, current_transaction_first_offset=-1)
    assert reasons(path, none) == [f"producer 1: its transaction is open since offset {opened}, none is named"]
    early = replace(entry, current_transaction_first_offset=opened - 5)
    assert reasons(path, early) == [
        f"producer 1: its transaction is open since offset {opened}, not since {opened - 5}"
    ]


@pytest.mark.slow
def test_what_may_be_right_is_no_finding(snapshot: Path) -> None:
    [entry] = read_snapshot(snapshot)
    # Producers expire, all of them in the end; before a marker of a new epoch the batches are forgotten.
    assert reasons(snapshot) == []
    forgotten = replace(entry, last_offset=-1, last_sequence=-1, offset_delta=0)
    assert reasons(snapshot, forgotten) == []
    # Where the head of the log is gone, so may be what a producer wrote.
    stranger = replace(entry, producer_id=4711, last_offset=3, current_transaction_first_offset=-1)
    assert reasons(snapshot, entry, stranger) != []
    for path in snapshot.parent.glob(f"{0:020d}.*"):
        path.unlink()
    assert reasons(snapshot, entry, stranger) == []
    assert reasons(snapshot, entry, replace(stranger, last_offset=9)) == [
        "producer 4711: no batch of it ends at offset 9"
    ]


@pytest.mark.slow
def test_the_snapshot_of_another_log_is_one_finding(small_log_dir: SmallLogDirectory) -> None:
    root = small_log_dir("transactional-0", "keyed-0", version="2.8.2")
    theirs = max((root / "keyed-0").glob("*.snapshot"))
    assert len(read_snapshot(theirs)) == 1
    for path in sorted((root / "transactional-0").glob("*.snapshot")):
        whole = path.read_bytes()
        shutil.copy(theirs, path)
        [finding] = verify(root / "transactional-0")
        path.write_bytes(whole)
        assert (finding.path, finding.kind) == (path, FindingKind.CONTRADICTION)


def test_a_snapshot_beyond_the_log_is_not_compared(snapshot: Path) -> None:
    shutil.copy(snapshot, snapshot.with_name(f"{1000:020d}.snapshot"))
    assert list(verify(snapshot.parent)) == []


def test_a_snapshot_that_claims_more_producers_than_it_has_bytes(snapshot: Path) -> None:
    with snapshot.open("r+b") as file:
        file.truncate(1 << 36)
    [finding] = verify(snapshot.parent)
    assert (finding.path, finding.kind) == (snapshot, FindingKind.FILE)
    assert finding.reason == f"1 producers take 56 bytes, there are {1 << 36}"
