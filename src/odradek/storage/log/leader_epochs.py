"""The leader epochs of a partition: which epoch each offset was written in.

    epoch          0        2          5
    offset   |-----|--------|----------|--------> log end
             start_offset   start_offset

Epochs and start offsets only increase: a new entry removes the ones that contradict it. They are kept in
`leader-epoch-checkpoint`, which is written at each change.

Source in Kafka: `LeaderEpochFileCache` (KIP-101, KIP-279, KIP-320).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path

from odradek.printable import logger
from odradek.storage.files import FILES, FileSystem
from odradek.storage.formats.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    EpochEntry,
    read_leader_epochs,
    write_leader_epochs,
)

_logger = logger(__name__)


class LeaderEpochCache:
    """The leader epochs of one partition.

    Args:
        directory: The partition's folder.
        files: The file system to write through.

    Raises:
        CheckpointError: The file is not of the form that Kafka reads.
    """

    def __init__(self, directory: Path, files: FileSystem = FILES) -> None:
        self.path = directory / LEADER_EPOCH_CHECKPOINT
        self._files = files
        # Replaced as a whole once the file has the new entries, and never changed: readers use it without a lock.
        self._entries: list[EpochEntry] = []
        for entry in read_leader_epochs(self.path):
            self._entries = self._with(self._entries, entry)

    @property
    def entries(self) -> list[EpochEntry]:
        """The entries, the oldest first."""
        return list(self._entries)

    @property
    def latest_epoch(self) -> int | None:
        """The last epoch, or None."""
        return self._entries[-1].epoch if self._entries else None

    def is_latest(self, epoch: int) -> bool:
        """Whether an epoch is the last one."""
        entries = self._entries
        return bool(entries) and entries[-1].epoch == epoch

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that an epoch begins at an offset; if that is new, write the file and return True.

        Raises:
            ValueError: A number is negative.
        """
        return self.assign_all([EpochEntry(epoch, start_offset)])

    def assign_all(self, entries: Iterable[EpochEntry]) -> bool:
        """Note several epochs and write the file once."""
        assigned = self._entries
        for entry in entries:
            if entry.epoch < 0 or entry.start_offset < 0:
                raise ValueError(f"{entry} is not a valid epoch entry")
            assigned = self._with(assigned, entry)
        if assigned is self._entries:
            return False
        self._replace(assigned)
        return True

    def _with(self, entries: list[EpochEntry], entry: EpochEntry) -> list[EpochEntry]:
        if entries:
            latest = entries[-1]
            if entry.epoch == latest.epoch and entry.start_offset >= latest.start_offset:
                return entries
        kept = list(entries)
        removed = []
        while kept and not self._precedes(kept[-1], entry):
            removed.append(kept.pop())
        if len(removed) > 1 or (removed and removed[0].start_offset != entry.start_offset):
            _logger.warning("%s: %s replaces %s", self.path, entry, removed)
        return [*kept, entry]

    @staticmethod
    def _precedes(entry: EpochEntry, later: EpochEntry) -> bool:
        return entry.epoch < later.epoch and entry.start_offset < later.start_offset

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the epochs that begin at or above an offset, since the log ends there now."""
        number = bisect_left(self._entries, end_offset, key=lambda entry: entry.start_offset)
        if end_offset >= 0 and number < len(self._entries):
            self._replace(self._entries[:number])

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget the epochs that end at or below an offset; the one that holds it now begins there."""
        number = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        first = EpochEntry(self._entries[number - 1].epoch, start_offset) if number else None
        if first is not None and self._entries[:number] != [first]:
            self._replace([first, *self._entries[number:]])

    def clear(self) -> None:
        """Forget every epoch: a message of an old format, which has none, is appended."""
        if self._entries:
            self._replace([])

    def _replace(self, entries: list[EpochEntry]) -> None:
        write_leader_epochs(self.path, entries, self._files)
        self._entries = entries


def epoch_for_offset(entries: Sequence[EpochEntry], offset: int) -> int | None:
    """Return the epoch that an offset was written in; None below the first entry."""
    number = bisect_right(entries, offset, key=lambda entry: entry.start_offset)
    return entries[number - 1].epoch if number else None


def end_offset_for(entries: Sequence[EpochEntry], epoch: int, log_end_offset: int) -> EpochEntry | None:
    """Return where an epoch ends, as OffsetForLeaderEpoch answers it.

    Args:
        entries: The epochs and where they begin, the oldest first.
        epoch: The epoch asked for.
        log_end_offset: The end of the latest epoch.

    Returns:
        The greatest known epoch at or below it, with its *end* offset. For an epoch before the first known one: that
        epoch, with the start offset of the first known one. None if it is above the latest.
    """
    if not entries or epoch < 0 or epoch > entries[-1].epoch:
        return None
    if epoch == entries[-1].epoch:
        return EpochEntry(epoch, log_end_offset)
    number = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
    found = entries[number - 1].epoch if number else epoch
    return EpochEntry(found, entries[number].start_offset)
