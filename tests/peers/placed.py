"""Offsets and timestamps of records that were read: there they are, or the test fails."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.records import Record


def offset_of(record: Record) -> int:
    assert record.offset is not None
    return record.offset


def timestamp_of(record: Record) -> int:
    assert record.timestamp is not None
    return record.timestamp


def offsets_of(records: Iterable[Record]) -> list[int]:
    return [offset_of(record) for record in records]


def timestamps_of(records: Iterable[Record]) -> list[int]:
    return [timestamp_of(record) for record in records]
