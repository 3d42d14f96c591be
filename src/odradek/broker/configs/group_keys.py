"""The settings of groups: those of the newer kinds of groups (KIP-848, KIP-932, KIP-1071), which classic groups ignore.

A group's setting `consumer.session.timeout.ms` has the broker's `group.consumer.session.timeout.ms` as its default.

Source in Kafka: `GroupConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kio.schema.errors import ErrorCode

from odradek.broker.configs.config_keys import Check, ConfigKey, ConfigType, at_least, by_name, one_of
from odradek.broker.configs.topic_keys import BOOLEAN, INT, STRING
from odradek.broker.errors import ApiError


def _key(
    name: str, default: object, documentation: str, check: Check | None = None, kind: ConfigType = INT
) -> ConfigKey:
    return ConfigKey(name, kind, str(default), documentation, check)


_SESSION = "How long a member may be silent before it is removed."
_HEARTBEAT = "How often a member sends a heartbeat."
_ASSIGNMENT = "How often an assignment is made at most."

GROUP_KEYS: Mapping[str, ConfigKey] = by_name(
    [
        _key("consumer.session.timeout.ms", 45_000, _SESSION, at_least(1)),
        _key("consumer.heartbeat.interval.ms", 5_000, _HEARTBEAT, at_least(1)),
        _key("consumer.assignment.interval.ms", 1_000, _ASSIGNMENT, at_least(0)),
        _key("share.session.timeout.ms", 45_000, _SESSION, at_least(1)),
        _key("share.heartbeat.interval.ms", 5_000, _HEARTBEAT, at_least(1)),
        _key("share.record.lock.duration.ms", 30_000, "How long a member has a record for itself.", at_least(1000)),
        _key("share.delivery.count.limit", 5, "How often a record is delivered at most.", at_least(2)),
        _key(
            "share.partition.max.record.locks", 2_000, "How many records of a partition are with members.", at_least(1)
        ),
        _key("share.auto.offset.reset", "latest", "Where a new group begins.", None, STRING),
        _key(
            "share.isolation.level",
            "read_uncommitted",
            "Which records members see.",
            one_of("read_committed", "read_uncommitted"),
            STRING,
        ),
        _key("share.renew.acknowledge.enable", "true", "Whether members may keep records for longer.", None, BOOLEAN),
        _key("share.assignment.interval.ms", 1_000, _ASSIGNMENT, at_least(0)),
        _key("streams.session.timeout.ms", 45_000, _SESSION, at_least(1)),
        _key("streams.heartbeat.interval.ms", 5_000, _HEARTBEAT, at_least(1)),
        _key("streams.num.standby.replicas", 0, "How many standby tasks each task has.", at_least(0)),
        _key("streams.initial.rebalance.delay.ms", 3_000, "How long an empty group waits for members.", at_least(0)),
        _key("streams.assignment.interval.ms", 1_000, _ASSIGNMENT, at_least(0)),
    ]
)
"""The settings by name."""

OWN_KEYS = frozenset({"share.auto.offset.reset", "share.isolation.level", "share.renew.acknowledge.enable"})
"""The settings whose default is not a setting of the broker."""


def check_group_config(config: Mapping[str, str]) -> None:
    """Check the settings of a group.

    Raises:
        ApiError: One is unknown or not valid.
    """
    for name in config:
        if name not in GROUP_KEYS:
            raise ApiError(ErrorCode.invalid_config, f"Unknown group config name: {name}")
    for name, key in GROUP_KEYS.items():
        if name in config:
            key.parse(config[name])
