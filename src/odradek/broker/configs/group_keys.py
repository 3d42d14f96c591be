"""The settings of groups: those of the newer kinds of groups (KIP-848, KIP-932, KIP-1071), which classic groups ignore.

Those of consumer groups (KIP-848) and of share groups (KIP-932) have an effect; the others are kept for Apache Kafka.

A group's setting `consumer.session.timeout.ms` has the broker's `group.consumer.session.timeout.ms` as its default.

Source in Kafka: `GroupConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.config import BrokerConfig
from odradek.broker.configs.config_keys import ConfigKey, ConfigType, at_least, by_name, invalid_value, one_of
from odradek.broker.configs.relations import Value
from odradek.broker.configs.topic_keys import BOOLEAN, STRING
from odradek.broker.errors import ApiError
from odradek.broker.group_bounds import BOUNDED, bounds_of
from odradek.coordination.shares.offset_reset import parse_offset_reset
from odradek.storage.config_def import split_words
from odradek.storage.directory.broker_config import BROKER_CONFIGS


def _offset_reset(name: str, value: Any) -> None:
    try:
        parse_offset_reset(value)
    except ValueError:
        reason = (
            f"Invalid value `{value}` for configuration {name}. The value must be either 'earliest', 'latest' "
            "or of the format 'by_duration:<PnDTnHnMn.nS.>'."
        )
        raise invalid_value(name, value, reason) from None


def _assignor(name: str, value: Any) -> None:
    if value != _ASSIGNOR:
        reason = f"{name} '{value}' is not a registered task assignor. Registered assignors are: [{_ASSIGNOR}]."
        raise ApiError(ErrorCode.invalid_config, reason)


_TAGS = "streams.rack.aware.assignment.tags"
_LETTERS = "errors.deadletterqueue.topic.name"
_TYPES = ("consumer", "share", "streams")
_ASSIGNOR = "sticky"
_HIDDEN = "Of Apache Kafka itself; no effect."
_SESSION = "How long a member may be silent before it is removed."
_HEARTBEAT = "How often a member sends a heartbeat."
_ASSIGNMENT = "How often an assignment is made at most."


def broker_setting(name: str) -> str:
    """Return the setting of the broker that a group's has its default from; it may be one that has this name."""
    if name == "streams.assignor.name":
        return "group.streams.assignors"
    return name if name in OWN_KEYS else f"group.{name}"


def _key(name: str, documentation: str) -> ConfigKey:
    """Return a setting with the type, the default and the lowest value of the broker's setting."""
    of_broker = BROKER_CONFIGS[f"group.{name}"]
    lowest, _ = of_broker.bounds
    check = None if lowest is None else at_least(lowest)
    return ConfigKey(name, ConfigType[of_broker.type], of_broker.default, documentation, check)


_OWN = [
    ConfigKey("share.auto.offset.reset", STRING, "latest", "Where a new group begins.", _offset_reset),
    ConfigKey(
        "share.isolation.level",
        STRING,
        "read_uncommitted",
        "Which records members see.",
        one_of("read_committed", "read_uncommitted"),
    ),
    ConfigKey("share.renew.acknowledge.enable", BOOLEAN, "true", "Whether members may keep records for longer."),
    ConfigKey(_LETTERS, STRING, "", "Where dead letters go, which are not written here."),
    ConfigKey("errors.deadletterqueue.copy.record.enable", BOOLEAN, "false", "Whether they have the record."),
]
OWN_KEYS = frozenset(key.name for key in _OWN)
"""The settings whose default is not a setting of the broker."""

_HIDDEN_KEYS = [
    *(_key(f"{one}.assignor.offload.enable", _HIDDEN) for one in _TYPES),
    _key("streams.task.offset.interval.ms", _HIDDEN),
    _key("streams.num.warmup.replicas", _HIDDEN),
    _key("streams.acceptable.recovery.lag", _HIDDEN),
]
HIDDEN_KEYS = frozenset(key.name for key in _HIDDEN_KEYS)
"""The settings that are described only for a group that has them."""

GROUP_KEYS: Mapping[str, ConfigKey] = by_name(
    [
        _key("consumer.session.timeout.ms", _SESSION),
        _key("consumer.heartbeat.interval.ms", _HEARTBEAT),
        _key("consumer.assignment.interval.ms", _ASSIGNMENT),
        _key("share.session.timeout.ms", _SESSION),
        _key("share.heartbeat.interval.ms", _HEARTBEAT),
        _key("share.record.lock.duration.ms", "How long a member has a record for itself."),
        _key("share.delivery.count.limit", "How often a record is delivered at most."),
        _key("share.partition.max.record.locks", "How many records of a partition are with members."),
        *_OWN[:3],
        _key("share.assignment.interval.ms", _ASSIGNMENT),
        _key("streams.session.timeout.ms", _SESSION),
        _key("streams.heartbeat.interval.ms", _HEARTBEAT),
        _key("streams.num.standby.replicas", "How many standby tasks each task has."),
        _key("streams.initial.rebalance.delay.ms", "How long an empty group waits for members."),
        _key("streams.assignment.interval.ms", _ASSIGNMENT),
        _key(_TAGS, "The client tags that tell racks apart."),
        ConfigKey("streams.assignor.name", STRING, _ASSIGNOR, "What assigns the tasks.", _assignor),
        *_OWN[3:],
        *_HIDDEN_KEYS,
    ]
)
"""The settings by name."""

_LIMITS: Mapping[str, tuple[str | int | None, str | int | None]] = {
    **{f"{group_type}.{kind}": bounds_of(group_type, kind) for group_type, kinds in BOUNDED.items() for kind in kinds},
    "streams.num.standby.replicas": (None, "group.streams.max.standby.replicas"),
    "streams.assignment.interval.ms": bounds_of("streams", "assignment.interval.ms"),
    "streams.task.offset.interval.ms": (15_000, None),
    "streams.num.warmup.replicas": (None, 20),
}
"""The lowest and the highest value of a group's settings, in the order of Kafka's checks.

They are settings of the broker. Two of those are hidden, and have the values that they have by default.
"""


def bounded_setting(name: str, config: Mapping[str, str], broker: BrokerConfig) -> int:
    """Return a setting of a group as it counts: the broker's if it is not set, and within the bounds of these days.

    Args:
        name: Its name.
        config: The settings of the group.
        broker: The broker's.
    """
    if name not in config:
        return int(broker[f"group.{name}"])
    of, _, kind = name.partition(".")
    low, high = (int(broker[bound]) for bound in bounds_of(of, kind))
    return min(max(int(config[name]), low), high)


def check_group_config(config: Mapping[str, str], of_broker: Value) -> None:
    """Check the settings of a group.

    Args:
        config: The settings.
        of_broker: Those of the broker, which have their ranges.

    Raises:
        ApiError: One is unknown or not valid.
    """
    for name in config:
        if name not in GROUP_KEYS:
            raise ApiError(ErrorCode.invalid_config, f"Unknown group config name: {name}")
    tags = split_words(config.get(_TAGS, ""))
    if len(set(tags)) < len(tags):
        raise ApiError(ErrorCode.invalid_config, f"{_TAGS} must not contain duplicate tag keys.")
    for name, key in GROUP_KEYS.items():
        if name in config:
            key.parse(config[name])
    for name in filter(config.__contains__, _LIMITS):
        low, high = (int(of_broker(limit)) if isinstance(limit, str) else limit for limit in _LIMITS[name])
        if not (low is None or low <= int(config[name])) or not (high is None or int(config[name]) <= high):
            wanted = f"be in the range {low} to {high} inclusive."
            if low is None or high is None:
                wanted = f"be less than or equal to {high}" if low is None else f"be greater than or equal to {low}"
            raise ApiError(ErrorCode.invalid_config, f"{name} must {wanted}")
    for group_type in _TYPES:
        session, heartbeat = names = [f"{group_type}.session.timeout.ms", f"{group_type}.heartbeat.interval.ms"]
        session_ms, heartbeat_ms = (int(config.get(name, of_broker(f"group.{name}"))) for name in names)
        if not config.keys().isdisjoint(names) and session_ms <= heartbeat_ms:
            raise ApiError(ErrorCode.invalid_config, f"{session} must be greater than {heartbeat}")
    if config.get(_LETTERS, "").startswith("__"):
        raise ApiError(ErrorCode.invalid_config, f"{_LETTERS}: DLQ topic name must not start with '__'")
