"""FindCoordinator: which broker works on a group, or on a transactional id: this one.

The internal topic is created by the first one who asks. Apache Kafka answers COORDINATOR_NOT_AVAILABLE meanwhile, and
clients ask again; here it is there at once.

v1 adds transactions (KIP-98), v4 several keys in a request (KIP-699); v6 adds share groups (KIP-932), which are refused
as by a broker without them.

Source in Kafka: `KafkaApis.handleFindCoordinatorRequest`.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError, code_of, message_of
from odradek.broker.protocol import Message, given
from odradek.errors import OdradekError
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

_FIRST_WITH_SEVERAL = 4
_TOPICS = {0: CONSUMER_OFFSETS_TOPIC, 1: TRANSACTION_STATE_TOPIC}
_SHARE = 2
_NO_NODE = {"node_id": -1, "host": "", "port": -1}


def _failed(request: Request, code: int, text: str) -> Message:
    if request.version < _FIRST_WITH_SEVERAL:
        return {"error_code": code, "error_message": text, **_NO_NODE}
    told = text if code == ErrorCode.invalid_request and request.body.key_type != _SHARE else ""
    return {
        "coordinators": [
            {"key": key, "error_code": code, "error_message": told, **_NO_NODE} for key in request.body.coordinator_keys
        ]
    }


@api(10, "FindCoordinator", range(7), failed=_failed)
def find_coordinator(request: Request) -> Message:
    """Answer that it is this broker."""
    topic = _TOPICS.get(given(request.body, "key_type", 0))
    if topic is None:
        raise ApiError(ErrorCode.invalid_request)
    try:
        request.broker.topics.internal(topic)
    except (OdradekError, OSError) as error:
        raise ApiError(ErrorCode.coordinator_not_available, f"{code_of(error)}: {message_of(error)}") from error
    endpoint = request.broker.endpoint(request.connection.listener)
    node = {"node_id": request.broker.node_id, "host": endpoint.host, "port": endpoint.port}
    if request.version < _FIRST_WITH_SEVERAL:
        return {"error_code": NO_ERROR, "error_message": "NONE", **node}
    return {
        "coordinators": [
            {"key": key, "error_code": NO_ERROR, "error_message": "", **node} for key in request.body.coordinator_keys
        ]
    }
