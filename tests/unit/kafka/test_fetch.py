from __future__ import annotations

import itertools
import struct

import pytest

from odradek.errors import FormatError, ProtocolError
from odradek.kafka.fetch import MAX_OFFSET, aborted_ranges, fetch_request, parse_response, whole_batches
from odradek.records import Record
from odradek.records.builder import build_batch, build_control_batch, build_empty_batch
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.storage.names import TopicPartition

NAME = TopicPartition("events", 3)
ABORTED = [(7, 100), (9, 120)]
RECORDS = b"".join(build_batch([Record(value=b"x" * 20), Record(value=b"y")], base_offset=offset) for offset in (4, 6))


def response(
    version: int, *, name: TopicPartition = NAME, records: bytes | None = RECORDS, error_code: int = 0
) -> bytes:
    topic = name.topic.encode()
    parts = [struct.pack(">i", 0)]
    if version >= 7:
        parts.append(struct.pack(">hi", 0, 0))
    parts.append(struct.pack(f">ih{len(topic)}sii", 1, len(topic), topic, 1, name.partition))
    parts.append(struct.pack(">hqq", 0, 300, 200))
    if version >= 5:
        parts.append(struct.pack(">q", 2))
    parts.append(struct.pack(">i", len(ABORTED)) + b"".join(struct.pack(">qq", *pair) for pair in ABORTED))
    if version >= 11:
        parts.append(struct.pack(">i", -1))
    parts.append(struct.pack(">i", -1) if records is None else struct.pack(">i", len(records)) + records)
    return b"".join(parts)


@pytest.mark.parametrize("version", range(4, 12))
def test_response_of_every_version(version: int) -> None:
    body = response(version)
    answer = parse_response(memoryview(body), version, NAME)
    assert answer is not None
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 300, 200)
    assert answer.log_start_offset == (2 if version >= 5 else -1)
    assert answer.aborted == ABORTED
    assert body[answer.position : answer.end_position] == RECORDS


@pytest.mark.parametrize("version", [4, 11])
def test_response_without_records(version: int) -> None:
    answer = parse_response(memoryview(response(version, records=None)), version, NAME)
    assert answer is not None
    assert answer.position == answer.end_position


def test_response_that_names_no_topic() -> None:
    assert parse_response(memoryview(struct.pack(">ihii", 100, 0, 0, 0)), 11, NAME) is None


def test_error_of_the_whole_response() -> None:
    answer = parse_response(memoryview(struct.pack(">ihii", 0, 70, 0, 0)), 11, NAME)
    assert answer is not None
    assert answer.error_code == 70


@pytest.mark.parametrize("version", [4, 7, 11])
def test_response_cut_at_every_byte(version: int) -> None:
    body = response(version)
    for size in range(len(body)):
        with pytest.raises(ProtocolError):
            parse_response(memoryview(body[:size]), version, NAME)


def test_response_of_another_partition() -> None:
    with pytest.raises(ProtocolError, match="events-4"):
        parse_response(memoryview(response(11, name=TopicPartition("events", 4))), 11, NAME)


def test_count_that_no_response_can_hold() -> None:
    body = bytearray(response(4, records=None))
    body[-8 - 32 : -4 - 32] = struct.pack(">i", 2**31 - 1)
    with pytest.raises(ProtocolError, match="aborted"):
        parse_response(memoryview(bytes(body)), 4, NAME)


def test_whole_batches_end_where_the_torn_one_starts() -> None:
    first = len(RECORDS) // 2
    for size in range(len(RECORDS) + 1):
        found = whole_batches(memoryview(RECORDS[:size]), 0, size)
        end, next_offset = (0, -1) if size < first else (first, 6) if size < len(RECORDS) else (2 * first, 8)
        assert found == ([(0, end)] if end else [], end, next_offset)


@pytest.mark.parametrize(
    ("batches", "parts"),
    [
        ([(0, 5), (0, 5), (5, 2)], [(0, 1), (2, 3)]),
        ([(0, 5), (5, 2), (0, 5), (5, 2), (7, 1), (3, 2)], [(0, 2), (4, 5)]),
        # Of what begins before the end the rest is new.
        ([(0, 5), (3, 5), (8, 1)], [(0, 3)]),
        ([(4, 1), (0, 2), (2, 2), (5, 1)], [(0, 1), (3, 4)]),
    ],
)
def test_batches_below_what_came_before_them_are_left_out(
    batches: list[tuple[int, int]], parts: list[tuple[int, int]]
) -> None:
    """As Apache Kafka's consumer passes over records below its position."""
    encoded = [build_batch([Record(value=b"v")] * count, base_offset=start) for start, count in batches]
    data, ends = b"".join(encoded), [0, *itertools.accumulate(map(len, encoded))]
    expected = [(ends[start], ends[stop]) for start, stop in parts]
    next_offset = max(start + count for start, count in batches)
    assert whole_batches(memoryview(data), 0, len(data)) == (expected, len(data), next_offset)


def test_bytes_that_are_no_batches_are_refused() -> None:
    with pytest.raises(FormatError):
        whole_batches(memoryview(bytes(100)), 0, 100)


def test_request_names_one_partition() -> None:
    request = fetch_request(NAME, 17, "read_committed", max_bytes=5, max_wait_ms=6)
    for version in (4, 11):
        encoded = request.encode(version=version)
        assert b"events" in encoded
        assert struct.pack(">q", 17) in encoded


def _marker(kind: ControlRecordType, offset: int) -> bytes:
    marker = EndTransactionMarker(kind, 0)
    return build_control_batch(marker, producer_id=7, producer_epoch=0, timestamp=1, base_offset=offset)


def test_aborted_transactions_end_at_their_markers() -> None:
    emptied = build_empty_batch(
        3, 3, max_timestamp=1, producer_id=7, producer_epoch=0, is_transactional=True, is_control=True
    )
    data = memoryview(
        _marker(ControlRecordType.COMMIT, 2)
        + emptied
        + _marker(ControlRecordType.ABORT, 5)
        + _marker(ControlRecordType.ABORT, 9)
    )
    assert aborted_ranges(data, 0, len(data), [(7, 6), (7, 1), (8, 4)]) == ((7, 1, 5), (8, 4, MAX_OFFSET), (7, 6, 9))
    assert aborted_ranges(data, 0, len(data), []) == ()
