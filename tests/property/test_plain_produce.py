"""Produce requests that are read and answered in compiled code are read and answered as all others are."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.api.k00_produce import decode
from odradek.broker.data_responses import encode_produce
from odradek.broker.protocol import Message, decode_header, encode_request
from odradek.broker.request_body import decode_request
from odradek.errors import ProtocolError
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.records.kernels.objects import Record
from odradek.records.kernels.plain_produce import plain_produce

PRODUCE = 0
VERSIONS = range(3, 14)
FIRST_WITH_IDS = 13
SIZE_BYTES = 4

int32s, int64s = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
results = st.tuples(int64s, st.just(-1) | st.integers(0, 4_000_000_000_000), int64s)
names = st.text(st.characters(min_codepoint=0, max_codepoint=127), min_size=1, max_size=126)


def batch(size: int = 3, **fields: Any) -> bytes:
    return bytes(build_batch([Record(value=bytes(size), timestamp=1_700_000_000_000)], **fields))


# The size of compact bytes has one byte up to 126.
batches = st.sampled_from([batch(), batch(200), batch(40_000), batch(producer_id=5, producer_epoch=0, base_sequence=7)])
numbers = st.lists(int32s, min_size=1, max_size=4, unique=True)
partitions = st.builds(
    lambda numbers, data: [{"index": number, "records": data} for number in numbers], numbers, batches
)
topics = st.lists(
    st.tuples(names, st.uuids(), partitions),
    min_size=1,
    max_size=4,
    unique_by=(lambda topic: topic[0], lambda topic: topic[1]),
)


def message(topics: list[tuple[str, UUID, list[Message]]], **fields: Any) -> Message:
    data = [{"name": name, "topic_id": topic_id, "partition_data": parts} for name, topic_id, parts in topics]
    return {"transactional_id": None, "acks": 1, "timeout_ms": 30_000, "topic_data": data, **fields}


def frame_of(version: int, message: Message, correlation_id: int = 7, client_id: str | None = "c") -> bytearray:
    return bytearray(encode_request(PRODUCE, version, correlation_id, client_id, message)[SIZE_BYTES:])


def check(frame: bytearray, answered: tuple[int, int, int] = (1, -1, 0)) -> bool:
    """Whether a request is read in compiled code; raises if it is not read and answered as in Python, and by kio."""
    plain = plain_produce(frame)
    if plain is None:
        return False
    header = decode_header(frame)
    body, parsed = decode(frame, header), decode_request(frame, header)
    assert header.api_key == PRODUCE
    assert header.version in VERSIONS
    assert (body.transactional_id, body.is_transactional) == (None, False)
    assert body.acks == parsed.acks in (1, -1)
    wanted = [
        (topic_id or name, number, bytes(records or b""))
        for (name, topic_id), numbers in body.topics.items()
        for number, records in numbers.items()
    ]
    assert [(topic, number, bytes(records)) for topic, number, records in plain.batches] == wanted
    assert wanted == [
        (topic.topic_id or UUID(int=0) if header.version >= FIRST_WITH_IDS else topic.name, one.index, one.records)
        for topic in parsed.topic_data
        for one in topic.partition_data
    ]
    for _, _, records in plain.batches:
        assert len(records) > 61
        assert struct.unpack_from(">i", records, 8)[0] == len(records) - 12
        assert records[16] == 2
        assert not records[22] & 0x37
    offsets = [(first + index, time_ms, start) for index in range(len(wanted)) for first, time_ms, start in [answered]]
    given = iter(offsets)
    responses: list[Message] = [
        {
            "name": name,
            "topic_id": topic_id,
            "partition_responses": [
                {
                    "index": number,
                    "error_code": 0,
                    **dict(zip(("base_offset", "log_append_time_ms", "log_start_offset"), next(given), strict=True)),
                    "record_errors": [],
                    "error_message": None,
                }
                for number in numbers
            ],
        }
        for (name, topic_id), numbers in body.topics.items()
    ]
    assert plain.answer(offsets) == encode_produce(header, {"responses": responses})
    return True


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@given(
    topics=topics,
    correlation_id=int32s,
    client_id=st.none() | st.just("") | names | st.just("c" * 300),
    acks=st.sampled_from([1, -1]),
    result=results.filter(lambda result: result[0] < (1 << 63) - 20),
)
def test_it_is_read_and_answered(
    version: int,
    topics: Any,
    correlation_id: int,
    client_id: str | None,
    acks: int,
    result: tuple[int, int, int],
) -> None:
    assert check(frame_of(version, message(topics, acks=acks), correlation_id, client_id), result)


ID = UUID(int=5)
PARTITION: Message = {"index": 0, "records": batch()}
THREE = message([("t", ID, [PARTITION, {**PARTITION, "index": 1}]), ("u", UUID(int=6), [PARTITION])])
TRANSACTIONAL = batch(producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)


def of(records: bytes | None) -> Message:
    return message([("t", ID, [{"index": 0, "records": records}])])


UNUSUAL = {
    "no topic": message([]),
    "no partition": message([("t", ID, [])]),
    "a topic twice": message([("t", ID, [PARTITION])] * 2),
    "a partition twice": message([("t", ID, [PARTITION] * 2)]),
    "no records": of(None),
    "no batch": of(b""),
    "half a batch": of(batch()[:-1]),
    "a header alone": of(batch()[:61]),
    "two batches": of(batch() * 2),
    "an old message": of(batch()[:16] + b"\1" + batch()[17:]),
    "a compressed batch": of(batch(codec=Codec.ZSTD)),
    "a transaction": of(TRANSACTIONAL),
    "a transactional id": message([("t", ID, [PARTITION])], transactional_id="x"),
    "an empty transactional id": message([("t", ID, [PARTITION])], transactional_id=""),
    "no answer": message([("t", ID, [PARTITION])], acks=0),
    "wrong acks": message([("t", ID, [PARTITION])], acks=2),
    "many topics": message([(str(number), UUID(int=number), [PARTITION]) for number in range(1, 128)]),
    "many partitions": message([("t", ID, [{**PARTITION, "index": number} for number in range(127)])]),
    "a long answer": message(
        [(str(number), UUID(int=number), [{**PARTITION, "index": n} for n in range(50)]) for number in range(1, 5)]
    ),
}
NAMED = {
    "an empty name": message([("", ID, [PARTITION])]),
    "a long name": message([("t" * 127, ID, [PARTITION])]),
    "a name that is not ASCII": message([("é", ID, [PARTITION])]),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("what", UNUSUAL)
def test_what_is_unusual_is_left_to_others(version: int, what: str) -> None:
    assert plain_produce(frame_of(version, UNUSUAL[what])) is None


@pytest.mark.parametrize("version", range(3, FIRST_WITH_IDS))
@pytest.mark.parametrize("what", NAMED)
def test_names_that_are_unusual_are_left_to_others(version: int, what: str) -> None:
    assert plain_produce(frame_of(version, NAMED[what])) is None


def test_other_requests_and_versions_are_left_to_others() -> None:
    frame = frame_of(9, message([("t", ID, [PARTITION])]))
    assert plain_produce(frame) is not None
    for key, version in [(1, 9), (-1, 9), (0, 2), (0, 14), (0, -1), (256, 9)]:
        assert plain_produce(bytearray(struct.pack(">hh", key, version)) + frame[4:]) is None
    assert plain_produce(frame_of(9, message([("t", ID, [PARTITION])]), client_id="é")) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_is_cut_short_or_goes_on_is_left_to_others(version: int) -> None:
    frame = frame_of(version, THREE)
    assert check(frame)
    for end in range(len(frame)):
        assert plain_produce(frame[:end]) is None
    assert plain_produce(frame + b"\0") is None


def test_as_many_results_as_batches_are_wanted() -> None:
    plain = plain_produce(frame_of(9, message([("t", ID, [PARTITION])])))
    assert plain is not None
    with pytest.raises(ValueError, match="2 results of 1 batches"):
        plain.answer([(0, -1, 0)] * 2)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=50)
@given(topics=topics, changes=st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=8)), max_size=3))
def test_broken_requests_are_read_as_others_are(version: int, topics: Any, changes: list[tuple[int, bytes]]) -> None:
    frame = frame_of(version, message(topics))
    for position, data in changes:
        frame[position : position + len(data)] = data
    check(frame)


@pytest.mark.sampled
@pytest.mark.parametrize("version", VERSIONS)
def test_every_byte_may_be_any_other(version: int) -> None:
    frame = frame_of(version, THREE)
    read = 0
    for position in range(len(frame)):
        old = frame[position]
        near = {old ^ 1, old ^ 0x80, (old + 1) & 0xFF, (old - 1) & 0xFF}
        for value in near | {0, 1, 2, 3, 0x10, 0x20, 0x7F, 0x80, 0xFF}:
            frame[position] = value
            try:
                read += check(frame)
            except ProtocolError as error:
                raise AssertionError(f"byte {position} as {value}: {error}") from error
        frame[position] = old
    # Bytes of the batches, of numbers and of names.
    assert read > 5 * len(batch())
