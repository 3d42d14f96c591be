"""Produce requests: what compiled code reads and answers at once is what the way of all requests, and kio, make of it.

input   a request without its size
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import Any
from uuid import UUID

from mutation import MAX_INPUT, mutate_bytes
from odradek.broker.api.k00_produce import decode
from odradek.broker.data_responses import encode_produce
from odradek.broker.protocol import decode_header, encode_request
from odradek.broker.request_body import decode_request
from odradek.errors import ProtocolError
from odradek.records.builder import build_batch
from odradek.records.kernels.objects import Record
from odradek.records.kernels.plain_produce import plain_produce
from seeds import v2_batches
from targets import Target, dice

_NUMBER = re.compile(r"[0-9a-f]*[0-9][0-9a-f-]*")
_PRODUCE = 0
_VERSIONS = range(3, 14)
_FIRST_WITH_IDS = 13
_NO_ID = UUID(int=0)


def _seeds() -> Sequence[bytes]:
    batches = [bytes(build_batch([Record(value=bytes(size), timestamp=1)])) for size in (1, 60, 200)]
    batches += [min(v2_batches(), key=len)]
    found = []
    for version in _VERSIONS:
        for topics in ([1], [2, 1]):
            data = [
                {
                    "name": f"t{topic}",
                    "topic_id": UUID(int=topic + 1),
                    "partition_data": [{"index": n, "records": batches[(n + version) % 4]} for n in range(partitions)],
                }
                for topic, partitions in enumerate(topics)
            ]
            message = {"transactional_id": None, "acks": -1, "timeout_ms": 1000, "topic_data": data}
            found.append(encode_request(_PRODUCE, version, 7, "client", message)[4:])
    return [data for data in found if len(data) <= MAX_INPUT]


def _attempt(read: Any, *arguments: Any) -> Any:
    try:
        return read(*arguments)
    except ProtocolError as error:
        return error


def _check(data: bytes) -> Hashable:
    plain = plain_produce(bytearray(data))
    header = _attempt(decode_header, bytearray(data))
    if plain is None:
        if isinstance(header, ProtocolError) or header.api_key != _PRODUCE or header.version not in _VERSIONS:
            return "other"
        body = _attempt(decode, bytearray(data), header)
        return header.version, _NUMBER.sub("#", str(body)) if isinstance(body, ProtocolError) else "read"
    assert header.api_key == _PRODUCE, "a request of another API"
    body, parsed = decode(bytearray(data), header), decode_request(bytearray(data), header)
    assert body.transactional_id is None, "it has a transactional id"
    assert not body.is_transactional, "it has a batch of a transaction"
    assert body.acks == parsed.acks in (1, -1), "it wants no answer"
    found = [(topic, number, bytes(records)) for topic, number, records in plain.batches]
    wanted = [
        (topic_id or name, number, bytes(records or b""))
        for (name, topic_id), partitions in body.topics.items()
        for number, records in partitions.items()
    ]
    assert found == wanted, "it is read in another way"
    has_ids = header.version >= _FIRST_WITH_IDS
    names = [(topic.topic_id or _NO_ID if has_ids else topic.name, topic) for topic in parsed.topic_data]
    assert found == [(name, one.index, one.records) for name, topic in names for one in topic.partition_data], "by kio"
    rng = dice(data)
    results = [(rng.getrandbits(62), rng.choice((-1, rng.getrandbits(40))), rng.getrandbits(62)) for _ in found]
    left = iter(results)
    topics = [
        {
            "name": name,
            "topic_id": topic_id,
            "partition_responses": [_partition(number, *next(left)) for number in partitions],
        }
        for (name, topic_id), partitions in body.topics.items()
    ]
    assert plain.answer(results) == encode_produce(header, {"responses": topics}), "it is answered in another way"
    return header.version, len(found)


def _partition(number: int, base_offset: int, append_time_ms: int, log_start_offset: int) -> dict[str, Any]:
    return {
        "index": number,
        "error_code": 0,
        "base_offset": base_offset,
        "log_append_time_ms": append_time_ms,
        "log_start_offset": log_start_offset,
        "record_errors": [],
        "error_message": None,
    }


TARGETS = [Target("requests", _seeds, mutate_bytes, _check)]
