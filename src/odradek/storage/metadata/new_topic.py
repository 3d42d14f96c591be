"""A topic that is to be created.

Source in Kafka: `NewTopic`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from odradek.arguments import checked_int, checked_mapping, checked_text, given_text
from odradek.errors import OptionError
from odradek.messages.uuids import RESERVED_BELOW
from odradek.storage.config_def import ConfigValue


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that is to be created.

    Attributes:
        name: Its name.
        partitions: How many partitions it has.
        config: Its settings, by Kafka's names: `{"retention.ms": -1, "cleanup.policy": "compact"}`; None are none.
        topic_id: Its id; a new one if None.

    Raises:
        OptionError: The id is one of those that Kafka reserves.
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
        if self.topic_id is not None and self.topic_id.int < RESERVED_BELOW:
            # Kafka itself, and `odradek.open`, would not read the metadata with such a topic.
            raise OptionError(f"topic_id {self.topic_id} is reserved by Kafka")
