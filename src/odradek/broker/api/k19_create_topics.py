"""CreateTopics: topics with their partitions and settings, each of which is created or not.

This broker holds all partitions, so the replication factor is 1. Some of the topics may be created though others are
not. v4 takes -1 for the broker's numbers of partitions and replicas (KIP-464); v5 answers the numbers and all settings
(KIP-525); v7 the topics' ids (KIP-516).

Source in Kafka: `ControllerApis.createTopics`, `ReplicationControlManager.createTopics`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError, code_of, message_of
from odradek.broker.protocol import Message
from odradek.errors import BrokerError
from odradek.messages.uuids import random_uuid
from odradek.storage.metadata.cluster import MAX_PARTITIONS_PER_BATCH
from odradek.storage.metadata.metadata_image import TopicImage
from odradek.storage.metadata.new_topic import NewTopic
from odradek.storage.names import CLUSTER_METADATA_TOPIC


def _all_failed(request: Request, code: int, text: str) -> Message:
    return {"topics": [_failed(topic.name, code, text) for topic in request.body.topics]}


@api(19, "CreateTopics", range(2, 8), failed=_all_failed)
async def create_topics(request: Request) -> Message:
    """Create topics."""
    broker, body = request.broker, request.body
    if sum(_count(request, topic) for topic in body.topics) > MAX_PARTITIONS_PER_BATCH:
        raise ApiError(ErrorCode.policy_violation, "Excessively large number of partitions per request.")
    times = Counter(topic.name for topic in body.topics)
    answers: dict[str, Message] = {}
    wanted: list[NewTopic] = []
    for topic in body.topics:
        try:
            if times[topic.name] > 1:
                raise ApiError(ErrorCode.invalid_request, "Duplicate topic name.")
            wanted.append(_checked(request, topic))
            answers[topic.name] = {}
        except BrokerError as error:
            answers[topic.name] = _failed(topic.name, code_of(error), message_of(error))
    if body.validate_only:
        for new in wanted:
            answers[new.name] = _created(request, new, random_uuid())
    elif wanted:
        for new, made in zip(wanted, await broker.topics.create(wanted), strict=True):
            if isinstance(made, TopicImage):
                answers[new.name] = _created(request, new, made.topic_id)
            else:
                answers[new.name] = _failed(new.name, code_of(made), message_of(made))
    return {"topics": list(answers.values())}


def _count(request: Request, topic: Any) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return request.broker.topics.default_partitions if topic.num_partitions == -1 else max(topic.num_partitions, 0)


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


def _failed(name: str, code: int, text: str) -> Message:
    return {
        "name": name,
        "topic_id": None,
        "error_code": code,
        "error_message": text,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [],
    }


def _created(request: Request, topic: NewTopic, topic_id: UUID | None) -> Message:
    config = {name: str(value) for name, value in (topic.config or {}).items()}
    described = request.broker.configs.of_topic(config)
    return {
        "name": topic.name,
        "topic_id": topic_id,
        "error_code": NO_ERROR,
        "error_message": None,
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
