"""The settings of a topic, with Kafka's names, types, defaults and valid ranges.

Values are text, as in the metadata log. A broker's own settings are the defaults of its topics': `log.retention.hours`
is the default of `retention.ms`, and so on.

Source in Kafka: `LogConfig`, `TopicConfig`, `ServerTopicConfigSynonyms`, `ConfigDef`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from odradek.arguments import checked_mapping, checked_text
from odradek.errors import InvalidConfigError
from odradek.records.compression import LEVELS, Codec
from odradek.storage.config_def import MAX_INT64, Parser, boolean, int32, int64, number, one_of, words

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
INHERITED = -2
"""The value of `local.retention.*` that means: as `retention.*`."""
MAX_DECOMPRESSED_MESSAGE_BYTES = (1 << 31) - 9
"""The largest `max.decompressed.message.bytes`, and its default: the longest array of Java."""

_THROTTLED_REPLICA = re.compile(r"[0-9]+:[0-9]+", re.ASCII)


def _level(codec: Codec) -> Any:
    default, lowest, highest = levels = LEVELS[codec]
    within = f"within {lowest} to {highest}"

    def parse(text: str) -> int:
        value: int = int32(None)(text)
        if not levels.allow(value):
            raise ValueError(f"is not {within}" if lowest <= default else f"is neither {default} nor {within}")
        return value

    return _setting(default, parse)


def _cleanup_policy(text: str) -> tuple[str, ...]:
    policies = words(text)
    unknown = set(policies) - {"compact", "delete"}
    if unknown:
        raise ValueError(f"is a list of compact and delete, not of {', '.join(sorted(unknown))}")
    # Kafka takes one that is there twice as one.
    return tuple(dict.fromkeys(policies))


def _throttled_replicas(text: str) -> tuple[str, ...]:
    replicas = words(text)
    if replicas != ("*",) and not all(map(_THROTTLED_REPLICA.fullmatch, replicas)):
        raise ValueError("is neither * nor a list of partition:broker")
    return replicas


def _setting(default: Any, parse: Parser) -> Any:
    return field(default=default, metadata={"parse": parse})


@dataclass(frozen=True, kw_only=True)
class TopicConfig:
    """The settings of a topic: an attribute for each, with underscores for the dots in its name.

    `overrides` are the settings of the topic itself, as text; all others have their defaults.
    """

    cleanup_policy: tuple[str, ...] = _setting(("delete",), _cleanup_policy)
    compression_type: str = _setting("producer", one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"))
    compression_gzip_level: int = _level(Codec.GZIP)
    compression_lz4_level: int = _level(Codec.LZ4)
    compression_zstd_level: int = _level(Codec.ZSTD)
    delete_retention_ms: int = _setting(24 * HOUR_MS, int64(0))
    file_delete_delay_ms: int = _setting(MINUTE_MS, int64(0))
    flush_messages: int = _setting(MAX_INT64, int64(1))
    flush_ms: int = _setting(MAX_INT64, int64(0))
    index_interval_bytes: int = _setting(4096, int32(0))
    internal_segment_bytes: int | None = _setting(None, int32(None))
    max_compaction_lag_ms: int = _setting(MAX_INT64, int64(1))
    min_compaction_lag_ms: int = _setting(0, int64(0))
    max_message_bytes: int = _setting(1_048_588, int32(0))
    max_decompressed_message_bytes: int = _setting(
        MAX_DECOMPRESSED_MESSAGE_BYTES, int32(1, MAX_DECOMPRESSED_MESSAGE_BYTES)
    )
    message_timestamp_type: str = _setting("CreateTime", one_of("CreateTime", "LogAppendTime"))
    message_timestamp_before_max_ms: int = _setting(MAX_INT64, int64(0))
    message_timestamp_after_max_ms: int = _setting(HOUR_MS, int64(0))
    min_cleanable_dirty_ratio: float = _setting(0.5, number(0, 1))
    min_insync_replicas: int = _setting(1, int32(1))
    preallocate: bool = _setting(False, boolean)
    retention_bytes: int = _setting(-1, int64(None))
    retention_ms: int = _setting(168 * HOUR_MS, int64(-1))
    segment_bytes: int = _setting(1 << 30, int32(1 << 20))
    segment_index_bytes: int = _setting(10 << 20, int32(4))
    segment_ms: int = _setting(168 * HOUR_MS, int64(1))
    segment_jitter_ms: int = _setting(0, int64(0))
    unclean_leader_election_enable: bool = _setting(False, boolean)
    leader_replication_throttled_replicas: tuple[str, ...] = _setting((), _throttled_replicas)
    follower_replication_throttled_replicas: tuple[str, ...] = _setting((), _throttled_replicas)
    remote_storage_enable: bool = _setting(False, boolean)
    remote_log_copy_disable: bool = _setting(False, boolean)
    remote_log_delete_on_disable: bool = _setting(False, boolean)
    remote_copy_lag_ms: int = _setting(0, int64(-1))
    remote_copy_lag_bytes: int = _setting(-1, int64(-1))
    errors_deadletterqueue_group_enable: bool = _setting(False, boolean)
    local_retention_ms: int = _setting(INHERITED, int64(INHERITED))
    local_retention_bytes: int = _setting(INHERITED, int64(INHERITED))
    overrides: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, overrides: Mapping[str, str], broker_config: Mapping[str, str] | None = None) -> TopicConfig:
        """Parse settings that a caller asks for.

        Args:
            overrides: The topic's own settings, by Kafka's names.
            broker_config: Settings of the broker, by their own names: the topic's defaults. Those that are not defaults
                of topics are ignored.

        Raises:
            InvalidConfigError: A setting is unknown, or has a value that is not valid.
            TypeError: An argument is not a mapping from names.
        """
        checked_mapping("broker_config", broker_config)
        overrides = checked_mapping("overrides", overrides)
        for name, value in overrides.items():
            if name not in TOPIC_CONFIGS:
                raise _unknown(name)
            if not isinstance(value, str):
                raise InvalidConfigError(name, f"{value!r} is not text")
        config = cls.load(overrides, broker_config)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            reason = f"{config.min_compaction_lag_ms} is above max.compaction.lag.ms, {config.max_compaction_lag_ms}"
            raise InvalidConfigError("min.compaction.lag.ms", reason)
        if config.remote_storage_enable:
            raise InvalidConfigError("remote.storage.enable", "there is no tiered storage here")
        return config

    @classmethod
    def load(cls, overrides: Mapping[str, str], broker_config: Mapping[str, str] | None = None) -> TopicConfig:
        """Parse settings of a log directory; unknown ones, from another version of Kafka, have no effect.

        Raises:
            InvalidConfigError: A setting has a value that is not valid.
        """
        values = {name: (name, text) for name, text in overrides.items() if name in TOPIC_CONFIGS}
        values = _broker_defaults(broker_config or {}) | values
        attributes: dict[str, Any] = {}
        for name, (given_as, text) in values.items():
            try:
                attributes[_attribute(name)] = TOPIC_CONFIGS[name](text)
            except ValueError as error:
                raise InvalidConfigError(given_as, f"{text!r} {error}") from None
        return cls(**attributes, overrides=dict(overrides))

    def value(self, name: str) -> Any:
        """Return the value of a setting by Kafka's name.

        Raises:
            InvalidConfigError: There is no such setting.
        """
        if checked_text("name", name) not in TOPIC_CONFIGS:
            raise _unknown(name)
        return getattr(self, _attribute(name))

    @property
    def flushes(self) -> bool:
        """Whether appended records are brought to the disk after some of them, or some time."""
        return self.flush_messages != MAX_INT64 or self.flush_ms != MAX_INT64

    @property
    def is_compacted(self) -> bool:
        """Whether the topic is compacted."""
        return "compact" in self.cleanup_policy

    @property
    def keeps_records(self) -> bool:
        """Whether records may not be deleted up to an offset, because the topic is compacted only."""
        return self.is_compacted and not self.is_deleted

    @property
    def is_deleted(self) -> bool:
        """Whether old segments are deleted because of their age, or of the log's size."""
        return "delete" in self.cleanup_policy

    @property
    def max_segment_bytes(self) -> int:
        """The size limit of a segment: `segment.bytes`, or `internal.segment.bytes`, as Kafka's tests set it."""
        return self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes


def _unknown(name: str) -> InvalidConfigError:
    from difflib import get_close_matches  # 10 ms that only a mistake costs

    of_broker = (topics for topics, synonyms in BROKER_SYNONYMS.items() if name in dict(synonyms))
    nearest = next(of_broker, None) or next(iter(get_close_matches(name, TOPIC_CONFIGS, 1)), None)
    advice = f"; did you mean {nearest}?" if nearest else ""
    return InvalidConfigError(name, f"no such setting of a topic{advice}")


def _attribute(name: str) -> str:
    return name.replace(".", "_")


TOPIC_CONFIGS: dict[str, Parser] = {
    item.name.replace("_", "."): item.metadata["parse"] for item in fields(TopicConfig) if item.metadata
}
"""The parser for each setting's value, by Kafka's name."""

BROKER_SYNONYMS: dict[str, tuple[tuple[str, int], ...]] = {
    "cleanup.policy": (("log.cleanup.policy", 0),),
    "compression.type": (("compression.type", 0),),
    "compression.gzip.level": (("compression.gzip.level", 0),),
    "compression.lz4.level": (("compression.lz4.level", 0),),
    "compression.zstd.level": (("compression.zstd.level", 0),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 0),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 0),),
    "flush.messages": (("log.flush.interval.messages", 0),),
    "flush.ms": (("log.flush.interval.ms", 0), ("log.flush.scheduler.interval.ms", 0)),
    "index.interval.bytes": (("log.index.interval.bytes", 0),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 0),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 0),),
    "max.message.bytes": (("message.max.bytes", 0),),
    "max.decompressed.message.bytes": (("max.decompressed.message.bytes", 0),),
    "message.timestamp.type": (("log.message.timestamp.type", 0),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 0),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 0),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 0),),
    "min.insync.replicas": (("min.insync.replicas", 0),),
    "preallocate": (("log.preallocate", 0),),
    "retention.bytes": (("log.retention.bytes", 0),),
    "retention.ms": (
        ("log.retention.ms", 0),
        ("log.retention.minutes", MINUTE_MS),
        ("log.retention.hours", HOUR_MS),
    ),
    "segment.bytes": (("log.segment.bytes", 0),),
    "segment.index.bytes": (("log.index.size.max.bytes", 0),),
    "segment.ms": (("log.roll.ms", 0), ("log.roll.hours", HOUR_MS)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 0), ("log.roll.jitter.hours", HOUR_MS)),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 0),),
    "local.retention.ms": (("log.local.retention.ms", 0),),
    "local.retention.bytes": (("log.local.retention.bytes", 0),),
    "remote.copy.lag.ms": (("log.remote.copy.lag.ms", 0),),
    "remote.copy.lag.bytes": (("log.remote.copy.lag.bytes", 0),),
}
"""The broker's settings that are a topic's default: the first one given counts; their unit in ms (0: the same)."""


def _broker_defaults(broker_config: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the topics' settings that follow from a broker's: by name, the broker's setting and the text."""
    defaults = {}
    for name, synonyms in BROKER_SYNONYMS.items():
        for given_as, unit in synonyms:
            text = broker_config.get(given_as)
            if text is None:
                continue
            if unit:
                try:
                    value = int32(None)(text)
                except ValueError as error:
                    raise InvalidConfigError(given_as, f"{text!r} {error}") from None
                text = str(value * unit if value >= 0 else -1)
            defaults[name] = (given_as, text)
            break
    return defaults
