"""What a caller passes to `append`: records, one record, or the parts of one; always a list of records here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from odradek.arguments import given_text
from odradek.buffers import Buffer
from odradek.records.kernels.objects import Record, are_records
from odradek.records.timestamps import Time

Headers: TypeAlias = Iterable[tuple[str, Buffer | None]]
"""Pairs of a name and bytes or None, in order; names may repeat."""


def given_records(
    records: Record | Iterable[Record] | None,
    key: Buffer | None,
    value: Buffer | None,
    headers: Headers,
    timestamp: Time | None,
) -> list[Record]:
    """Return the records to append.

    Raises:
        TypeError: Something is not a record, or nothing was given, or both records and the parts of one were given.
    """
    if records is None:
        if key is None and value is None:
            # A record of neither is more likely a slip than meant; who means it gives a `Record`.
            raise TypeError("append takes records, or the key= or value= of one, and its headers= and timestamp=")
        return [Record(key, value, headers, timestamp)]
    if key is not None or value is not None or timestamp is not None or headers != ():
        raise TypeError("append takes records, or the parts of one (key=, value=, ...), not both")
    if isinstance(records, Record):
        return [records]
    if isinstance(records, (str, bytes, bytearray, memoryview)):
        raise _no_record(records)
    # The check by the abstract class costs as much as the rest of this function.
    if not isinstance(records, list) and not isinstance(records, Iterable):
        raise _no_record(records)
    given = list(records)
    if not are_records(given):
        raise _no_record(next(one for one in given if type(one) is not Record))
    return given


def _no_record(given: object) -> TypeError:
    return TypeError(
        f"append takes odradek.Record objects, not {given_text(given)}; bytes become one as append(value=...)"
    )
