"""Compaction in compiled code, the map of newest offsets and the filter that goes by it, beside a model of both."""

from __future__ import annotations

from collections.abc import Hashable

from decoders import LIMIT, Row, by_objects, difference
from guard import GuardedMemory
from mutation import MAX_INPUT, mutate_batches
from odradek.errors import FormatError
from odradek.records import BatchHeader
from odradek.records.compression import Decompressor, compress
from odradek.records.header import V2_HEADER_BYTES
from odradek.records.kernels.batch_filter import BatchFilter
from odradek.records.kernels.encode import seal
from odradek.records.kernels.offset_map import SLOT_BYTES, OffsetMap
from odradek.records.payload import records_section
from odradek.records.scan import Status
from seeds import v2_batches
from targets import Target, dice

NOW = 1_650_000_000_000
_KEYS = 2000
_memory = GuardedMemory(MAX_INPUT * 2)
_second = GuardedMemory(4 * LIMIT)


def _section(view: memoryview, header: BatchHeader) -> memoryview:
    return _second.place(bytes(memoryview(records_section(view, header, Decompressor(LIMIT)))))


def _map(view: memoryview, start_offset: int) -> tuple[OffsetMap, int]:
    """Put the keys of all batches up to the first that cannot be read."""
    offsets = OffsetMap(bytearray(2 * _KEYS * SLOT_BYTES), bytes(range(16)), _KEYS)
    position, status = 0, int(Status.OK)
    while status == Status.OK:
        status, position = offsets.add_batches(view, position, len(view), start_offset)
        if status == Status.COMPRESSED:
            header = offsets.batch
            position = header.end_position
            status = int(Status.OK)
            if header.magic == 2 and not header.is_control and header.last_offset >= start_offset:
                try:
                    records = _section(view, header)
                except FormatError:
                    return offsets, int(Status.BAD_RECORD)
                status = offsets.add_records(records, header.records_count, header.base_offset, start_offset)
    return offsets, status


def _filter(view: memoryview, batches: BatchFilter, discard: bool, keep_empty: bool) -> int:
    """Filter all batches up to the first that cannot be read."""
    position = 0
    while True:
        status, position = batches.run(view, position, len(view), 1 << 62)
        if status != Status.COMPRESSED:
            return status
        header = batches.batch
        position = header.end_position
        if header.magic < 2:
            return status
        try:
            records = _section(view, header) if header.codec else None
        except FormatError:
            return int(Status.BAD_RECORD)
        status = batches.filter_batch(view, records, discard, keep_empty, False)
        if status == Status.COMPRESSED:
            batch = batches.rebuilt()
            status = batches.add(seal(batch, compress(header.codec, batch[V2_HEADER_BYTES:])))
        if status != Status.OK:
            return status


def _check(data: bytes) -> Hashable:
    view = _memory.place(data)
    rng = dice(data)
    rows, error, headers = by_objects(view)
    start_offset = rng.choice([0, 0, *(row[0] for row in rows[:20])])
    offsets, status = _map(view, max(0, start_offset))
    plain = all(header.magic == 2 for header in headers)
    if error is None and plain and status == Status.END:
        newest: dict[bytes, int] = {}
        for header in headers:
            if not header.is_control and header.last_offset >= start_offset:
                for row in by_objects(view[header.position : header.end_position])[0]:
                    if row[3] is not None and row[0] >= start_offset:
                        newest[row[3]] = row[0]  # the last one put, as in Kafka: offsets rise in a sound log
        for key, offset in newest.items():
            assert offsets.get(key) == offset, f"{key!r} is at {offset}, the map says {offsets.get(key)}"
        assert len(offsets) == len(newest), "another number of keys"
    offsets.latest_offset = rng.choice([1 << 62, -1, *(row[0] for row in rows[:20])])
    batches = BatchFilter(offsets, max(0, headers[0].base_offset) if headers else 0, NOW, 1000, 1 << 62, [], 50)
    discard, keep_empty = False, rng.random() < 0.5
    filtered = _filter(view, batches, discard, keep_empty)
    output = memoryview(bytes(memoryview(batches.take())))
    found, damage, _ = by_objects(output)
    if filtered == Status.END and error is None:  # records that it need not look into stay as damaged as they were
        assert damage is None, f"the filter wrote what cannot be read: {damage}"
    # No append has a negative time: what is made of it, when records go, is no matter.
    timed = all(header.timestamp_type == "CreateTime" or header.max_timestamp >= 0 for header in headers)
    if filtered == Status.END and error is None and plain and timed:
        wanted = [row for header in headers for row in _kept(view, header, offsets)]
        assert found == wanted, f"filtered: {difference(found, wanted)}"
        assert batches.records_kept >= len(found) or batches.records_read == 0
    index, times = batches.finish()
    assert len(index) % 8 == 0
    assert len(times) % 12 == 0
    return status, filtered, len(headers), len(rows) - len(found)


def _kept(view: memoryview, header: BatchHeader, offsets: OffsetMap) -> list[Row]:
    rows = by_objects(view[header.position : header.end_position])[0]
    if header.is_control:
        return rows
    horizon_ms = header.delete_horizon_ms
    keeps_tombstones = horizon_ms is None or horizon_ms > NOW
    return [
        row
        for row in rows
        if row[0] > offsets.latest_offset
        or (row[3] is not None and row[0] >= offsets.get(row[3]) and (row[4] is not None or keeps_tombstones))
    ]


TARGETS = [Target("cleaning", v2_batches, mutate_batches, _check)]
