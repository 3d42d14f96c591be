"""AlterConfigs: replaces all settings of a topic, a broker, a group or client metrics.

Source in Kafka: `ConfigAdminManager`, `ConfigurationControlManager.legacyAlterConfigs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.api.k32_describe_configs import check_configs_access
from odradek.broker.configs.resource_configs import (
    LOGGER_RESOURCE,
    RESOURCE_TYPES,
    ResourceChanges,
    check_resources,
    unknown_topic,
)
from odradek.broker.errors import NO_ERROR, ApiError, code_of, message_of
from odradek.broker.protocol import Message
from odradek.broker.turns import rest
from odradek.coordination.authorization.acls import Operation
from odradek.errors import OdradekError, UnknownTopicOrPartitionError
from odradek.printable import logger
from odradek.storage.metadata.cluster import check_record_count
from odradek.storage.metadata.metadata_image import BROKER_RESOURCE, ConfigResource, MetadataImage

_logger = logger(__name__)


def _answer(resource: Any, code: int = NO_ERROR, text: str | None = None) -> Message:
    return {
        "error_code": code,
        "error_message": text,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }


@api(33, "AlterConfigs", range(3))
async def alter_configs(request: Request) -> Message:
    """Replace settings."""

    def prepare(resource: Any) -> Callable[[], None] | ResourceChanges | None:
        after = {config.name: config.value for config in resource.configs}
        return request.broker.configs.replace(
            resource.resource_type, resource.resource_name, after, validate_only=request.body.validate_only
        )

    return await alter_resources(request, prepare, lambda config: config.value is None)


async def alter_resources(
    request: Request,
    prepare: Callable[[Any], Callable[[], None] | ResourceChanges | None],
    lacks_value: Callable[[Any], bool],
) -> Message:
    """Alter the settings of each resource of a request, or not.

    Args:
        request: The request.
        prepare: Checks what is asked of a resource; returns what carries it out.
        lacks_value: Whether what is asked of a setting needs a value, and has none.
    """
    # Settings are checked together, and words are added to those that there are: two requests at once would not know of
    # each other.
    async with request.broker.configs.turn:
        return {"responses": await _alter(request, prepare, lacks_value)}


async def _alter(
    request: Request,
    prepare: Callable[[Any], Callable[[], None] | ResourceChanges | None],
    lacks_value: Callable[[Any], bool],
) -> list[Message]:
    broker, resources = request.broker, request.body.resources
    errors = check_resources(resources)
    answers = [_answer(resource) for resource in resources]
    together: dict[ConfigResource, Mapping[str, str | None]] = {}
    written: dict[ConfigResource, int] = {}
    # Those of the broker are written one by one, so they are counted first, and come last: nothing is written if the
    # request is too large.
    count = sum(len(one.configs) for one in resources if one.resource_type == BROKER_RESOURCE)
    check_record_count(max([count, *(len(one.configs) for one in resources)]))
    for number in sorted(range(len(resources)), key=lambda number: resources[number].resource_type == BROKER_RESOURCE):
        await rest(number)
        resource = resources[number]
        try:
            if number in errors:
                raise errors[number]
            _check(resource, lacks_value)
            check_configs_access(request, Operation.ALTER_CONFIGS, resource.resource_type, resource.resource_name)
            action = prepare(resource)
            if action is not None and not isinstance(action, ResourceChanges):
                try:
                    await broker.topics.change(action)
                finally:
                    # Also if the disk has failed: what the metadata have counts.
                    broker.configs.altered()
        except Exception as error:
            # Of one resource only: others may be done already.
            if not isinstance(error, OdradekError):
                _logger.exception("A change of the settings of %s failed", resource.resource_name)
            answers[number] = _answer(resource, code_of(error), message_of(error))
            continue
        if isinstance(action, ResourceChanges):
            together[action.resource] = action.changes
            written[action.resource] = number
            count += len(action.changes)
            check_record_count(count)
    if together and not request.body.validate_only:
        failed = await broker.topics.change_all(together, broker.logs.metadata.alter_configs, _is_made)
        for of, failure in failed.items():
            if failure is not None:
                number = written[of]
                if isinstance(failure, UnknownTopicOrPartitionError):
                    failure = unknown_topic(of.name)
                answers[number] = _answer(resources[number], code_of(failure), message_of(failure))
    return answers


def _is_made(image: MetadataImage, resource: ConfigResource, changes: Mapping[str, str | None]) -> bool:
    present = image.configs.get(resource, {})
    return all(present.get(name) == value for name, value in changes.items())


def _check(resource: Any, lacks_value: Callable[[Any], bool]) -> None:
    names = [config.name for config in resource.configs]
    if len(set(names)) < len(names):
        raise ApiError(ErrorCode.invalid_request, "Error due to duplicate config keys")
    without = [config.name for config in resource.configs if lacks_value(config)]
    if without:
        raise ApiError(ErrorCode.invalid_request, f"Null value not supported for : {', '.join(without)}")
    if resource.resource_type not in RESOURCE_TYPES or resource.resource_type == LOGGER_RESOURCE:
        raise ApiError(ErrorCode.invalid_request, f"Unknown resource type {resource.resource_type}")
