"""DescribeConfigs: the settings of topics (2), of the broker (4) and of groups (32), and where each one is set.

Of a broker's settings those are answered that this broker has. Loggers and client metrics have none here. v1 (KIP-226)
adds where a value comes from, and synonyms; v3 (KIP-569) types and documentation.

Source in Kafka: `ConfigHelper`.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.configs.resource_configs import RESOURCE_TYPES, answer_of
from odradek.broker.errors import NO_ERROR, ApiError, code_of, message_of
from odradek.broker.protocol import Message, given
from odradek.errors import OdradekError


def _all_failed(request: Request, code: int, text: str) -> Message:
    return {"results": [_answer(resource, code, text, []) for resource in request.body.resources]}


def _answer(resource: Any, code: int, text: str | None, configs: list[Message]) -> Message:
    return {
        "error_code": code,
        "error_message": text,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": configs,
    }


@api(32, "DescribeConfigs", range(1, 5), failed=_all_failed)
def describe_configs(request: Request) -> Message:
    """Answer settings."""
    for resource in request.body.resources:
        if resource.resource_type not in RESOURCE_TYPES:
            raise ApiError(ErrorCode.invalid_request)
    return {"results": [_described(request, resource) for resource in request.body.resources]}


def _described(request: Request, resource: Any) -> Message:
    synonyms = request.body.include_synonyms
    documentation = given(request.body, "include_documentation", False)
    wanted = resource.configuration_keys
    try:
        found = request.broker.configs.describe(resource.resource_type, resource.resource_name)
        configs = [
            answer_of(one, synonyms=synonyms, documentation=documentation)
            for one in found
            if not wanted or one.key.name in wanted
        ]
    except OdradekError as error:
        text = "" if code_of(error) == ErrorCode.unknown_topic_or_partition else message_of(error)
        return _answer(resource, code_of(error), text, [])
    return _answer(resource, NO_ERROR, "", configs)
