"""What a log directory holds, partition by partition.

    events-0    log start offset 0    log end offset 1200    3 segments    48,211 bytes

The log start offset is the greater of the entry in `log-start-offset-checkpoint` and the first segment's base offset.
If something in one partition cannot be read, the others are listed all the same.

Source in Kafka: `UnifiedLog`, `LogLoader`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from odradek.errors import FormatError, LogError
from odradek.inspection.finding import Finding, FindingKind, unreadable
from odradek.inspection.live_segments import LiveSegment, find_end, live_segments
from odradek.inspection.log_files import LogDirectoryFolder, PartitionFolder
from odradek.inspection.moved_records import while_unchanged
from odradek.storage.formats.checkpoints import LOG_START_OFFSET_CHECKPOINT, read_offset_checkpoint
from odradek.storage.names import TopicPartition
from odradek.storage.regular_files import file_size


@dataclass(slots=True)
class PartitionSummary:
    """A partition.

    Attributes:
        topic_partition: Which one.
        log_start_offset: The first offset that a consumer can get; without a segment that of the checkpoint,
            or 0. None if the folder cannot be read.
        log_end_offset: The offset of the next record; None if the last segment cannot be read.
        segments: The number of its segments; None if a broker holds them, which does not tell.
        size_bytes: The size of the segments that can be read.
        readable: How many of the segments can be read.
        last_timestamp: The greatest timestamp of the last batch, in ms; None if it has none.
        problems: What is wrong at the ends of its segments, and what cannot be read.
    """

    topic_partition: TopicPartition
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    segments: int | None = 0
    size_bytes: int = 0
    readable: int = 0
    last_timestamp: int | None = None
    problems: list[Finding] = field(default_factory=list)


class TopicListing:
    """The partitions of a log directory, looked at one by one.

    Args:
        directory: The log directory.

    Attributes:
        problems: What cannot be read besides the partitions.
    """

    def __init__(self, directory: LogDirectoryFolder) -> None:
        self._directory = directory
        self._start_offsets: dict[TopicPartition, int] = {}
        self.problems = [
            Finding(Path(problem.path), None, FindingKind.UNREADABLE, problem.reason) for problem in directory.problems
        ]
        path = directory.path / LOG_START_OFFSET_CHECKPOINT
        try:
            file_size(path)
            self._start_offsets = read_offset_checkpoint(path)
        except FileNotFoundError:
            pass
        except FormatError as error:
            self.problems.append(Finding(path, error.position, FindingKind.FILE, error.reason))
        except OSError as error:
            self.problems.append(unreadable(path, error))

    def partitions(self) -> Iterator[PartitionSummary]:
        """Yield each partition, by topic and number."""
        for folder in self._directory.partitions:
            if folder.topic_partition is not None:
                yield while_unchanged(folder, self._summary, lambda found: bool(found.problems))

    def _summary(self, folder: PartitionFolder) -> PartitionSummary:
        topic_partition = folder.topic_partition
        assert topic_partition is not None
        summary = PartitionSummary(topic_partition)
        if folder.problem is not None:
            path = Path(folder.problem.path)
            summary.problems.append(Finding(path, None, FindingKind.UNREADABLE, folder.problem.reason))
            return summary
        start_offset = self._start_offsets.get(topic_partition, 0)
        try:
            segments = live_segments(folder)
        except (FormatError, LogError) as error:
            summary.problems.append(Finding(folder.path, None, FindingKind.UNREADABLE, str(error)))
            return summary
        except OSError as error:
            summary.problems.append(unreadable(Path(error.filename or folder.path), error))
            return summary
        summary.segments = len(segments)
        summary.log_start_offset = max(start_offset, segments[0].base_offset if segments else 0)
        summary.log_end_offset = summary.log_start_offset
        for segment in segments:
            self._add(summary, segment)
        return summary

    @staticmethod
    def _add(summary: PartitionSummary, segment: LiveSegment) -> None:
        try:
            end = find_end(segment)
        except FormatError as error:
            summary.problems.append(Finding(segment.path, None, FindingKind.UNREADABLE, error.reason))
            summary.log_end_offset = None
        except OSError as error:
            summary.problems.append(unreadable(segment.path, error))
            summary.log_end_offset = None
        else:
            summary.readable += 1
            summary.size_bytes += end.size_bytes
            summary.log_end_offset = max(end.next_offset, summary.log_start_offset or 0)
            if end.last_timestamp is not None:
                summary.last_timestamp = end.last_timestamp
            if end.damage is not None:
                position, reason = end.damage.position, end.damage.reason
                summary.problems.append(Finding(segment.path, position, FindingKind.DAMAGE, reason))
