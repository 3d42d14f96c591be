"""Fetch requests as they are read by hand, beside kio's reading of the same bytes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from odradek.broker.fetch_requests import FetchBody, decode
from odradek.broker.fetch_sessions import FINAL_EPOCH, NO_SESSION, WantedPartition
from odradek.broker.protocol import RequestHeader, decode_header, encode_request, given, milliseconds
from odradek.broker.request_body import decode_request
from odradek.errors import ProtocolError

IDS = [UUID(int=1 << 90 | number) for number in range(2)]


def frame_of(version: int) -> tuple[bytearray, RequestHeader]:
    partitions = [
        {
            "partition": number,
            "current_leader_epoch": 7 - number,
            "fetch_offset": (1 << 40) + number,
            "last_fetched_epoch": 3,
            "log_start_offset": 5,
            "partition_max_bytes": 1 << 20,
            "replica_directory_id": IDS[1],
            "high_watermark": 99,
        }
        for number in range(3)
    ]
    message: dict[str, Any] = {
        "cluster_id": "cluster",
        "replica_id": 1,
        "replica_state": {"replica_id": 1, "replica_epoch": 2},
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 50 << 20,
        "isolation_level": 1,
        "session_id": 123,
        "session_epoch": 4,
        "topics": [
            {"topic": "one", "topic_id": IDS[0], "partitions": partitions},
            {"topic": "other", "topic_id": IDS[1], "partitions": partitions[:1]},
        ],
        "forgotten_topics_data": [{"topic": "gone", "topic_id": IDS[1], "partitions": [8, 9]}],
        "rack_id": "rack",
    }
    frame = bytearray(encode_request(1, version, 5, "client", message)[4:])
    return frame, decode_header(frame)


@pytest.mark.parametrize("version", range(4, 19))
def test_a_request_is_read_as_kio_reads_it(version: int) -> None:
    frame, header = frame_of(version)
    body = decode_request(frame, header)
    assert decode(frame, header) == FetchBody(
        milliseconds(body.max_wait),
        body.min_bytes,
        body.max_bytes,
        body.isolation_level,
        given(body, "session_id", NO_SESSION),
        given(body, "session_epoch", FINAL_EPOCH),
        [
            WantedPartition(
                given(topic, "topic"),
                given(topic, "topic_id"),
                one.partition,
                one.fetch_offset,
                one.partition_max_bytes,
                given(one, "current_leader_epoch", -1),
            )
            for topic in body.topics
            for one in topic.partitions
        ],
        [
            (given(topic, "topic") or given(topic, "topic_id"), number)
            for topic in given(body, "forgotten_topics_data", ())
            for number in topic.partitions
        ],
        1,
    )


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_a_request_that_is_cut_short(version: int) -> None:
    frame, header = frame_of(version)
    for size in range(header.body_position, len(frame)):
        with pytest.raises(ProtocolError):
            decode(frame[:size], header)
