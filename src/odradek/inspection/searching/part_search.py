"""Searches a part of a log's bytes, whatever is damaged in it."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from odradek.buffers import Buffer
from odradek.inspection.record_lines import RecordLines
from odradek.inspection.searching.batch_search import BatchSearch, Committed, Found
from odradek.inspection.searching.pattern import RecordPattern
from odradek.inspection.selection import DumpSelection
from odradek.records import BatchHeader, scan_batches
from odradek.records.kernels.objects import Record
from odradek.storage.segment.batch_reader import BatchReader, Damage


class Context(NamedTuple):
    """How many records around each one that is found are wanted too."""

    before: int = 0
    after: int = 0


class Row(NamedTuple):
    """A record that is handed out.

    Attributes:
        record: The record.
        is_found: Whether the pattern wants it; else it may stand near one.
    """

    record: Record
    is_found: bool


class SearchOptions(NamedTuple):
    """What a search is for.

    Attributes:
        pattern: What is looked for.
        selection: Which records are looked at.
        context: How many records around each one that is found are handed out too.
    """

    pattern: RecordPattern
    selection: DumpSelection
    context: Context = Context()


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of a log.

    Attributes:
        path: The file, or what else they come from.
        data: The bytes that hold the part.
        start: Where the part begins.
        end: Where it ends; its last batch may go on after that.
        committed: What is aborted or undecided in its log; None if that is wanted too.
        before: Where batches before it begin, which tell the offsets that come after damage; None if nothing does.
    """

    path: Path
    data: mmap.mmap | bytes
    start: int
    end: int
    committed: Committed | None = None
    before: int | None = None


def search_part(options: SearchOptions, part: Part) -> PartSearch:
    """Search a part; what is damaged is stepped over."""
    search = PartSearch(options, part)
    search.run()
    return search


class PartSearch:
    """What is found in a part.

    Any thread searches it; then one decides what is wanted, and hands it out.

    Args:
        options: What is looked for.
        part: The part.

    Attributes:
        part: The part.
        end: Up to where it was read.
        next_offset: The offset after the last batch that was read; None if there was none.
        damages: What cannot be read.
    """

    def __init__(self, options: SearchOptions, part: Part) -> None:
        self.part = part
        self.end = part.start
        self.next_offset: int | None = None
        self.damages: list[Damage] = []
        self._options = options
        self._search = BatchSearch(options.pattern, options.selection, part.committed, self.damages.append)
        self._found: list[Found] = []
        self._headers: list[BatchHeader] = []

    def run(self) -> None:
        """Search the part for what may be wanted."""
        self._run(self.part.end)
        if self.end < self.part.end:
            self._run_damaged()

    def _run_damaged(self) -> None:
        """Search the rest of the part batch by batch, as a dump does: no batch has offsets below those before it."""
        part, position, damages = self.part, self.end, list[Damage]()
        before = part.start if part.before is None else part.before
        for header in BatchReader(part.path, part.data, damages.append, before):
            if header.position < position:
                continue
            self.end = header.position
            if self.end >= part.end:
                break
            # The last batch may end after the part.
            self._run(header.end_position)
            if self.end >= part.end:
                break
        else:
            self.end = len(part.data)
        self.damages += [damage for damage in damages if damage.position >= position]

    def _run(self, end: int) -> None:
        """Search batches up to an end or to damage."""
        scan = scan_batches(self.part.data, self.end, end, path=self.part.path)
        for table in scan.tables():
            self._found += self._search.found(table, self.part.data, self.part.path)
            if len(table):
                self.next_offset = table.last_offset + 1
            if self._options.context != Context():
                self._headers += table.headers()
        self.end = scan.position

    def decide(self, position: int = 0) -> None:
        """Leave out what is not wanted, and batches that begin before a position."""
        self._headers = [header for header in self._headers if header.position >= position]
        for found in self._found:
            if position > self.part.start:
                found.skip_before(position)
            found.decide(self._options.pattern)

    @property
    def count(self) -> int:
        """How many records are wanted."""
        return sum(len(found.marks) for found in self._found)

    def lines(self, lines: RecordLines) -> Iterator[Buffer]:
        """Yield the lines of the records that are wanted, block by block; the last one is left in `lines`."""
        for found in self._found:
            yield from lines.table(found.table, self.part.data, marks=found.marks)

    def rows(self) -> list[Row | None]:
        """Return the records that are wanted among those around them, where a context is.

        There are at least as many on each side as are wanted; None stands where others are left out.
        """
        context = self._options.context
        places = set().union(*(found.places() for found in self._found))
        if places:
            return [
                Row(record, (header.position, number) in places)
                for header in self._headers
                for number, record in self._search.visible(header, self.part.data)
            ]
        first: list[Row | None] = []
        last: list[Row | None] = []
        start, stop = 0, len(self._headers)
        while start < stop and len(first) < context.after:
            first += self._rows_of(self._headers[start])
            start += 1
        while stop > start and len(last) < context.before:
            stop -= 1
            last = [*self._rows_of(self._headers[stop]), *last]
        return [*first, *([None] if start < stop else []), *last]

    def _rows_of(self, header: BatchHeader) -> list[Row | None]:
        return [Row(record, False) for _, record in self._search.visible(header, self.part.data)]
