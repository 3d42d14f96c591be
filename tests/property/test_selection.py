"""The same records are wanted, whoever asks: `dump` and `scan` by time, `read` and `scan` by isolation level."""

from __future__ import annotations

import random
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import odradek
from odradek.inspection.selection import DumpSelection
from odradek.records import Record, read_records, scan_batches
from odradek.records.builder import build_batch
from odradek.testing.message_builder import build_message_set
from peers.batches import transactional

TIMES = st.integers(0, 9)
BATCH = st.tuples(st.integers(0, 2), st.booleans(), st.lists(TIMES, min_size=1, max_size=3), st.none() | TIMES)


def with_timestamp(message: bytes, timestamp: int) -> bytes:
    """Return a v1 message with another timestamp in its header."""
    changed = bytearray(message)
    changed[18:26] = timestamp.to_bytes(8, "big")
    changed[12:16] = zlib.crc32(changed[16:]).to_bytes(4, "big")
    return bytes(changed)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(batches=st.lists(BATCH, max_size=6), since=st.integers(0, 10))
def test_dump_and_scan_select_by_the_timestamps_of_records(
    batches: list[tuple[int, bool, list[int], int | None]], since: int
) -> None:
    # The first record is wanted: before the first one that is, both go by the headers, as Kafka does.
    data, offset = build_message_set([Record(None, b"", timestamp=10)], magic=1), 1
    for magic, compressed, times, said in batches:
        records = [Record(None, b"", timestamp=time) for time in times]
        if magic == 2:
            data += build_batch(records, base_offset=offset, codec=int(compressed))
        else:
            messages = build_message_set(records, magic=magic, base_offset=offset, codec=int(compressed))
            is_changed = said is not None and magic == 1 and compressed
            data += with_timestamp(messages, said or 0) if is_changed else messages
        offset += len(times)
    selection = DumpSelection(since=since)
    dumped = [
        record.offset
        for header in scan_batches(data)
        if not selection.skips_batch(header)
        for record in read_records(data, header)
        if selection.takes(record)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t-0" / f"{0:020d}.log"
        path.parent.mkdir()
        path.write_bytes(data)
        scanned = odradek.scan(folder, "t", columns=["offset"], since=since).read_all()["offset"].to_pylist()
    assert dumped == scanned


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_read_and_scan_leave_out_the_same_transactions(seed: int) -> None:
    source, open_producers, sequences = random.Random(seed), set[int](), dict.fromkeys(range(3), 0)
    with tempfile.TemporaryDirectory() as folder, odradek.open(folder, sync="off") as logs:
        logs.create_topic("t", config={"internal.segment.bytes": "600"})
        log = logs["t", 0]
        for _ in range(40):
            producer = source.randrange(3)
            if producer in open_producers and source.random() < 0.5:
                log.end_transaction(producer, 0, commit=source.random() < 0.5)
                open_producers.discard(producer)
                continue
            log.append_batches(transactional([Record(None, b"value")], producer, sequences[producer]))
            sequences[producer] += 1
            open_producers.add(producer)
        read = [record.offset for record in log.read(isolation="read_committed")]
        scanned = odradek.scan(folder, "t", columns=["offset"], isolation="read_committed").read_all()
        assert read == scanned["offset"].to_pylist()
