"""DescribeShareGroupOffsets (KIP-932): where share groups are in partitions; in all that they have, if none is named.

A partition that nothing is known of has the offset -1, as a group that does not exist. v1 (KIP-1226) adds how many
records are left to deliver.

Source in Kafka: `KafkaApis.handleDescribeShareGroupOffsetsRequest`,
`GroupCoordinatorService.describeShareGroupOffsets`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.broker import Broker
from odradek.broker.errors import NO_ERROR, ApiError, code_of, message_of
from odradek.broker.protocol import Message
from odradek.broker.share_protocol import check_share_groups_enabled
from odradek.broker.shares import ShareSummary
from odradek.broker.turns import Work
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.coordination.lag import has_share_lag, share_lag
from odradek.coordination.placement import TopicIdPartition
from odradek.coordination.shares.state_batches import NO_START_OFFSET
from odradek.coordination.shares.states import NOT_COUNTED
from odradek.errors import BrokerError, OdradekError
from odradek.messages.uuids import ZERO_UUID

_UNKNOWN = ShareSummary(0, 0, NO_START_OFFSET, NOT_COUNTED)


@api(
    90,
    "DescribeShareGroupOffsets",
    range(2),
    group_ids=lambda request: [group.group_id for group in request.body.groups],
)
def describe_share_group_offsets(request: Request) -> Work[Message]:
    """Tell where groups are."""
    groups = []
    for group in request.body.groups:
        try:
            check_share_groups_enabled(request.broker)
            request.check(Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
            found: Message = {"topics": (yield from _topics(request, group)), "error_code": NO_ERROR}
        except BrokerError as error:
            found = {"error_code": code_of(error), "error_message": message_of(error)}
        groups.append({"group_id": group.group_id, **found})
        yield
    return {"groups": groups}


def _topics(request: Request, group: Any) -> Work[list[Message]]:
    broker = request.broker
    offsets = broker.groups.shard(group.group_id).share_offsets
    image = broker.logs.metadata_image
    asked: dict[TopicIdPartition, str] = {}
    unknown: list[Message] = []
    if group.topics is None:
        for topic_id, number in offsets.initialized(group.group_id):
            topic = image.topic_by_id(topic_id)
            if topic is not None and request.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
                asked[topic_id, number] = topic.name
            yield
    denied = ApiError(ErrorCode.topic_authorization_failed)
    for one in group.topics or ():
        if not request.may(Operation.DESCRIBE, ResourceType.TOPIC, one.topic_name):
            partitions = [_refused(number, denied) for number in one.partitions]
            unknown.append({"topic_name": one.topic_name, "topic_id": ZERO_UUID, "partitions": partitions})
            continue
        topic = image.topics.get(one.topic_name)
        if topic is not None and topic.topic_id is not None:
            asked |= dict.fromkeys(((topic.topic_id, number) for number in one.partitions), topic.name)
        else:
            partitions = [_answer(number, _UNKNOWN) for number in one.partitions]
            unknown.append({"topic_name": one.topic_name, "topic_id": ZERO_UUID, "partitions": partitions})
        yield
    summaries = yield from offsets.summaries(group.group_id, asked)
    started = [(asked[key], key[1]) for key, summary in summaries.items() if _has_lag(summary)]
    opening = broker.partitions.when_open(started, lambda: None)
    if opening is not None:
        yield partial(asyncio.wait, [asyncio.ensure_future(opening)])
    topics: dict[Any, Message] = {}
    for (topic_id, number), name in asked.items():
        topic_answer = topics.setdefault(topic_id, {"topic_name": name, "topic_id": topic_id, "partitions": []})
        topic_answer["partitions"].append(_partition(broker, name, number, summaries.get((topic_id, number), _UNKNOWN)))
        yield
    return [*topics.values(), *unknown]


def _has_lag(summary: ShareSummary) -> bool:
    return has_share_lag(summary.start_offset, summary.delivery_complete_count)


def _partition(broker: Broker, name: str, number: int, summary: ShareSummary) -> Message:
    if not _has_lag(summary):
        return _answer(number, summary)
    try:
        end_offset = broker.partitions.get(name, number).commits.ends.high_watermark
    except OdradekError as error:
        return _refused(number, error)
    return _answer(number, summary, share_lag(summary.start_offset, summary.delivery_complete_count, end_offset))


def _refused(number: int, error: OdradekError) -> Message:
    unknown = {"start_offset": -1, "lag": -1}
    return {
        "partition_index": number,
        **unknown,
        "error_code": code_of(error),
        "error_message": message_of(error),
    }


def _answer(number: int, summary: ShareSummary, lag: int = -1) -> Message:
    return {
        "partition_index": number,
        "start_offset": summary.start_offset,
        "leader_epoch": summary.leader_epoch,
        "lag": lag,
        "error_code": NO_ERROR,
    }
