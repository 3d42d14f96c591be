"""Rewrites batches in an older format, for readers that know no newer one.

    v2 | header, 3 records |  ->  v1 or v0: message | message | message       compressed: one wrapper

Headers have no place in the older formats and are dropped; control batches are left out, for old readers would take
them for data. Kafka: RecordsUtil.downConvert.
"""

from __future__ import annotations

import os

from typing_extensions import Buffer

from odradek.errors import CorruptRecordError, TruncatedBatchError, UnsupportedCompressionTypeError
from odradek.records.batch import read_records
from odradek.records.compression import MAX_DECOMPRESSED_BYTES, Codec
from odradek.records.kernels.objects import unchecked_record
from odradek.records.message_builder import build_message_set
from odradek.records.scan import scan_batches


def down_convert(
    data: Buffer,
    magic: int,
    *,
    position: int = 0,
    end: int | None = None,
    first_offset: int = 0,
    path: str | os.PathLike[str] | None = None,
    limit: int = MAX_DECOMPRESSED_BYTES,
) -> bytes:
    """Return the batches of `data` in the format `magic` where theirs is newer.

    Args:
        data: The bytes that hold them.
        magic: The newest format that the reader knows, 0 or 1.
        position: Where the first batch starts.
        end: Where the last one ends; the end of `data` if None. A batch cut off there is left out.
        first_offset: The offset that the reader asked for: what lies before it in an uncompressed v2 batch is
            dropped, since some old clients rely on being given nothing earlier.
        path: The file, for errors.
        limit: How many bytes one batch may decompress to.

    Raises:
        UnsupportedCompressionTypeError: A batch is compressed by zstd, which the older formats do not have.
        FormatError: A batch is corrupt.
    """
    if magic not in (0, 1):
        raise ValueError(f"the older formats are 0 and 1, not {magic}")
    view = memoryview(data).cast("B")
    converted: list[Buffer] = []
    scan = scan_batches(view, position, end, path=path)
    for header in scan:
        if header.is_control:
            continue
        if header.codec == Codec.ZSTD:
            raise UnsupportedCompressionTypeError(
                f"the batch at offset {header.base_offset} is compressed by zstd, which magic {magic} does not have"
            )
        if header.magic <= magic:
            converted.append(view[header.position : header.end_position])
            continue
        records = [
            unchecked_record(record.key, record.value, (), record.timestamp, record.offset)
            for record in read_records(view, header, limit=limit)
            if header.codec or header.magic < 2 or (record.offset or 0) >= first_offset
        ]
        if not records:
            continue
        append_time = magic > 0 and header.timestamp_type == "LogAppendTime"
        append_time_ms = header.max_timestamp if append_time else None
        try:
            messages = build_message_set(
                records,
                magic=magic,
                keep_offsets=True,
                codec=header.codec,
                timestamp_type="LogAppendTime" if append_time else "CreateTime",
                append_time_ms=append_time_ms,
            )
        except ValueError as error:
            raise CorruptRecordError(str(error), path=path, position=header.position) from error
        converted.append(messages)
    if scan.damage is not None and not isinstance(scan.damage, TruncatedBatchError):
        raise scan.damage
    return b"".join(converted)
