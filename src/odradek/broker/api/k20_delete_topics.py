"""DeleteTopics: by their names, or by their ids.

The partitions are gone at once; their files follow after `file.delete.delay.ms`. v4 and later say why not; v6 takes
ids (KIP-516).

Source in Kafka: `ControllerApis.deleteTopics`.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError, code_of, message_of
from odradek.broker.protocol import Message
from odradek.errors import OdradekError

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
    going = _going(request, answers)
    if not going:
        return {"responses": answers}

    def delete() -> list[tuple[str, OdradekError | None]]:
        done: list[tuple[str, OdradekError | None]] = []
        for name in going:
            try:
                broker.logs.delete_topic(name)
                done.append((name, None))
            except OdradekError as error:
                done.append((name, error))
        return done

    done = await broker.topics.change(delete)
    for name, error in done:
        failure = () if error is None else (code_of(error), message_of(error))
        answers.append(_answer(name, going[name], *failure))
    broker.topics_deleted([name for name, error in done if error is None])
    return {"responses": answers}


def _going(request: Request, answers: list[Message]) -> Mapping[str, UUID | None]:
    """Return the topics to be deleted; of those that cannot be, add an answer."""
    invalid, image = int(ErrorCode.invalid_request), request.broker.logs.metadata_image
    named = _named(request)
    names = [name for name, topic_id in named if name is not None and topic_id is None]
    ids = [topic_id for name, topic_id in named if name is None and topic_id is not None]
    for name, topic_id in named:
        if name is None and topic_id is None:
            answers.append(_answer(None, None, invalid, "Neither topic name nor id were specified."))
        elif name is not None and topic_id is not None:
            answers.append(_answer(name, topic_id, invalid, "You may not specify both topic name and topic id."))
    going: dict[str, UUID | None] = {}
    for topic_id in dict.fromkeys(ids):
        topic = image.topic_by_id(topic_id)
        if ids.count(topic_id) > 1:
            answers.append(_answer(None, topic_id, invalid, "Duplicate topic id."))
        elif topic is None:
            error = ApiError(ErrorCode.unknown_topic_id)
            answers.append(_answer(None, topic_id, error.error_code, error.reason))
        else:
            going[topic.name] = topic_id
    for name in dict.fromkeys(names):
        topic = image.topics.get(name)
        if names.count(name) > 1:
            answers.append(_answer(name, None, invalid, "Duplicate topic name."))
        elif topic is None:
            error = ApiError(ErrorCode.unknown_topic_or_partition)
            answers.append(_answer(name, None, error.error_code, error.reason))
        elif name in going or topic.topic_id in ids:
            going.pop(name, None)
            reason = "The provided topic name maps to an ID that was already supplied."
            answers.append(_answer(name, topic.topic_id, invalid, reason))
        else:
            going[name] = topic.topic_id
    return going
