"""What each API asks the authorizer for.

    gates    for the whole request, before it is handled: without one of them all of it is refused
    asked    for the things that a request names, by the API's own module: it refuses those, or leaves them out

APIs that are in neither table serve nobody where there is an authorizer: a new API has to say what it asks for.

Source in Kafka: `KafkaApis`, `ControllerApis`, `AclApis`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from odradek.broker.api import Request
from odradek.coordination.authorization.acls import CLUSTER_NAME, Operation, ResourceType

_Asked: TypeAlias = tuple[Operation, ResourceType]


class Gate(NamedTuple):
    """What somebody must be allowed to do, to send a request at all.

    Attributes:
        operation: The operation.
        resource_type: The type of the resource.
        name: Returns the resource's name.
    """

    operation: Operation
    resource_type: ResourceType
    name: Callable[[Any], str]


class Access(NamedTuple):
    """What an API asks for.

    Attributes:
        gates: What is needed for the whole request, in this order.
        asked: What its module asks for.
    """

    gates: tuple[Gate, ...] = ()
    asked: tuple[_Asked, ...] = ()


def _cluster(operation: Operation) -> Gate:
    return Gate(operation, ResourceType.CLUSTER, lambda body: CLUSTER_NAME)


def _group(operation: Operation) -> Gate:
    return Gate(operation, ResourceType.GROUP, lambda body: body.group_id)


_ALTER_CLUSTER = Access((_cluster(Operation.ALTER),))
_CLUSTER_ACTION = Access((_cluster(Operation.CLUSTER_ACTION),))
_DESCRIBE_CLUSTER = Access((_cluster(Operation.DESCRIBE),))
_READ_GROUP = Access((_group(Operation.READ),))
_WRITE_TRANSACTIONAL_ID = Gate(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, lambda body: body.transactional_id)

_TOPIC_READ = (Operation.READ, ResourceType.TOPIC)
_TOPIC_WRITE = (Operation.WRITE, ResourceType.TOPIC)
_TOPIC_CREATE = (Operation.CREATE, ResourceType.TOPIC)
_TOPIC_DELETE = (Operation.DELETE, ResourceType.TOPIC)
_TOPIC_ALTER = (Operation.ALTER, ResourceType.TOPIC)
_TOPIC_DESCRIBE = (Operation.DESCRIBE, ResourceType.TOPIC)
_GROUP_READ = (Operation.READ, ResourceType.GROUP)
_GROUP_DELETE = (Operation.DELETE, ResourceType.GROUP)
_GROUP_DESCRIBE = (Operation.DESCRIBE, ResourceType.GROUP)
_ID_WRITE = (Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
_ID_DESCRIBE = (Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
_CLUSTER_ACTS = (Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
_CLUSTER_CREATE = (Operation.CREATE, ResourceType.CLUSTER)
_CLUSTER_DELETE = (Operation.DELETE, ResourceType.CLUSTER)
_CLUSTER_ALTER = (Operation.ALTER, ResourceType.CLUSTER)
_CLUSTER_DESCRIBE = (Operation.DESCRIBE, ResourceType.CLUSTER)
_CONFIG_OWNERS = (ResourceType.TOPIC, ResourceType.CLUSTER, ResourceType.GROUP)
_DESCRIBE_CONFIGS = tuple((Operation.DESCRIBE_CONFIGS, kind) for kind in _CONFIG_OWNERS)
_ALTER_CONFIGS = tuple((Operation.ALTER_CONFIGS, kind) for kind in _CONFIG_OWNERS)

ACCESS: Mapping[int, Access] = {
    0: Access(asked=(_ID_WRITE, _TOPIC_WRITE)),
    1: Access(asked=(_TOPIC_READ, _CLUSTER_ACTS)),
    2: Access(asked=(_TOPIC_DESCRIBE,)),
    3: Access(asked=(_TOPIC_DESCRIBE, _CLUSTER_CREATE, _TOPIC_CREATE, _CLUSTER_DESCRIBE)),
    8: Access((_group(Operation.READ),), (_TOPIC_READ,)),
    9: Access(asked=(_GROUP_DESCRIBE, _TOPIC_DESCRIBE)),
    10: Access(asked=(_GROUP_DESCRIBE, _ID_DESCRIBE, _CLUSTER_ACTS)),
    11: _READ_GROUP,
    12: _READ_GROUP,
    13: _READ_GROUP,
    14: Access(asked=(_GROUP_READ,)),
    15: Access(asked=(_GROUP_DESCRIBE,)),
    16: Access(asked=(_CLUSTER_DESCRIBE, _GROUP_DESCRIBE)),
    19: Access(asked=(_CLUSTER_CREATE, _TOPIC_CREATE, (Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC))),
    20: Access(asked=(_CLUSTER_DELETE, _TOPIC_DESCRIBE, _TOPIC_DELETE)),
    21: Access(asked=(_TOPIC_DELETE,)),
    22: Access(asked=(_ID_WRITE, (Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER), _TOPIC_WRITE)),
    23: Access(asked=(_CLUSTER_ACTS, _TOPIC_DESCRIBE)),
    24: Access(asked=(_CLUSTER_ACTS, _ID_WRITE, _TOPIC_WRITE)),
    25: Access((_WRITE_TRANSACTIONAL_ID, _group(Operation.READ))),
    26: Access((_WRITE_TRANSACTIONAL_ID,)),
    27: Access(asked=(_CLUSTER_ALTER, _CLUSTER_ACTS)),
    28: Access((_WRITE_TRANSACTIONAL_ID, _group(Operation.READ)), (_TOPIC_READ,)),
    29: _DESCRIBE_CLUSTER,
    30: _ALTER_CLUSTER,
    31: _ALTER_CLUSTER,
    32: Access(asked=_DESCRIBE_CONFIGS),
    33: Access(asked=_ALTER_CONFIGS),
    34: _ALTER_CLUSTER,
    35: _DESCRIBE_CLUSTER,
    37: Access(asked=(_TOPIC_ALTER,)),
    38: Access(asked=((Operation.CREATE_TOKENS, ResourceType.USER),)),
    41: Access(
        asked=((Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN), (Operation.DESCRIBE_TOKENS, ResourceType.USER))
    ),
    42: Access(asked=(_GROUP_DELETE,)),
    43: _ALTER_CLUSTER,
    44: Access(asked=_ALTER_CONFIGS),
    45: _ALTER_CLUSTER,
    46: _DESCRIBE_CLUSTER,
    47: Access((_group(Operation.DELETE),), (_TOPIC_READ,)),
    48: Access((_cluster(Operation.DESCRIBE_CONFIGS),)),
    49: Access((_cluster(Operation.ALTER_CONFIGS),)),
    50: _DESCRIBE_CLUSTER,
    51: _ALTER_CLUSTER,
    55: _DESCRIBE_CLUSTER,
    57: _ALTER_CLUSTER,
    60: Access(asked=(_CLUSTER_DESCRIBE,)),
    61: Access(asked=(_TOPIC_READ,)),
    65: Access(asked=(_ID_DESCRIBE, _TOPIC_DESCRIBE)),
    66: Access(asked=(_ID_DESCRIBE,)),
    68: Access(asked=(_GROUP_READ, _TOPIC_DESCRIBE)),
    69: Access(asked=(_GROUP_DESCRIBE, _TOPIC_DESCRIBE)),
    74: Access((_cluster(Operation.DESCRIBE_CONFIGS),)),
    75: Access(asked=(_TOPIC_DESCRIBE,)),
    76: Access(asked=(_GROUP_READ, _TOPIC_DESCRIBE)),
    77: Access(asked=(_GROUP_DESCRIBE, _TOPIC_DESCRIBE)),
    78: Access(asked=(_GROUP_READ, _TOPIC_READ)),
    79: Access(asked=(_GROUP_READ, _TOPIC_READ)),
    83: _CLUSTER_ACTION,
    84: _CLUSTER_ACTION,
    85: _CLUSTER_ACTION,
    86: _CLUSTER_ACTION,
    87: _CLUSTER_ACTION,
    90: Access(asked=(_GROUP_DESCRIBE, _TOPIC_DESCRIBE)),
    91: Access(asked=(_GROUP_READ, _TOPIC_READ)),
    92: Access(asked=(_GROUP_DELETE, _TOPIC_READ)),
    94: _ALTER_CLUSTER,
}
"""What each API asks for, by its key."""

OPEN = frozenset({17, 18, 36, 39, 40})
"""The APIs that everybody may use: clients log in with them, or show the secret of what they change."""

_NOBODY = Access((_cluster(Operation.CLUSTER_ACTION),))


def check_access(request: Request) -> None:
    """Check that the client may send a request at all.

    Raises:
        ApiError: It may not.
    """
    key = request.header.api_key
    if key in OPEN:
        return
    for operation, kind, name in ACCESS.get(key, _NOBODY).gates:
        request.check(operation, kind, name(request.body))
