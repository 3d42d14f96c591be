"""Compares the files of a log with themselves and with each other.

.log          checksums, offsets that ascend and stay within the segment, gaps
.index        every entry names the start of a batch and the last offset of one
.timeindex    every entry is the greatest timestamp so far, and where it was
.txnindex     every entry ends at an ABORT marker of its producer
the others    can be read, and their checksums hold
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from typing_extensions import Buffer

from odradek.cli.entry_listing import entries_of
from odradek.cli.log_files import FileKind, LogFile
from odradek.errors import FormatError
from odradek.records import BatchHeader, read_records
from odradek.records.control import ControlRecordType, parse_control_key
from odradek.storage import names
from odradek.storage.batch_reader import BatchReader, Damage, damage_of, mapped
from odradek.storage.checkpoints import CLEANER_OFFSET_CHECKPOINT, read_offset_checkpoint
from odradek.storage.index.index_file import MAX_RELATIVE_OFFSET
from odradek.storage.index.offset_index import OffsetIndex
from odradek.storage.index.time_index import TimeIndex
from odradek.storage.index.transaction_index import AbortedTransaction, parse_transaction_index
from odradek.storage.names import TopicPartition


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
        path: The file.
        position: Where in it, in bytes, where that can be said.
        kind: `damage`, `order`, `gap`, `index`, or `file` for one that cannot be read as what it is.
        reason: What is wrong.
    """

    path: Path
    position: int | None
    kind: str
    reason: str

    def __str__(self) -> str:
        place = f"{self.path}: " if self.position is None else f"{self.path}: position {self.position}: "
        return f"{place}{self.kind}: {self.reason}"


class Verification:
    """One run over the files of any number of partitions, in the order of their offsets.

    Args:
        report: Is given each finding.
        decode: Whether every record is decoded too, not only its batch's checksum verified.
    """

    def __init__(self, report: Callable[[Finding], None], *, decode: bool = False) -> None:
        self._report = report
        self._decode = decode
        self._ends: dict[tuple[TopicPartition | None, int], int] = {}
        self._compacted: dict[Path, set[TopicPartition]] = {}
        self.files = 0
        self.batches = 0

    def file(self, file: LogFile) -> None:
        """Verify one file.

        Raises:
            OSError: It cannot be read at all.
        """
        self.files += 1
        try:
            if file.kind is FileKind.RECORDS:
                self._segment(file)
            elif file.kind not in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX):
                for _ in entries_of(file):
                    pass
            elif not self._log_of(file).exists():
                self._report(Finding(file.path, None, "index", "there is no segment that it belongs to"))
            elif file.is_named:
                self._segment(classify_log(file))
        except FormatError as error:
            self._report(Finding(Path(error.path or file.path), error.position, "file", error.reason))

    @staticmethod
    def _log_of(file: LogFile) -> Path:
        return file.sibling(names.LOG_SUFFIX)

    def _segment(self, file: LogFile) -> None:
        path = file.path
        checks: list[_Check] = []
        # The offset that follows the segment before; unknown where that was not looked at, or ends with damage.
        expected: int | None = None
        if file.is_segment:
            checks = [_OffsetIndexCheck(file), _TimeIndexCheck(file), _AbortedCheck(file)]
            expected = self._ends.pop((file.topic_partition, file.base_offset), None)
        low = file.base_offset
        lost = False

        def damaged(damage: Damage) -> None:
            nonlocal lost
            lost = True
            reason = f"{damage.size_bytes} bytes not read: {damage.reason}"
            self._report(Finding(damage.path, damage.position, "damage", reason))

        with mapped(path) as data:
            for header in BatchReader(path, data, damaged):
                self.batches += 1
                if header.base_offset < low or header.last_offset < header.base_offset:
                    reason = f"offsets {header.base_offset} to {header.last_offset} follow {low - 1}"
                    self._report(Finding(path, header.position, "order", reason))
                elif expected is not None and header.base_offset > expected and header.magic == 2 and not lost:
                    self._gap(file, header, expected)
                if file.is_segment and header.last_offset - file.base_offset > MAX_RELATIVE_OFFSET:
                    self._report(Finding(path, header.position, "order", f"offset {header.last_offset} is too far"))
                low, lost = max(low, header.next_offset), False
                expected = low
                for check in checks:
                    check.batch(data, header)
                if self._decode:
                    try:
                        read_records(data, header)
                    except FormatError as error:
                        damaged(damage_of(path, header, error))
        following = file.next_base_offset
        if following is not None:
            if low > following:
                self._report(
                    Finding(path, None, "order", f"its offsets go on to {low - 1}, the next segment is {following}")
                )
            if not lost:
                self._ends[file.topic_partition, following] = low
        for check in checks:
            for finding in check.findings():
                self._report(finding)

    def _gap(self, file: LogFile, header: BatchHeader, expected: int) -> None:
        root = file.path.resolve().parent.parent
        if root not in self._compacted:
            try:
                self._compacted[root] = set(read_offset_checkpoint(root / CLEANER_OFFSET_CHECKPOINT))
            except FormatError:
                self._compacted[root] = set()
        if file.topic_partition not in self._compacted[root]:
            reason = f"offsets {expected} to {header.base_offset - 1} are missing, and the log was never compacted"
            self._report(Finding(file.path, header.position, "gap", reason))


def classify_log(file: LogFile) -> LogFile:
    """Return the segment that an index belongs to."""
    return LogFile(file.sibling(names.LOG_SUFFIX), FileKind.RECORDS, file.base_offset, file.topic_partition)


class _Check(Protocol):
    """Is shown every batch of a segment, then asked what was wrong."""

    def batch(self, data: Buffer, header: BatchHeader) -> None: ...

    def findings(self) -> Iterator[Finding]: ...


class _OffsetIndexCheck:
    """Holds the entries of an offset index against the batches."""

    def __init__(self, file: LogFile) -> None:
        self._path = file.sibling(names.INDEX_SUFFIX)
        index = OffsetIndex(self._path, file.base_offset)
        self._problem = _problem_of(index)
        self._entries = list(index.entries())
        index.close()
        self._offsets = {entry.position: entry.offset for entry in self._entries}
        self._starts: set[int] = set()
        self._end = file.base_offset

    def batch(self, data: Buffer, header: BatchHeader) -> None:
        # The first offset of a wrapper (v0, v1) is known only to its content: it is behind the batch before it.
        base_offset = header.base_offset if header.magic == 2 else self._end
        if base_offset <= self._offsets.get(header.position, -1):
            self._starts.add(header.position)
        self._end = header.next_offset

    def findings(self) -> Iterator[Finding]:
        if self._problem is not None:
            yield Finding(self._path, self._problem.position, "index", self._problem.reason)
            return
        for number, entry in enumerate(self._entries):
            if entry.position not in self._starts or entry.offset >= self._end:
                what = "the segment ends before it" if entry.offset >= self._end else "no batch for it starts there"
                reason = f"entry {number}: offset {entry.offset} at position {entry.position}: {what}"
                yield Finding(self._path, number * OffsetIndex.ENTRY_SIZE, "index", reason)


class _TimeIndexCheck:
    """Holds the entries of a time index against the batches."""

    def __init__(self, file: LogFile) -> None:
        self._path = file.sibling(names.TIME_INDEX_SUFFIX)
        index = TimeIndex(self._path, file.base_offset)
        self._problem = _problem_of(index)
        self._entries = list(index.entries())
        index.close()
        self._next = 0
        self._greatest = -1
        self._found: list[Finding] = []

    def batch(self, data: Buffer, header: BatchHeader) -> None:
        self._greatest = max(self._greatest, header.max_timestamp)
        while self._next < len(self._entries) and self._entries[self._next].offset <= header.last_offset:
            entry = self._entries[self._next]
            if entry.timestamp != self._greatest:
                self._add(f"the greatest timestamp up to there is {self._greatest}")
            self._next += 1

    def _add(self, what: str) -> None:
        entry = self._entries[self._next]
        reason = f"entry {self._next}: timestamp {entry.timestamp} at offset {entry.offset}: {what}"
        self._found.append(Finding(self._path, self._next * TimeIndex.ENTRY_SIZE, "index", reason))

    def findings(self) -> Iterator[Finding]:
        if self._problem is not None:
            yield Finding(self._path, self._problem.position, "index", self._problem.reason)
            return
        while self._next < len(self._entries):
            self._add("the segment ends before it")
            self._next += 1
        yield from self._found


class _AbortedCheck:
    """Holds the entries of a transaction index against the ABORT markers."""

    def __init__(self, file: LogFile) -> None:
        self._path = file.sibling(names.TRANSACTION_INDEX_SUFFIX)
        self._problem: FormatError | None = None
        self._entries: list[AbortedTransaction] = []
        if self._path.exists():
            try:
                self._entries = parse_transaction_index(self._path.read_bytes(), path=self._path)
            except FormatError as error:
                self._problem = error
        self._aborts: set[tuple[int, int]] = set()

    def batch(self, data: Buffer, header: BatchHeader) -> None:
        if header.is_control and self._entries:
            records = read_records(data, header)
            if records and parse_control_key(records[0].key) is ControlRecordType.ABORT:
                self._aborts.add((header.producer_id, header.last_offset))

    def findings(self) -> Iterator[Finding]:
        if self._problem is not None:
            yield Finding(self._path, self._problem.position, "index", self._problem.reason)
        last = -1
        for number, entry in enumerate(self._entries):
            reason = None
            if (entry.producer_id, entry.last_offset) not in self._aborts:
                reason = f"producer {entry.producer_id} has no ABORT marker at offset {entry.last_offset}"
            elif entry.last_offset <= last or not entry.first_offset <= entry.last_offset:
                reason = f"offsets {entry.first_offset} to {entry.last_offset} follow {last}"
            if reason is not None:
                yield Finding(self._path, number * 34, "index", f"entry {number}: {reason}")
            last = entry.last_offset


def _problem_of(index: OffsetIndex | TimeIndex) -> FormatError | None:
    try:
        index.check()
    except FormatError as error:
        return error
    return None
