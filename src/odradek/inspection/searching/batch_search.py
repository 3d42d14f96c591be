"""Searches batches for the records that a pattern wants, of those that a command asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from odradek.buffers import Buffer
from odradek.errors import FormatError
from odradek.inspection.searching.pattern import RecordPattern
from odradek.inspection.selection import DumpSelection
from odradek.records.batch import each_record, read_records
from odradek.records.header import BatchHeader
from odradek.records.kernels.batches import BatchTable
from odradek.records.kernels.objects import Record
from odradek.records.kernels.search import Texts
from odradek.records.scan import Status
from odradek.storage.formats.transaction_index import AbortedTransaction
from odradek.storage.log.transactions import AbortedRanges
from odradek.storage.segment.batch_reader import Damage, damage_of

_RECORD_BITS = 32


@dataclass(frozen=True, slots=True)
class Committed:
    """What `read_committed` gives of a log.

    Attributes:
        aborted: The aborted transactions: producer id, first offset, offset of the marker.
        end_offset: The last stable offset, from which on nothing is decided.
    """

    aborted: Sequence[tuple[int, int, int]]
    end_offset: int

    def within(self, start_offset: int, end_offset: int) -> Committed:
        """Return the same, of the transactions in a range of offsets only."""
        inner = [span for span in self.aborted if span[1] < end_offset and span[2] >= start_offset]
        return Committed(inner, self.end_offset)


@dataclass(slots=True)
class Found:
    """Records of one table that are wanted, or on which the pattern is to be tried yet.

    Attributes:
        table: The headers of their batches.
        marks: Which they are: int64, see `odradek.records.kernels.search`.
        texts: Their texts, if the pattern is to be tried.
        verdicts: What is known of each (`RecordPattern.judged`).
    """

    table: BatchTable
    marks: memoryview
    texts: Texts | None = None
    verdicts: bytearray = field(default_factory=bytearray)

    def decide(self, pattern: RecordPattern) -> None:
        """Leave out what the pattern does not want."""
        if self.texts is not None:
            pattern.decide(self.texts, self.verdicts)
            self.marks = memoryview(pattern.chosen(self.marks, self.verdicts)).cast("q")
            self.texts = None

    def skip_before(self, position: int) -> None:
        """Leave out batches that begin before a position."""
        first = next((n for n in range(len(self.table)) if self.table.header(n).position >= position), len(self.table))
        self.marks = self.marks[sum(mark >> _RECORD_BITS < first for mark in self.marks) :]

    def places(self) -> set[tuple[int, int]]:
        """Return where the records are: the positions of their batches, and their numbers in these."""
        return {
            (self.table.header(mark >> _RECORD_BITS).position, mark & (1 << _RECORD_BITS) - 1) for mark in self.marks
        }


class BatchSearch:
    """Searches batches; one thread at a time.

    Args:
        pattern: What is looked for.
        selection: Which records are looked at; control records never are.
        committed: What is aborted or undecided; None if that is wanted too.
        damaged: Is told of batches whose records cannot be read.
    """

    def __init__(
        self,
        pattern: RecordPattern,
        selection: DumpSelection,
        committed: Committed | None,
        damaged: Callable[[Damage], None],
    ) -> None:
        self._pattern = pattern
        self._selection = selection
        self._damaged = damaged
        self._aborted = AbortedRanges(())
        if committed is not None:
            self._selection = selection.within(0, committed.end_offset)
            self._aborted = AbortedRanges(
                AbortedTransaction(*span, last_stable_offset=span[2]) for span in committed.aborted
            )
        self._search = pattern.search(self._selection, () if committed is None else committed.aborted)

    def found(self, table: BatchTable, data: Buffer, path: Path) -> Iterator[Found]:
        """Yield the records that may be wanted.

        Args:
            table: The headers of the batches.
            data: The bytes that hold them, from position 0 on.
            path: The file, for the report of damage.
        """
        index = 0
        while True:
            status, index = self._search.search(table, index, data)
            marks, texts = self._search.take()
            if len(memoryview(marks)):
                verdicts = bytearray() if texts is None else self._pattern.judged(texts)
                yield Found(table, memoryview(marks).cast("q"), texts, verdicts)
            if status == Status.OK:
                return
            if status == Status.BAD_RECORD:
                header = table.header(index)
                try:
                    each_record(data, header)
                except FormatError as error:
                    self._damaged(damage_of(path, header, error))
                index += 1

    def visible(self, header: BatchHeader, data: Buffer) -> list[tuple[int, Record]]:
        """Return the records of a batch that are looked at, with their numbers; none where they cannot be read."""
        if header.is_control or self._selection.skips_batch(header) or header in self._aborted:
            return []
        try:
            records = read_records(data, header)
        except FormatError:
            return []
        return [(number, record) for number, record in enumerate(records) if self._selection.takes(record)]
