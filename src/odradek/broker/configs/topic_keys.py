"""The settings of topics.

Source in Kafka: `LogConfig`, `TopicConfig`, `ThrottledReplicaListValidator`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.configs.config_keys import (
    ConfigKey,
    ConfigType,
    as_java,
    at_least,
    between,
    by_name,
    invalid_value,
    list_of,
    one_of,
)
from odradek.broker.errors import ApiError
from odradek.records.compression import LEVELS, Codec
from odradek.storage.topic_config import MAX_DECOMPRESSED_MESSAGE_BYTES, TopicConfig

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


def _key(name: str, kind: ConfigType, documentation: str, check: Any = None) -> ConfigKey:
    return ConfigKey(name, kind, as_java(_DEFAULTS.value(name)), documentation, check)


TOPIC_KEYS: Mapping[str, ConfigKey] = by_name(
    [
        _key("segment.bytes", INT, "How large a segment may get before a new one begins.", at_least(1 << 20)),
        _key("segment.ms", LONG, "How old a segment may get before a new one begins.", at_least(1)),
        _key("segment.jitter.ms", LONG, "By how much at most a segment begins earlier, at random.", at_least(0)),
        _key("segment.index.bytes", INT, "How large the indexes of a segment may get.", at_least(4)),
        _key("flush.messages", LONG, "After how many records a log is brought to the disk.", at_least(1)),
        _key("flush.ms", LONG, "After what time a log is brought to the disk.", at_least(0)),
        _key("retention.bytes", LONG, "How large a partition may get before old segments are deleted; -1: any size."),
        _key("retention.ms", LONG, "How old records may get before they are deleted; -1: any age.", at_least(-1)),
        _key("max.message.bytes", INT, "How large a batch of records may be, as it is compressed.", at_least(0)),
        _key(
            "max.decompressed.message.bytes",
            INT,
            "How large a record of a compressed batch may be, decompressed.",
            between(1, MAX_DECOMPRESSED_MESSAGE_BYTES),
        ),
        _key("index.interval.bytes", INT, "After how many bytes of records an index gets an entry.", at_least(0)),
        _key("delete.retention.ms", LONG, "How long compaction keeps a tombstone.", at_least(0)),
        _key("min.compaction.lag.ms", LONG, "How old a record is at least when it is compacted.", at_least(0)),
        _key("max.compaction.lag.ms", LONG, "After what time at most a record is compacted.", at_least(1)),
        _key("file.delete.delay.ms", LONG, "How long a deleted file stays on the disk.", at_least(0)),
        _key(
            "min.cleanable.dirty.ratio",
            DOUBLE,
            "What part of a log is not compacted before it is again.",
            between(0, 1),
        ),
        _key(
            "cleanup.policy",
            LIST,
            "Whether old segments are deleted, or compacted to the last record of each key, or both.",
            list_of("compact", "delete"),
        ),
        _key("unclean.leader.election.enable", BOOLEAN, "Whether a replica that is not in sync may become the leader."),
        _key("min.insync.replicas", INT, "How many replicas must have a record before acks=all is met.", at_least(1)),
        _key(
            "compression.type",
            STRING,
            "The codec that batches are stored with; `producer` keeps the producer's.",
            one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        ),
        _key("compression.gzip.level", INT, "The level of gzip, if `compression.type` is gzip.", _gzip_level),
        _key(
            "compression.lz4.level",
            INT,
            "The level of lz4, if `compression.type` is lz4.",
            between(LEVELS[Codec.LZ4].lowest, LEVELS[Codec.LZ4].highest),
        ),
        _key(
            "compression.zstd.level",
            INT,
            "The level of zstd, if `compression.type` is zstd.",
            between(LEVELS[Codec.ZSTD].lowest, LEVELS[Codec.ZSTD].highest),
        ),
        _key("preallocate", BOOLEAN, "Whether a new segment's file has its full size from the beginning."),
        _key(
            "message.timestamp.type",
            STRING,
            "Whether a record's timestamp is that of its creation or of its append.",
            one_of("CreateTime", "LogAppendTime"),
        ),
        _key(
            "message.timestamp.before.max.ms",
            LONG,
            "How old a timestamp may be when a record is appended.",
            at_least(0),
        ),
        _key(
            "message.timestamp.after.max.ms",
            LONG,
            "How far in the future a timestamp may be when a record is appended.",
            at_least(0),
        ),
        _key(
            "leader.replication.throttled.replicas",
            LIST,
            "The replicas, as partition:broker, whose leaders are throttled; no effect with one broker.",
            _throttled_replicas,
        ),
        _key(
            "follower.replication.throttled.replicas",
            LIST,
            "The replicas, as partition:broker, whose followers are throttled; no effect with one broker.",
            _throttled_replicas,
        ),
        _key("remote.storage.enable", BOOLEAN, "Whether segments go to a tiered storage, which there is none of here."),
        _key("local.retention.ms", LONG, "`retention.ms` of what is not tiered; -2: the same.", at_least(-2)),
        _key("local.retention.bytes", LONG, "`retention.bytes` of what is not tiered; -2: the same.", at_least(-2)),
        _key("remote.log.copy.disable", BOOLEAN, "Whether no more segments go to the tiered storage."),
        _key(
            "remote.copy.lag.ms", LONG, "How old a segment of a tiered storage gets before it is copied.", at_least(-1)
        ),
        _key("remote.copy.lag.bytes", LONG, "How far behind a log's end it is when it is copied.", at_least(-1)),
        _key(
            "remote.log.delete.on.disable", BOOLEAN, "Whether what was tiered goes when `remote.storage.enable` does."
        ),
        _key(
            "errors.deadletterqueue.group.enable", BOOLEAN, "Whether share groups may write dead letters to the topic."
        ),
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
