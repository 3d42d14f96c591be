"""The result of a query, as a table for people, as JSON lines, or as CSV.

Rows are written as they come, a few thousand at a time: the widths of a table are those of the first ones.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain
from typing import Any, TextIO, TypeAlias

from odradek.inspection.record_json import json_bytes, quote
from odradek.printable import printable

Row: TypeAlias = tuple[Any, ...]


def write_text(out: TextIO, names: Sequence[str], chunks: Iterator[list[Row]]) -> None:
    """Write a table."""
    first = next(chunks, [])
    lines = [list(map(printable, names)), *([_cell(value) for value in row] for row in first)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    is_number = [any(isinstance(row[column], int | float | Decimal) for row in first) for column in range(len(names))]
    for line in chain(lines, ([_cell(value) for value in row] for chunk in chunks for row in chunk)):
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        )
        out.write("  ".join(cells).rstrip() + "\n")


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, datetime):
        return _moment(value).replace("T", " ")
    if isinstance(value, bool | bytes | list | tuple | dict):
        return json_value(value)
    return printable(str(value))


def write_jsonl(out: TextIO, names: Sequence[str], chunks: Iterator[list[Row]]) -> None:
    """Write a JSON object a row."""
    keys = [f"{quote(name)}:" for name in names]
    for chunk in chunks:
        for row in chunk:
            fields = (key + json_value(value) for key, value in zip(keys, row, strict=True))
            out.write("{" + ",".join(fields) + "}\n")


def json_value(value: Any) -> str:
    """Return a value of a row in JSON: bytes as in the other listings, times as ISO 8601."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | Decimal():
            return str(value)
        case float():
            return repr(value) if math.isfinite(value) else "null"
        case bytes():
            return json_bytes(value)
        case datetime():
            return quote(_moment(value))
        case dict():
            return "{" + ",".join(f"{quote(str(key))}:{json_value(one)}" for key, one in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(map(json_value, value)) + "]"
    return quote(value if isinstance(value, str) else str(value))


def _moment(value: date | time) -> str:
    return value.isoformat().replace("+00:00", "Z")


def write_csv(out: TextIO, names: Sequence[str], chunks: Iterator[list[Row]]) -> None:
    """Write CSV with a line of names; null is an empty field."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for row in chain.from_iterable(chunks):
        writer.writerow([_field(value) for value in row])


def _field(value: Any) -> Any:
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, bytes):
        text = json_bytes(value)
        return value.decode() if text.startswith('"') else text
    return json_value(value) if isinstance(value, bool | list | tuple | dict) else value


WRITERS: dict[str, Callable[[TextIO, Sequence[str], Iterator[list[Row]]], None]] = {
    "text": write_text,
    "jsonl": write_jsonl,
    "csv": write_csv,
}
"""How a result is written, by the names of the formats."""
