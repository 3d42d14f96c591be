"""The settings of topics.

Source in Kafka: `LogConfig`, `TopicConfig`, `ThrottledReplicaListValidator`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.configs.config_keys import (
    Check,
    ConfigKey,
    ConfigType,
    as_java,
    between,
    by_name,
    invalid_value,
    list_of,
    one_of,
)
from odradek.broker.errors import ApiError
from odradek.records.compression import CODECS, LEVELS, Codec
from odradek.storage.config_def import MAX_INT32, MAX_INT64, Integer, Number, OneOf, boolean
from odradek.storage.topic_config import TOPIC_CONFIGS, TopicConfig

BOOLEAN, STRING, INT, LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
DOUBLE, LIST = ConfigType.DOUBLE, ConfigType.LIST

_THROTTLED_REPLICA = re.compile(r"(?:[0-9]+:[0-9]+)?", re.ASCII)
_DEFAULTS = TopicConfig()


def _gzip_level(name: str, value: Any) -> None:
    default, lowest, highest = LEVELS[Codec.GZIP]
    if value != default and not lowest <= value <= highest:
        reason = f"Value must be between {lowest} and {highest} or equal to {default}"
        raise invalid_value(name, value, reason)


def _throttled_replicas(name: str, value: Any) -> None:
    if "".join(value) != "*" and not all(map(_THROTTLED_REPLICA.fullmatch, value)):
        form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        reason = f"{name} must be the literal '*' or a list of replicas in the following format: {form}"
        raise invalid_value(name, value, reason)


def _key(name: str, documentation: str, check: Check | None = None, kind: ConfigType = INT) -> ConfigKey:
    """Return a setting with the type and the bounds that `TopicConfig` has, where its parser says them."""
    match TOPIC_CONFIGS[name]:
        case Integer(low, high, bits):
            kind, limit = (INT, MAX_INT32) if bits == 32 else (LONG, MAX_INT64)
            check = None if low < -limit else between(low, None if high == limit else high)
        case Number(low, high):
            kind, check = DOUBLE, between(low, high)
        case OneOf(choices):
            kind, check = STRING, one_of(*choices)
        case parse if parse is boolean:
            kind = BOOLEAN
    return ConfigKey(name, kind, as_java(_DEFAULTS.value(name)), documentation, check)


def _level(codec: str) -> ConfigKey:
    default, lowest, highest = LEVELS[CODECS[codec]]
    check = between(lowest, highest) if lowest <= default else _gzip_level
    return _key(f"compression.{codec}.level", f"The level of {codec}, if `compression.type` is {codec}.", check)


def _replicas(role: str) -> ConfigKey:
    documentation = f"The replicas, as partition:broker, whose {role}s are throttled; no effect with one broker."
    return _key(f"{role}.replication.throttled.replicas", documentation, _throttled_replicas, LIST)


TOPIC_KEYS: Mapping[str, ConfigKey] = by_name(
    [
        _key("segment.bytes", "How large a segment may get before a new one begins."),
        _key("segment.ms", "How old a segment may get before a new one begins."),
        _key("segment.jitter.ms", "By how much at most a segment begins earlier, at random."),
        _key("segment.index.bytes", "How large the indexes of a segment may get."),
        _key("flush.messages", "After how many records a log is brought to the disk."),
        _key("flush.ms", "After what time a log is brought to the disk."),
        _key("retention.bytes", "How large a partition may get before old segments are deleted; -1: any size."),
        _key("retention.ms", "How old records may get before they are deleted; -1: any age."),
        _key("max.message.bytes", "How large a batch of records may be, as it is compressed."),
        _key("max.decompressed.message.bytes", "How large a record of a compressed batch may be, decompressed."),
        _key("index.interval.bytes", "After how many bytes of records an index gets an entry."),
        _key("delete.retention.ms", "How long compaction keeps a tombstone."),
        _key("min.compaction.lag.ms", "How old a record is at least when it is compacted."),
        _key("max.compaction.lag.ms", "After what time at most a record is compacted."),
        _key("file.delete.delay.ms", "How long a deleted file stays on the disk."),
        _key("min.cleanable.dirty.ratio", "What part of a log is not compacted before it is again."),
        _key(
            "cleanup.policy",
            "Whether old segments are deleted, or compacted to the last record of each key, or both.",
            list_of("compact", "delete"),
            LIST,
        ),
        _key("unclean.leader.election.enable", "Whether a replica that is not in sync may become the leader."),
        _key("min.insync.replicas", "How many replicas must have a record before acks=all is met."),
        _key("compression.type", "The codec that batches are stored with; `producer` keeps the producer's."),
        _level("gzip"),
        _level("lz4"),
        _level("zstd"),
        _key("preallocate", "Whether a new segment's file has its full size from the beginning."),
        _key("message.timestamp.type", "Whether a record's timestamp is that of its creation or of its append."),
        _key("message.timestamp.before.max.ms", "How old a timestamp may be when a record is appended."),
        _key("message.timestamp.after.max.ms", "How far in the future a timestamp may be when a record is appended."),
        _replicas("leader"),
        _replicas("follower"),
        _key("remote.storage.enable", "Whether segments go to a tiered storage, which there is none of here."),
        _key("local.retention.ms", "`retention.ms` of what is not tiered; -2: the same."),
        _key("local.retention.bytes", "`retention.bytes` of what is not tiered; -2: the same."),
        _key("remote.log.copy.disable", "Whether no more segments go to the tiered storage."),
        _key("remote.copy.lag.ms", "How old a segment of a tiered storage gets before it is copied."),
        _key("remote.copy.lag.bytes", "How far behind a log's end it is when it is copied."),
        _key("remote.log.delete.on.disable", "Whether what was tiered goes when `remote.storage.enable` does."),
        _key("errors.deadletterqueue.group.enable", "Whether share groups may write dead letters to the topic."),
    ]
)
"""Kafka's settings of topics, in Kafka's order of checking them."""

_INTERNAL = {"internal.segment.bytes": ConfigKey("internal.segment.bytes", INT, None, "`segment.bytes` for tests.")}


def check_topic_config(overrides: Mapping[str, str], defaults: TopicConfig) -> None:
    """Check the settings of a topic, all of them together.

    Args:
        overrides: Its own settings.
        defaults: What the others have.

    Raises:
        ApiError: One is unknown or not valid.
    """
    for name in overrides:
        if name not in TOPIC_KEYS and name not in _INTERNAL:
            raise ApiError(ErrorCode.invalid_config, f"Unknown topic config name: {name}")
    values = {
        name: key.parse(overrides[name]) for name, key in {**TOPIC_KEYS, **_INTERNAL}.items() if name in overrides
    }

    def value(name: str) -> Any:
        return values.get(name, defaults.value(name))

    low, high = "min.compaction.lag.ms", "max.compaction.lag.ms"
    if value(low) > value(high):
        text = f"conflict topic config setting {low} ({value(low)}) > {high} ({value(high)})"
        raise ApiError(ErrorCode.invalid_config, text)
    if value("remote.storage.enable"):
        text = "Tiered Storage functionality is disabled in the broker."
        raise ApiError(ErrorCode.invalid_config, f"{text} Topic cannot be configured with remote log storage.")
