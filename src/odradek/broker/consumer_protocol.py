"""Whether groups of the consumer protocol (KIP-848) are on: by the feature and by the broker's setting.

Source in Kafka: `KafkaApis.isConsumerGroupProtocolEnabled`, `GroupVersion`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from odradek.broker.errors import ApiError

if TYPE_CHECKING:
    from odradek.broker.broker import Broker

GROUP_VERSION = "group.version"


def check_enabled(broker: Broker) -> None:
    """Check whether there may be consumer groups.

    Raises:
        ApiError: They are off.
    """
    is_allowed = "consumer" in broker.config["group.coordinator.rebalance.protocols"]
    if not is_allowed or broker.logs.metadata_image.features.get(GROUP_VERSION, 0) < 1:
        raise ApiError(ErrorCode.unsupported_version)
