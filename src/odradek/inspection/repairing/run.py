"""Repairs what `verify` finds, as far as it follows from the batches or the metadata; the batches are never changed.

    rebuilt      .index .timeindex .txnindex .snapshot leader-epoch-checkpoint     from the batches
                 partition.metadata                                               from the metadata
                 recovery points, high watermarks, where the cleaner is           empty: Kafka finds them out again
    left         segments, log-start-offset-checkpoint, the metadata              nothing else says what they held

Where batches are damaged or missing, what follows from them would be wrong: it is left, and `salvage` makes a sound
log. Each file is replaced in one step, under the lock of the log directory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from odradek.arguments import checked_flag, checked_path
from odradek.errors import OdradekError
from odradek.inspection.finding import Finding, FindingKind, unreadable
from odradek.inspection.live_segments import LiveSegment, live_segments
from odradek.inspection.log_files import (
    FileKind,
    LogDirectoryFolder,
    LogFile,
    PartitionFolder,
    UnknownPathError,
    locate,
)
from odradek.inspection.repairing.derived_files import (
    index_content,
    leader_epoch_content,
    snapshot_content,
    transaction_index_content,
)
from odradek.inspection.surroundings import Surroundings
from odradek.inspection.verification.run import Verification
from odradek.storage import names
from odradek.storage.directory.lock import LogDirectoryLock
from odradek.storage.files import FILES, FileSystem, write_atomically
from odradek.storage.formats.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    format_offset_checkpoint,
)
from odradek.storage.formats.partition_metadata import PARTITION_METADATA, format_partition_metadata
from odradek.storage.formats.producer_snapshot import read_snapshot
from odradek.storage.regular_files import file_size
from odradek.storage.topic_config import TopicConfig

_FOUND_OUT_AGAIN = {RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT}
_INDEX_SUFFIXES = (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX)
_CONTENT = {FindingKind.INDEX, FindingKind.FILE, FindingKind.CONTRADICTION}

_Maker = Callable[[], bytes | None]


@dataclass(frozen=True, slots=True)
class Repair:
    """A file that was rebuilt.

    Attributes:
        path: The file.
        reason: What was wrong with it.
    """

    path: Path
    reason: str


@dataclass(slots=True)
class RepairReport:
    """What a repair has done.

    Attributes:
        repairs: The files that were rebuilt; in a dry run those that would be.
        left: What could not be written, and what `verify` finds afterwards; in a dry run, what would be left.
    """

    repairs: list[Repair] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)


def repair(
    path: str | os.PathLike[str], *, decode: bool = False, dry_run: bool = False, files: FileSystem = FILES
) -> RepairReport:
    """Make again what `verify` finds wrong in a log directory or a partition, as far as that can be.

    Args:
        path: The log directory, or the folder of a partition.
        decode: Whether to decode every record too, as for `verify`.
        dry_run: Whether to find out only what would be done.
        files: The file system to write through.

    Raises:
        LogDirectoryLockedError: A program has the log directory open for writing; not in a dry run.
        UnknownPathError: The path is neither a log directory nor the folder of a partition.
        OSError: The log directory cannot be locked.
    """
    located = locate(checked_path("path", path))
    decode, dry_run = checked_flag("decode", decode), checked_flag("dry_run", dry_run)
    if isinstance(located, LogFile):
        raise UnknownPathError(path, "neither a log directory nor the folder of a partition")
    is_whole = isinstance(located, LogDirectoryFolder)
    surroundings = Surroundings(located.path if is_whole else Path(os.path.realpath(located.path)).parent)
    with ExitStack() as stack:
        if not dry_run:
            for root in _roots(located, surroundings):
                stack.enter_context(LogDirectoryLock(root))
        findings = list(Verification(decode=decode).findings(located))
        report = RepairReport()
        for made in _Repairs(located, surroundings, findings).plan():
            try:
                content = made.make()
            except OdradekError:
                # What the file follows from is damaged too, so the finding is left.
                continue
            if content is None:
                continue
            if not dry_run:
                try:
                    write_atomically(made.path, content, files)
                except OSError as error:
                    # Report this beside the finding, which is left.
                    report.left.append(unreadable(made.path, error))
                    continue
            report.repairs.append(Repair(made.path, made.reason))
        if dry_run:
            done = {made.path for made in report.repairs}
            report.left = [finding for finding in findings if finding.path not in done]
        else:
            report.left += Verification(decode=decode).findings(locate(Path(path)))
    return report


def _roots(located: LogDirectoryFolder | PartitionFolder, surroundings: Surroundings) -> list[Path]:
    """Return the log directories that are written to: a partition may be a link into another one."""
    if isinstance(located, PartitionFolder):
        return [surroundings.root] if surroundings.is_log_directory else []
    own = Path(os.path.realpath(located.path))
    others = {Path(os.path.realpath(folder.path)).parent for folder in located.partitions} - {own}
    return [located.path, *(root for root in sorted(others) if Surroundings(root).is_log_directory)]


@dataclass(frozen=True, slots=True)
class _Planned:
    path: Path
    reason: str
    make: _Maker


class _Repairs:
    """What can be done about findings."""

    def __init__(
        self, located: LogDirectoryFolder | PartitionFolder, surroundings: Surroundings, findings: list[Finding]
    ) -> None:
        self._located = located
        self._surroundings = surroundings
        self._findings: dict[Path, Finding] = {}
        for finding in findings:
            self._findings.setdefault(finding.path, finding)

    def plan(self) -> Iterator[_Planned]:
        """Yield what can be rebuilt, in the order in which one thing follows from another."""
        located = self._located
        if isinstance(located, LogDirectoryFolder):
            for file in located.files:
                finding = self._wrong(file.path)
                if finding is not None and finding.kind is FindingKind.FILE and file.path.name in _FOUND_OUT_AGAIN:
                    yield _Planned(file.path, finding.reason, lambda: format_offset_checkpoint({}))
        for folder in located.partitions if isinstance(located, LogDirectoryFolder) else [located]:
            if folder.problem is None:
                yield from self._of_partition(folder)

    def _wrong(self, path: Path) -> Finding | None:
        finding = self._findings.get(path)
        return finding if finding is not None and finding.kind in _CONTENT else None

    def _of_partition(self, folder: PartitionFolder) -> Iterator[_Planned]:
        yield from self._topic_id(folder)
        try:
            segments = live_segments(folder)
        except (OdradekError, OSError):
            return
        yield from self._indexes(folder, segments)
        if any(segment.path in self._findings for segment in segments):
            return
        yield from self._snapshots(folder, segments)
        yield from self._transaction_indexes(folder, segments)
        path = folder.path / LEADER_EPOCH_CHECKPOINT
        finding = self._wrong(path)
        if finding is not None:
            yield _Planned(path, finding.reason, lambda: leader_epoch_content(segments))

    def _topic_id(self, folder: PartitionFolder) -> Iterator[_Planned]:
        path = folder.path / PARTITION_METADATA
        finding = self._wrong(path)
        if finding is None or finding.kind is not FindingKind.FILE or folder.topic_partition is None:
            return
        topic_id = self._surroundings.topic_id(folder.topic_partition.topic)
        if topic_id is not None:
            yield _Planned(path, finding.reason, lambda: format_partition_metadata(topic_id))

    def _indexes(self, folder: PartitionFolder, segments: list[LiveSegment]) -> Iterator[_Planned]:
        for segment in segments:
            if segment.path in self._findings or segment.path.suffix != names.LOG_SUFFIX:
                continue
            for suffix in _INDEX_SUFFIXES:
                path = segment.path.with_suffix(suffix)
                finding = self._wrong(path)
                if finding is not None:
                    yield _Planned(path, finding.reason, self._index_maker(folder, segment, suffix))
                elif not os.path.lexists(path) and _has_bytes(segment.path):
                    yield _Planned(path, "it is missing", self._index_maker(folder, segment, suffix))

    def _index_maker(self, folder: PartitionFolder, segment: LiveSegment, suffix: str) -> _Maker:
        return lambda: index_content(segment, self._interval_bytes(folder))[suffix]

    def _interval_bytes(self, folder: PartitionFolder) -> int:
        metadata = self._surroundings.metadata
        if metadata is None or folder.topic_partition is None:
            return TopicConfig().index_interval_bytes
        topic_config = metadata.topic_config(folder.topic_partition.topic)
        return TopicConfig.load(topic_config, metadata.broker_config()).index_interval_bytes

    def _snapshots(self, folder: PartitionFolder, segments: list[LiveSegment]) -> Iterator[_Planned]:
        files = [file for file in folder.files if file.kind is FileKind.PRODUCER_SNAPSHOT]
        good = {file.base_offset for file in files if self._wrong(file.path) is None and _is_readable(file)}
        for file in files:
            finding = self._wrong(file.path)
            if finding is not None:
                yield _Planned(file.path, finding.reason, self._snapshot_maker(segments, file.base_offset, good))

    @staticmethod
    def _snapshot_maker(segments: list[LiveSegment], offset: int, good: set[int]) -> _Maker:
        return lambda: snapshot_content(segments, offset, good)

    def _transaction_indexes(self, folder: PartitionFolder, segments: list[LiveSegment]) -> Iterator[_Planned]:
        for segment in segments:
            path = segment.path.with_suffix(names.TRANSACTION_INDEX_SUFFIX)
            finding = self._wrong(path)
            if finding is not None:
                yield _Planned(path, finding.reason, self._transactions_maker(folder, segment.base_offset))

    def _transactions_maker(self, folder: PartitionFolder, base_offset: int) -> _Maker:
        was_compacted = self._surroundings.may_have_gaps(folder.topic_partition)
        return lambda: transaction_index_content(folder.path, base_offset, was_compacted=was_compacted)


def _has_bytes(path: Path) -> bool:
    try:
        return file_size(path) > 0
    except (OdradekError, OSError):
        return False


def _is_readable(file: LogFile) -> bool:
    try:
        read_snapshot(file.path)
    except (OdradekError, OSError):
        return False
    return True
