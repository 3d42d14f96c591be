"""Which operations there are with resources of each type, as bits by the operation's code.

Source in Kafka: `AclEntry.supportedOperations`, `AuthHelper.authorizedOperations`.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.coordination.authorization.acls import Operation, ResourceType

NOT_ASKED = -(1 << 31)
"""The client did not ask for them."""


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


OPERATIONS: Mapping[ResourceType, int] = {
    ResourceType.TOPIC: _bits(
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: _bits(
        Operation.READ, Operation.DESCRIBE, Operation.DELETE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
    ),
    ResourceType.CLUSTER: _bits(
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
        Operation.ALTER,
        Operation.DESCRIBE,
    ),
}
