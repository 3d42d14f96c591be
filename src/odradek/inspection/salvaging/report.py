"""The report of a salvage."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from odradek.inspection.finding import Finding
from odradek.storage.formats.meta_properties import MetaProperties


@dataclass(frozen=True, slots=True)
class Loss:
    """Bytes that are not in the target.

    Attributes:
        path: The source file.
        position: Where they start.
        size_bytes: How many they are.
        start_offset: The first offset that they may have held.
        end_offset: The offset after the last one that they may have held; None if the log ends with them.
        reason: Why they were left out.
    """

    path: Path
    position: int
    size_bytes: int
    start_offset: int
    end_offset: int | None
    reason: str

    def __str__(self) -> str:
        end = "the end" if self.end_offset is None else str(self.end_offset)
        return (
            f"{self.path}: position {self.position}: {self.size_bytes} bytes lost, "
            f"offsets {self.start_offset} to below {end}: {self.reason}"
        )


@dataclass(slots=True)
class SalvagedLog:
    """What became of one partition.

    Attributes:
        path: Its folder in the target.
        segments: How many segments of the source could be read.
        batches: How many batches the target has.
        size_bytes: How many bytes they have.
        end_offset: The offset after the last one.
        losses: What was lost.
        mended: Batches whose base offset, which no checksum covers, was wrong and was corrected.
        open_transactions: By producer id, where a transaction begins whose marker is missing; while it is open,
            `read_committed` consumers stop before it.
        left_out: The findings for files beside the segments that were not copied. Kafka refuses a whole log directory
            for a file that it cannot read, and does without one that is missing.
    """

    path: Path
    segments: int = 0
    batches: int = 0
    size_bytes: int = 0
    end_offset: int = 0
    losses: list[Loss] = field(default_factory=list)
    mended: list[Finding] = field(default_factory=list)
    open_transactions: dict[int, int] = field(default_factory=dict)
    left_out: list[Finding] = field(default_factory=list)


@dataclass(slots=True)
class SalvageReport:
    """What became of a log directory, or of one partition.

    Attributes:
        target: The new log directory.
        logs: The partitions.
        left_out: The files of the root that were not copied, and the folders that could not be read.
        unserved: Why brokers do not serve partitions of the target, or nothing of them.
        identity: The `meta.properties` that the target got because the source has none; None if it has one.
    """

    target: Path
    logs: list[SalvagedLog] = field(default_factory=list)
    unserved: list[Finding] = field(default_factory=list)
    identity: MetaProperties | None = None
    left_out: list[Finding] = field(default_factory=list)

    @property
    def batches(self) -> int:
        """How many batches the target has."""
        return sum(log.batches for log in self.logs)

    @property
    def losses(self) -> list[Loss]:
        """What was lost, of all partitions."""
        return [loss for log in self.logs for loss in log.losses]

    @property
    def is_clean(self) -> bool:
        """Whether the target has all that the source should have had."""
        return not (self.left_out or self.unserved) and not any(
            log.losses or log.mended or log.left_out for log in self.logs
        )
