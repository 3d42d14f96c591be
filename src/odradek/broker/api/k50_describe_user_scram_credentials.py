"""DescribeUserScramCredentials: which users can log in by SCRAM, and by which of its mechanisms (KIP-554).

Nobody is told salts or keys, only the numbers of iterations.

Source in Kafka: `ScramImage.describe`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR
from odradek.broker.protocol import Message
from odradek.broker.turns import Work
from odradek.coordination.scram.credentials import MECHANISMS_BY_TYPE
from odradek.storage.metadata.metadata_image import MetadataImage


def _failed(request: Request, code: int, text: str) -> Message:
    # As in Kafka, a nameless result for each user that was asked for.
    results = [_refused("", code, text) for _ in request.body.users or ()]
    return {"error_code": code, "error_message": text, "results": results}


@api(50, "DescribeUserScramCredentials", range(1), failed=_failed)
def describe_user_scram_credentials(request: Request) -> Work[Message]:
    """Answer the mechanisms of the users that are named, or of all."""
    image = request.broker.logs.metadata_image
    asked: Counter[str] = Counter()
    for one in request.body.users or ():
        asked[one.name] += 1
        yield
    if not asked:
        for users in image.scram_credentials.values():
            for name in users:
                asked[name] = 1
                yield
    results = []
    for name, count in asked.items():
        results.append(_result(image, name, count))
        yield
    return {"error_code": NO_ERROR, "error_message": None, "results": results}


def _result(image: MetadataImage, name: str, count: int) -> dict[str, Any]:
    if count > 1:
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return _refused(name, ErrorCode.duplicate_resource, text)
    found = [image.scram_credentials.get(mechanism, {}).get(name) for mechanism in MECHANISMS_BY_TYPE]
    infos = [{"mechanism": one.mechanism, "iterations": one.iterations} for one in found if one is not None]
    if not infos:
        text = f"Attempt to describe a user credential that does not exist: {name}"
        return _refused(name, ErrorCode.resource_not_found, text)
    return {"user": name, "error_code": NO_ERROR, "error_message": None, "credential_infos": infos}


def _refused(name: str, code: int, text: str) -> dict[str, Any]:
    return {"user": name, "error_code": int(code), "error_message": text, "credential_infos": []}
