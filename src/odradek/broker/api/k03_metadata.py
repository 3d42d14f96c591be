"""Metadata: the brokers, and the topics with their partitions and leaders. There is one broker, and it leads them all.

A topic that is asked for by its name is created, if the client and `auto.create.topics.enable` allow it. Apache Kafka
answers UNKNOWN_TOPIC_OR_PARTITION then, and clients ask again; here the topic is there at once, and so in the answer.

v1 tells of no topics by an empty list, of all by null; v4 (KIP-204) says whether topics may be created; v8 (KIP-430)
adds the operations that are allowed (all, as there are no ACLs); v10 (KIP-516) topic ids, v12 lets topics be asked for
by them; v13 (KIP-1102) an error for all of it, which is not needed here.

Source in Kafka: `KafkaApis.handleTopicMetadataRequest`, `KRaftMetadataCache`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from odradek.broker.protocol import Message, given
from odradek.errors import BrokerError
from odradek.messages.uuids import ZERO_UUID
from odradek.printable import logger
from odradek.storage.metadata.metadata_image import PartitionImage, TopicImage
from odradek.storage.names import invalid_topic_name_reason, is_internal

_logger = logger(__name__)

_FIRST_WITH_NULL = 1
_FIRST_WITH_IDS = 12


def _all_failed(request: Request, code: int, text: str) -> Message:
    topics: list[Message] = [
        {
            "error_code": code,
            "name": topic.name or "",
            "topic_id": given(topic, "topic_id") or ZERO_UUID,
            "is_internal": False,
            "partitions": [],
        }
        for topic in request.body.topics or ()
    ]
    return {"brokers": [], "cluster_id": None, "controller_id": -1, "topics": topics, "error_code": code}


@api(3, "Metadata", range(14), failed=_all_failed)
def metadata(request: Request) -> Message | Awaitable[Message]:
    """Answer which brokers, topics and partitions there are."""
    missing = _to_create(request)
    return _create_and_answer(request, missing) if missing else _answer(request)


def _to_create(request: Request) -> list[str]:
    """Return the topics that are created, as the client asks for them."""
    may_create = given(request.body, "allow_auto_topic_creation", True)
    if not may_create or not request.broker.config["auto.create.topics.enable"]:
        return []
    topics = request.broker.logs.metadata_image.topics
    names = {topic.name: None for topic in request.body.topics or () if topic.name is not None}
    return [name for name in names if name not in topics and invalid_topic_name_reason(name) is None]


async def _create_and_answer(request: Request, names: Sequence[str]) -> Message:
    topics = request.broker.topics
    for name, made in zip(names, await topics.create([topics.automatic(name) for name in names]), strict=True):
        if isinstance(made, BrokerError):
            # Apache Kafka does not tell clients either: it creates topics after its answer.
            _logger.warning("topic %s is not created: %s", name, made)
        elif isinstance(made, Exception):
            raise made
    return _answer(request)


def _answer(request: Request) -> Message:
    broker, body = request.broker, request.body
    endpoint = broker.endpoint(request.connection.listener)
    wanted = body.topics
    image = broker.logs.metadata_image
    if wanted is None or (request.version < _FIRST_WITH_NULL and not wanted):
        topics = [_topic(request, topic) for topic in image.topics.values()]
    else:
        topics = list(_wanted(request, wanted))
    asks = given(body, "include_cluster_authorized_operations", False)
    return {
        "brokers": [
            {
                "node_id": broker.node_id,
                "host": endpoint.host,
                "port": endpoint.port,
                "rack": broker.config["broker.rack"],
            }
        ],
        "cluster_id": broker.cluster_id,
        "controller_id": broker.node_id,
        "topics": topics,
        "cluster_authorized_operations": CLUSTER_OPERATIONS if asks else NOT_ASKED,
        "error_code": NO_ERROR,
    }


def _wanted(request: Request, wanted: Iterable[Any]) -> Iterable[Message]:
    seen = set()
    for one in wanted:
        topic_id = given(one, "topic_id")
        name = one.name
        if request.version < _FIRST_WITH_IDS and (name is None or topic_id is not None):
            raise ApiError(ErrorCode.invalid_request, "topics are asked for by their ids from version 12 on")
        if (name is None and topic_id is None) or (name or topic_id) in seen:
            continue
        seen.add(name or topic_id)
        if name is None:
            found = request.broker.logs.metadata_image.topic_by_id(topic_id)
            if found is None:
                yield _failed_topic(request, None, ErrorCode.unknown_topic_id, topic_id)
            else:
                yield _topic(request, found)
            continue
        yield _by_name(request, name)


def _by_name(request: Request, name: str) -> Message:
    found = request.broker.logs.metadata_image.topics.get(name)
    if found is not None:
        return _topic(request, found)
    if invalid_topic_name_reason(name) is not None:
        return _failed_topic(request, name, ErrorCode.invalid_topic_exception)
    return _failed_topic(request, name, ErrorCode.unknown_topic_or_partition)


def _failed_topic(request: Request, name: str | None, code: ErrorCode, topic_id: Any = None) -> Message:
    asks = given(request.body, "include_topic_authorized_operations", False)
    return {
        "error_code": int(code),
        "name": name,
        "topic_id": topic_id or ZERO_UUID,
        "is_internal": name is not None and is_internal(name),
        "partitions": [],
        # Those of a topic that has no name are not answered.
        "topic_authorized_operations": TOPIC_OPERATIONS if asks and name is not None else NOT_ASKED,
    }


def _topic(request: Request, topic: TopicImage) -> Message:
    asks = given(request.body, "include_topic_authorized_operations", False)
    return {
        "error_code": NO_ERROR,
        "name": topic.name,
        "topic_id": topic.topic_id or ZERO_UUID,
        "is_internal": is_internal(topic.name),
        "partitions": [
            partition_answer(request, number, partition) for number, partition in sorted(topic.partitions.items())
        ],
        "topic_authorized_operations": TOPIC_OPERATIONS if asks else NOT_ASKED,
    }


def partition_answer(request: Request, number: int, partition: PartitionImage) -> dict[str, Any]:
    """Return a partition: this broker has and leads it."""
    return {
        "error_code": NO_ERROR,
        "partition_index": number,
        "leader_id": request.broker.node_id,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": [request.broker.node_id],
        "isr_nodes": [request.broker.node_id],
        "offline_replicas": [],
    }
