"""What `verify` finds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path


class FindingKind(StrEnum):
    """What kind of thing is wrong."""

    DAMAGE = "damage"
    """Bytes that are not a batch, or whose checksum does not match."""

    ORDER = "order"
    """Offsets that do not increase, or that are outside of their segment."""

    GAP = "gap"
    """Offsets that are missing from a log that was never compacted."""

    EPOCH = "epoch"
    """A leader epoch other than the one that was current when the batch was written."""

    INDEX = "index"
    """An index that contradicts its segment."""

    CONTRADICTION = "contradiction"
    """Another file that can be read, but that contradicts the batches or the metadata."""

    FILE = "file"
    """Another file that is not what its name says."""

    UNREADABLE = "unreadable"
    """A file that cannot be read at all."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
        path: The file.
        position: Where in the file, in bytes; None if that cannot be said.
        kind: What kind of thing it is.
        reason: What is wrong.
    """

    path: Path
    position: int | None
    kind: FindingKind
    reason: str

    def __str__(self) -> str:
        place = f"{self.path}: " if self.position is None else f"{self.path}: position {self.position}: "
        return f"{place}{self.kind}: {self.reason}"


def unreadable(path: Path, error: OSError) -> Finding:
    """Return the finding for a file that the system does not let us read."""
    return Finding(path, None, FindingKind.UNREADABLE, error.strerror or str(error))


def dangling(path: Path) -> list[Finding]:
    """Return the finding for a link that leads nowhere; an empty list if there is not even a link."""
    reason = "this is a link that leads nowhere"
    return [Finding(path, None, FindingKind.UNREADABLE, reason)] if path.is_symlink() else []


def together(findings: list[Finding]) -> list[Finding]:
    """Return one finding for all entries of an index that do not fit: if one does not, the segment may be to blame."""
    if len(findings) < 2:
        return findings
    more = "another entry does" if len(findings) == 2 else f"{len(findings) - 1} more entries do"
    return [replace(findings[0], reason=f"{findings[0].reason}; {more} not fit")]
