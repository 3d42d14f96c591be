"""What was done to a folder when it was opened: everything that was cut, removed or created is reported.

data/t-0/00000000000000000042.log: truncated 30 bytes from position 158: no batch
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path


class RecoveryKind(Enum):
    """What recovery did."""

    TRUNCATED = "truncated"
    """Bytes after the last whole batch were cut off."""

    REMOVED = "removed"
    """A file that cannot belong to the log any more was removed."""

    SWAPPED = "swapped"
    """A compaction that was complete but for its renaming was completed."""

    SPLIT = "split"
    """Batches whose offsets were too far above the base offset were moved into a segment of their own."""

    REBUILT = "rebuilt"
    """An index was rebuilt."""

    LOST = "lost"
    """Records that a checkpoint covers are gone; nothing was done about it."""


@dataclass(frozen=True, slots=True)
class RecoveryAction:
    """One thing that recovery did.

    Attributes:
        kind: What it did.
        path: The file.
        position: The first byte that it changed.
        size_bytes: How many bytes it changed.
        reason: Why, in words.
    """

    kind: RecoveryKind
    path: Path
    position: int
    size_bytes: int
    reason: str

    def __str__(self) -> str:
        if self.kind is RecoveryKind.LOST:
            return f"{self.path}: {self.reason}"
        return f"{self.path}: {self.kind.value} {self.size_bytes} bytes from position {self.position}: {self.reason}"


@dataclass(slots=True)
class RecoveryReport:
    """What recovery did to a log, or to all logs of a directory, in order; empty if nothing had to be done.

    Attributes:
        actions: What was done.
        segments_scanned: How many segments were read completely.
        bytes_scanned: The size of these segments.
    """

    actions: list[RecoveryAction] = field(default_factory=list)
    segments_scanned: int = 0
    bytes_scanned: int = 0

    def __bool__(self) -> bool:
        return bool(self.actions)

    def add(self, kind: RecoveryKind, path: Path, position: int, size_bytes: int, reason: str) -> None:
        """Add an action."""
        self.actions.append(RecoveryAction(kind, path, position, size_bytes, reason))

    def extend(self, other: RecoveryReport) -> None:
        """Add another report."""
        self.actions += other.actions
        self.segments_scanned += other.segments_scanned
        self.bytes_scanned += other.bytes_scanned


def lost_records(start_offset: int, end_offset: int) -> str:
    """Say that the records of a range are gone, though a checkpoint says that they were on the disk."""
    return f"offsets {start_offset} to {end_offset - 1} were on the disk and are not there any more"
