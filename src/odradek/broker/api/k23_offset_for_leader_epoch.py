"""OffsetForLeaderEpoch: where the records of a leader epoch end, by which a consumer sees that a log was cut.

    epochs of the log     0 from 0    2 from 100    5 from 250, the last one
    asked for 2           2, 250      asked for 3: 2, 250      for 5: 5, log end offset      for 6: -1, -1

v2 and v3 (KIP-320) compare the leader epoch that the client knows; v4 is the first flexible version (KIP-482).

Source in Kafka: `Partition.lastOffsetForLeaderEpoch`, `LeaderEpochFileCache.endOffsetFor`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Any

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, code_of
from odradek.broker.partitions import Partition
from odradek.broker.protocol import Message
from odradek.broker.turns import Work, each_partition
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.errors import OdradekError

_UNKNOWN = -1, -1


def _answer(number: int, code: int = NO_ERROR, leader_epoch: int = -1, end_offset: int = -1) -> Message:
    return {"error_code": code, "partition": number, "leader_epoch": leader_epoch, "end_offset": end_offset}


@api(23, "OffsetForLeaderEpoch", range(2, 5))
def offset_for_leader_epoch(request: Request) -> Message | Awaitable[Message]:
    """Answer the ends of epochs."""
    named = ((topic.topic, one.partition) for topic in request.body.topics for one in topic.partitions)
    return request.broker.partitions.when_open(named, lambda: request.broker.turns.take(_look_up_all(request)))


def _look_up_all(request: Request) -> Work[Message]:
    sees_all = request.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, is_told=False)
    found = yield from each_partition(request.body.topics, "partitions", partial(_look_up, request, sees_all=sees_all))
    return {"topics": [{"topic": topic.topic, "partitions": partitions} for topic, partitions in found]}


def _look_up(request: Request, topic: Any, one: Any, *, sees_all: bool) -> Message:
    try:
        if not sees_all:
            request.check(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        partition = request.broker.partitions.get(topic.topic, one.partition)
        partition.check_leader_epoch(one.current_leader_epoch)
        epoch, offset = _end_of(partition, one.leader_epoch)
    except OdradekError as error:
        return _answer(one.partition, code_of(error))
    return _answer(one.partition, leader_epoch=epoch, end_offset=offset)


def _end_of(partition: Partition, epoch: int) -> tuple[int, int]:
    """Return the last epoch of the log that is not after an epoch, and where it ends."""
    end_offset = partition.log.log_end_offset
    starts = {entry.epoch: entry.start_offset for entry in partition.log.leader_epochs}
    # This broker leads from its epoch's first offset on, even before it has appended anything.
    starts.setdefault(partition.leader_epoch, end_offset)
    later = [known for known in starts if known > epoch]
    if epoch < 0 or epoch > max(starts):
        return _UNKNOWN
    if not later:
        return epoch, end_offset
    return max((known for known in starts if known <= epoch), default=epoch), starts[min(later)]
