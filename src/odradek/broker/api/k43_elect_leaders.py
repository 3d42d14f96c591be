"""ElectLeaders: this broker leads every partition, so no election is needed.

v1 (KIP-460) adds the type of the election, and an error for all of it; v2 is the first flexible version.

Source in Kafka: `ReplicationControlManager.electLeaders`.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.failures import failure
from odradek.broker.protocol import Message, given
from odradek.broker.topic_names import shown_topic
from odradek.broker.turns import Work, each_partition

_PREFERRED, _UNCLEAN = 0, 1


def _all_failed(request: Request, code: int, text: str) -> Message:
    return {**failure(request.header, request.body, code, text, at_top=False), "error_code": code}


def _answer(number: int, code: int, text: str) -> Message:
    return {"partition_id": number, "error_code": code, "error_message": text}


@api(43, "ElectLeaders", range(3), failed=_all_failed)
def elect_leaders(request: Request) -> Work[Message]:
    """Answer that there are leaders."""
    if given(request.body, "election_type", _PREFERRED) not in (_PREFERRED, _UNCLEAN):
        kind = request.body.election_type
        raise ApiError(ErrorCode.invalid_request, f"Value {kind} must be one of [PREFERRED, UNCLEAN]")
    topics = request.broker.logs.metadata_image.topics
    if request.body.topic_partitions is None:
        # If all partitions are asked for, only those are answered that need an election: none.
        return {
            "error_code": NO_ERROR,
            "replica_election_results": [{"topic": name, "partition_result": []} for name in topics],
        }

    def answer(asked: Any, number: int) -> Message:
        name = asked.topic
        topic = topics.get(name)
        if topic is None or number not in topic.partitions:
            what = f"topic as {shown_topic(name)}" if topic is None else f"partition as {name}-{number}"
            return _answer(number, int(ErrorCode.unknown_topic_or_partition), f"No such {what}")
        error = ApiError(ErrorCode.election_not_needed)
        return _answer(number, error.error_code, error.reason)

    found = yield from each_partition(request.body.topic_partitions, "partitions", answer)
    results = [{"topic": topic.topic, "partition_result": partitions} for topic, partitions in found]
    return {"error_code": NO_ERROR, "replica_election_results": results}
