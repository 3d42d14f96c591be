"""What was done to a folder when it was opened: everything that was cut, removed or created is reported.

data/t-0/00000000000000000042.log: truncated 30 bytes from position 158: no batch
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from odradek.errors import LogError


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

    DAMAGED = "damaged"
    """Bytes between sound batches cannot be read; nothing was done about it."""

    SET_ASIDE = "set aside"
    """The folder of another topic, which has a partition's name, was renamed."""


@dataclass(frozen=True, slots=True)
class SoundRecords:
    """Records in batches whose checksum is valid, in bytes that are cut off or removed.

    Attributes:
        count: How many there are; a compressed message of v0 or v1 counts as one.
        start_offset: The first offset.
        end_offset: The offset after the last one.
    """

    count: int
    start_offset: int
    end_offset: int

    def __str__(self) -> str:
        return f"{self.count} sound records, offsets {self.start_offset} to {self.end_offset - 1},"


@dataclass(frozen=True, slots=True)
class RecoveryAction:
    """One thing that recovery did.

    Attributes:
        kind: What it did.
        path: The file.
        position: The first byte that it changed.
        size_bytes: How many bytes it changed.
        reason: Why, in words.
        sound: What can still be read of the bytes.
        loses: Whether readers are given less afterwards than was there.
    """

    kind: RecoveryKind
    path: Path
    position: int
    size_bytes: int
    reason: str
    sound: SoundRecords | None = None
    loses: bool = False

    def __str__(self) -> str:
        if self.kind is RecoveryKind.DAMAGED:
            return f"{self.path}: position {self.position}: {self.size_bytes} bytes cannot be read: {self.reason}"
        if self.kind in {RecoveryKind.LOST, RecoveryKind.SET_ASIDE}:
            return f"{self.path}: {self.reason}"
        what = f"{self.kind.value} {self.size_bytes} bytes from position {self.position}"
        sound = "" if self.sound is None else f"; {self.sound} among them"
        return f"{self.path}: {what}: {self.reason}{sound}"


@dataclass(slots=True)
class RecoveryReport:
    """What recovery did to a log, or to all logs of a directory, in order; empty if nothing had to be done.

    Attributes:
        actions: What was done.
        segments_scanned: How many segments were read completely.
        bytes_scanned: The size of these segments.
        is_strict: Whether what loses records is refused.
        told: Is told of each action, from when it is set.
    """

    actions: list[RecoveryAction] = field(default_factory=list)
    segments_scanned: int = 0
    bytes_scanned: int = 0
    is_strict: bool = False
    told: Callable[[RecoveryAction], None] | None = None

    def __bool__(self) -> bool:
        return bool(self.actions)

    def add(
        self,
        kind: RecoveryKind,
        path: Path,
        position: int,
        size_bytes: int,
        reason: str,
        *,
        sound: SoundRecords | None = None,
        loses: bool = False,
    ) -> None:
        """Add an action that is about to be done.

        Raises:
            LogError: It would lose records, and the report is strict.
        """
        action = RecoveryAction(kind, path, position, size_bytes, reason, sound, loses)
        if loses and self.is_strict:
            raise LogError(f"{action}; nothing of this was changed, as strict demands")
        self._note(action)

    def _note(self, action: RecoveryAction) -> None:
        self.actions.append(action)
        if self.told is not None:
            self.told(action)

    def extend(self, other: RecoveryReport) -> None:
        """Add another report."""
        for action in other.actions:
            self._note(action)
        self.segments_scanned += other.segments_scanned
        self.bytes_scanned += other.bytes_scanned


def lost_records(start_offset: int, end_offset: int) -> str:
    """Say that the records of a range are gone, though a checkpoint says that they were on the disk."""
    return f"offsets {start_offset} to {end_offset - 1} were on the disk and are not there any more"
