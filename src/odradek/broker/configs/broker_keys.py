"""The settings of a broker: all that Apache Kafka's describes.

Most have no effect here, and their documentation says so.

Source in Kafka: `KafkaConfig`, `AbstractKafkaConfig`, `DynamicBrokerConfig`, `ServerTopicConfigSynonyms`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.broker.config import SETTINGS, is_secret, plain_name, restricts_from_start
from odradek.broker.configs.config_keys import Check, ConfigKey, ConfigType, between, by_name
from odradek.broker.configs.topic_keys import TOPIC_KEYS
from odradek.storage.directory.broker_config import BROKER_CONFIGS, BrokerSetting
from odradek.storage.topic_config import BROKER_SYNONYMS

TOPIC_SYNONYMS: Mapping[str, str] = {topic: names[0][0] for topic, names in BROKER_SYNONYMS.items()}
"""By a topic's setting, the broker's setting that is its default; of several, the one that counts first."""

_OF_TOPICS = {broker: topic for topic, broker in TOPIC_SYNONYMS.items()}
_UNITS = {"retention.ms", "segment.ms", "segment.jitter.ms", "flush.ms"}
"""The topics' settings whose default the broker may have in another unit."""

DOCUMENTATION = {
    **SETTINGS,
    "log.retention.minutes": "`log.retention.ms` in minutes.",
    "log.retention.hours": "`log.retention.ms` in hours.",
    "log.roll.hours": "`log.roll.ms` in hours.",
    "log.roll.jitter.hours": "`log.roll.jitter.ms` in hours.",
    # the node
    "broker.id": "The number of the broker: `node.id`.",
    "process.roles": "What the node is: a broker and the controller.",
    "log.dir": "The folder of the logs, if `log.dirs` is not set.",
    "log.dirs": "The folders of the logs.",
    # logs
    "num.recovery.threads.per.data.dir": "How many threads recover the logs of a folder after a crash.",
    "producer.id.expiration.ms": "How long a silent producer is remembered.",
    # maintenance
    "log.retention.check.interval.ms": "How often old segments are deleted.",
    "log.flush.scheduler.interval.ms": "How often it is seen which logs are to be flushed.",
    "log.flush.offset.checkpoint.interval.ms": "How often recovery points are written down.",
    "log.flush.start.offset.checkpoint.interval.ms": "How often log start offsets are written down.",
    "replica.high.watermark.checkpoint.interval.ms": "How often high watermarks are written down.",
    "log.cleaner.enable": "Whether logs are compacted.",
    "log.cleaner.backoff.ms": "How long the cleaner waits if there is no work.",
    "log.cleaner.dedupe.buffer.size": "The memory of the cleaner for keys.",
    "log.cleaner.io.buffer.load.factor": "How full the cleaner's memory may get.",
    "log.cleaner.io.max.bytes.per.second": "How many bytes the cleaner reads and writes in a second.",
}
"""What the settings do that have an effect here, besides those that are defaults of topics."""


def _check_of(name: str, setting: BrokerSetting) -> Check | None:
    topic_name = _OF_TOPICS.get(name)
    if topic_name is not None:
        return None if topic_name in _UNITS else TOPIC_KEYS[topic_name].check
    low, high = setting.bounds
    return None if low is None else between(low, high)


def _documentation_of(name: str) -> str:
    if name in _OF_TOPICS:
        topic_name = _OF_TOPICS[name]
        return f"`{topic_name}` of the topics that do not set it. {TOPIC_KEYS[topic_name].documentation}"
    return DOCUMENTATION.get(name, "A setting of Apache Kafka that has no effect here.")


def _key(name: str, setting: BrokerSetting) -> ConfigKey:
    return ConfigKey(
        name,
        ConfigType[setting.type],
        setting.default,
        _documentation_of(name),
        _check_of(name, setting),
        is_dynamic=is_dynamic(name) and not restricts_from_start(name),
    )


def is_dynamic(name: str) -> bool:
    """Return whether a setting may be in the metadata; those that Kafka does not know may."""
    # Kafka would write a secret there which has no effect, if it is named as that of a listener.
    setting = BROKER_CONFIGS.get(plain_name(name) if is_secret(name) else name)
    return setting is None or setting.mode in ("cluster-wide", "per-broker")


def is_of_one_broker(name: str) -> bool:
    """Return whether a setting that can change while the broker runs can do so only for one broker, not for all."""
    plain = plain_name(name)
    return plain != name or (name in BROKER_CONFIGS and BROKER_CONFIGS[name].mode == "per-broker")


BROKER_KEYS: Mapping[str, ConfigKey] = by_name(
    [_key(name, setting) for name, setting in BROKER_CONFIGS.items() if setting.mode != "internal"]
)
"""The settings by name, with Kafka's types and defaults, in Kafka's order."""

NOT_WHILE_RUNNING: Mapping[str, Callable[[int], bool]] = {
    "log.retention.ms": lambda value: value == 0,
    "log.roll.ms": lambda value: value < 1,
    "log.roll.jitter.ms": lambda value: value < 0,
    "max.connections": lambda value: value < 1,
    "max.connection.creation.rate": lambda value: value < 1,
    "max.connections.per.ip": lambda value: value < 1,
}
"""Values that are valid at the start, but refused while the broker runs, because some would lock all clients out."""
