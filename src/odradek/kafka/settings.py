"""Settings of a connection to a broker: Kafka's names for its clients, turned into kafka-python's.

    kafka.security.protocol          SASL_SSL
    kafka.ssl.truststore.location    /etc/ssl/ca.pem                  PEM (ssl.truststore.type), as KIP-651 has it
    kafka.sasl.jaas.config           ...LoginModule required username="..." password="...";

kafka-python's own names (`ssl_cafile` as `ssl.cafile`, and so on) are taken too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.errors import OptionError
from odradek.kafka.cluster import client_config

DEFAULT_FETCH_BYTES = 16 << 20
_RENAMED = {
    "ssl.truststore.location": "ssl.cafile",
    "ssl.keystore.location": "ssl.certfile",
    "ssl.key.password": "ssl.password",
    "sasl.kerberos.service.name": "sasl.kerberos.service.name",
}
_REFUSED = {
    "auto.offset.reset": "startingOffsets says where to start",
    "enable.auto.commit": "nothing is committed by the source",
    "key.deserializer": "keys are bytes",
    "value.deserializer": "values are bytes",
    "interceptor.classes": "there are no interceptors",
}
_WITHOUT_EFFECT = ("group.id", "client.dns.lookup", "ssl.truststore.type", "ssl.keystore.type", "fetch.min.bytes")
_JAAS_VALUE = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class BrokerSettings:
    """How to reach a broker, and how to fetch from it.

    Attributes:
        bootstrap_servers: Its addresses.
        connection: kafka-python's settings.
        fetch_bytes: The most bytes of a fetch.
        fetch_wait_ms: How long the broker may wait for records.
        timeout_ms: How long a request is retried.
    """

    bootstrap_servers: tuple[str, ...]
    connection: Mapping[str, Any] = field(default_factory=dict)
    fetch_bytes: int = DEFAULT_FETCH_BYTES
    fetch_wait_ms: int = 500
    timeout_ms: int = 60_000

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> BrokerSettings:
        """Parse the options of a source or sink that start with `kafka.`, given without that prefix.

        Raises:
            OptionError: An option is unknown, or cannot be set here.
        """
        left = dict(options)
        servers = tuple(part.strip() for part in left.pop("bootstrap.servers", "").split(",") if part.strip())
        if not servers:
            raise OptionError("kafka.bootstrap.servers names no broker")
        for name, reason in _REFUSED.items():
            if name in left:
                raise OptionError(f"kafka.{name} cannot be set: {reason}")
        for name in _WITHOUT_EFFECT:
            left.pop(name, None)
        for kind in ("truststore", "keystore"):
            if options.get(f"ssl.{kind}.type", "PEM").upper() != "PEM":
                raise OptionError(f"kafka.ssl.{kind}.type must be PEM, the only type supported here")
        fetch_bytes = _number(left, "max.partition.fetch.bytes", DEFAULT_FETCH_BYTES)
        fetch_bytes = min(fetch_bytes, _number(left, "fetch.max.bytes", fetch_bytes))
        wait_ms = _number(left, "fetch.max.wait.ms", 500)
        timeout_ms = _number(left, "default.api.timeout.ms", 60_000)
        if left.pop("ssl.endpoint.identification.algorithm", "https") == "":
            left["ssl.check_hostname"] = "false"
        left.update(_sasl(left.pop("sasl.jaas.config", None)))
        renamed = {_RENAMED.get(name, name): value for name, value in left.items()}
        if "ssl.certfile" in renamed:
            # A PEM key store holds the key beside the certificates.
            renamed.setdefault("ssl.keyfile", renamed["ssl.certfile"])
        try:
            connection = client_config(renamed)
        except ValueError as error:
            raise OptionError(f"kafka: {error}") from error
        return cls(servers, connection, fetch_bytes, wait_ms, timeout_ms)


def _number(options: dict[str, str], name: str, default: int) -> int:
    text = options.pop(name, str(default))
    if not re.fullmatch(r"\d{1,9}", text):
        raise OptionError(f"kafka.{name} must be a number, not {text!r}")
    return int(text)


def _sasl(jaas: str | None) -> dict[str, str]:
    if jaas is None:
        return {}
    values = {name: re.sub(r"\\(.)", r"\1", value) for name, value in _JAAS_VALUE.findall(jaas)}
    if "username" not in values or "password" not in values:
        raise OptionError("kafka.sasl.jaas.config must name a username and a password")
    return {"sasl.plain.username": values["username"], "sasl.plain.password": values["password"]}
