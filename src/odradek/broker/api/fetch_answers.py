"""Answers to a Fetch that give no records: an error of a partition or of all, and how long an answer is."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request
from odradek.broker.data_responses import encode_fetch
from odradek.broker.fetch_requests import FIRST_WITH_IDS
from odradek.broker.fetch_sessions import NO_SESSION, WantedPartition
from odradek.broker.protocol import FETCH_KEY, Message, is_flexible

_ID_BYTES = 4
_SESSION_ERRORS = (
    ErrorCode.fetch_session_id_not_found,
    ErrorCode.invalid_fetch_session_epoch,
    ErrorCode.fetch_session_topic_id_error,
)


def answer_bytes(request: Request, answer: Message) -> int:
    """Return the size of an answer as Kafka counts it: with four bytes before its body."""
    tags_bytes = 1 if is_flexible(FETCH_KEY, request.version) else 0
    return encode_fetch(request.header, answer).size_bytes - tags_bytes - _ID_BYTES


def partition_error(wanted: WantedPartition, code: int) -> Message:
    """Return the answer for a partition that has an error."""
    return {
        "partition_index": wanted.number,
        "error_code": code,
        "high_watermark": -1,
        "last_stable_offset": -1,
        "log_start_offset": -1,
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": b"",
    }


def failed_as_whole(request: Request, code: int, text: str) -> Message:
    """Return the answer that has an error for all of it; an error of a session is not that of the partitions."""
    request.broker.metrics.failed("Fetch", code)
    is_of_partitions = code not in _SESSION_ERRORS and request.version < FIRST_WITH_IDS
    responses = [
        {"topic": wanted.topic, "topic_id": None, "partitions": [partition_error(wanted, code)]}
        for wanted in (request.body.wanted if is_of_partitions else ())
    ]
    return {"error_code": code, "session_id": NO_SESSION, "responses": responses}
