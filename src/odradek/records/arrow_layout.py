"""Columns in Arrow's memory layout, as the decoder of batches hands them out.

    plain   validity 1 bit a row | slots int32: where each value ends | data: the values
    views   validity 1 bit a row | slots 16 bytes: size and place     | data: those that lie in no other buffer

Source: the columnar format of Apache Arrow (variable-size binary, variable-size binary view).
"""

from __future__ import annotations

from typing import NamedTuple

from typing_extensions import Buffer


class BytesColumn(NamedTuple):
    """A column of byte strings.

    Attributes:
        nulls: How many are null.
        validity: Which are not; None where all are.
        slots: Where each is.
        data: The bytes.
    """

    nulls: int
    validity: Buffer | None
    slots: Buffer
    data: Buffer


class Columns(NamedTuple):
    """The columns of some records.

    Attributes:
        rows: How many records.
        offsets: Their offsets, int64.
        timestamps: Their timestamps, int64.
        timestamp_nulls: How many have none.
        types: The types of their timestamps, uint8: 0 CreateTime, 1 LogAppendTime, 2 none.
        types_met: Which types there are, a bit each.
        key: Their keys; None where nobody asked, or there is no record.
        value: Their values, likewise.
        header_ends: Where the headers of each end, int32; None likewise.
        header_count: How many headers all of them have.
        header_names: The names; None where there are no headers.
        header_values: The values.
        blocks: What views point into, after the mapped segment and the bytes of the column.
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


class RecordDefect(NamedTuple):
    """What a decoder refuses a batch for.

    Attributes:
        position: Where it is, within the batch's records.
        record: How many records before it are good.
        reason: What is wrong.
    """

    position: int
    record: int
    reason: str
