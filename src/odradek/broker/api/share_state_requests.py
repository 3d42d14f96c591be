"""What the APIs of the share coordinator have in common: an answer for each partition of a request.

Source in Kafka: `ShareCoordinatorService`.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from odradek.broker.api import Request
from odradek.broker.errors import NO_ERROR, code_of, message_of
from odradek.broker.protocol import Message
from odradek.broker.turns import rest
from odradek.coordination.errors import RefusedError
from odradek.errors import OdradekError
from odradek.messages.uuids import ZERO_UUID


async def answered(
    request: Request, what: str, act: Callable[[str, UUID, Any], Awaitable[Message]], *, needs_partitions: bool = True
) -> Message:
    """Do something with each partition of a request, and answer for it.

    Args:
        request: The request.
        what: What is done, for the message of an error.
        act: Called with the group, the topic's id and what the request says about a partition; returns the answer.
        needs_partitions: Whether a topic without partitions lets the whole answer be empty.
    """
    body = request.body
    if not body.group_id or (needs_partitions and not all(topic.partitions for topic in body.topics)):
        return {"results": []}
    count = itertools.count()
    found: dict[UUID, dict[int, Message]] = {}
    for topic in body.topics:
        topic_id = topic.topic_id or ZERO_UUID
        for one in topic.partitions:
            try:
                answer = {"error_code": NO_ERROR, **await act(body.group_id, topic_id, one)}
            except (OdradekError, OSError) as error:
                text = message_of(error)
                if not isinstance(error, RefusedError) and not _is_of_partition(error):
                    text = f"Unable to {what} share group state: {text}"
                answer = {"error_code": code_of(error), "error_message": text, "state_epoch": 0, "start_offset": 0}
                answer["leader_epoch"] = 0
            found.setdefault(topic_id, {})[one.partition] = {"partition": one.partition, **answer}
            await rest(next(count))
    return {
        "results": [{"topic_id": topic_id, "partitions": list(answers.values())} for topic_id, answers in found.items()]
    }


_UNKNOWN_TOPIC_OR_PARTITION = 3


def _is_of_partition(error: BaseException) -> bool:
    return code_of(error) == _UNKNOWN_TOPIC_OR_PARTITION
