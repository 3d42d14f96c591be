"""DescribeAcls: the access control lists that a filter matches.

A client must be allowed to DESCRIBE the cluster. Without an authorizer the answer is SECURITY_DISABLED.

Versions: 1 has prefixed patterns (KIP-290), 3 resources of the type USER (KIP-373).

Source in Kafka: `AclApis.handleDescribeAcls`.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.api.acl_requests import acl_filter
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.protocol import Message
from odradek.broker.turns import Work
from odradek.coordination.authorization.acls import Acl, PatternType, ResourceType


@api(29, "DescribeAcls", range(1, 4))
def describe_acls(request: Request) -> Work[Message]:
    """Answer the access control lists."""
    wanted = acl_filter("DescribeAcls", request.body)
    if request.broker.authorization is None:
        raise ApiError(ErrorCode.security_disabled, "No Authorizer is configured on the broker")
    resources: dict[tuple[ResourceType, str, PatternType], list[Message]] = {}
    for record in list(request.broker.logs.metadata_image.acls.values()):
        acl = Acl.of_record(record)
        if wanted.matches(acl):
            pattern = acl.resource_type, acl.resource_name, acl.pattern_type
            resources.setdefault(pattern, []).append(
                {
                    "principal": acl.principal,
                    "host": acl.host,
                    "operation": int(acl.operation),
                    "permission_type": int(acl.permission_type),
                }
            )
        yield
    return {
        "error_code": NO_ERROR,
        "error_message": None,
        "resources": [
            {"resource_type": int(kind), "resource_name": name, "pattern_type": int(pattern), "acls": acls}
            for (kind, name, pattern), acls in resources.items()
        ],
    }
