"""AlterConfigs: replaces all settings of a topic, a broker, a group or client metrics.

Source in Kafka: `ConfigAdminManager`, `ConfigurationControlManager.legacyAlterConfigs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.api.k32_describe_configs import check_configs_access
from odradek.broker.configs.resource_configs import LOGGER_RESOURCE, RESOURCE_TYPES, ResourceChanges, check_resources
from odradek.broker.errors import NO_ERROR, ApiError, code_of, message_of
from odradek.broker.protocol import Message
from odradek.broker.turns import rest
from odradek.coordination.authorization.acls import Operation
from odradek.errors import OdradekError
from odradek.storage.metadata.metadata_image import BROKER_RESOURCE, ConfigResource


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
    broker, resources = request.broker, request.body.resources
    errors = check_resources(resources)
    answers = []
    together: dict[ConfigResource, Mapping[str, str | None]] = {}
    written: dict[ConfigResource, int] = {}
    for number, resource in enumerate(resources):
        await rest(number)
        try:
            if number in errors:
                raise errors[number]
            _check(resource, lacks_value)
            check_configs_access(request, Operation.ALTER_CONFIGS, resource.resource_type, resource.resource_name)
            is_of_broker = resource.resource_type == BROKER_RESOURCE
            # Its settings are checked together: two changes at once would not know of each other.
            turn: AbstractAsyncContextManager[Any] = broker.configs.turn if is_of_broker else nullcontext()
            async with turn:
                action = prepare(resource)
                if isinstance(action, ResourceChanges):
                    together[action.resource] = action.changes
                    written[action.resource] = number
                elif action is not None:
                    await broker.topics.change(action)
                    if is_of_broker:
                        broker.configs.altered()
            answers.append(_answer(resource))
        except OdradekError as error:
            answers.append(_answer(resource, code_of(error), message_of(error)))
    if together:
        for of, failure in (await broker.topics.change_all(together, broker.logs.metadata.alter_configs)).items():
            if failure is not None:
                number = written[of]
                answers[number] = _answer(resources[number], code_of(failure), message_of(failure))
    return {"responses": answers}


def _check(resource: Any, lacks_value: Callable[[Any], bool]) -> None:
    names = [config.name for config in resource.configs]
    if len(set(names)) < len(names):
        raise ApiError(ErrorCode.invalid_request, "Error due to duplicate config keys")
    without = [config.name for config in resource.configs if lacks_value(config)]
    if without:
        raise ApiError(ErrorCode.invalid_request, f"Null value not supported for : {', '.join(without)}")
    if resource.resource_type not in RESOURCE_TYPES or resource.resource_type == LOGGER_RESOURCE:
        raise ApiError(ErrorCode.invalid_request, f"Unknown resource type {resource.resource_type}")
