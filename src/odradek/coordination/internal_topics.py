"""The topics that the coordinators keep their state in, as Kafka creates them.

Source in Kafka: `GroupCoordinatorService.groupMetadataTopicConfigs`,
`TransactionCoordinator.transactionStateTopicConfigs`, `ShareCoordinatorService.shareGroupStateTopicConfigs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from odradek.messages.topics import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC

DEFAULT_PARTITIONS = 50
_DEFAULT_SEGMENT_BYTES = 100 << 20


class InternalTopic(NamedTuple):
    """How a coordinator's topic is created.

    Attributes:
        prefix: Begins the names of the broker's settings: `num.partitions` and `segment.bytes` follow.
        own_config: The topic's settings that no setting of the broker changes.
    """

    prefix: str
    own_config: Mapping[str, str]

    def config(self, segment_bytes: int = _DEFAULT_SEGMENT_BYTES) -> dict[str, str]:
        """Return the topic's settings."""
        return {**self.own_config, "segment.bytes": str(segment_bytes)}


INTERNAL_TOPICS = {
    CONSUMER_OFFSETS_TOPIC: InternalTopic(
        "offsets.topic", {"cleanup.policy": "compact", "compression.type": "producer"}
    ),
    TRANSACTION_STATE_TOPIC: InternalTopic(
        "transaction.state.log",
        {
            "unclean.leader.election.enable": "false",
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
            "min.insync.replicas": "1",
        },
    ),
    SHARE_GROUP_STATE_TOPIC: InternalTopic(
        "share.coordinator.state.topic",
        {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": "1",
            "retention.ms": "-1",
        },
    ),
}
"""The coordinators' topics by name."""
