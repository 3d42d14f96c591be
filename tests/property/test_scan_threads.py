"""Whatever a log holds, several threads give the rows and the errors that one gives."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.columnar import read_ahead, select
from odradek.columnar.decode import MAX_OFFSET, Wanted, decode
from odradek.errors import OdradekError
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.storage.log.log_slices import SLICE_BYTES
from odradek.storage.log.read_only_log import ReadOnlyLog
from odradek.storage.names import LOG_SUFFIX, segment_file_name
from odradek.storage.segment.log_slice import LogSlice
from odradek.testing.message_builder import build_message_set

BASE_TIMESTAMP = 1_600_000_000_000

batches = st.fixed_dictionaries(
    {
        "records": st.integers(1, 12),
        "magic": st.sampled_from([2, 2, 2, 1, 0]),
        "codec": st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4]),
        "producer_id": st.sampled_from([-1, 1, 2]),
        "value_bytes": st.integers(0, 300),
        # Mostly batches follow each other; some leave offsets out, or go back.
        "gap": st.sampled_from([0] * 12 + [1, 5, -1]),
    }
)
damages = st.none() | st.tuples(st.sampled_from(["flip", "cut", "zeros"]), st.floats(0, 1, exclude_max=True))


def _encoded(batch: dict[str, int], offset: int) -> bytes:
    records = [
        Record(
            None if number % 5 == 4 else b"key-%d" % number,
            bytes([offset % 251]) * batch["value_bytes"],
            [("name", b"x")] if number % 3 == 0 and batch["magic"] == 2 else (),
            BASE_TIMESTAMP + offset + number,
            offset + number,
        )
        for number in range(batch["records"])
    ]
    if batch["magic"] < 2:
        return build_message_set(records, magic=batch["magic"], base_offset=offset, codec=Codec(batch["codec"]))
    is_transactional = batch["producer_id"] >= 0
    return build_batch(
        records,
        base_offset=offset,
        codec=Codec(batch["codec"]),
        producer_id=batch["producer_id"],
        producer_epoch=0 if is_transactional else -1,
        base_sequence=0 if is_transactional else -1,
        is_transactional=is_transactional,
    )


def _write(path: Path, table: list[dict[str, int]], per_segment: int, damage: tuple[str, float] | None) -> int:
    offset = 0
    for start in range(0, len(table), per_segment):
        base_offset, data = offset, bytearray()
        for batch in table[start : start + per_segment]:
            offset = max(base_offset, offset + batch["gap"])
            data += _encoded(batch, offset)
            offset += batch["records"]
        (path / segment_file_name(base_offset, LOG_SUFFIX)).write_bytes(data)
    if damage is not None:
        kind, where = damage
        files = sorted(path.glob("*.log"))
        file = files[int(where * len(files))]
        data = bytearray(file.read_bytes())
        position = int(where * len(files) % 1 * len(data))
        if kind == "flip":
            data[position] ^= 0x10
        elif kind == "cut":
            del data[position:]
        else:
            data[position : position + 200] = bytes(len(data[position : position + 200]))
        file.write_bytes(data)
    return offset


def _outcome(found: Iterator[pa.RecordBatch]) -> tuple[list[pa.RecordBatch], str]:
    rows = []
    try:
        for batch in found:
            batch.validate(full=True)
            rows.append(batch)
    except OdradekError as caught:
        return rows, f"{type(caught).__name__}: {caught} {vars(caught)}"
    return rows, ""


def _rows(batches: list[pa.RecordBatch]) -> tuple[int, list[object]]:
    # A table without columns has a length, too.
    return sum(batch.num_rows for batch in batches), [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.slow
@given(
    table=st.lists(batches, min_size=1, max_size=40),
    per_segment=st.integers(1, 40),
    damage=damages,
    start=st.integers(0, 20),
    end=st.none() | st.integers(0, 300),
    since=st.integers(0, 100),
    aborted=st.lists(st.tuples(st.sampled_from([1, 2]), st.integers(0, 100), st.integers(0, 300)), max_size=3),
    views=st.booleans(),
    columns=st.sampled_from([None, ["offset"], ["value", "topic"], []]),
    check_crc=st.booleans(),
    gaps=st.sampled_from([None, True, False]),
    threads=st.integers(2, 3),
    piece_bytes=st.integers(1, 2000),
    part_bytes=st.integers(1, 5000),
)
def test_threads_give_what_one_gives(
    table: list[dict[str, int]],
    per_segment: int,
    damage: tuple[str, float] | None,
    start: int,
    end: int | None,
    since: int,
    aborted: list[tuple[int, int, int]],
    views: bool,
    columns: list[str] | None,
    check_crc: bool,
    gaps: bool | None,
    threads: int,
    piece_bytes: int,
    part_bytes: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t-0"
        path.mkdir()
        end_offset = _write(path, table, per_segment, damage)
        wanted = Wanted(
            select(columns, views=views),
            topic="t",
            partition=0,
            start_offset=min(start, end_offset),
            end_offset=MAX_OFFSET if end is None else end,
            start_timestamp=BASE_TIMESTAMP + since,
            aborted=aborted,
            check_crc=check_crc,
            rows=20,
            may_have_gaps=None if gaps is None else lambda: gaps,
        )

        def slices(size_bytes: int) -> Iterator[LogSlice]:
            with ReadOnlyLog(path) as log:
                yield from log.slices(min(start, log.log_end_offset), end, slice_bytes=size_bytes)

        expected = _outcome(decode(slices(SLICE_BYTES), wanted))
        with (
            mock.patch.object(read_ahead, "_FIRST_BYTES", part_bytes),
            mock.patch.object(read_ahead, "_PART_BYTES", part_bytes),
        ):
            partitions = [(wanted, slices(piece_bytes)), (wanted, slices(piece_bytes))]
            found = _outcome(read_ahead.ReadAhead(threads).read(partitions[: 1 if expected[1] else 2]))
        rows, error = expected
        if not error:
            # The second partition has the same rows.
            rows = rows + rows
        assert found[1] == error
        assert _rows(found[0]) == _rows(rows)
