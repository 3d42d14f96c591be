"""The broker's settings of share groups (KIP-932).

Source in Kafka: `ShareGroupConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.coordination.groups.assignors.simple import SIMPLE
from odradek.storage.config_def import words

SHARE_SETTINGS: Mapping[str, str] = {
    "group.share.session.timeout.ms": "How long a member of a share group may be silent.",
    "group.share.heartbeat.interval.ms": "How often a member of a share group sends a heartbeat.",
    "group.share.assignment.interval.ms": "How often a share group's assignment is made at most.",
    "group.share.record.lock.duration.ms": "How long a member of a share group has a record for itself.",
    "group.share.delivery.count.limit": "How often a share group delivers a record at most.",
    "group.share.partition.max.record.locks": "How many records of a partition members of a share group have at most.",
    "group.share.min.session.timeout.ms": "The shortest session time-out of a share group.",
    "group.share.max.session.timeout.ms": "The longest session time-out of a share group.",
    "group.share.min.heartbeat.interval.ms": "The shortest heartbeat interval of a share group.",
    "group.share.max.heartbeat.interval.ms": "The longest heartbeat interval of a share group.",
    "group.share.min.assignment.interval.ms": "The shortest assignment interval of a share group.",
    "group.share.max.assignment.interval.ms": "The longest assignment interval of a share group.",
    "group.share.min.record.lock.duration.ms": "The shortest lock of a record in a share group.",
    "group.share.max.record.lock.duration.ms": "The longest lock of a record in a share group.",
    "group.share.min.delivery.count.limit": "The lowest delivery count limit of a share group.",
    "group.share.max.delivery.count.limit": "The highest delivery count limit of a share group.",
    "group.share.min.partition.max.record.locks": "The lowest limit of locks of a share group.",
    "group.share.max.partition.max.record.locks": "The highest limit of locks of a share group.",
    "group.share.max.size": "How many members a share group may have.",
    "group.share.assignors": "The assignor of share groups.",
    "group.share.initialize.retry.interval.ms": "When it is tried again to make the share state of a partition.",
}
"""What the settings do."""


def share_assignors(text: str) -> tuple[str, ...]:
    """Parse the names of assignors; Kafka takes the name of a class, too."""
    names = tuple(words(text))
    if names != (SIMPLE,):
        raise ValueError(f"is not {SIMPLE}, the only one")
    return names
