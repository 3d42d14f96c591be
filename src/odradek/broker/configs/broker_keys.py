"""The settings of a broker: those that this broker has.

Source in Kafka: `KafkaConfig`, `AbstractKafkaConfig`, `DynamicBrokerConfig`, `ServerTopicConfigSynonyms`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.broker.configs.config_keys import Check, ConfigKey, ConfigType, at_least, by_name
from odradek.broker.configs.topic_keys import BOOLEAN, DOUBLE, INT, LIST, LONG, STRING, TOPIC_KEYS
from odradek.storage.config_def import MAX_INT32
from odradek.storage.topic_config import BROKER_SYNONYMS

PASSWORD = ConfigType.PASSWORD

TOPIC_SYNONYMS: Mapping[str, str] = {topic: names[0][0] for topic, names in BROKER_SYNONYMS.items()}
"""By a topic's setting, the broker's setting that is its default; of several, the one that counts first."""

_UNITS = {"retention.ms", "segment.ms", "segment.jitter.ms", "flush.ms"}
"""The topics' settings whose default the broker may have in another unit."""


def _default_of(topic_name: str) -> ConfigKey:
    key = TOPIC_KEYS[topic_name]
    name = TOPIC_SYNONYMS[topic_name]
    documentation = f"`{topic_name}` of the topics that do not set it. {key.documentation}"
    if topic_name in _UNITS:
        return ConfigKey(name, key.type, None, documentation, is_dynamic=True)
    return ConfigKey(name, key.type, key.default, documentation, key.check, is_dynamic=True)


def _key(
    name: str,
    kind: ConfigType,
    default: object,
    documentation: str,
    *,
    is_dynamic: bool = False,
    check: Check | None = None,
) -> ConfigKey:
    return ConfigKey(name, kind, None if default is None else str(default), documentation, check, is_dynamic)


BROKER_KEYS: Mapping[str, ConfigKey] = by_name(
    [
        *map(_default_of, TOPIC_SYNONYMS),
        _key("log.retention.minutes", INT, None, "`log.retention.ms` in minutes."),
        _key("log.retention.hours", INT, 168, "`log.retention.ms` in hours."),
        _key("log.roll.hours", INT, 168, "`log.roll.ms` in hours."),
        _key("log.roll.jitter.hours", INT, 0, "`log.roll.jitter.ms` in hours."),
        # the node
        _key("node.id", INT, None, "The number of the node; that of `meta.properties`."),
        _key("broker.id", INT, -1, "The number of the broker: `node.id`."),
        _key("process.roles", LIST, None, "What the node is: a broker and the controller."),
        _key("broker.rack", STRING, None, "The rack that the broker is in."),
        _key("log.dir", LIST, "/tmp/kafka-logs", "The folder of the logs, if `log.dirs` is not set."),  # noqa: S108
        _key("log.dirs", LIST, None, "The folders of the logs."),
        _key("auto.create.topics.enable", BOOLEAN, "true", "Whether a topic is created when a client asks for it."),
        _key("delete.topic.enable", BOOLEAN, "true", "Whether clients may delete topics."),
        _key("num.partitions", INT, 1, "How many partitions a topic has if its creator does not say."),
        _key("default.replication.factor", INT, 1, "How many replicas a partition has if its creator does not say."),
        # network
        _key("listeners", LIST, "PLAINTEXT://:9092", "The addresses that clients connect to."),
        _key("advertised.listeners", LIST, None, "The addresses that clients are told, if not `listeners`."),
        _key(
            "listener.security.protocol.map",
            STRING,
            "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "The security protocol of each listener.",
        ),
        _key("controller.listener.names", LIST, None, "The listeners of a controller, which this node does not open."),
        _key("connection.failed.authentication.delay.ms", INT, 100, "How long a failed authentication takes at least."),
        _key("max.connections.per.ip.overrides", STRING, "", "`max.connections.per.ip` of single addresses."),
        _key(
            "max.connection.creation.rate",
            INT,
            MAX_INT32,
            "How many connections may be made in a second.",
            is_dynamic=True,
            check=at_least(0),
        ),
        _key("socket.request.max.bytes", INT, 104_857_600, "How large a request may be."),
        _key("socket.listen.backlog.size", INT, 50, "How many connections may wait to be accepted."),
        _key("socket.send.buffer.bytes", INT, 102_400, "The size of a connection's send buffer; -1: the system's."),
        _key(
            "socket.receive.buffer.bytes", INT, 102_400, "The size of a connection's receive buffer; -1: the system's."
        ),
        _key(
            "max.connections", INT, MAX_INT32, "How many connections may be open.", is_dynamic=True, check=at_least(0)
        ),
        _key(
            "max.connections.per.ip",
            INT,
            MAX_INT32,
            "How many connections one address may have.",
            is_dynamic=True,
            check=at_least(0),
        ),
        _key("connections.max.idle.ms", LONG, 600_000, "How long a connection may be idle before it is closed."),
        _key("fetch.max.bytes", INT, 57_671_680, "How many bytes a Fetch answers at most."),
        _key(
            "max.incremental.fetch.session.cache.slots", INT, 1000, "How many incremental fetch sessions there may be."
        ),
        _key("request.timeout.ms", INT, 30_000, "How long a request may take."),
        # security
        _key("sasl.enabled.mechanisms", LIST, "GSSAPI", "The SASL mechanisms that clients may use."),
        _key("sasl.jaas.config", PASSWORD, None, "The users of SASL, and their passwords."),
        _key("sasl.server.max.receive.size", INT, 524_288, "How large a message of SASL may be."),
        _key("connections.max.reauth.ms", LONG, 0, "After what time a SASL client must authenticate again; 0: never."),
        _key("ssl.keystore.type", STRING, "JKS", "The format of the key store."),
        _key("ssl.keystore.location", STRING, None, "The file with the broker's key and certificates."),
        _key("ssl.keystore.password", PASSWORD, None, "The password of the key store."),
        _key("ssl.keystore.key", PASSWORD, None, "The broker's key, as PEM."),
        _key("ssl.keystore.certificate.chain", PASSWORD, None, "The broker's certificates, as PEM."),
        _key("ssl.key.password", PASSWORD, None, "The password of the key."),
        _key("ssl.truststore.type", STRING, "JKS", "The format of the trust store."),
        _key("ssl.truststore.location", STRING, None, "The file with the certificates that are trusted."),
        _key("ssl.truststore.password", PASSWORD, None, "The password of the trust store."),
        _key("ssl.truststore.certificates", PASSWORD, None, "The certificates that are trusted, as PEM."),
        _key("ssl.client.auth", STRING, "none", "Whether clients need a certificate: required, requested or none."),
        _key("ssl.enabled.protocols", LIST, "TLSv1.2,TLSv1.3", "The versions of TLS that clients may use."),
        # groups
        _key("group.min.session.timeout.ms", INT, 6_000, "The shortest session time-out of a group's member."),
        _key("group.max.session.timeout.ms", INT, 1_800_000, "The longest session time-out of a group's member."),
        _key("group.initial.rebalance.delay.ms", INT, 3_000, "How long an empty group waits for more members."),
        _key("group.max.size", INT, MAX_INT32, "How many members a group may have."),
        _key("offset.metadata.max.bytes", INT, 4096, "How large the metadata of a committed offset may be."),
        _key("offsets.retention.minutes", INT, 10_080, "How long an empty group's offsets are kept."),
        _key("offsets.retention.check.interval.ms", LONG, 600_000, "How often offsets that are too old are removed."),
        _key("offsets.topic.num.partitions", INT, 50, "How many partitions `__consumer_offsets` gets."),
        _key("offsets.topic.segment.bytes", INT, 104_857_600, "`segment.bytes` of `__consumer_offsets`."),
        # transactions
        _key("transaction.max.timeout.ms", INT, 900_000, "The longest transaction time-out of a producer."),
        _key("transactional.id.expiration.ms", INT, 604_800_000, "How long an unused transactional id is remembered."),
        _key("transaction.state.log.num.partitions", INT, 50, "How many partitions `__transaction_state` gets."),
        _key("transaction.state.log.segment.bytes", INT, 104_857_600, "`segment.bytes` of `__transaction_state`."),
        _key(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms",
            INT,
            10_000,
            "How often transactions that are too old are aborted.",
        ),
        _key(
            "transaction.remove.expired.transaction.cleanup.interval.ms",
            INT,
            3_600_000,
            "How often unused transactional ids are forgotten.",
        ),
        _key(
            "transaction.partition.verification.enable",
            BOOLEAN,
            "true",
            "Whether a batch of a transaction is checked against the coordinator.",
            is_dynamic=True,
        ),
        _key("producer.id.expiration.ms", INT, 86_400_000, "How long a silent producer is remembered."),
        _key(
            "num.recovery.threads.per.data.dir",
            INT,
            2,
            "How many threads recover the logs of a folder after a crash.",
            is_dynamic=True,
        ),
        # maintenance
        _key("log.retention.check.interval.ms", LONG, 300_000, "How often old segments are deleted."),
        _key(
            "log.flush.scheduler.interval.ms", LONG, (1 << 63) - 1, "How often it is seen which logs are to be flushed."
        ),
        _key("log.flush.offset.checkpoint.interval.ms", INT, 60_000, "How often recovery points are written down."),
        _key(
            "log.flush.start.offset.checkpoint.interval.ms",
            INT,
            60_000,
            "How often log start offsets are written down.",
        ),
        _key(
            "replica.high.watermark.checkpoint.interval.ms", LONG, 5_000, "How often high watermarks are written down."
        ),
        _key("log.cleaner.enable", BOOLEAN, "true", "Whether logs are compacted."),
        _key("log.cleaner.backoff.ms", LONG, 15_000, "How long the cleaner waits if there is no work."),
        _key("log.cleaner.dedupe.buffer.size", LONG, 134_217_728, "The memory of the cleaner for keys."),
        _key("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, "How full the cleaner's memory may get."),
        _key(
            "log.cleaner.io.max.bytes.per.second",
            DOUBLE,
            "1.7976931348623157E308",
            "How many bytes the cleaner reads and writes in a second.",
        ),
    ]
)
"""The settings by name, with Kafka's types and defaults."""

NOT_WHILE_RUNNING: Mapping[str, Callable[[int], bool]] = {
    "log.retention.ms": lambda value: value == 0,
    "log.roll.ms": lambda value: value < 1,
    "log.roll.jitter.ms": lambda value: value < 0,
    "max.connections": lambda value: value < 1,
    "max.connection.creation.rate": lambda value: value < 1,
    "max.connections.per.ip": lambda value: value < 1,
}
"""Values that are valid at the start, but refused while the broker runs: some would lock all clients out."""
