"""The records of a batch that decompress to much: read window by window, so that few of them are in memory at a time.

    compressed   | ................................ |
    chunks       | ...... | ...... | ...... | ..... |      decompressed one after the other
    windows      | rec rec rec | rec rec | rec rec rec |   whole records; one that is larger than a window is one itself

A reader goes over the windows twice: it checks all records first, so that a damaged batch gives none, and then reads
them. So each is decompressed twice, and what is in memory is bounded by `CHUNK_BYTES` and by the largest record.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple, NoReturn

from odradek.buffers import Buffer
from odradek.errors import CorruptRecordError, DecompressedSizeError, FormatError
from odradek.records.compression import CHUNK_BYTES, LARGE_BYTES, Decompressor, chunks
from odradek.records.header import LOG_APPEND_TIME_FLAG, BatchHeader
from odradek.records.kernels.check import BrokenRecords, check_messages, check_records
from odradek.records.kernels.lookup import whole_records
from odradek.records.kernels.objects import MOST_OBJECTS, Record, decode_records
from odradek.records.message_set import MessageSet
from odradek.records.payload import compressed_part, records_section

PART_RECORDS = 512
"""How many records of a large batch are decoded at a time."""

MOST_RECORDS = (1 << 31) - 1
"""The most records that a header's count can say."""

_ANY_TIME = (-(1 << 63), (1 << 63) - 1)


def check_part(section: Buffer, end: int, records_count: int, base_timestamp: int) -> BrokenRecords | None:
    """Check records of a v2 batch, and make no object of any; return what is wrong."""
    found = check_records(section, 0, end, records_count, base_timestamp, None, True, *_ANY_TIME, False)
    return found if isinstance(found, BrokenRecords) else None


def decode_part(
    section: Buffer,
    position: int,
    end: int,
    header: BatchHeader,
    first: int = 0,
    most: int = MOST_RECORDS,
    beyond: int = 0,
    resumes: bool = False,
) -> tuple[list[Record], int]:
    """Return records of a v2 batch, and the position after them; the arguments are those of `decode_records`."""
    append_time = header.attributes & LOG_APPEND_TIME_FLAG
    records, position, refusal = decode_records(
        section,
        position,
        end,
        header.records_count,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if append_time else None,
        header.timestamp_type,
        first,
        most,
        beyond,
        resumes,
    )
    if refusal is not None:
        raise CorruptRecordError(refusal, position=header.position)
    return records, position


class Window(NamedTuple):
    """Some records of a batch.

    Attributes:
        data: Their bytes, valid until the next window.
        first: The number of the first of them in the batch.
        records: How many whole records `data` begins with.
        is_whole: Whether it has nothing else; otherwise it is the last window of a damaged batch.
        end: The position after `data` in the decompressed records.
    """

    data: memoryview
    first: int
    records: int
    is_whole: bool
    end: int


class LargeSection:
    """The decompressed records of a batch, which are never in memory as a whole.

    Args:
        compressed: What the batch has compressed.
        header: The batch's header.
        limit: How many bytes it may decompress to.

    Attributes:
        inner_base: What is added to the inner offsets of a wrapper's messages, after `check`.
    """

    def __init__(self, compressed: Buffer, header: BatchHeader, limit: int) -> None:
        self._compressed = compressed
        self._header = header
        self._limit = limit
        self._size: int | None = None
        self._records = 0
        self.inner_base = 0

    def _chunks(self) -> Iterator[memoryview]:
        header = self._header
        try:
            yield from chunks(header.codec, self._compressed, magic=header.magic, limit=self._limit)
        except FormatError as error:
            raise error.at(position=header.position) from None

    def measure(self) -> int:
        """Return how many bytes it decompresses to.

        Raises:
            CompressionError: It cannot be decompressed to its end.
        """
        if self._size is None:
            self._size = sum(map(len, self._chunks()))
        return self._size

    def windows(self) -> Iterator[Window]:
        """Yield the windows, after `check`.

        Raises:
            CorruptRecordError: They are not those that were checked: the file has changed meanwhile.
        """
        end = records = 0
        for window in self.unchecked_windows():
            if not window.is_whole:
                break
            yield window
            end, records = window.end, window.first + window.records
        if (end, records) != (self._size, self._records):
            raise CorruptRecordError("its bytes have changed while it was read", position=self._header.position)

    def unchecked_windows(self) -> Iterator[Window]:
        """Yield the windows as they are; the last one may be damaged."""
        is_v2 = self._header.magic == 2
        most = self._header.records_count if is_v2 else MOST_RECORDS
        buffer = bytearray(2 * CHUNK_BYTES)
        filled = passed = first = count = wanted = 0
        for chunk in self._chunks():
            if filled + len(chunk) > len(buffer):
                begun = buffer[:filled]
                buffer = bytearray(wanted + CHUNK_BYTES)
                buffer[:filled] = begun
            buffer[filled : filled + len(chunk)] = chunk
            filled += len(chunk)
            if filled < wanted:
                continue
            position, count, wanted = whole_records(buffer, filled, is_v2, most - first)
            if wanted < 0:
                break
            if count:
                yield Window(memoryview(buffer)[:position], first, count, True, passed + position)
                rest = buffer[position:filled]
                if len(buffer) > 2 * CHUNK_BYTES:
                    buffer = bytearray(2 * CHUNK_BYTES)
                filled = len(rest)
                buffer[:filled] = rest
                passed, first, count = passed + position, first + count, 0
            if wanted > CHUNK_BYTES and passed + wanted > self.measure():
                break
        if filled:
            yield Window(memoryview(buffer)[:filled], first, count, False, passed + filled)

    def check(self, *, check_crc: bool = True) -> None:
        """Read all records to see whether they can be read, before one of them is given.

        Args:
            check_crc: Whether the checksums of a wrapper's inner messages are verified.

        Raises:
            CorruptRecordError: As `read_records` raises it.
        """
        if self._header.magic < 2:
            self._check_messages(check_crc)
            return
        end = records = 0
        for window in self.unchecked_windows():
            broken = check_part(window.data, len(window.data), window.records, self._header.base_timestamp)
            if broken is not None or not window.is_whole:
                self._refuse()
            records, end = records + window.records, window.end
        self._size, self._records = end, records
        if records != self._header.records_count:
            self._refuse()

    def _refuse(self) -> NoReturn:
        """Raise the error that has the numbers."""
        header, first = self._header, 0
        # What cannot be decompressed to its end is refused for that.
        size = self.measure()
        for window in self.unchecked_windows():
            for _ in self._parts(window, size - window.end):
                pass
            first = window.first + window.records
        raise CorruptRecordError(f"{header.records_count - first} records in no bytes", position=header.position)

    def _check_messages(self, check_crc: bool) -> None:
        header = self._header
        messages = MessageSet(header, check_crc=check_crc)
        end = 0
        for window in self.unchecked_windows():
            passed = check_messages(window.data, header.magic, check_crc) if window.is_whole else None
            if passed is None:
                self._refuse_messages(check_crc)
            messages.pass_over(*passed)
            end = window.end
        self._size, self._records = end, messages.count
        self.inner_base = messages.base()

    def _refuse_messages(self, check_crc: bool) -> NoReturn:
        """Raise the error that has the numbers."""
        messages = MessageSet(self._header, check_crc=check_crc)
        defect: CorruptRecordError | None = None
        # What cannot be decompressed to its end is refused for that.
        size = self.measure()
        for window in self.unchecked_windows():
            first = messages.count
            inner = messages.scan(window.data, 0 if window.is_whole else size - window.end)
            if defect is None:
                try:
                    messages.records(window.data, inner, 0, first)
                except CorruptRecordError as error:
                    defect = error
        messages.base()
        raise defect or CorruptRecordError("a damaged message", position=self._header.position)

    def records(self) -> Iterator[Record]:
        """Return the records, after `check`."""
        return chain.from_iterable(self._all_parts())

    def _all_parts(self) -> Iterator[list[Record]]:
        size = self.measure()
        for window in self.windows():
            if self._header.magic == 2:
                yield from self._parts(window, size - window.end)
            else:
                messages = MessageSet(self._header, check_crc=False)
                yield messages.records(window.data, messages.scan(window.data), self.inner_base)

    def _parts(self, window: Window, beyond: int) -> Iterator[list[Record]]:
        """Decode the records of a window in the parts in which the whole is decoded: the errors are the same."""
        position, first, end = 0, window.first, len(window.data)
        part = PART_RECORDS if self._header.records_count > MOST_OBJECTS else MOST_RECORDS
        while position < end:
            done = first % part
            most = part - done
            if window.is_whole and beyond:
                most = min(most, window.first + window.records - first)
            records, position = decode_part(window.data, position, end, self._header, first, most, beyond, done > 0)
            yield records
            first += len(records)


def open_section(
    data: Buffer, header: BatchHeader, decompressor: Decompressor, most_records: int = MOST_RECORDS
) -> Buffer | LargeSection:
    """Return what `records_section` does, unless a batch decompresses to much, or has many records.

    Args:
        data: The bytes that hold the batch.
        header: Its header.
        decompressor: As for `records_section`.
        most_records: How many records a compressed v2 batch may have that is decompressed whole.

    Raises:
        CorruptRecordError: As `records_section`; a `LargeSection` raises it later.
    """
    limit = decompressor.limit
    if header.records_count > most_records and header.codec and header.magic == 2:
        return LargeSection(compressed_part(data, header), header, limit)
    decompressor.limit = min(limit, LARGE_BYTES)
    try:
        return records_section(data, header, decompressor)
    except DecompressedSizeError:
        if limit <= LARGE_BYTES:
            raise
    finally:
        decompressor.limit = limit
    return LargeSection(compressed_part(data, header), header, limit)
