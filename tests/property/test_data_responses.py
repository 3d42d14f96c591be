"""The responses to Produce and Fetch have the bytes that kio writes, and that the writer of all messages does."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_writer

from odradek.broker.data_responses import encode_fetch, encode_produce
from odradek.broker.protocol import Encoded, Message, RequestHeader, decode_response, encode_response, response_class

PRODUCE, FETCH = 0, 1
SIZE_AND_CORRELATION_ID = 8

int32s, int64s = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
# Times as kio has them.
times = st.just(-1) | st.integers(0, 4_000_000_000_000)
codes = st.sampled_from([0, 1, 6, 29, 87])
# Longer ones have sizes of two bytes.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.just("x" * 300)
errors = st.fixed_dictionaries({"batch_index": int32s, "batch_index_error_message": st.none() | texts})
produced = st.fixed_dictionaries(
    {
        "index": int32s,
        "error_code": codes,
        "base_offset": int64s,
        "log_append_time_ms": times,
        "record_errors": st.lists(errors, max_size=3),
        "error_message": st.none() | texts,
    },
    optional={"log_start_offset": int64s},
)
aborted = st.fixed_dictionaries({"producer_id": int64s, "first_offset": int64s})
fetched = st.fixed_dictionaries(
    {
        "partition_index": int32s,
        "error_code": codes,
        "high_watermark": int64s,
        "last_stable_offset": int64s,
        "log_start_offset": int64s,
        "aborted_transactions": st.none() | st.lists(aborted, max_size=3),
        "preferred_read_replica": int32s,
        "records": st.binary(max_size=20) | st.just(bytes(20_000)),
    }
)


def topics(partitions: str, partition: st.SearchStrategy[Message], name: str) -> st.SearchStrategy[list[Any]]:
    fields = {name: texts, "topic_id": st.none() | st.uuids(), partitions: st.lists(partition, max_size=3)}
    return st.lists(st.fixed_dictionaries(fields), max_size=3)


def check(header: RequestHeader, message: Message, encoded: Encoded) -> None:
    assert encoded == encode_response(header, message)
    correlation_id, body = decode_response(header.api_key, header.version, encoded[4:])
    assert correlation_id == header.correlation_id
    kind = response_class(header.api_key, header.version)
    written = io.BytesIO()
    entity_writer(kind)(written, body)
    # The header of a response of a flexible version ends with its tags.
    assert encoded[SIZE_AND_CORRELATION_ID + bool(kind.__flexible__) :] == written.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("version", range(3, 14))
@given(responses=topics("partition_responses", produced, "name"), correlation_id=int32s)
def test_produce(version: int, responses: list[Any], correlation_id: int) -> None:
    header, message = RequestHeader(PRODUCE, version, correlation_id, None, 0), {"responses": responses}
    check(header, message, encode_produce(header, message))


@pytest.mark.sampled
@pytest.mark.parametrize("version", range(4, 19))
@given(responses=topics("partitions", fetched, "topic"), correlation_id=int32s, error_code=codes, session_id=int32s)
def test_fetch(version: int, responses: list[Any], correlation_id: int, error_code: int, session_id: int) -> None:
    header = RequestHeader(FETCH, version, correlation_id, None, 0)
    message = {"error_code": error_code, "session_id": session_id, "responses": responses}
    check(header, message, encode_fetch(header, message))
