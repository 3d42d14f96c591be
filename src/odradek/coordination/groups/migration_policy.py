"""Whether groups move between the classic and the consumer protocol: `group.consumer.migration.policy`.

    policy          upgrade   downgrade
    bidirectional   yes       yes
    upgrade         yes       -
    downgrade       -         yes
    disabled        -         -            nor may a classic member join a consumer group

Source in Kafka: `ConsumerGroupMigrationPolicy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class MigrationPolicy(NamedTuple):
    """What `group.consumer.migration.policy` lets groups do."""

    upgrades: bool
    downgrades: bool

    @property
    def mixes(self) -> bool:
        """Whether a classic member may join a consumer group."""
        return self.upgrades or self.downgrades


POLICIES: Mapping[str, MigrationPolicy] = {
    "bidirectional": MigrationPolicy(upgrades=True, downgrades=True),
    "upgrade": MigrationPolicy(upgrades=True, downgrades=False),
    "downgrade": MigrationPolicy(upgrades=False, downgrades=True),
    "disabled": MigrationPolicy(upgrades=False, downgrades=False),
}
"""The policies by their names."""
