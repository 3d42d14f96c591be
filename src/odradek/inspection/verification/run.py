"""Verifies what paths stand for: log directories, partitions, single files.

    .log                       checksums, offsets that ascend and stay within the segment, gaps, leader epochs
    .index                     every entry has the start of a batch and the last offset of one
    .timeindex                 every entry has the greatest timestamp so far, and where it was
    .txnindex                  the aborted transactions that the batches give
    .snapshot                  no producer state that contradicts the batches
    leader-epoch-checkpoint    the epochs of the batches
    *-offset-checkpoint        starts and ends within the logs, of partitions that exist
    partition.metadata         the topic's id
    other files                are what their names say

Each of these has a module here. If a partition is verified as a whole, its files are checked against each other. A file
that is named alone is checked by itself, and an index against its segment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from odradek.errors import FormatError
from odradek.inspection.batches import LooseBatches
from odradek.inspection.entry_listing import entries_of
from odradek.inspection.finding import Finding, FindingKind, unreadable
from odradek.inspection.log_files import (
    INDEX_KINDS,
    FileKind,
    Located,
    LogDirectoryFolder,
    LogFile,
    PartitionFolder,
    UnknownPathError,
    partition_folder,
)
from odradek.inspection.moved_records import while_unchanged
from odradek.inspection.surroundings import Surroundings
from odradek.inspection.verification.metadata_snapshot import MetadataSnapshotCheck
from odradek.inspection.verification.offset_checkpoints import LogExtent, check_extents, check_names
from odradek.inspection.verification.partition import PartitionCheck
from odradek.storage import names
from odradek.storage.directory.problems import root_problems
from odradek.storage.directory.surrounding import foreign_folders
from odradek.storage.metadata.problems import MetadataProblems
from odradek.storage.names import parse_partition_directory


class Verification:
    """One run over any number of paths.

    Args:
        decode: Whether to decode every record too, not only verify the checksum of its batch.
        each: Called before each batch of a partition; what it raises ends the run.

    Attributes:
        files: How many files were looked at.
        batches: How many batches were read.
    """

    def __init__(self, *, decode: bool = False, each: Callable[[], None] | None = None) -> None:
        self._decode = decode
        self._each = each
        self._segments: set[Path] = set()
        self._check: PartitionCheck | None = None
        self._read_bytes = 0
        self.files = 0
        self.batches = 0

    @property
    def read_bytes(self) -> int:
        """How many bytes of batches in segments were read; another thread may watch it grow."""
        check = self._check
        return self._read_bytes + (0 if check is None else check.read_bytes)

    def findings(self, located: Located) -> Iterator[Finding]:
        """Yield what is wrong with the files that a path stands for."""
        match located:
            case LogDirectoryFolder():
                yield from self._log_directory(located)
            case PartitionFolder():
                surroundings = _surroundings_of(located.path)
                _ = surroundings.checkpoints
                extents: list[LogExtent] = []
                yield from self._partition(located, surroundings, extents)
                yield from check_extents(surroundings, extents)
            case LogFile():
                yield from self._named_file(located)

    def _log_directory(self, directory: LogDirectoryFolder) -> Iterator[Finding]:
        surroundings = Surroundings(directory.path)
        # Read the checkpoints before the logs: a writer may be at work, and checkpoints may be older than logs.
        _ = surroundings.checkpoints
        reported: set[Path] = set()
        for file in directory.files:
            self.files += 1
            for finding in self._file(file):
                reported.add(finding.path)
                yield finding
        for problem in directory.problems:
            finding = _of_path(problem)
            reported.add(finding.path)
            yield finding
        extents: list[LogExtent] = []
        for partition in directory.partitions:
            for finding in self._partition(partition, surroundings, extents):
                reported.add(finding.path)
                yield finding
        for finding in self._checkpoints(surroundings, extents):
            reported.add(finding.path)
            yield finding
        for found in root_problems(directory.path, MetadataProblems(directory.path)):
            path = Path(found.path or directory.path)
            if path not in reported:
                reported.add(path)
                yield Finding(path, found.position, FindingKind.FILE, found.reason)
        for path in foreign_folders(directory.path):
            if path not in reported:
                reason = "a folder that is no partition: Kafka does not start on this log directory"
                yield Finding(path, None, FindingKind.FILE, reason)

    @staticmethod
    def _checkpoints(surroundings: Surroundings, extents: list[LogExtent]) -> Iterator[Finding]:
        yield from check_extents(surroundings, extents)
        try:
            yield from check_names(surroundings)
        except OSError as error:
            yield unreadable(surroundings.root, error)

    def _partition(
        self, folder: PartitionFolder, surroundings: Surroundings, extents: list[LogExtent]
    ) -> Iterator[Finding]:
        if folder.problem is not None:
            yield _of_path(folder.problem)
            return
        looked: list[tuple[PartitionFolder, PartitionCheck]] = []

        def look(folder: PartitionFolder) -> list[Finding]:
            check = self._check = PartitionCheck(folder, surroundings, decode=self._decode, each=self._each)
            looked.append((folder, check))
            return list(check.run())

        yield from while_unchanged(folder, look, bool)
        folder, check = looked[-1]
        self.files += len(folder.files)
        self._count(check)
        if check.extent is not None:
            extents.append(check.extent)

    def _named_file(self, file: LogFile) -> Iterator[Finding]:
        self.files += 1
        if file.kind in INDEX_KINDS:
            segment = LogFile(file.sibling(names.LOG_SUFFIX), FileKind.RECORDS, file.base_offset, file.topic_partition)
            if segment.path.exists():
                yield from self._named_segment(segment)
            else:
                yield Finding(file.path, None, FindingKind.INDEX, "there is no segment that it belongs to")
        elif file.is_segment:
            yield from self._named_segment(file)
        else:
            yield from self._file(file)

    def _named_segment(self, file: LogFile) -> Iterator[Finding]:
        # The path may have been named along with its indexes.
        if file.path in self._segments:
            return
        self._segments.add(file.path)
        whole = partition_folder(file.path.parent)
        known = next((segment for segment in whole.segments if segment.path.name == file.path.name), None)
        following = None if known is None else known.next_base_offset
        folder = replace(whole, files=[replace(file, next_base_offset=following)], misnamed=[], problem=None)
        check = PartitionCheck(folder, _surroundings_of(folder.path), decode=self._decode, is_whole=False)
        yield from self._run(check)

    def _run(self, check: PartitionCheck) -> Iterator[Finding]:
        self._check = check
        yield from check.run()
        self._count(check)

    def _count(self, check: PartitionCheck) -> None:
        self._check = None
        self._read_bytes += check.read_bytes
        self.batches += check.batches

    def _file(self, file: LogFile) -> Iterator[Finding]:
        """Verify a file by itself."""
        try:
            yield from self._check_of(file)(file)
        except FormatError as error:
            yield Finding(Path(error.path or file.path), error.position, FindingKind.FILE, error.reason)
        except OSError as error:
            yield unreadable(file.path, error)

    def _check_of(self, file: LogFile) -> Callable[[LogFile], Iterator[Finding]]:
        if file.kind is FileKind.RECORDS:
            return self._loose_batches
        return _entries

    def _loose_batches(self, file: LogFile) -> Iterator[Finding]:
        kind = MetadataSnapshotCheck if file.is_metadata_snapshot else LooseBatches
        check = kind(file, decode=self._decode)
        yield from check.findings()
        self.batches += check.batches


def _entries(file: LogFile) -> Iterator[Finding]:
    for _ in entries_of(file):
        pass
    return iter(())


def _surroundings_of(folder: Path) -> Surroundings:
    path = Path(os.path.realpath(folder))
    parsed = parse_partition_directory(path.name)
    # The log directory says nothing about a folder that is deleted, stray or moved, only about the one in its place.
    return Surroundings(path if parsed is not None and parsed.suffix else path.parent)


def _of_path(problem: UnknownPathError) -> Finding:
    return Finding(Path(problem.path), None, FindingKind.UNREADABLE, problem.reason)
