"""Batches of every format, read as objects, as plain columns and as views, whole and filtered."""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Hashable

from decoders import Row, by_columns, by_objects, difference, row_of
from guard import GuardedMemory
from mutation import MAX_INPUT, mutate_batches
from odradek.columnar import decode
from odradek.errors import FormatError
from odradek.records import BatchHeader, Record, scan_batches
from odradek.records.control import parse_end_transaction_marker
from odradek.records.kernels import lookup
from odradek.records.resync import MAX_OFFSET_STEP, find_batch
from seeds import messages, v2_batches
from targets import Target, dice

_memory = GuardedMemory(MAX_INPUT * 2)
_NUMBER = re.compile(r"[0-9]+")


def _check(data: bytes) -> Hashable:
    view = _memory.place(data)
    rows, error, headers = by_objects(view)
    for views in (False, True):
        columns = by_columns(view, views=views)
        assert columns[1] == error, f"views={views}: {columns[1]!r}, objects: {error!r}"
        assert columns[0] == rows, f"views={views}: {difference(columns[0], rows)}"
    rng = dice(data)
    unchecked: str | None = None
    match rng.randrange(7):
        case 0:  # Which columns are asked for must not change what they say.
            narrow, found = by_columns(view, columns=["offset", "value"])
            assert error is not None or (narrow, found) == ([(row[0], row[4]) for row in rows], None), "projection"
        case 1:  # Between one small record batch and the next nothing is lost.
            few = by_columns(view, views=rng.random() < 0.5, rows=rng.choice((1, 2, 3)))
            assert few == (rows, error), "small record batches"
        case 2:
            loose, loose_error, _ = by_objects(view, check_crc=False)
            for views in (False, True):
                assert by_columns(view, views=views, check_crc=False) == (loose, loose_error), (
                    f"without checksums, views={views}"
                )
            unchecked = _NUMBER.sub("#", loose_error or "")
        case 3:
            _resynchronise(view, rng.randrange(len(data) + 1))
        case 4:
            _filtered(view, rows, error, headers, rng)
        case 5:
            _looked_up(view, rows, error, headers, rng)
        case 6:
            _in_parts(view, rows, error, rng)
    for row in rows[:2]:
        with contextlib.suppress(FormatError):
            parse_end_transaction_marker(row[3], row[4])
    return _NUMBER.sub("#", error or ""), len(headers), unchecked


def _in_parts(view: memoryview, rows: list[Row], error: str | None, rng: random.Random) -> None:
    whole = decode.PART_ROWS, decode.PART_BYTES
    decode.PART_ROWS, decode.PART_BYTES = rng.choice(((1, 1 << 30), (3, 1 << 30), (1 << 30, 1), (1 << 30, 40)))
    try:
        parts = by_columns(view, views=rng.random() < 0.5, rows=rng.choice((1, 3, 100)))
    finally:
        decode.PART_ROWS, decode.PART_BYTES = whole
    assert parts == (rows, error), f"in parts: {difference(parts[0], rows)}, {parts[1]!r}"


def _looked_up(
    view: memoryview, rows: list[Row], error: str | None, headers: list[BatchHeader], rng: random.Random
) -> None:
    positions = [0, len(view), *(header.position for header in headers)]
    # No offset comes after the greatest there is.
    offsets = sorted({0, *(row[0] for row in rows), *(header.next_offset for header in headers)} - {1 << 63})
    for _ in range(8):
        position, offset = rng.choice(positions), rng.choice(offsets)
        found = lookup.find_batch(view, 0, position, len(view), 0, offset, True, rng.random() < 0.5)
        if isinstance(found, Record):
            assert found.offset == offset, f"offset {found.offset} instead of {offset}"
            assert error is not None or row_of(found) in rows, f"no such record: {found}"
        elif isinstance(found, BatchHeader):
            assert found.base_offset <= offset <= found.last_offset, f"{offset} is not in {found}"
            assert next(iter(scan_batches(view, found.position))) == found, "another header"
        else:
            assert found is None, "more bytes than there are"


def _resynchronise(view: memoryview, start: int) -> None:
    position = find_batch(view, start)
    if position is None:
        return
    assert position >= start, "a batch before the position"
    assert next(iter(scan_batches(view, position)), None) is not None, "no batch where one was found"
    # Of a long way the model would take seconds.
    for passed in range(start, min(position, start + 512)):
        header = next(iter(scan_batches(view, passed)), None)
        assert header is None or header.base_offset > MAX_OFFSET_STEP, f"the batch at {passed} was passed over"


def _filtered(
    view: memoryview, rows: list[Row], error: str | None, headers: list[BatchHeader], rng: random.Random
) -> None:
    edges = sorted({0, *(row[0] for row in rows), *(header.next_offset for header in headers)} - {1 << 63})
    times = sorted({-(1 << 63), (1 << 63) - 1, *(-1 if row[1] is None else row[1] for row in rows)})
    start, end = sorted(rng.choices(edges, k=2))
    since, until = sorted(rng.choices(times, k=2))
    start = max(start, 0)
    options = {"start_offset": start, "end_offset": end, "start_timestamp": since, "end_timestamp": until}
    plain, plain_error = by_columns(view, **options)
    assert by_columns(view, views=True, **options) == (plain, plain_error), "filtered views"
    if error is not None or not all(_is_truthful(view, header) for header in headers):
        return
    most = (1 << 63) - 1
    wanted = [
        row
        for row in rows
        if start <= row[0] < end
        and since <= (-1 if row[1] is None else row[1])
        and (until == most or (-1 if row[1] is None else row[1]) < until)
    ]
    assert plain_error is None, f"filtered: {plain_error}"
    assert plain == wanted, f"filtered by {options}: {difference(plain, wanted)}"


def _is_truthful(view: memoryview, header: BatchHeader) -> bool:
    """Say whether a header's offsets and largest timestamp are those of its records: filters believe them."""
    rows = by_objects(view[header.position : header.end_position])[0]
    first = 0 if header.records_count < 0 else header.base_offset
    return all(
        first <= row[0] <= header.last_offset and (header.magic < 2 or row[1] is None or row[1] <= header.max_timestamp)
        for row in rows
    )


def _words(data: bytes) -> str:
    rows, error, _ = by_objects(memoryview(data))
    return error or f"none, {len(rows)} records"


TARGETS = [
    Target("batches", v2_batches, mutate_batches, _check, words=_words),
    Target("messages", messages, mutate_batches, _check, words=_words),
]
