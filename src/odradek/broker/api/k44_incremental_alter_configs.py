"""IncrementalAlterConfigs: changes of some settings of topics, brokers, groups and client metrics (KIP-339).

    0 SET    1 DELETE    2 APPEND and 3 SUBTRACT: words of a list

Of one resource either all settings change, or none. Loggers have no settings here.

Source in Kafka: `ConfigAdminManager`, `ConfigurationControlManager.incrementalAlterConfigs`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.broker.api import Request, api
from odradek.broker.api.k33_alter_configs import alter_resources
from odradek.broker.configs.resource_configs import Change, Operation, ResourceChanges
from odradek.broker.protocol import Message


@api(44, "IncrementalAlterConfigs", range(2))
async def incremental_alter_configs(request: Request) -> Message:
    """Change settings."""

    def prepare(resource: Any) -> Callable[[], None] | ResourceChanges | None:
        changes = [Change(config.name, config.config_operation, config.value) for config in resource.configs]
        return request.broker.configs.alter(
            resource.resource_type, resource.resource_name, changes, validate_only=request.body.validate_only
        )

    def lacks_value(config: Any) -> bool:
        return config.value is None and config.config_operation != Operation.DELETE

    return await alter_resources(request, prepare, lacks_value)
