"""Columns in Arrow's memory layout, as the decoder of batches returns them.

    plain   validity 1 bit a row | slots int32: where each value ends | data: the values
    views   validity 1 bit a row | slots 16 bytes: size and place     | data: those that lie in no other buffer

Source: the columnar format of Apache Arrow (variable-size binary, variable-size binary view).
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.buffers import Buffer

_ROW_BYTES = 32  # offset, timestamp, type and slots


class BytesColumn(NamedTuple):
    """A column of byte strings.

    Attributes:
        nulls: How many values are null.
        validity: A bit for each row, set if its value is not null; None if no value is null.
        slots: Where each value is; see the module.
        data: The bytes of the values.
    """

    nulls: int
    validity: Buffer | None
    slots: Buffer
    data: Buffer


class Columns(NamedTuple):
    """The columns of some records.

    Attributes:
        rows: The number of records.
        offsets: Their offsets, int64.
        timestamps: Their timestamps in ms, int64.
        timestamp_nulls: How many records have no timestamp.
        types: The types of their timestamps, uint8: 0 CreateTime, 1 LogAppendTime, 2 none.
        types_met: The types that occur, one bit each.
        key: Their keys; None if they were not asked for, or there is no record.
        value: Their values, as for `key`.
        header_ends: Where the headers of each record end, int32; None as for `key`.
        header_count: How many headers all records have together.
        header_names: The names of the headers; None if there are no headers.
        header_values: The values of the headers.
        blocks: The buffers that views point into, after the mapped segment and the bytes of the column.
    """

    rows: int
    offsets: Buffer
    timestamps: Buffer
    timestamp_nulls: int
    types: Buffer
    types_met: int
    key: BytesColumn | None
    value: BytesColumn | None
    header_ends: Buffer | None
    header_count: int
    header_names: BytesColumn | None
    header_values: BytesColumn | None
    blocks: list[Buffer]

    @property
    def size_bytes(self) -> int:
        """How much memory they take, about."""
        columns = (self.key, self.value, self.header_names, self.header_values)
        buffers = [column.data for column in columns if column is not None] + self.blocks
        return self.rows * _ROW_BYTES + sum(memoryview(buffer).nbytes for buffer in buffers)


class RecordDefect(NamedTuple):
    """Why a decoder refuses a batch.

    Attributes:
        position: Where the defect is, in bytes from the start of the batch's records.
        record: How many records before it are good.
        reason: What is wrong.
    """

    position: int
    record: int
    reason: str
