"""What requests about access control lists have in common.

Source in Kafka: `CreateAclsRequest`, `DeleteAclsRequest`, `DescribeAclsRequest`.
"""

from __future__ import annotations

from typing import Any

from odradek.coordination.authorization.acls import AclFilter, of_codes
from odradek.errors import ProtocolError


def check_known(name: str, *codes: int) -> None:
    """Check the types and the operation of a request.

    Args:
        name: The name of the API.
        codes: Their codes.

    Raises:
        ProtocolError: One is UNKNOWN: Apache Kafka cannot read the request either.
    """
    if 0 in codes:
        raise ProtocolError(f"{name} with an unknown type or operation")


def acl_filter(name: str, one: Any) -> AclFilter:
    """Return a filter of a request.

    Raises:
        ProtocolError: A type or the operation is UNKNOWN.
    """
    check_known(name, one.resource_type_filter, one.pattern_type_filter, one.operation, one.permission_type)
    return AclFilter(
        *of_codes(
            one.resource_type_filter,
            one.resource_name_filter,
            one.pattern_type_filter,
            one.principal_filter,
            one.host_filter,
            one.operation,
            one.permission_type,
        )
    )
