"""DeleteAcls: deletes the access control lists that filters match, and answers which ones.

A client must be allowed to ALTER the cluster. Without an authorizer the answer is SECURITY_DISABLED.

Versions: 1 has prefixed patterns (KIP-290), 3 resources of the type USER (KIP-373).

Source in Kafka: `AclApis.handleDeleteAcls`, `AclControlManager.deleteAcls`.
"""

from __future__ import annotations

from functools import partial
from itertools import compress
from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.api.acl_requests import acl_filter
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.protocol import Message
from odradek.broker.turns import Work, each
from odradek.coordination.authorization.acls import Acl, AclFilter
from odradek.errors import PolicyViolationError


def _failed(request: Request, code: int, text: str) -> Message:
    result = {"error_code": code, "error_message": text, "matching_acls": []}
    return {"filter_results": [result] * len(request.body.filters)}


@api(31, "DeleteAcls", range(1, 4), failed=_failed)
async def delete_acls(request: Request) -> Message:
    """Delete access control lists."""
    broker, filters = request.broker, request.body.filters
    wanted = await broker.turns.finish(each(filters, partial(acl_filter, "DeleteAcls")))
    if broker.authorization is None:
        raise ApiError(ErrorCode.security_disabled, "No Authorizer is configured.")
    reasons = await broker.turns.finish(each(wanted, AclFilter.why_invalid))
    valid = list(compress(wanted, [reason is None for reason in reasons]))
    try:
        delete = partial(broker.logs.metadata.delete_acls, valid)
        deleted = iter(await broker.authorization.change(delete, broker.run) if valid else ())
    except PolicyViolationError as error:
        raise ApiError(ErrorCode.invalid_request, str(error)) from None
    return {"filter_results": await broker.turns.finish(_results(reasons, deleted))}


def _results(reasons: list[str | None], deleted: Any) -> Work[list[Message]]:
    results: list[Message] = []
    for reason in reasons:
        code = NO_ERROR if reason is None else int(ErrorCode.invalid_request)
        acls = [] if reason is not None else (yield from each(next(deleted), _deleted))
        results.append({"error_code": code, "error_message": reason, "matching_acls": acls})
        yield
    return results


def _deleted(acl: Acl) -> Message:
    return {
        "error_code": NO_ERROR,
        "error_message": None,
        "resource_type": int(acl.resource_type),
        "resource_name": acl.resource_name,
        "pattern_type": int(acl.pattern_type),
        "principal": acl.principal,
        "host": acl.host,
        "operation": int(acl.operation),
        "permission_type": int(acl.permission_type),
    }
