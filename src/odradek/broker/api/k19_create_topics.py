"""CreateTopics: topics with their partitions and settings, each of which is created or not.

This broker holds all partitions, so the replication factor is 1. Some of the topics may be created though others are
not. v4 takes -1 for the broker's numbers of partitions and replicas (KIP-464); v5 answers the numbers and all settings
(KIP-525); v6 that quotas are used up (KIP-599); v7 the topics' ids (KIP-516).

Source in Kafka: `ControllerApis.createTopics`, `ReplicationControlManager.createTopics`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError, code_of, message_of
from odradek.broker.protocol import Message
from odradek.broker.turns import Work, rest
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.errors import BrokerError
from odradek.messages.uuids import random_uuid
from odradek.storage.metadata.cluster import MAX_PARTITIONS_PER_BATCH
from odradek.storage.metadata.metadata_image import TopicImage
from odradek.storage.metadata.new_topic import NewTopic
from odradek.storage.names import CLUSTER_METADATA_TOPIC

_FIRST_STRICT = 6


@api(19, "CreateTopics", range(2, 8))
async def create_topics(request: Request) -> Message:
    """Create topics."""
    broker, body = request.broker, request.body
    times = Counter(topic.name for topic in body.topics)
    denied = await broker.turns.finish(_denied(request))
    if sum(_count(request, topic) for topic in body.topics if topic.name not in denied) > MAX_PARTITIONS_PER_BATCH:
        raise ApiError(ErrorCode.policy_violation, "Excessively large number of partitions per request.")
    answers: dict[str, Message] = {}
    wanted: list[NewTopic] = []
    mutations = request.mutations(_FIRST_STRICT)
    for number, topic in enumerate(body.topics):
        await rest(number)
        try:
            if times[topic.name] > 1:
                raise ApiError(ErrorCode.invalid_request, "Duplicate topic name.")
            if topic.name in denied:
                raise ApiError(ErrorCode.topic_authorization_failed, "Authorization failed.")
            new = _checked(request, topic)
            if mutations.record(new.partitions):
                wanted.append(new)
                answers[topic.name] = {}
            else:
                answers[topic.name] = _failed(topic.name, int(ErrorCode.throttling_quota_exceeded), None)
        except BrokerError as error:
            answers[topic.name] = _failed(topic.name, code_of(error), message_of(error))
    if body.validate_only:
        for number, new in enumerate(wanted):
            await rest(number)
            answers[new.name] = _created(request, new, random_uuid())
    elif wanted:
        for number, (new, made) in enumerate(zip(wanted, await broker.topics.create(wanted), strict=True)):
            await rest(number)
            if isinstance(made, TopicImage):
                answers[new.name] = _created(request, new, made.topic_id)
            else:
                answers[new.name] = _failed(new.name, code_of(made), message_of(made))
    return {"throttle_time_ms": mutations.throttle_ms, "topics": list(answers.values())}


def _denied(request: Request) -> Work[Container[str]]:
    """Work: return the topics of a request that its client may not create."""
    if request.may(Operation.CREATE, ResourceType.CLUSTER, is_told=False):
        return ()
    # Nobody may create this one, which has an error of its own.
    names = (topic.name for topic in request.body.topics if topic.name != CLUSTER_METADATA_TOPIC)
    _, denied = yield from request.split(Operation.CREATE, ResourceType.TOPIC, names)
    return denied


def _count(request: Request, topic: Any) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return int(request.broker.config["num.partitions"] if topic.num_partitions == -1 else max(topic.num_partitions, 0))


def _checked(request: Request, topic: Any) -> NewTopic:
    topics = request.broker.topics
    if topic.name == CLUSTER_METADATA_TOPIC:
        reason = f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
        raise ApiError(ErrorCode.invalid_request, reason)
    topics.check_new_name(topic.name)
    without_value = [config.name for config in topic.configs if config.value is None]
    if without_value:
        reason = f"Null value not supported for topic configs: {','.join(without_value)}"
        raise ApiError(ErrorCode.invalid_config, reason)
    config = {config.name: config.value for config in topic.configs}
    if config:
        request.broker.configs.check_topic(config)
    assignments: dict[int, Any] | None = None
    for one in topic.assignments:
        assignments = assignments or {}
        if one.partition_index in assignments:
            reason = f"Found multiple manual partition assignments for partition {one.partition_index}"
            raise ApiError(ErrorCode.invalid_replica_assignment, reason)
        assignments[one.partition_index] = one.broker_ids
    partitions = topics.partitions_of(topic.num_partitions, topic.replication_factor, assignments)
    return NewTopic(topic.name, partitions, config)


def _failed(name: str, code: int, text: str | None) -> Message:
    return {"name": name, "error_code": code, "error_message": text}


def _created(request: Request, topic: NewTopic, topic_id: UUID | None) -> Message:
    made = {"name": topic.name, "topic_id": topic_id, "error_code": NO_ERROR, "error_message": None}
    if not request.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name, is_told=False):
        code = int(ErrorCode.topic_authorization_failed)
        unknown = {"num_partitions": -1, "replication_factor": -1, "configs": None}
        return {**made, **unknown, "topic_config_error_code": code}
    config = {name: str(value) for name, value in (topic.config or {}).items()}
    described = request.broker.configs.of_topic(config)
    return {
        **made,
        "num_partitions": topic.partitions,
        "replication_factor": 1,
        "configs": [
            {
                "name": one.key.name,
                "value": config.get(one.key.name, one.value),
                "read_only": one.is_read_only,
                "config_source": int(one.source),
                "is_sensitive": one.key.is_sensitive,
            }
            for one in sorted(described, key=lambda one: one.key.name)
        ],
    }
