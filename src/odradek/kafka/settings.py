"""Settings of a connection to a broker: Kafka's names for its clients, turned into kafka-python's.

    kafka.security.protocol          SASL_SSL
    kafka.ssl.truststore.location    /etc/ssl/ca.p12                  JKS, PKCS12 or PEM (KIP-651): its bytes tell
    kafka.ssl.truststore.password    secret
    kafka.sasl.jaas.config           ...LoginModule required username="..." password="...";

kafka-python's own names (`ssl_cafile` as `ssl.cafile`, and so on) are taken too.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.errors import OptionError
from odradek.kafka.cluster import client_config
from odradek.kafka.servers import parse_servers
from odradek.printable import logger
from odradek.storage.config_def import check_literal

DEFAULT_FETCH_BYTES = 16 << 20
_REFUSED = {
    "auto.offset.reset": "startingOffsets says where to start, and offsets.reset in a pipeline's file",
    "enable.auto.commit": "nothing is committed by the source",
    "key.deserializer": "keys are bytes",
    "value.deserializer": "values are bytes",
    "interceptor.classes": "there are no interceptors",
}
_TAKEN = ("client.dns.lookup", "ssl.truststore.type", "ssl.keystore.type")
"""Settings of Kafka's clients that need nothing more here."""
_WITHOUT_EFFECT = frozenset(
    (
        *("acks", "allow.auto.create.topics", "auto.commit.interval.ms", "batch.size", "buffer.memory", "check.crcs"),
        *("client.rack", "delivery.timeout.ms", "enable.idempotence", "enable.metrics.push", "exclude.internal.topics"),
        *("fetch.min.bytes", "group.id", "group.instance.id", "group.protocol", "group.remote.assignor"),
        *("heartbeat.interval.ms", "linger.ms", "max.block.ms", "max.poll.interval.ms", "max.poll.records"),
        *("max.request.size", "metadata.max.idle.ms", "metric.reporters", "metrics.num.samples"),
        *("metrics.recording.level", "metrics.sample.window.ms", "partition.assignment.strategy", "partitioner.class"),
        *("receive.buffer.bytes", "retries", "retry.backoff.max.ms", "retry.backoff.ms", "send.buffer.bytes"),
        "session.timeout.ms",
    )
)
"""Settings of Kafka's clients (`ConsumerConfig`, `ProducerConfig`) that mean nothing to this one."""
_logger = logger(__name__)


@dataclass(frozen=True)
class BrokerSettings:
    """How to reach a broker, and how to fetch from it.

    Attributes:
        bootstrap_servers: Its addresses.
        connection: kafka-python's settings.
        fetch_bytes: The most bytes of a fetch.
        fetch_wait_ms: How long the broker may wait for records.
        timeout_ms: How long a request is retried.
        first_timeout_ms: How long the first one is, which may be to a broker that is not there.
        transaction_timeout_ms: How long a transaction may be open, before the broker aborts it.
    """

    bootstrap_servers: tuple[str, ...]
    connection: Mapping[str, Any] = field(default_factory=dict)
    fetch_bytes: int = DEFAULT_FETCH_BYTES
    fetch_wait_ms: int = 500
    timeout_ms: int = 60_000
    first_timeout_ms: int = 10_000
    transaction_timeout_ms: int = 300_000

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> BrokerSettings:
        """Parse the options of a source or sink that start with `kafka.`, given without that prefix.

        Raises:
            OptionError: An option is unknown, or cannot be set here.
        """
        left = dict(options)
        for name, text in left.items():
            try:
                check_literal(text)
            except ValueError as error:
                raise OptionError(f"kafka.{name} {error}") from None
        try:
            servers = parse_servers(left.pop("bootstrap.servers", ""))
        except ValueError as error:
            raise OptionError(f"kafka.bootstrap.servers: {error}") from None
        for name, reason in _REFUSED.items():
            if name in left:
                raise OptionError(f"kafka.{name} cannot be set: {reason}")
        for name in _TAKEN:
            left.pop(name, None)
        for name in sorted(_WITHOUT_EFFECT.intersection(left)):
            del left[name]
            tell_once(f"kafka.{name} has no effect here")
        for kind in ("truststore", "keystore"):
            if options.get(f"ssl.{kind}.type", "JKS").upper() not in ("JKS", "PKCS12", "PEM"):
                raise OptionError(f"kafka.ssl.{kind}.type must be JKS, PKCS12 or PEM")
        fetch_bytes = _number(left, "max.partition.fetch.bytes", DEFAULT_FETCH_BYTES)
        fetch_bytes = min(fetch_bytes, _number(left, "fetch.max.bytes", fetch_bytes))
        wait_ms = _number(left, "fetch.max.wait.ms", 500)
        timeout_ms = _number(left, "default.api.timeout.ms", 60_000)
        first_timeout_ms = timeout_ms if "default.api.timeout.ms" in options else cls.first_timeout_ms
        transaction_timeout_ms = _number(left, "transaction.timeout.ms", 300_000)
        if left.pop("ssl.endpoint.identification.algorithm", "https") == "":
            left["ssl.check_hostname"] = "false"
        try:
            connection = client_config(left)
        except ValueError as error:
            raise OptionError(f"kafka: {error}") from error
        return cls(servers, connection, fetch_bytes, wait_ms, timeout_ms, first_timeout_ms, transaction_timeout_ms)


@functools.cache
def tell_once(text: str) -> None:
    """Log a line, if no part of this process has logged it before."""
    _logger.warning(text)


def _number(options: dict[str, str], name: str, default: int) -> int:
    text = options.pop(name, str(default))
    if not re.fullmatch(r"\d{1,9}", text):
        raise OptionError(f"kafka.{name} must be a number, not {text!r}")
    return int(text)
