"""AlterUserScramCredentials: users get passwords for SCRAM, others lose them (KIP-554).

A request brings passwords that its client has salted and hashed; here they become keys, and are forgotten. The changes
of a request are written together, without those that are refused.

Source in Kafka: `ScramControlManager.alterCredentials`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.protocol import Message
from odradek.broker.turns import Work
from odradek.coordination.scram.credentials import (
    MAX_ITERATIONS,
    MECHANISMS_BY_TYPE,
    MIN_ITERATIONS,
    credential_of_salted_password,
)
from odradek.messages.metadata.metadata_records import RemoveUserScramCredentialRecord
from odradek.storage.metadata.cluster import MAX_RECORDS_PER_USER_OP, ScramChange
from odradek.storage.metadata.metadata_image import MetadataImage

_MOST_BYTES = 1024
"""How long a salt may be, and a salted password, which has 64 bytes at most if a client is right.

Kafka takes any. Each stranger who begins a login is sent the salt, and the whole metadata go through memory.
"""


def _failed(request: Request, code: int, text: str) -> Message:
    users = sorted({one.name for one in (*request.body.deletions, *request.body.upsertions)})
    return {"results": [_result(name, code, text) for name in users]}


@api(51, "AlterUserScramCredentials", range(1), failed=_failed)
async def alter_user_scram_credentials(request: Request) -> Message:
    """Change credentials."""
    broker = request.broker
    count = len(request.body.deletions) + len(request.body.upsertions)
    if count > MAX_RECORDS_PER_USER_OP:
        text = f"{count} credentials are more than {MAX_RECORDS_PER_USER_OP}, the most at a time"
        raise ApiError(ErrorCode.policy_violation, text)
    changes, refused = await broker.turns.finish(_checked(request))
    if changes:
        await broker.topics.change(partial(broker.logs.metadata.alter_scram_credentials, list(changes.values())))
    results = [_result(name, NO_ERROR, None) for name in changes]
    return {"results": results + [_result(name, error.error_code, error.reason) for name, error in refused.items()]}


def _result(name: str, code: int, text: str | None) -> dict[str, Any]:
    return {"user": name, "error_code": code, "error_message": text}


def _checked(request: Request) -> Work[tuple[dict[str, ScramChange], dict[str, ApiError]]]:
    """Work: return the changes by user, and why others are refused."""
    image = request.broker.logs.metadata_image
    changes: dict[str, ScramChange] = {}
    refused: dict[str, ApiError] = {}
    for one in (*request.body.deletions, *request.body.upsertions):
        if one.name in refused:
            continue
        try:
            if changes.pop(one.name, None) is not None:
                text = "A user credential cannot be altered twice in the same request"
                raise ApiError(ErrorCode.duplicate_resource, text)
            changes[one.name] = _change(image, one)
        except ApiError as error:
            refused[one.name] = error
        yield
    return changes, refused


def _change(image: MetadataImage, one: Any) -> ScramChange:
    if not image.has_scram:
        raise ApiError(ErrorCode.unsupported_version, "The current metadata.version does not support SCRAM")
    if not one.name:
        raise ApiError(ErrorCode.unacceptable_credential, "Username must not be empty")
    mechanism = MECHANISMS_BY_TYPE.get(one.mechanism)
    if mechanism is None:
        raise ApiError(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")
    iterations = getattr(one, "iterations", None)
    if iterations is None:
        if one.name not in image.scram_credentials.get(mechanism.type, {}):
            text = "Attempt to delete a user credential that does not exist"
            raise ApiError(ErrorCode.resource_not_found, text)
        return RemoveUserScramCredentialRecord(one.name, mechanism.type)
    if iterations < MIN_ITERATIONS:
        raise ApiError(ErrorCode.unacceptable_credential, "Too few iterations")
    if iterations > MAX_ITERATIONS:
        raise ApiError(ErrorCode.unacceptable_credential, "Too many iterations")
    password, salt = bytes(one.salted_password), bytes(one.salt)
    if max(len(password), len(salt)) > _MOST_BYTES:
        text = f"The salt or the salted password has more than {_MOST_BYTES} bytes"
        raise ApiError(ErrorCode.unacceptable_credential, text)
    if not password:
        raise ApiError(ErrorCode.unknown_server_error, "The salted password is empty")
    return credential_of_salted_password(one.name, mechanism, password, salt, iterations)
