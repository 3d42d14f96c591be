"""Gathers the statistics of the logs in a folder, several logs at a time, stepping over damage."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from odradek.errors import FormatError, LogError, TruncatedBatchError
from odradek.inspection.batches import damage_finding
from odradek.inspection.finding import Finding, FindingKind, unreadable
from odradek.inspection.live_segments import live_segments
from odradek.inspection.log_files import LogDirectoryFolder, LogFile, PartitionFolder, UnknownPathError, locate
from odradek.inspection.moved_records import overlaps_of, while_unchanged
from odradek.inspection.statistics.log_statistics import LogStatistics, LogTally
from odradek.records import scan_batches
from odradek.records.kernels.batches import BatchTable
from odradek.storage.names import TopicPartition
from odradek.storage.segment.batch_reader import WINDOW_BYTES, BatchReader, Damage, damage_of, mapped


def logs_of(path: str | os.PathLike[str]) -> list[PartitionFolder]:
    """Return the logs that a path stands for: a log directory, the folder of a partition, or a segment by itself.

    Raises:
        UnknownPathError: It stands for none.
    """
    located = locate(Path(path))
    match located:
        case LogDirectoryFolder():
            return located.partitions
        case PartitionFolder():
            return [located]
        case LogFile() if located.is_segment:
            return [PartitionFolder(located.path.parent, located.topic_partition, [located])]
        case _:
            raise UnknownPathError(path, "neither a log directory, nor the folder of a partition, nor a segment")


def log_name(folder: PartitionFolder) -> TopicPartition:
    """Return what a log is called: a folder that has not the name of a partition is one by its own name."""
    return folder.topic_partition or TopicPartition(folder.path.name, 0)


class FolderStatistics:
    """The statistics of logs in a folder.

    Args:
        folders: The logs.
        reads_records: Whether to read the records too, not only the headers of the batches.

    Attributes:
        read_bytes: How many bytes of segments are done; it grows while they are read.
    """

    def __init__(self, folders: Iterable[PartitionFolder], *, reads_records: bool) -> None:
        self._folders = list(folders)
        self._reads_records = reads_records
        self.read_bytes = 0

    @property
    def total_bytes(self) -> int:
        """How many bytes the segments have."""
        total = 0
        for folder in self._folders:
            for file in folder.segments:
                with suppress(OSError):
                    total += file.path.stat().st_size
        return total

    def run(self) -> Iterator[LogStatistics]:
        """Yield the statistics of each log, in order."""
        threads = min(len(self._folders), os.cpu_count() or 1)
        if threads < 2:
            yield from map(self._of_log, self._folders)
            return
        with ThreadPoolExecutor(threads) as pool:
            try:
                yield from pool.map(self._of_log, self._folders)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _of_log(self, folder: PartitionFolder) -> LogStatistics:
        return while_unchanged(folder, self._look, lambda found: bool(found.findings))

    def _look(self, folder: PartitionFolder) -> LogStatistics:
        tally = LogTally(log_name(folder), reads_records=self._reads_records)
        try:
            if folder.problem is not None:
                raise folder.problem
            segments = live_segments(folder)
        except (FormatError, LogError) as error:
            tally.findings.append(Finding(folder.path, None, FindingKind.UNREADABLE, str(error)))
            return tally.result()
        except OSError as error:
            tally.findings.append(unreadable(folder.path, error))
            return tally.result()
        if segments:
            tally.begin(segments[0].base_offset)
        starts = overlaps_of(folder.path) if len(segments) > 1 else {}
        for segment in segments:
            tally.segments += 1
            try:
                with mapped(segment.path) as data:
                    self._add_segment(segment.path, data, tally, starts.get(segment.base_offset))
            except FormatError as error:
                tally.findings.append(Finding(segment.path, None, FindingKind.UNREADABLE, error.reason))
            except OSError as error:
                tally.findings.append(unreadable(segment.path, error))
        return tally.result()

    def _add_segment(self, path: Path, data: mmap.mmap | bytes, tally: LogTally, start_offset: int | None) -> None:
        position = 0
        if start_offset is not None:
            headers = scan_batches(data, check_crc=False)
            position = next((header.position for header in headers if header.last_offset >= start_offset), len(data))
        for table in self._tables(path, data, tally.findings, position):
            for header, reason in tally.add(table, data):
                tally.findings.append(damage_finding(damage_of(path, header, FormatError(reason))))

    def _tables(
        self, path: Path, data: mmap.mmap | bytes, findings: list[Finding], position: int
    ) -> Iterator[BatchTable]:
        """Yield the headers of a segment, a window of the file at a time; what lies between is damage."""
        size, window = len(data), WINDOW_BYTES
        while position < size:
            end = min(size, position + window)
            # With headers only, not all bytes are read, so checksums cannot be verified.
            scan = scan_batches(data, position, end, check_crc=self._reads_records, path=path)
            yield from scan.tables()
            if isinstance(scan.damage, TruncatedBatchError) and end < size:
                window = WINDOW_BYTES if scan.position > position else size - position
            elif scan.damage is not None:
                scan.position = self._step_over(path, data, scan.position, findings)
            self.read_bytes += scan.position - position
            if isinstance(data, mmap.mmap):
                start = position - position % mmap.PAGESIZE
                length = (scan.position - start) - (scan.position - start) % mmap.PAGESIZE
                if length > 0:
                    data.madvise(mmap.MADV_DONTNEED, start, length)
            position = scan.position

    @staticmethod
    def _step_over(path: Path, data: mmap.mmap | bytes, position: int, findings: list[Finding]) -> int:
        """Note the damage at a position, and return where the next batch starts, or the end of the file."""
        damages: list[Damage] = []
        header = next(iter(BatchReader(path, data, damages.append, position)), None)
        findings += map(damage_finding, damages)
        return len(data) if header is None else header.position
