"""A topic that is to be created.

Source in Kafka: `NewTopic`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from odradek.arguments import checked_int, checked_mapping, checked_text, given_text
from odradek.storage.config_def import ConfigValue


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that is to be created.

    Attributes:
        name: Its name.
        partitions: How many partitions it has.
        config: Its settings, by Kafka's names: `{"retention.ms": -1, "cleanup.policy": "compact"}`; None are none.
        topic_id: Its id; a new one if None.
    """

    name: str
    partitions: int = 1
    config: Mapping[str, ConfigValue] | None = None
    topic_id: UUID | None = None

    def __post_init__(self) -> None:
        checked_text("name", self.name)
        checked_int("partitions", self.partitions)
        checked_mapping("config", self.config)
        if not isinstance(self.topic_id, UUID | None):
            raise TypeError(f"topic_id must be a UUID, not {given_text(self.topic_id)}")
