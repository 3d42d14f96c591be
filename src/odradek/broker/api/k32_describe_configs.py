"""DescribeConfigs: the settings of topics (2), the broker (4), client metrics (16), groups (32), and where each is set.

Of a broker's settings those are answered that this broker has. Loggers have none here. v1 (KIP-226) adds where a value
comes from, and synonyms; v3 (KIP-569) types and documentation.

Source in Kafka: `ConfigHelper`.
"""

from __future__ import annotations

from functools import partial

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.configs.resource_configs import RESOURCE_TYPES, answer_of
from odradek.broker.errors import NO_ERROR, ApiError, code_of, message_of
from odradek.broker.protocol import Message, given
from odradek.broker.turns import Work, each
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.errors import OdradekError
from odradek.storage.metadata.metadata_image import GROUP_RESOURCE, TOPIC_RESOURCE


def check_configs_access(request: Request, operation: Operation, kind: int, name: str) -> None:
    """Check that a client may do something with the settings of a resource.

    Raises:
        ApiError: It may not.
    """
    if kind == TOPIC_RESOURCE:
        request.check(operation, ResourceType.TOPIC, name)
    elif kind == GROUP_RESOURCE:
        request.check(operation, ResourceType.GROUP, name)
    else:
        request.check(operation, ResourceType.CLUSTER)


def _answer(kind: int, name: str, code: int, text: str | None, configs: list[Message]) -> Message:
    return {
        "error_code": code,
        "error_message": text,
        "resource_type": kind,
        "resource_name": name,
        "configs": configs,
    }


@api(32, "DescribeConfigs", range(1, 5))
def describe_configs(request: Request) -> Work[Message]:
    """Answer settings."""
    for resource in request.body.resources:
        if resource.resource_type not in RESOURCE_TYPES:
            raise ApiError(ErrorCode.invalid_request)
    asked: dict[tuple[int, str], set[str]] = {}
    for resource in request.body.resources:
        place, names = (resource.resource_type, resource.resource_name), set(resource.configuration_keys or ())
        before = asked.get(place, names)
        # None are named where all are asked for.
        asked[place] = before | names if before and names else set()
        yield
    return {"results": (yield from each(asked.items(), partial(_described, request)))}


def _described(request: Request, asked: tuple[tuple[int, str], set[str]]) -> Message:
    (kind, name), wanted = asked
    synonyms = request.body.include_synonyms
    documentation = given(request.body, "include_documentation", False)
    try:
        check_configs_access(request, Operation.DESCRIBE_CONFIGS, kind, name)
        found = request.broker.configs.describe(kind, name)
        configs = [
            answer_of(one, synonyms=synonyms, documentation=documentation)
            for one in found
            if not wanted or one.key.name in wanted
        ]
    except OdradekError as error:
        text = "" if code_of(error) == ErrorCode.unknown_topic_or_partition else message_of(error)
        return _answer(kind, name, code_of(error), text, [])
    return _answer(kind, name, NO_ERROR, "", configs)
