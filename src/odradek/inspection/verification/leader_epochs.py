"""Checks the leader epochs of the batches against each other, and against `leader-epoch-checkpoint`.

    checkpoint   0 from offset 0, 2 from offset 50
    batches      0 0 0 0 | 2 2 66 2 2                     never decreasing within a log; 66: one flipped bit
                 ^0      ^50

No checksum covers the epoch of a batch. If a single batch has an epoch that neither of its neighbours has, the batch is
wrong. If several batches do not fit, or a batch agrees with a neighbour, the checkpoint is wrong.

Messages of v0 and v1 have no epoch. Nothing is known about offsets before the first entry: deleting records moves it,
and a lost checkpoint starts again with the next leader.

Source in Kafka: `LeaderEpochFileCache` (KIP-101), `UnifiedLog.append`.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from odradek.errors import FormatError
from odradek.inspection.finding import Finding, FindingKind
from odradek.records import BatchHeader
from odradek.storage.formats.checkpoints import LEADER_EPOCH_CHECKPOINT, EpochEntry, read_leader_epochs
from odradek.storage.log.leader_epochs import epoch_for_offset
from odradek.storage.regular_files import file_size

_NO_EPOCH = -1


@dataclass(slots=True)
class _Run:
    """Consecutive batches that have the same epoch, and that should have the same."""

    epoch: int
    expected: int | None
    batches: int
    first_offset: int
    last_offset: int
    path: Path
    position: int

    @property
    def is_wrong(self) -> bool:
        return self.expected is not None and self.epoch != self.expected


class LeaderEpochCheck:
    """Is given the batches of a log, then asked what is wrong.

    Args:
        directory: The folder of the partition.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / LEADER_EPOCH_CHECKPOINT
        self._entries = self._read()
        self._starts = [entry.start_offset for entry in self._entries]
        self._disorder = _disorder(self._entries)
        if self._disorder is not None:
            self._entries, self._starts = [], []
        self._runs: list[_Run] = []
        # The offsets for which the entry that was looked up last is valid.
        self._valid = range(0)
        self._expected: int | None = None

    def _read(self) -> list[EpochEntry]:
        # Damage of the file itself is reported where each file is checked by itself.
        try:
            file_size(self._path)
            return read_leader_epochs(self._path)
        except (FormatError, OSError):
            return []

    def batch(self, path: Path, header: BatchHeader) -> None:
        """Take the next batch."""
        epoch = header.partition_leader_epoch
        if header.magic < 2 or epoch == _NO_EPOCH:
            return
        offset = header.base_offset
        if offset not in self._valid:
            number = bisect_right(self._starts, offset)
            self._expected = self._entries[number - 1].epoch if number else None
            start = self._starts[number - 1] if number else 0
            self._valid = range(start, self._starts[number] if number < len(self._starts) else 1 << 63)
        run = self._runs[-1] if self._runs else None
        if run is not None and run.epoch == epoch and run.expected == self._expected:
            run.batches += 1
            run.last_offset = header.last_offset
        else:
            self._runs.append(_Run(epoch, self._expected, 1, offset, header.last_offset, path, header.position))

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong, after the last batch."""
        if self._disorder is not None:
            yield Finding(self._path, None, FindingKind.CONTRADICTION, self._disorder)
        runs = self._still_wrong()
        kept: list[_Run] = []
        for number, run in enumerate(runs):
            if self._is_outlier(kept[-1] if kept else None, run, runs[number + 1 : number + 3]):
                yield self._of_batch(run, kept[-1] if kept else None)
            else:
                kept.append(run)
        fallen = [(before, run) for before, run in itertools.pairwise(kept) if run.epoch < before.epoch]
        for before, run in fallen:
            reason = f"leader epoch {run.epoch} follows {before.epoch}"
            yield Finding(run.path, run.position, FindingKind.EPOCH, reason)
        wrong = next((run for run in kept if run.is_wrong), None)
        if wrong is not None and not fallen:
            start = self._starts[bisect_right(self._starts, wrong.first_offset) - 1]
            reason = (
                f"epoch {wrong.expected} is valid from offset {start} on, "
                f"but the batch at offset {wrong.first_offset} has leader epoch {wrong.epoch}"
            )
            yield Finding(self._path, None, FindingKind.CONTRADICTION, reason)

    def _still_wrong(self) -> list[_Run]:
        """Return the runs that do not fit the checkpoint as it is now either: a writer may have added to it."""
        if any(run.is_wrong for run in self._runs):
            entries = self._read()
            if entries != self._entries and _disorder(entries) is None:
                self._entries, self._starts = entries, [entry.start_offset for entry in entries]
                for run in self._runs:
                    run.expected = epoch_for_offset(entries, run.first_offset)
        return self._runs

    @staticmethod
    def _is_outlier(before: _Run | None, run: _Run, following: Sequence[_Run]) -> bool:
        """Whether a single batch has an epoch that neither the previous one has nor the next one."""
        after = following[0] if following else None
        beside = [other.epoch for other in (before, after) if other is not None]
        if run.batches > 1 or run.epoch in beside:
            return False
        if run.expected is None:
            if before is not None and run.epoch < before.epoch:
                return after is None or after.epoch >= before.epoch
            if after is None or after.epoch >= run.epoch:
                return False
            # This run or the next is wrong: the one without which the epochs do not decrease.
            if after.batches == 1 and len(following) > 1 and following[1].epoch >= run.epoch:
                return False
            return before is None or before.epoch <= after.epoch
        # The only batch of a log: is it wrong, or the checkpoint? One flipped bit is the likelier cause.
        return run.is_wrong and (bool(beside) or (run.epoch ^ run.expected).bit_count() == 1)

    def _of_batch(self, run: _Run, before: _Run | None) -> Finding:
        if run.expected is not None and run.is_wrong:
            should = f"{LEADER_EPOCH_CHECKPOINT} says {run.expected}"
        elif before is not None and run.epoch < before.epoch:
            should = f"it follows {before.epoch}"
        else:
            should = "the one after it is lower"
        return Finding(run.path, run.position, FindingKind.EPOCH, f"leader epoch {run.epoch}, where {should}")


def _disorder(entries: Sequence[EpochEntry]) -> str | None:
    """Return how the entries contradict each other."""
    for before, entry in itertools.pairwise(entries):
        if entry.epoch <= before.epoch or entry.start_offset <= before.start_offset:
            return f"epoch {entry.epoch} at offset {entry.start_offset} follows {before.epoch} at {before.start_offset}"
    return None
