"""The records of one batch, read into `Record` objects.

To read many records use `odradek.columnar`, which creates no objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain

from odradek.buffers import Buffer
from odradek.errors import CorruptRecordError, FormatError
from odradek.records.compression import MAX_DECOMPRESSED_BYTES, Decompressor
from odradek.records.header import V2_HEADER_BYTES, BatchHeader
from odradek.records.kernels.lookup import find_record
from odradek.records.kernels.objects import MOST_OBJECTS, Record
from odradek.records.large_section import PART_RECORDS, LargeSection, check_part, decode_part, open_section
from odradek.records.message_set import read_inner_messages, read_message
from odradek.records.payload import records_section


def read_records(
    data: Buffer, header: BatchHeader, *, check_crc: bool = True, limit: int = MAX_DECOMPRESSED_BYTES, origin: int = 0
) -> list[Record]:
    """Read the records of the batch at `header.position`.

    Args:
        data: The bytes that hold the batch; its own checksum was verified when `header` was read.
        header: Its header, as `scan_batches` gives it.
        check_crc: Whether the checksums of a wrapper's inner messages are verified.
        limit: How many bytes it may decompress to.
        origin: The position in the file at which `data` starts; `header.position` counts from the start of the file.

    Returns:
        The records, control records among them, with their offsets.

    Raises:
        CorruptRecordError: The records contradict the header; `position` is that of the batch.
    """
    if origin:
        within = header._replace(position=header.position - origin)
        try:
            return read_records(data, within, check_crc=check_crc, limit=limit)
        except FormatError as error:
            error.position = header.position
            raise
    if header.magic < 2 and not header.codec:
        return [read_message(data, header)]
    section = records_section(data, header, Decompressor(limit))
    if header.magic < 2:
        return read_inner_messages(section, header, check_crc=check_crc)
    return read_section(section, header)


def read_section(section: Buffer, header: BatchHeader) -> list[Record]:
    """Read the records of a v2 batch from what `records_section` returned.

    Raises:
        CorruptRecordError: The records contradict the header; `position` is that of the batch.
    """
    return decode_part(section, 0, memoryview(section).nbytes, header)[0]


def check_section(section: Buffer | LargeSection, header: BatchHeader) -> None:
    """Check the records of a v2 batch, and make no object of any.

    Args:
        section: What `records_section` or `open_section` returned.
        header: The batch's header.

    Raises:
        CorruptRecordError: As `read_section` raises it.
    """
    if isinstance(section, LargeSection):
        section.check()
        return
    found = check_part(section, memoryview(section).nbytes, header.records_count, header.base_timestamp)
    if found is not None:
        # Decoding raises the error that has the numbers.
        for _ in _parts(section, header):
            pass
        raise CorruptRecordError(found.reason, position=header.position)


def each_record(
    data: Buffer, header: BatchHeader, *, check_crc: bool = True, limit: int = MAX_DECOMPRESSED_BYTES, origin: int = 0
) -> Iterable[Record]:
    """Read the records of a batch as `read_records` does, but make few of them objects at a time.

    A large batch is checked whole before this returns, so that a damaged one gives no records. What decompresses to
    much is decompressed once more while its records are given, see `LargeSection`; the decompressed bytes of others are
    kept until the last record was given.

    Args:
        data: The bytes that hold the batch; its own checksum was verified when `header` was read.
        header: Its header.
        check_crc: As for `read_records`, like `limit`.
        limit: How many bytes it may decompress to.
        origin: The position in the file that `data` starts at.

    Raises:
        CorruptRecordError: The records contradict the header; `position` is that of the batch.
    """
    if not header.codec and (header.magic < 2 or header.records_count <= MOST_OBJECTS):
        return read_records(data, header, check_crc=check_crc, limit=limit, origin=origin)
    try:
        within = header._replace(position=header.position - origin) if origin else header
        section = open_section(data, within, Decompressor(limit))
        if isinstance(section, LargeSection):
            section.check(check_crc=check_crc)
            return section.records()
        if header.magic < 2:
            return read_inner_messages(section, header, check_crc=check_crc)
        if header.records_count <= MOST_OBJECTS:
            return read_section(section, header)
        check_section(section, header)
    except FormatError as error:
        error.position = header.position
        raise
    return chain.from_iterable(_parts(section, header))


def _parts(section: Buffer, header: BatchHeader) -> Iterator[list[Record]]:
    """Decode the records of a v2 batch, some hundred at a time."""
    position, first, end = 0, 0, memoryview(section).nbytes
    while True:
        # Once at least: there may be bytes though there should be no records.
        records, position = decode_part(section, position, end, header, first, PART_RECORDS)
        yield records
        first += len(records)
        if first >= header.records_count:
            return


def read_record(data: Buffer, header: BatchHeader, offset: int, *, origin: int = 0) -> Record | None:
    """Read the record of a batch that has an offset; the others are stepped over.

    Args:
        data: The bytes that hold the batch; its own checksum was verified when `header` was read.
        header: Its header.
        offset: An offset that the batch may have.
        origin: The position in the file that `data` starts at.

    Returns:
        The record, or None where the batch has none of that offset.

    Raises:
        CorruptRecordError: The records contradict the header; `position` is that of the batch.
    """
    if header.magic == 2:
        section: Buffer | LargeSection
        if header.codec:
            within = header._replace(position=header.position - origin)
            try:
                section = open_section(data, within, Decompressor(MAX_DECOMPRESSED_BYTES))
            except FormatError as error:
                error.position = header.position
                raise
            start, end = 0, 0 if isinstance(section, LargeSection) else memoryview(section).nbytes
        else:
            section, start = data, header.position - origin + V2_HEADER_BYTES
            end = start + header.size_bytes - V2_HEADER_BYTES
        if not isinstance(section, LargeSection):
            place = find_record(section, start, end, header.records_count, offset - header.base_offset)
            if place is not None:
                with suppress(CorruptRecordError):
                    return decode_part(section, *place, header._replace(records_count=1))[0][0]
    # It is not there, or something is wrong: a reader of the whole batch sees what.
    return next((record for record in each_record(data, header, origin=origin) if record.offset == offset), None)
