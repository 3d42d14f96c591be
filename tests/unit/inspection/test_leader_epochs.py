"""Leader epochs: of the batches among themselves, and against the checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from odradek.inspection import Finding, FindingKind, verify
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.storage.formats.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    EpochEntry,
    read_leader_epochs,
    write_leader_epochs,
)
from odradek.testing.message_builder import build_message_set


def log_of(folder: Path, epochs: Sequence[int], entries: Sequence[tuple[int, int]] | None) -> Path:
    """Write a log of one record a batch; an epoch of -2 stands for a message of v1, which has none."""
    folder.mkdir(exist_ok=True)
    batches = [
        build_message_set([Record(None, b"v")], magic=1, base_offset=offset)
        if epoch == -2
        else build_batch([Record(None, b"v")], base_offset=offset, partition_leader_epoch=epoch)
        for offset, epoch in enumerate(epochs)
    ]
    (folder / f"{0:020d}.log").write_bytes(b"".join(batches))
    (folder / LEADER_EPOCH_CHECKPOINT).unlink(missing_ok=True)
    if entries is not None:
        write_leader_epochs(folder / LEADER_EPOCH_CHECKPOINT, [EpochEntry(*entry) for entry in entries])
    return folder


def findings(folder: Path, epochs: Sequence[int], entries: Sequence[tuple[int, int]] | None) -> list[Finding]:
    return list(verify(log_of(folder, epochs, entries)))


RIGHT = [
    ("one epoch", [0, 0, 0], [(0, 0)]),
    ("several", [0, 0, 2, 2, 5], [(0, 0), (2, 2), (5, 4)]),
    ("epochs in which nothing was written", [0, 0, 5], [(0, 0), (1, 2), (5, 2)][::2]),
    ("an epoch that has just begun", [0, 0], [(0, 0), (4, 2)]),
    ("a head that was deleted", [0, 0, 0, 2], [(0, 2), (2, 3)]),
    ("a checkpoint that began again", [0, 0, 2, 2, 2], [(2, 4)]),
    ("an empty checkpoint", [0, 0, 2], []),
    ("no checkpoint", [0, 0, 2], None),
    ("batches of no epoch", [-1, -1, 0, 0], [(0, 2)]),
    ("messages of before there were epochs", [-2, -2, 0, 0], [(0, 2)]),
    ("messages of before, after epochs", [3, 3, -2, -2], []),
    ("nothing", [], [(7, 0)]),
]


@pytest.mark.parametrize(("epochs", "entries"), [case[1:] for case in RIGHT], ids=[case[0] for case in RIGHT])
def test_what_may_be_is_no_finding(tmp_path: Path, epochs: list[int], entries: list[tuple[int, int]] | None) -> None:
    assert findings(tmp_path / "t-0", epochs, entries) == []


@pytest.mark.sampled
@pytest.mark.parametrize("entries", [[(0, 0), (2, 4)], None], ids=["checkpoint", "no checkpoint"])
@pytest.mark.parametrize("wrong", range(8))
def test_one_flipped_bit_is_one_finding(tmp_path: Path, entries: list[tuple[int, int]] | None, wrong: int) -> None:
    right = [0, 0, 0, 0, 2, 2, 2, 2]
    for bit in range(32):
        flipped = right[wrong] ^ 1 << bit
        signed = flipped - (1 << 32) if flipped >> 31 else flipped
        epochs = [*right[:wrong], signed, *right[wrong + 1 :]]
        found = findings(tmp_path / "t-0", epochs, entries)
        if entries is None and epochs == sorted(epochs):
            # The last batch may be of a new epoch; one at a boundary may be of either.
            assert found == []
        else:
            assert len(found) == 1, (bit, [str(finding) for finding in found])
            if epochs[wrong] not in epochs[max(0, wrong - 1) : wrong] + epochs[wrong + 1 : wrong + 2]:
                assert found[0].kind is FindingKind.EPOCH


def misfit(valid: int, start: int, offset: int, found: int) -> str:
    return f"epoch {valid} is valid from offset {start} on, but the batch at offset {offset} has leader epoch {found}"


WRONG = [
    ("another epoch", [0, 0, 0, 0], [(5, 0)], misfit(5, 0, 0, 0)),
    ("a start too early", [0, 0, 0, 2, 2], [(0, 0), (2, 1)], misfit(2, 1, 1, 0)),
    ("a start too late", [0, 2, 2, 2, 2], [(0, 0), (2, 3)], misfit(0, 0, 1, 2)),
    ("an entry is missing", [0, 0, 1, 1, 2, 2], [(0, 0), (2, 4)], misfit(0, 0, 2, 1)),
    ("epochs that fall", [0, 0], [(3, 0), (0, 5)], "epoch 0 at offset 5 follows 3 at 0"),
    ("starts that fall", [0, 0], [(0, 5), (3, 0)], "epoch 3 at offset 0 follows 0 at 5"),
]


@pytest.mark.parametrize(("epochs", "entries", "reason"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_a_checkpoint_that_does_not_fit_is_one_finding(
    tmp_path: Path, epochs: list[int], entries: list[tuple[int, int]], reason: str
) -> None:
    [finding] = findings(tmp_path / "t-0", epochs, entries)
    assert (finding.path.name, finding.kind) == (LEADER_EPOCH_CHECKPOINT, FindingKind.CONTRADICTION)
    assert finding.reason == reason


def test_epochs_that_fall_are_one_finding_a_fall(tmp_path: Path) -> None:
    for entries in (None, [(5, 0)]):
        [finding] = findings(tmp_path / "t-0", [5, 5, 5, 3, 3, 3], entries)
        assert finding.kind is FindingKind.EPOCH
        assert finding.reason == "leader epoch 3 follows 5"


def test_epochs_are_followed_from_segment_to_segment(tmp_path: Path) -> None:
    folder = log_of(tmp_path / "t-0", [0, 0, 0], [(0, 0), (2, 5)])
    batch = [build_batch([Record(None, b"v")], base_offset=3 + n, partition_leader_epoch=0) for n in range(4)]
    (folder / f"{3:020d}.log").write_bytes(b"".join(batch))
    [finding] = verify(folder)
    assert finding.reason.startswith("epoch 2 is valid from offset 5 on")


def test_an_epoch_that_a_writer_adds_while_the_log_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from odradek.inspection.verification import leader_epochs

    folder = log_of(tmp_path / "t-0", [0, 0, 2, 2], [(0, 0)])
    seen: list[list[EpochEntry]] = []

    def as_time_goes_by(path: Path) -> list[EpochEntry]:
        seen.append(read_leader_epochs(path) if not seen else [EpochEntry(0, 0), EpochEntry(2, 2)])
        return seen[-1]

    monkeypatch.setattr(leader_epochs, "read_leader_epochs", as_time_goes_by)
    assert list(verify(folder)) == []
    assert len(seen) == 2
