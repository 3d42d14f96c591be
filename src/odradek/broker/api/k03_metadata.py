"""Metadata: the brokers, and the topics with their partitions and leaders. There is one broker, and it leads them all.

A topic that is asked for by its name is created, if the client and `auto.create.topics.enable` allow it. Apache Kafka
answers UNKNOWN_TOPIC_OR_PARTITION then, and clients ask again; here the topic is there at once, and so in the answer.
Only after a deletion is the first answer that of Kafka, from which clients learn of the deletion.

In v1 an empty list means no topics, null all of them; v4 (KIP-204) says whether topics may be created; v8 (KIP-430)
adds the operations that are allowed; v10 (KIP-516) topic ids, v12 lets topics be asked for by them; v13 (KIP-1102) an
error for all of it, which is not needed here.

Source in Kafka: `KafkaApis.handleTopicMetadataRequest`, `KRaftMetadataCache`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.operations import NOT_ASKED
from odradek.broker.protocol import Message, given
from odradek.broker.turns import Work, each, result_of
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.errors import BrokerError
from odradek.messages.uuids import ZERO_UUID
from odradek.printable import logger
from odradek.storage.metadata.metadata_image import PartitionImage, TopicImage
from odradek.storage.metadata.new_topic import NewTopic
from odradek.storage.names import invalid_topic_name_reason, is_internal

_logger = logger(__name__)

_FIRST_WITH_NULL = 1
_FIRST_WITH_IDS = 12


def _all_failed(request: Request, code: int, text: str) -> Message:
    topics: list[Message] = [
        {"error_code": code, "name": topic.name or "", "topic_id": given(topic, "topic_id")}
        for topic in request.body.topics or ()
    ]
    return {"topics": topics, "error_code": code}


@api(3, "Metadata", range(14), failed=_all_failed)
def metadata(request: Request) -> Message | Awaitable[Message]:
    """Answer which brokers, topics and partitions there are."""
    return request.broker.turns.take(_metadata(request))


def _metadata(request: Request) -> Work[Message]:
    missing = yield from _to_create(request)
    deleted = (yield from _create(request, missing)) if missing else ()
    return (yield from _answer(request, deleted))


def _may_create(request: Request, name: str, *, is_told: bool = False) -> bool:
    if request.may(Operation.CREATE, ResourceType.CLUSTER, is_told=False):
        return True
    return request.may(Operation.CREATE, ResourceType.TOPIC, name, is_told=is_told)


def _creates(request: Request) -> bool:
    """Return whether topics that are missing are created."""
    may_create: bool = given(request.body, "allow_auto_topic_creation", True)
    return may_create and request.broker.config["auto.create.topics.enable"]


def _to_create(request: Request) -> Work[list[NewTopic]]:
    """Return the topics that are created, as the client asks for them."""
    if not _creates(request):
        return []
    topics = request.broker.logs.metadata_image.topics
    missing: dict[str, NewTopic] = {}
    for topic in request.body.topics or ():
        name = topic.name
        if (
            name is not None
            and name not in topics
            and name not in missing
            and invalid_topic_name_reason(name) is None
            and request.may(Operation.DESCRIBE, ResourceType.TOPIC, name, is_told=False)
            and _may_create(request, name)
        ):
            missing[name] = request.broker.topics.automatic(name)
        yield
    return list(missing.values())


def _create(request: Request, missing: Iterable[NewTopic]) -> Work[Collection[str]]:
    """Work: create topics; returns which of them were deleted before."""
    topics = request.broker.topics
    refused: dict[str, list[str]] = {}
    new = yield from _within_quota(request, missing, refused)
    if new:
        results = yield from result_of(topics.create(new))
        for topic, made in zip(new, results, strict=True):
            if isinstance(made, BrokerError):
                refused.setdefault(str(made), []).append(topic.name)
            elif isinstance(made, Exception):
                raise made
            yield
    for reason, names in refused.items():
        # Apache Kafka does not tell clients either: it creates topics after its answer.
        _logger.warning("%d topics, %s among them, are not created: %s", len(names), names[0], reason)
    return frozenset(topics.take_deleted(topic.name for topic in new))


def _within_quota(request: Request, topics: Iterable[NewTopic], refused: dict[str, list[str]]) -> Work[list[NewTopic]]:
    """Work: return the topics that the client's quota allows; add the others to `refused`."""
    mutations = request.mutations(0)
    allowed = []
    for topic in topics:
        if mutations.record(topic.partitions):
            allowed.append(topic)
        else:
            refused.setdefault("the client's controller_mutation_rate is used up", []).append(topic.name)
        yield
    return allowed


def _answer(request: Request, deleted: Collection[str]) -> Work[Message]:
    broker, body = request.broker, request.body
    endpoint = broker.endpoint(request.connection.listener)
    wanted = body.topics
    image = broker.logs.metadata_image
    if wanted is None or (request.version < _FIRST_WITH_NULL and not wanted):
        names, _ = yield from request.split(Operation.DESCRIBE, ResourceType.TOPIC, list(image.topics), is_told=False)
        topics = yield from each((image.topics[name] for name in names), partial(_topic, request))
    else:
        topics = yield from each(_wanted(request, wanted, deleted), lambda topic: topic)
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
        "cluster_authorized_operations": cluster_operations(request) if asks else NOT_ASKED,
        "error_code": NO_ERROR,
    }


def cluster_operations(request: Request) -> int:
    """Return what a client may do with the cluster; nothing if it may not describe it."""
    may = request.may(Operation.DESCRIBE, ResourceType.CLUSTER)
    return request.operations(ResourceType.CLUSTER) if may else 0


def _wanted(request: Request, wanted: Iterable[Any], deleted: Collection[str]) -> Iterable[Message]:
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
            elif not request.may(Operation.DESCRIBE, ResourceType.TOPIC, found.name):
                yield _failed_topic(request, None, ErrorCode.topic_authorization_failed, topic_id)
            else:
                yield _topic(request, found)
            continue
        if not request.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
            yield _denied_topic(name)
            continue
        if name in deleted:
            yield _failed_topic(request, name, ErrorCode.unknown_topic_or_partition)
        else:
            yield _by_name(request, name)


def _by_name(request: Request, name: str) -> Message:
    found = request.broker.logs.metadata_image.topics.get(name)
    if found is not None:
        return _topic(request, found)
    if _creates(request) and not _may_create(request, name, is_told=True):
        return {**_denied_topic(name), "is_internal": is_internal(name)}
    if invalid_topic_name_reason(name) is not None:
        return _failed_topic(request, name, ErrorCode.invalid_topic_exception)
    return _failed_topic(request, name, ErrorCode.unknown_topic_or_partition)


def _denied_topic(name: str) -> Message:
    """Return the answer for a topic of which the client may not even know whether there is one."""
    return {
        "error_code": int(ErrorCode.topic_authorization_failed),
        "name": name,
        "topic_id": ZERO_UUID,
        "is_internal": False,
        "partitions": [],
        "topic_authorized_operations": NOT_ASKED,
    }


def _failed_topic(request: Request, name: str | None, code: ErrorCode, topic_id: Any = None) -> Message:
    asks = given(request.body, "include_topic_authorized_operations", False)
    return {
        "error_code": int(code),
        "name": name,
        "topic_id": topic_id or ZERO_UUID,
        "is_internal": name is not None and is_internal(name),
        "partitions": [],
        # Those of a topic that has no name are not answered.
        "topic_authorized_operations": (
            request.operations(ResourceType.TOPIC, name) if asks and name is not None else NOT_ASKED
        ),
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
        "topic_authorized_operations": request.operations(ResourceType.TOPIC, topic.name) if asks else NOT_ASKED,
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
