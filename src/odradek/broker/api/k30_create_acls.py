"""CreateAcls: creates access control lists, in the metadata of the folder.

A client must be allowed to ALTER the cluster. One that there is already is created again without an error. Without an
authorizer the answer is SECURITY_DISABLED.

Versions: 1 has prefixed patterns (KIP-290), 3 resources of the type USER (KIP-373).

Source in Kafka: `AclApis.handleCreateAcls`, `AclControlManager.createAcls`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.api.acl_requests import check_known
from odradek.broker.errors import NO_ERROR, ApiError, code_of, message_of
from odradek.broker.protocol import Message
from odradek.broker.turns import each
from odradek.coordination.authorization.acls import Acl, Operation, PatternType, PermissionType, ResourceType, of_codes
from odradek.errors import OdradekError

_OF_FILTERS = (
    (PatternType.ANY, PatternType.MATCH),
    (ResourceType.ANY,),
    (Operation.ANY,),
    (PermissionType.ANY,),
)


def _codes(one: Any) -> tuple[int, int, int, int]:
    return one.resource_pattern_type, one.resource_type, one.operation, one.permission_type


def _failed(request: Request, code: int, text: str) -> Message:
    return {"results": [{"error_code": code, "error_message": text}] * len(request.body.creations)}


@api(30, "CreateAcls", range(1, 4), failed=_failed)
async def create_acls(request: Request) -> Message:
    """Create access control lists."""
    broker, creations = request.broker, request.body.creations
    await broker.turns.finish(each(creations, _check_known))
    if broker.authorization is None:
        raise ApiError(ErrorCode.security_disabled, "No Authorizer is configured.")
    await broker.turns.finish(each(creations, _check_definite))
    valid: list[Acl] = []
    reasons = await broker.turns.finish(each(creations, partial(_why_invalid, valid)))
    made: Message = {"error_code": NO_ERROR, "error_message": None}
    if valid:
        try:
            await broker.authorization.change(partial(broker.logs.metadata.create_acls, valid), broker.run)
        except OdradekError as error:
            made = {"error_code": code_of(error), "error_message": message_of(error)}
    invalid = int(ErrorCode.invalid_request)

    def result(reason: str | None) -> Message:
        return made if reason is None else {"error_code": invalid, "error_message": reason}

    return {"results": await broker.turns.finish(each(reasons, result))}


def _check_known(one: Any) -> None:
    check_known("CreateAcls", *_codes(one))


def _check_definite(one: Any) -> None:
    if any(code in wrong for code, wrong in zip(_codes(one), _OF_FILTERS, strict=True)):
        # Apache Kafka fails as well: these are for filters.
        raise ApiError(ErrorCode.unknown_server_error)


def _why_invalid(valid: list[Acl], one: Any) -> str | None:
    """Return why an access control list cannot be made; otherwise add it to those that can."""
    acl = Acl(
        *of_codes(
            one.resource_type,
            one.resource_name,
            one.resource_pattern_type,
            one.principal,
            one.host,
            one.operation,
            one.permission_type,
        )
    )
    reason = acl.why_invalid()
    if reason is None:
        valid.append(acl)
    return reason
