"""Decodes parts of partitions by several threads, ahead of their reader, and hands them out in order.

    slices -> | part | part | part | part | ...            the caller cuts and numbers them
                 |      |      |
              thread thread thread                         each decodes a part whole, without the GIL
                 |      |      |
              rows that follow those before them? -> given; else decoded again, by the caller, as by one thread

A part that is decoded ahead of its turn cannot know what came before it. So a thread only says which offsets its part
begins and ends with, and gives up on anything unusual: damage, offsets left out, more rows than memory was set aside
for. The caller holds each part against the one before it, and decodes what a thread gave up on, or what does not
follow, in its own thread, in its turn. So there is one place that decides what is an error, and rows and errors are
those of one thread.

A thread never waits for the caller. A reader that is let go of in the middle leaves threads that end with the part they
are at; a child process (`fork`), which has none of its parent's threads, decodes the rest by itself.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa

from odradek.columnar.decode import Decoding, Wanted
from odradek.columnar.far_timestamps import FarTimestamps
from odradek.errors import TimestampOutOfRangeError
from odradek.records.header import CODEC_MASK, MAGIC_POSITION
from odradek.storage.segment.log_slice import LogSlice

PIECE_BYTES = 2 << 20
"""About how much of a segment is the least that a thread is given, where there is more."""

# What the caller decodes before it starts threads, and what it gives them at a time: bytes of rows in memory.
_FIRST_BYTES = 4 << 20
_PART_BYTES = 16 << 20
# So that rows that take little each are bounded, too.
_PART_ROWS = 1 << 18
# A part that grows beyond this is decoded in turn, a little at a time.
_MOST_BYTES = 64 << 20


class _Decoded(NamedTuple):
    """What a thread made of a part.

    Attributes:
        first_offset: Where its first batch begins, or at least begins.
        is_exact: Whether it begins there: of a wrapper message, only its content tells.
        next_offset: What the batch after it begins with.
        batches: The rows, and of each batch how many far timestamps are null in it, and the first.
        size_bytes: How much memory they take.
    """

    first_offset: int
    is_exact: bool
    next_offset: int
    batches: list[tuple[pa.RecordBatch, tuple[int, TimestampOutOfRangeError | None]]]
    size_bytes: int


def _first_offset(part: LogSlice) -> tuple[int, bool]:
    """Return the offset of the first batch, as its header has it, and whether that is where it begins."""
    head = memoryview(part.data)[part.position - part.origin :][:18]
    is_exact = head[MAGIC_POSITION] == 2 or head[MAGIC_POSITION + 1] & CODEC_MASK == 0
    return int.from_bytes(head[:8], "big", signed=True), is_exact


class _Partition:
    """What decodes one partition.

    Attributes:
        in_turn: What the caller has of it: it alone knows what comes next, and says what is an error.
    """

    def __init__(self, wanted: Wanted) -> None:
        self.in_turn = Decoding(wanted)
        # What decompresses to much is left to the caller, so that it is in memory once.
        wanted = replace(wanted, limit=min(wanted.limit, _MOST_BYTES))
        if wanted.may_have_gaps is not None:
            # Whether it may is asked in turn.
            wanted = replace(wanted, may_have_gaps=lambda: False)
        self._wanted = wanted
        # They keep their memory from part to part.
        self._idle: deque[Decoding] = deque()

    def decode(self, slices: list[LogSlice]) -> _Decoded | None:
        """Decode a part in any thread; `None` where it has to be decoded in turn, for whatever reason."""
        try:
            decoding = self._idle.pop()
        except IndexError:
            decoding = self._decoding()
        if self.in_turn.allows_gaps:
            decoding.allow_gaps()
        before = decoding.decoded_bytes
        far = decoding.wanted.far_timestamps
        batches: list[tuple[pa.RecordBatch, tuple[int, TimestampOutOfRangeError | None]]] = []
        try:
            first_offset, is_exact = _first_offset(slices[0])
            decoding.expect(first_offset)
            for part in slices:
                for batch in decoding.slice(part):
                    batches.append((batch, far.taken() if far else (0, None)))
                    if decoding.decoded_bytes - before > _MOST_BYTES:
                        return None
            batches += [(batch, far.taken() if far else (0, None)) for batch in decoding.flush()]
        except Exception:
            # The decoder goes, too: there may be rows left in it.
            return None
        next_offset, size_bytes = decoding.expected_offset, decoding.decoded_bytes - before
        self._idle.append(decoding)
        return _Decoded(first_offset, is_exact, next_offset, batches, size_bytes)

    def _decoding(self) -> Decoding:
        wanted = self._wanted
        if wanted.far_timestamps is not None:
            # Those of a part count if it is taken; where they are an error, it is decoded again in turn.
            wanted = replace(wanted, far_timestamps=FarTimestamps(wanted.far_timestamps.chosen))
        return Decoding(wanted, rows=_PART_ROWS, size_bytes=2 * _PART_BYTES)


@dataclass
class _Part:
    """Consecutive slices of one partition, to be decoded together.

    Attributes:
        partition: The partition.
        slices: The slices.
        is_first: Whether none comes before it.
        is_last: Whether none comes after it.
    """

    partition: _Partition
    slices: list[LogSlice]
    is_first: bool = False
    is_last: bool = False

    @property
    def size_bytes(self) -> int:
        """How many bytes its batches have."""
        return sum(piece.size_bytes for piece in self.slices)

    def follows(self, decoded: _Decoded) -> bool:
        """Whether the rows that a thread made of it follow those before it."""
        in_turn = self.partition.in_turn
        if in_turn.wanted.may_have_gaps is None:
            return True
        if decoded.first_offset < in_turn.expected_offset:
            # The first batch may begin before the range that is asked for.
            return self.is_first
        return decoded.first_offset == in_turn.expected_offset or not decoded.is_exact or in_turn.may_have_gaps()


class ReadAhead:
    """The threads of one reader.

    Each reader has its own: they end with it, none waits for those of another, and the number that a caller sets is
    that of what he reads.

    Args:
        threads: How many. Each is at work on a part of about 16 MB, and two more parts may wait to be taken.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._executor: ThreadPoolExecutor | None = None
        self._process = -1
        # How many times as much memory rows take as they take in their segment; of nothing much is known yet.
        self._growth = _PART_BYTES / _FIRST_BYTES

    def read(self, partitions: Iterable[tuple[Wanted, Iterable[LogSlice]]]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of each partition in turn, as `decode_slices` does; the slices have about `PIECE_BYTES`."""
        parts: Iterator[_Part] | None = self._parts(partitions)
        waiting: deque[tuple[_Part, Future[_Decoded | None] | None]] = deque()
        most = 1
        failure: Exception | None = None
        try:
            while True:
                while parts is not None and len(waiting) < most:
                    try:
                        part = next(parts)
                    except StopIteration:
                        parts = None
                    except Exception as error:
                        # It has its turn when all that stands before it is read.
                        parts, failure = None, error
                    else:
                        waiting.append((part, None if most == 1 else self._submit(part)))
                if not waiting:
                    break
                yield from self._take(*waiting.popleft())
                # The caller decoded the first part: who wants little waits for no thread, and starts none.
                most = self._threads + 2
        finally:
            self._close()
        if failure is not None:
            raise failure

    def _parts(self, partitions: Iterable[tuple[Wanted, Iterable[LogSlice]]]) -> Iterator[_Part]:
        for wanted, slices in partitions:
            partition = _Partition(wanted)
            part = _Part(partition, [], is_first=True)
            try:
                for piece in slices:
                    together = piece.after(part.slices[-1], _PART_BYTES) if part.slices else None
                    if together is not None:
                        part.slices[-1] = together
                    else:
                        part.slices.append(piece)
                    if part.size_bytes * self._growth >= _PART_BYTES:
                        yield part
                        part = _Part(partition, [])
            except Exception:
                # What comes before it is given first.
                yield part
                raise
            part.is_last = True
            yield part

    def _submit(self, part: _Part) -> Future[_Decoded | None] | None:
        if not part.slices:
            return None
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._threads, "odradek-scan")
            self._process = os.getpid()
        elif self._process != os.getpid():
            return None
        return self._executor.submit(part.partition.decode, part.slices)

    def _take(self, part: _Part, future: Future[_Decoded | None] | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the part whose turn it is."""
        decoding, before = part.partition.in_turn, part.partition.in_turn.decoded_bytes
        # A child process has none of its parent's threads, and nobody would answer.
        decoded = future.result() if future is not None and self._process == os.getpid() else None
        if decoded is not None and part.follows(decoded):
            decoding.go_on(part.slices[-1], decoded.next_offset)
            size_bytes = decoded.size_bytes
            for batch, far in decoded.batches:
                if decoding.wanted.far_timestamps is not None:
                    decoding.wanted.far_timestamps.add(*far)
                yield batch
        else:
            for piece in part.slices:
                yield from decoding.slice(piece)
            yield from decoding.flush()
            size_bytes = decoding.decoded_bytes - before
        if part.slices:
            self._growth = max(1.0, size_bytes / part.size_bytes)
        if part.is_last:
            yield from decoding.finish()

    def _close(self) -> None:
        # Not in a child process: the thread that held the executor's lock may not be there. Nor is any waited for: it
        # may be one of them that lets go of the reader, as the garbage collector runs in any thread.
        if self._executor is not None and self._process == os.getpid():
            self._executor.shutdown(wait=False, cancel_futures=True)
