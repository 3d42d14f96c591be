"""FindCoordinator: which broker works on a group, or on a transactional id: this one.

The internal topic is created by the first one who asks. Apache Kafka answers COORDINATOR_NOT_AVAILABLE meanwhile, and
clients ask again; here it is there at once.

v1 adds transactions (KIP-98), v4 several keys in a request (KIP-699); v6 adds the partitions of share groups (KIP-932):
`GROUP:TOPIC ID:PARTITION`.

Source in Kafka: `KafkaApis.handleFindCoordinatorRequest`.
"""

from __future__ import annotations

import re

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.api.group_answers import trim
from odradek.broker.errors import NO_ERROR, ApiError, code_of, denied, message_of
from odradek.broker.failures import failure
from odradek.broker.protocol import Message, given
from odradek.broker.turns import each
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.errors import OdradekError
from odradek.messages.uuids import parse_uuid
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC

_FIRST_WITH_SEVERAL = 4
_FIRST_WITH_SHARE = 6
_TOPICS = {0: CONSUMER_OFFSETS_TOPIC, 1: TRANSACTION_STATE_TOPIC, 2: SHARE_GROUP_STATE_TOPIC}
_SHARE = 2
_ASKED = {
    0: (Operation.DESCRIBE, ResourceType.GROUP),
    1: (Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
    _SHARE: (Operation.CLUSTER_ACTION, ResourceType.CLUSTER),
}
"""What a client must be allowed to do with a key, by the type of the key."""
_PARTITION = re.compile(r"[-+]?[0-9]{1,10}", re.ASCII)


_NOBODY: Message = {"node_id": -1, "host": "", "port": -1}


def _refused(key: str, code: int) -> Message:
    return {"key": key, "error_code": code, "error_message": "", **_NOBODY}


def _is_share_key(key: str) -> bool:
    """Return whether a key names a partition of a share group."""
    # As in Java, what is empty at the end is no part; a group's id may have colons.
    before, _, number = key.rstrip(":").rpartition(":")
    group_id, _, topic_id = before.rpartition(":")
    try:
        parse_uuid(topic_id)
    except ValueError:
        return False
    return bool(trim(group_id)) and _PARTITION.fullmatch(number) is not None and -(1 << 31) <= int(number) < 1 << 31


def _failed(request: Request, code: int, text: str) -> Message:
    is_told = code == ErrorCode.invalid_request and given(request.body, "key_type") != _SHARE
    is_told = is_told or request.version < _FIRST_WITH_SEVERAL
    return failure(request.header, request.body, code, text if is_told else "")


@api(10, "FindCoordinator", range(7), failed=_failed)
async def find_coordinator(request: Request) -> Message:
    """Answer that it is this broker."""
    key_type = given(request.body, "key_type", 0)
    topic = _TOPICS.get(key_type)
    if topic is None or (key_type == _SHARE and request.version < _FIRST_WITH_SHARE):
        raise ApiError(ErrorCode.invalid_request)
    operation, kind = _ASKED[key_type]
    if key_type == _SHARE:
        request.check(operation, kind)
    elif request.version < _FIRST_WITH_SEVERAL:
        request.check(operation, kind, request.body.key)
    else:
        keys = request.body.coordinator_keys
        allowed, _ = await request.broker.turns.finish(request.split(operation, kind, keys))
        if not allowed:
            # Such a client must not have the topic created either.
            return {"coordinators": [_refused(key, denied(kind).error_code) for key in keys]}
    try:
        await request.broker.topics.internal(topic)
    except (OdradekError, OSError) as error:
        raise ApiError(ErrorCode.coordinator_not_available, f"{code_of(error)}: {message_of(error)}") from error
    endpoint = request.broker.endpoint(request.connection.listener)
    node = {"node_id": request.broker.node_id, "host": endpoint.host, "port": endpoint.port}
    if request.version < _FIRST_WITH_SEVERAL:
        return {"error_code": NO_ERROR, "error_message": "NONE", **node}

    def found(key: str) -> Message:
        if key_type != _SHARE and not request.may(operation, kind, key):
            return _refused(key, denied(kind).error_code)
        if key_type == _SHARE and not _is_share_key(key):
            return _refused(key, int(ErrorCode.invalid_request))
        return {"key": key, "error_code": NO_ERROR, "error_message": "", **node}

    return {"coordinators": await request.broker.turns.finish(each(request.body.coordinator_keys, found))}
