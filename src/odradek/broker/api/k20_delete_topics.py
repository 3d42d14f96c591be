"""DeleteTopics: by their names, or by their ids.

The partitions are deleted at once, their files after `file.delete.delay.ms`. v4 and later give reasons, v5 that
quotas are used up (KIP-599); v6 takes ids (KIP-516).

Source in Kafka: `ControllerApis.deleteTopics`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError, code_of, message_of
from odradek.broker.protocol import Message
from odradek.broker.quotas.client_quotas import Mutations
from odradek.broker.turns import Work
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.errors import UnknownTopicOrPartitionError
from odradek.storage.metadata.metadata_image import MetadataImage

_FIRST_STRICT = 5
_FIRST_WITH_STATES = 6
_FIRST_THAT_KNOWS_DISABLED = 3


def _named(request: Request) -> list[tuple[str | None, UUID | None]]:
    if request.version >= _FIRST_WITH_STATES:
        return [(topic.name, topic.topic_id) for topic in request.body.topics]
    return [(name, None) for name in request.body.topic_names]


def _all_failed(request: Request, code: int, text: str) -> Message:
    return {"responses": [_answer(name, topic_id, code) for name, topic_id in _named(request)]}


def _answer(name: str | None, topic_id: UUID | None, code: int = NO_ERROR, text: str | None = None) -> Message:
    return {"name": name, "topic_id": topic_id, "error_code": code, "error_message": text}


@api(20, "DeleteTopics", range(1, 7), failed=_all_failed)
async def delete_topics(request: Request) -> Message:
    """Delete topics."""
    broker = request.broker
    if not broker.config["delete.topic.enable"]:
        known = request.version >= _FIRST_THAT_KNOWS_DISABLED
        raise ApiError(ErrorCode.topic_deletion_disabled if known else ErrorCode.invalid_request)
    answers: list[Message] = []
    mutations = request.mutations(_FIRST_STRICT)
    going = await broker.turns.finish(_within_quota(request, mutations, answers))
    if not going:
        return {"throttle_time_ms": mutations.throttle_ms, "responses": answers}
    failed = await broker.topics.change_all(going, broker.logs.delete_topics, _is_deleted)
    for name, error in failed.items():
        if isinstance(error, UnknownTopicOrPartitionError):
            # Kafka's controller knows topics by their ids here, also if the client has named them.
            error = ApiError(ErrorCode.unknown_topic_id)
        failure = () if error is None else (code_of(error), message_of(error))
        answers.append(_answer(name, going[name], *failure))
    await broker.topics_deleted({name: going[name] for name, error in failed.items() if error is None})
    return {"throttle_time_ms": mutations.throttle_ms, "responses": answers}


def _is_deleted(image: MetadataImage, name: str, topic_id: UUID | None) -> bool:
    topic = image.topics.get(name)
    return topic is None or topic.topic_id != topic_id


def _within_quota(request: Request, mutations: Mutations, answers: list[Message]) -> Work[Mapping[str, UUID | None]]:
    """Return the topics to be deleted that the client's quota allows; add an answer for each other one."""
    image, allowed = request.broker.logs.metadata_image, {}
    for name, topic_id in (yield from _going(request, answers)).items():
        yield
        if mutations.record(len(image.topics[name].partitions)):
            allowed[name] = topic_id
        else:
            answers.append(_answer(name, topic_id, int(ErrorCode.throttling_quota_exceeded)))
    return allowed


def _going(request: Request, answers: list[Message]) -> Work[Mapping[str, UUID | None]]:
    """Return the topics to be deleted; add an answer for each that cannot be."""
    invalid, image = int(ErrorCode.invalid_request), request.broker.logs.metadata_image
    named = _named(request)
    names = Counter(name for name, topic_id in named if name is not None and topic_id is None)
    ids = Counter(topic_id for name, topic_id in named if name is None and topic_id is not None)
    for name, topic_id in named:
        yield
        if name is None and topic_id is None:
            answers.append(_answer(None, None, invalid, "Neither topic name nor id were specified."))
        elif name is not None and topic_id is not None:
            answers.append(_answer(name, topic_id, invalid, "You may not specify both topic name and topic id."))
    deletes_all = request.may(Operation.DELETE, ResourceType.CLUSTER, is_told=False)

    def may(operation: Operation, name: str) -> bool:
        return deletes_all or request.may(operation, ResourceType.TOPIC, name)

    denied = ApiError(ErrorCode.topic_authorization_failed)
    going: dict[str, UUID | None] = {}
    for topic_id, times in ids.items():
        yield
        topic = image.topic_by_id(topic_id)
        if times > 1:
            answers.append(_answer(None, topic_id, invalid, "Duplicate topic id."))
        elif topic is None:
            error = ApiError(ErrorCode.unknown_topic_id)
            answers.append(_answer(None, topic_id, error.error_code, error.reason))
        elif not may(Operation.DELETE, topic.name):
            shown = topic.name if may(Operation.DESCRIBE, topic.name) else None
            answers.append(_answer(shown, topic_id, denied.error_code, denied.reason))
        else:
            going[topic.name] = topic_id
    for name, times in names.items():
        yield
        topic = image.topics.get(name)
        if times > 1:
            answers.append(_answer(name, None, invalid, "Duplicate topic name."))
        elif not may(Operation.DESCRIBE, name):
            answers.append(_answer(name, None, denied.error_code, denied.reason))
        elif topic is None:
            error = ApiError(ErrorCode.unknown_topic_or_partition)
            answers.append(_answer(name, None, error.error_code, error.reason))
        elif not may(Operation.DELETE, name):
            answers.append(_answer(name, None, denied.error_code, denied.reason))
        elif name in going or topic.topic_id in ids:
            going.pop(name, None)
            reason = "The provided topic name maps to an ID that was already supplied."
            answers.append(_answer(name, topic.topic_id, invalid, reason))
        else:
            going[name] = topic.topic_id
    return going
