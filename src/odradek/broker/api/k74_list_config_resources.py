"""ListConfigResources: topics (2), the broker (4), and the groups (32) and client metrics (16) that have settings.

v0 (KIP-1000) lists client metrics only; v1 (KIP-1142) all types, or those asked for.
Loggers (8) have no settings here.

Source in Kafka: `KafkaApis.handleListConfigResources`.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.configs.resource_configs import RESOURCE_TYPES
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.protocol import Message, given
from odradek.storage.metadata.metadata_image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)


@api(74, "ListConfigResources", range(2))
def list_config_resources(request: Request) -> Message:
    """Answer what has settings."""
    supported = {CLIENT_METRICS_RESOURCE} if request.version == 0 else set(RESOURCE_TYPES)
    wanted = set(given(request.body, "resource_types", ())) or supported
    if not wanted <= supported:
        raise ApiError(ErrorCode.unsupported_version)
    image = request.broker.logs.metadata_image
    with_settings = (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE)
    names = {
        **{kind: [one.name for one in image.configs if one.type == kind] for kind in with_settings if kind in wanted},
        BROKER_RESOURCE: [str(request.broker.node_id)],
        TOPIC_RESOURCE: list(image.topics),
    }
    found = [{"resource_name": name, "resource_type": kind} for kind in names if kind in wanted for name in names[kind]]
    return {"error_code": NO_ERROR, "config_resources": found}
