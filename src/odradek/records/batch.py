"""The records of one batch, read into `Record` objects.

To read many records use `odradek.columnar`, which creates no objects.
"""

from __future__ import annotations

from typing_extensions import Buffer

from odradek.errors import CorruptRecordError, FormatError
from odradek.records.compression import MAX_DECOMPRESSED_BYTES, Decompressor
from odradek.records.header import LOG_APPEND_TIME_FLAG, V2_HEADER_BYTES, BatchHeader
from odradek.records.kernels.lookup import find_record
from odradek.records.kernels.objects import Record, decode_records
from odradek.records.message_set import message_payload, read_inner_messages, read_message


def records_section(data: Buffer, header: BatchHeader, decompressor: Decompressor) -> Buffer:
    """Return the bytes of a batch after its header, decompressed if they were compressed.

    For a v0 or v1 wrapper that is the inner message set.

    Args:
        data: The bytes that hold the batch.
        header: Its header.
        decompressor: Decompresses them; its memory is valid until its next call.

    Raises:
        CorruptRecordError: The codec rejects the bytes, or they decompress to more than the decompressor's limit.
    """
    view = memoryview(data).cast("B")
    try:
        if header.magic == 2:
            section = view[header.position + V2_HEADER_BYTES : header.end_position]
            # An empty batch has nothing to compress, and Kafka's consumer looks no further than the count.
            if not header.codec or (header.records_count == 0 and not section):
                return section
            return decompressor.decompress(header.codec, section, magic=2)
        _, value = message_payload(data, header)
        if value is None:
            raise CorruptRecordError("a wrapper message without a value")
        return decompressor.decompress(header.codec, value, magic=header.magic)
    except FormatError as error:
        raise error.at(position=header.position) from None


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
    records = _decoded(section, 0, memoryview(section).nbytes, header.records_count, header)
    if isinstance(records, tuple):
        raise CorruptRecordError(records[1], position=header.position)
    return records


def _decoded(
    section: Buffer, position: int, end: int, records_count: int, header: BatchHeader
) -> list[Record] | tuple[int, str]:
    append_time = header.attributes & LOG_APPEND_TIME_FLAG
    return decode_records(
        section,
        position,
        end,
        records_count,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if append_time else None,
        header.timestamp_type,
    )


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
        section: Buffer
        if header.codec:
            within = header._replace(position=header.position - origin)
            try:
                section = records_section(data, within, Decompressor(MAX_DECOMPRESSED_BYTES))
            except FormatError as error:
                error.position = header.position
                raise
            start, end = 0, memoryview(section).nbytes
        else:
            section, start = data, header.position - origin + V2_HEADER_BYTES
            end = start + header.size_bytes - V2_HEADER_BYTES
        place = find_record(section, start, end, header.records_count, offset - header.base_offset)
        if place is not None:
            records = _decoded(section, *place, 1, header)
            if isinstance(records, list):
                return records[0]
    # It is not there, or something is wrong: whoever reads all of the batch sees what.
    return next((record for record in read_records(data, header, origin=origin) if record.offset == offset), None)
