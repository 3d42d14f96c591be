"""ListOffsets: the offset at a time, and the special ones.

    -1   latest (the last stable offset for `read_committed`)
    -2   earliest
    -3   that of the greatest timestamp (KIP-734)
    -4   earliest that is local (KIP-405): the earliest
    -5   latest that is tiered (KIP-1005), and -6 earliest that waits for upload (KIP-1023): there are none

The time is looked for within the batch too; without a record at or after it the offset is -1, and no error. v4 adds the
leader epoch, v7 -3, v8 -4, v9 -5, v10 a time-out for remote logs, v11 -6.

Source in Kafka: `KafkaApis.handleListOffsetRequest`, `ReplicaManager.fetchOffset`, `UnifiedLog.fetchOffsetByTimestamp`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError, code_of
from odradek.broker.partitions import Partition
from odradek.broker.protocol import Message, given
from odradek.broker.turns import Work
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.errors import FormatError, OdradekError

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
_SINCE = {_MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9, _EARLIEST_PENDING_UPLOAD: 11}
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_CONSUMER = -1
_MOST_AT_ONCE = 500

_Found: TypeAlias = dict[tuple[str, int], Partition | Message]


@api(2, "ListOffsets", range(1, 12))
def list_offsets(request: Request) -> Message | Awaitable[Message]:
    """Answer the offsets."""
    named = [(topic.name, one.partition_index) for topic in request.body.topics for one in topic.partitions]
    return request.broker.partitions.when_open(named, lambda: _list_offsets(request, named))


def _list_offsets(request: Request, named: list[tuple[str, int]]) -> Message | Awaitable[Message]:
    found = request.broker.turns.take(_partitions(request, named))
    if isinstance(found, Awaitable):
        return _answer_later(request, found, len(named))
    return _answer_all(request, found, len(named))


async def _answer_later(request: Request, found: Awaitable[_Found], count: int) -> Message:
    message = _answer_all(request, await found, count)
    return await message if isinstance(message, Awaitable) else message


def _partitions(request: Request, named: list[tuple[str, int]]) -> Work[_Found]:
    """Return the partitions of a request, or their answers if they are refused."""
    body = request.body
    is_known = given(body, "isolation_level", 0) in (_READ_UNCOMMITTED, _READ_COMMITTED)
    times = Counter(named)
    partitions: _Found = {}
    for topic in body.topics:
        for one in topic.partitions:
            key = topic.name, one.partition_index
            try:
                request.check(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
                if not is_known:
                    raise ApiError(ErrorCode.unknown_server_error)
                if times[key] > 1:
                    raise ApiError(ErrorCode.invalid_request)
                if one.timestamp < _EARLIEST_PENDING_UPLOAD or request.version < _SINCE.get(one.timestamp, 0):
                    raise ApiError(ErrorCode.unsupported_version)
                partition = request.broker.partitions.get(*key)
                partition.check_leader_epoch(given(one, "current_leader_epoch", -1))
                partitions[key] = partition
            except OdradekError as error:
                partitions[key] = _answer(one.partition_index, code_of(error))
            yield
        yield
    return partitions


def _answer_all(request: Request, partitions: _Found, count: int) -> Message | Awaitable[Message]:
    body = request.body
    takes_long = count > _MOST_AT_ONCE or any(
        one.timestamp >= 0 or one.timestamp == _MAX_TIMESTAMP for topic in body.topics for one in topic.partitions
    )

    damages: list[FormatError] = []

    def answer() -> Message:
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        _look_up(request, one, partitions[topic.name, one.partition_index], damages)
                        for one in {one.partition_index: one for one in topic.partitions}.values()
                    ],
                }
                for topic in body.topics
            ]
        }

    # A look-up by time reads batches from the disk.
    return _answer_from_disk(request, answer, damages) if takes_long else answer()


async def _answer_from_disk(request: Request, answer: Callable[[], Message], damages: list[FormatError]) -> Message:
    message = await request.broker.run(answer)
    for damage in damages:
        request.broker.found_damage(damage)
    return message


def _answer(
    number: int, code: int = NO_ERROR, timestamp: int = -1, offset: int = -1, leader_epoch: int = -1
) -> Message:
    return {
        "partition_index": number,
        "error_code": code,
        "timestamp": timestamp,
        "offset": offset,
        "leader_epoch": leader_epoch,
    }


def _look_up(request: Request, one: Any, partition: Partition | Message, damages: list[FormatError]) -> Message:
    number, timestamp = one.partition_index, one.timestamp
    if not isinstance(partition, Partition):
        return partition
    is_consumer = request.body.replica_id == _CONSUMER
    is_committed = is_consumer and given(request.body, "isolation_level", 0) == _READ_COMMITTED
    log = partition.log
    try:
        ends = partition.commits.ends
        end = ends.last_stable_offset if is_committed else ends.high_watermark
        match timestamp:
            case -1:
                return _answer(number, offset=end, leader_epoch=partition.leader_epoch)
            case -2 | -4:
                start = log.log_start_offset
                return _answer(number, offset=start, leader_epoch=partition.epoch_of(start))
            case -5 | -6:
                return _answer(number)
            case -3:
                found = log.find_max_timestamp()
            case _:
                found = log.find_timestamp(timestamp, end)
        if found is None or found.offset >= end:
            return _answer(number)
        return _answer(number, NO_ERROR, found.timestamp, found.offset, partition.epoch_of(found.offset))
    except FormatError as error:
        damages.append(error)
        # Clients try again for a minute if it is CORRUPT_MESSAGE, which a transfer may cause.
        return _answer(number, int(ErrorCode.invalid_record))
    except (OdradekError, OSError) as error:
        return _answer(number, code_of(error))
