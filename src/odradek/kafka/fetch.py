"""Fetch, as bytes: the batches of one partition from a broker, without an object for any record.

    FetchResponse v4..v11, one topic and one partition
    throttle_time_ms int32 | error_code int16 session_id int32 (v7) | 1 | topic string | 1 | partition_index int32
    error_code int16 | high_watermark int64 | last_stable_offset int64 | log_start_offset int64 (v5)
    aborted_transactions [producer_id int64, first_offset int64] | preferred_read_replica int32 (v11)
    records int32, then | batch | batch | batch | torn batch

A response is a view of the connection's buffer: it must be decoded before the next one is read.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from kafka.protocol.consumer import FetchRequest

from odradek.errors import ProtocolError
from odradek.records.batch import read_records
from odradek.records.control import is_abort
from odradek.records.isolation import ISOLATION_LEVELS, Isolation
from odradek.records.kernels.batches import walk_batches
from odradek.records.scan import Status, damage_at, scan_batches
from odradek.storage.names import TopicPartition

MAX_OFFSET = (1 << 63) - 1
_CONSUMER_REPLICA_ID = -1
_OLDEST_FETCH, _NEWEST_FETCH = 4, 11
_WALK_BATCHES = 1 << 20


class FetchAnswer(NamedTuple):
    """What a response says about its partition.

    Attributes:
        error_code: Kafka's error code; 0 is none.
        high_watermark: The offset at which the log ends for consumers, exclusive.
        last_stable_offset: The same for `read_committed`.
        log_start_offset: The first offset; -1 if the version of the response does not have it.
        aborted: Producer id and first offset of aborted transactions.
        throttled: Whether the broker holds this client back.
        data: The response.
        position: Where the first batch starts.
        end_position: Where the bytes of batches end, whether or not the last batch is whole.
    """

    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]]
    throttled: bool
    data: memoryview
    position: int
    end_position: int


def fetch_request(
    name: TopicPartition, offset: int, isolation: Isolation, *, max_bytes: int, max_wait_ms: int
) -> FetchRequest:
    """Return a request for the batches of one partition from an offset on."""
    topic_type = FetchRequest.FetchTopic
    partition = topic_type.FetchPartition(
        partition=name.partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )
    return FetchRequest(
        replica_id=_CONSUMER_REPLICA_ID,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=ISOLATION_LEVELS[isolation],
        session_id=0,
        session_epoch=-1,
        topics=[topic_type(topic=name.topic, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
        min_version=_OLDEST_FETCH,
        max_version=_NEWEST_FETCH,
    )


def parse_response(body: memoryview, version: int, name: TopicPartition) -> FetchAnswer | None:
    """Parse a response; None if the partition is not in it (a broker that throttles a client answers so).

    Raises:
        ProtocolError: It does not have the form above.
    """
    try:
        return _parse(body, version, name)
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"a Fetch response for {name} (version {version}) ends too early: {error}") from error


def _parse(body: memoryview, version: int, name: TopicPartition) -> FetchAnswer | None:
    position = 0

    def take(layout: str) -> Any:
        nonlocal position
        (value,) = struct.unpack_from(layout, body, position)
        position += struct.calcsize(layout)
        return value

    throttled = take(">i") > 0
    error_code = take(">h") if version >= 7 else 0
    if version >= 7:
        take(">i")
    topics = take(">i")
    if error_code:
        return FetchAnswer(error_code, -1, -1, -1, [], throttled, body, 0, 0)
    if topics == 0:
        return None
    length = take(">h")
    topic = bytes(body[position : position + max(length, 0)]).decode()
    position += max(length, 0)
    partitions, partition = take(">i"), take(">i")
    if (topics, partitions) != (1, 1) or (topic, partition) != name:
        raise ProtocolError(f"a Fetch response for {topic}-{partition}, although {name} was asked for")
    error_code = take(">h")
    high_watermark, last_stable_offset = take(">q"), take(">q")
    log_start_offset = take(">q") if version >= 5 else -1
    count = take(">i")
    if count * 16 > len(body) - position:
        raise ProtocolError(f"a Fetch response for {name} claims {count} aborted transactions")
    aborted = [(take(">q"), take(">q")) for _ in range(count)]
    if version >= 11:
        take(">i")
    size = max(0, take(">i"))
    if size > len(body) - position:
        raise ProtocolError(f"a Fetch response for {name} claims {size} bytes of records, not {len(body) - position}")
    return FetchAnswer(
        error_code,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        aborted,
        throttled,
        body,
        position,
        position + size,
    )


def whole_batches(data: memoryview, position: int, end: int) -> tuple[list[tuple[int, int]], int, int]:
    """Return where the whole batches lie: without those that end below what came before them, as consumers skip them.

    Returns:
        The positions between which they lie, most often two; the position after the last whole batch; and the offset
        after all of them (-1 if no batch is whole).

    Raises:
        FormatError: The bytes do not start with a batch, not even a torn one.
    """
    parts: list[tuple[int, int]] = []
    first = start = position
    next_offset, reached = 0, -1
    while position < end:
        table = walk_batches(data, position, end, _WALK_BATCHES, False, 0, next_offset)
        if len(table):
            next_offset = table.stop_offset
            reached = max(reached, next_offset)
        is_stopped = table.stop_position == position
        position = table.stop_position
        if table.stop == Status.BAD_ORDER:
            header = next(iter(scan_batches(data, position, end, check_crc=False)))
            if header.next_offset > reached:
                next_offset = header.base_offset
                continue
            if position > start:
                parts.append((start, position))
            position = start = header.end_position
            continue
        if position == first and table.stop not in (Status.OK, Status.END, Status.TRUNCATED):
            raise damage_at(table.stop, data, position, end)
        if is_stopped or table.stop not in (Status.OK, Status.END):
            break
    if position > start:
        parts.append((start, position))
    return parts, position, reached


def aborted_ranges(
    data: memoryview, position: int, end: int, transactions: list[tuple[int, int]]
) -> tuple[tuple[int, int, int], ...]:
    """Return producer id, first and last offset of aborted transactions, as far as these batches go.

    A response names where each starts; its abort marker, here or in a later response, says where it ends.
    """
    if not transactions:
        return ()
    producers = {producer_id for producer_id, _ in transactions}
    markers: dict[int, list[int]] = {}
    for header in scan_batches(data, position, end, check_crc=False):
        if header.is_control and header.producer_id in producers and is_abort(read_records(data, header)):
            markers.setdefault(header.producer_id, []).append(header.last_offset)
    return tuple(
        (producer_id, first, next((offset for offset in markers.get(producer_id, ()) if offset >= first), MAX_OFFSET))
        for producer_id, first in sorted(transactions, key=lambda entry: entry[1])
    )
