"""Searches the files of logs, by as many threads as there are cores, and hands out what they find in order.

    segment | part | part | part |  segment | part |      cut where batches begin, by their headers alone
               |      |      |                 |
             thread thread thread            thread       verifies the checksums, searches, tries RE2's expressions
               |      |      |
             in order: Python's regular expressions, in the main thread; what is wanted, and what is damaged

Python runs one regular expression at a time, whatever the threads, and a signal ends only one of the main thread:
there Ctrl-C ends one that takes hours.

A part that begins after damaged bytes may begin in the middle of a batch. So each part is read up to the end of its
last batch, and what the one after it found before that end is left out.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from odradek.errors import FormatError, LogError
from odradek.inspection.log_files import FileKind, LogFile, UnknownPathError
from odradek.inspection.moved_records import MovedRecords, overlaps_of
from odradek.inspection.searching.batch_search import Committed
from odradek.inspection.searching.part_search import Part, PartSearch, SearchOptions, search_part
from odradek.inspection.selection import NO_END, DumpSelection, start_position
from odradek.records.kernels.batches import walk_batches
from odradek.records.scan import Status
from odradek.storage.log.read_only_log import ReadOnlyLog
from odradek.storage.readable_bytes import ReadableBytes
from odradek.storage.segment.batch_reader import BatchReader, Damage, mapped

_PART_BYTES = 4 << 20
_BEFORE_BYTES = 4 << 20
"""How far before damage the batches are that tell which offsets may come after it, if there are that many."""

_BATCHES = 1 << 30


class _Task(NamedTuple):
    """A part of a file.

    Attributes:
        file: The file.
        part: The part.
        held: Keeps its bytes mapped.
        options: What is looked for in it.
        is_readable: Whether the disk gives all of it; else it is the rest of the file.
    """

    file: LogFile
    part: Part
    held: memoryview
    options: SearchOptions
    is_readable: bool = True


class FileSearch:
    """One search over files.

    Args:
        options: What is looked for.
        read_committed: Whether aborted and undecided transactions are left out.
        threads: How many threads search.
        damaged: Is told of bytes that cannot be read.
        failed: Is told of a file that cannot be read, or of a path that is none.

    Attributes:
        done_bytes: How many bytes of files were searched.
    """

    def __init__(
        self,
        options: SearchOptions,
        *,
        read_committed: bool,
        threads: int,
        damaged: Callable[[Damage], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._options = options
        self._read_committed = read_committed
        self._threads = threads
        self._damaged = damaged
        self._failed = failed
        self._committed: tuple[Path, Committed] | None = None
        self._moved = MovedRecords()
        self._overlaps: tuple[Path | None, dict[int, int]] = (None, {})
        self.done_bytes = 0

    def run(self, files: Iterable[LogFile | UnknownPathError]) -> Iterator[tuple[LogFile, PartSearch]]:
        """Yield what is found, file by file, in the order of their positions; often nothing."""
        tasks = self._tasks(files)
        file: LogFile | None = None
        end = 0
        # The first part is searched without threads: a caller who wants few records may need no more.
        first = next(tasks, None)
        for task, found in self._results(tasks, first):
            if task.file is not file:
                file, end = task.file, 0
            for damage in found.damages:
                if damage.position >= end:
                    self._damaged(damage)
            found.decide(end)
            yield task.file, found
            end = max(end, found.end)
            self.done_bytes += task.part.end - task.part.start
            _forget(task.part)

    def _results(self, tasks: Iterator[_Task], first: _Task | None) -> Iterator[tuple[_Task, PartSearch]]:
        if first is None:
            return
        yield from self._result_in_turn(first)
        if self._threads == 1:
            for task in tasks:
                yield from self._result_in_turn(task)
            return
        waiting: deque[tuple[_Task, Future[PartSearch] | None]] = deque()
        executor = ThreadPoolExecutor(self._threads, "odradek-search")
        try:
            while True:
                for task in islice(tasks, self._threads + 2 - len(waiting)):
                    future = executor.submit(search_part, task.options, task.part) if task.is_readable else None
                    waiting.append((task, future))
                if not waiting:
                    return
                task, future = waiting.popleft()
                if future is None:
                    yield from self._result_in_turn(task)
                else:
                    yield task, future.result()
        finally:
            executor.shutdown(wait=False, cancel_futures=True)

    def _result_in_turn(self, task: _Task) -> Iterator[tuple[_Task, PartSearch]]:
        if task.is_readable:
            yield task, search_part(task.options, task.part)
            return
        # The disk does not give all of it: batch by batch.
        damages: list[Damage] = []
        part = task.part
        for header in BatchReader(part.path, part.data, damages.append, part.start):
            one = replace(part, start=header.position, end=header.end_position)
            found = search_part(task.options, one)
            found.damages[:0] = damages
            damages.clear()
            yield task._replace(part=one), found
        rest = PartSearch(task.options, replace(part, start=part.end))
        rest.damages += damages
        yield task._replace(part=rest.part), rest

    # -- cutting

    def _tasks(self, files: Iterable[LogFile | UnknownPathError]) -> Iterator[_Task]:
        for file in files:
            try:
                if isinstance(file, UnknownPathError):
                    raise file
                yield from self._tasks_of(file)
            except (OSError, FormatError, LogError) as error:
                self._failed(error)

    def _tasks_of(self, file: LogFile) -> Iterator[_Task]:
        if file.kind is not FileKind.RECORDS:
            raise UnknownPathError(file.path, "not a file of records")
        selection = self._options.selection
        if file.is_segment and not file.is_named and file.topic_partition is not None:
            if self._overlaps[0] != file.path.parent:
                self._overlaps = file.path.parent, overlaps_of(file.path.parent)
            if (start := self._overlaps[1].get(file.base_offset)) is not None:
                selection = selection.within(start, NO_END)
        if not selection.skips_segment(file):
            yield from self._moved.read(file, selection, self._parts_of)

    def _parts_of(self, file: LogFile, selection: DumpSelection) -> Iterator[_Task]:
        with mapped(file.path) as data:
            # Only after the file is mapped: it can be read then even if it is deleted.
            committed = self._committed_of(file)
            options = self._options._replace(selection=selection)
            held, readable = memoryview(data), ReadableBytes(data)
            position, size, span = start_position(file, data, selection), len(data), _PART_BYTES
            before = position
            while position < size:
                end = min(size, position + span)
                if readable.end(position, end) < end:
                    yield _Task(
                        file, Part(file.path, data, position, size, committed), held, options, is_readable=False
                    )
                    return
                table = walk_batches(data, position, end, _BATCHES, False)
                stop, is_cut = table.stop_position, table.stop == Status.TRUNCATED and end < size
                if stop > position:
                    yield _Task(file, Part(file.path, data, position, stop, committed, before), held, options)
                    if stop - before > _BEFORE_BYTES:
                        before = position
                    position, span = stop, _PART_BYTES
                elif is_cut:
                    # The batch is larger than a part.
                    span *= 4
                else:
                    batches = BatchReader(file.path, data, _ignore, before)
                    stop = next((header.position for header in batches if header.position >= position), size)
                    yield _Task(file, Part(file.path, data, position, stop, committed, before), held, options)
                    position = stop

    def _committed_of(self, file: LogFile) -> Committed | None:
        if not self._read_committed:
            return None
        folder = file.path.parent
        if self._committed is None or self._committed[0] != folder:
            if (file.is_named and not file.is_segment) or file.topic_partition is None:
                raise UnknownPathError(file.path, "no segment of a log: which transactions were aborted is not known")
            with ReadOnlyLog(folder) as log:
                end = log.last_stable_offset
                spans = [transaction[:3] for transaction in log.aborted_transactions(0, end)]
                self._committed = folder, Committed(spans, end)
        following = file.next_base_offset
        return self._committed[1].within(file.base_offset, NO_END if following is None else following)


def _forget(part: Part) -> None:
    """Let the pages of a part leave this process; in the page cache they stay."""
    if isinstance(part.data, mmap.mmap):
        start = part.start - part.start % mmap.PAGESIZE
        part.data.madvise(mmap.MADV_DONTNEED, start, part.end - start)


def _ignore(damage: Damage) -> None:
    """Ignore damage here: the search of the part reports it."""
