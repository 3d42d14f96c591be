"""CreatePartitions: more partitions for topics, up to a total for each.

The replicas may be assigned; they are all this broker. v2 is the first flexible version; from v3 (KIP-599) on clients
are told that their quota is used up.

Source in Kafka: `ControllerApis.createPartitions`, `ReplicationControlManager.createPartitions`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError, code_of, message_of
from odradek.broker.protocol import Message
from odradek.broker.turns import rest
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.errors import OdradekError
from odradek.storage.metadata.cluster import MAX_PARTITIONS_PER_BATCH
from odradek.storage.metadata.metadata_image import MetadataImage

_FIRST_STRICT = 3


def _answer(name: str, code: int = NO_ERROR, text: str | None = None) -> Message:
    return {"name": name, "error_code": code, "error_message": text}


@api(37, "CreatePartitions", range(4))
async def create_partitions(request: Request) -> Message:
    """Create partitions."""
    broker, body = request.broker, request.body
    times = Counter(topic.name for topic in body.topics)
    answers: dict[str, Message] = {}
    totals: dict[str, int] = {}
    mutations = request.mutations(_FIRST_STRICT)
    asked, more = [], 0
    for number, topic in enumerate(body.topics):
        await rest(number)
        if times[topic.name] > 1:
            answers[topic.name] = _answer(topic.name, int(ErrorCode.invalid_request), "Duplicate topic name.")
        elif not request.may(Operation.ALTER, ResourceType.TOPIC, topic.name):
            answers[topic.name] = _answer(topic.name, int(ErrorCode.topic_authorization_failed))
        else:
            asked.append(topic)
            present = broker.logs.metadata_image.topics.get(topic.name)
            more += 0 if present is None else max(0, topic.count - len(present.partitions))
    if more > MAX_PARTITIONS_PER_BATCH:
        reason = "Excessively large number of additional partitions per request."
        raise ApiError(ErrorCode.policy_violation, reason)
    for number, topic in enumerate(asked):
        await rest(number)
        try:
            if topic.name not in broker.logs.metadata_image.topics:
                answers[topic.name] = _answer(topic.name, int(ErrorCode.unknown_topic_or_partition))
                continue
            _check(request, topic)
            if not mutations.record(topic.count - len(broker.logs.metadata_image.topics[topic.name].partitions)):
                answers[topic.name] = _answer(topic.name, int(ErrorCode.throttling_quota_exceeded))
                continue
            totals[topic.name] = topic.count
            answers[topic.name] = _answer(topic.name)
        except OdradekError as error:
            answers[topic.name] = _answer(topic.name, code_of(error), message_of(error))
    if totals and not body.validate_only:
        failed = await broker.topics.change_all(totals, broker.logs.add_partitions, _is_made)
        for name, failure in failed.items():
            if failure is not None:
                answers[name] = _answer(name, code_of(failure), message_of(failure))
    return {"throttle_time_ms": mutations.throttle_ms, "results": list(answers.values())}


def _is_made(image: MetadataImage, name: str, total: int) -> bool:
    topic = image.topics.get(name)
    return topic is not None and len(topic.partitions) >= total


def _check(request: Request, topic: Any) -> None:
    present = len(request.broker.logs.metadata_image.topics[topic.name].partitions)
    if topic.count == present:
        raise ApiError(ErrorCode.invalid_partitions, f"Topic already has {present} partition(s).")
    if topic.count < present:
        reason = f"The topic {topic.name} currently has {present} partition(s); {topic.count} would not be an increase."
        raise ApiError(ErrorCode.invalid_partitions, reason)
    more = int(topic.count - present)
    if topic.assignments is not None:
        if len(topic.assignments) != more:
            reason = (
                f"Attempted to add {more} additional partition(s), but only {len(topic.assignments)} assignment(s) "
                "were specified."
            )
            raise ApiError(ErrorCode.invalid_replica_assignment, reason)
        for one in topic.assignments:
            request.broker.topics.check_assignment(one.broker_ids, 1)
