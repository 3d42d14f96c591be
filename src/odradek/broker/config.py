"""The settings of a broker, by Kafka's names and with Kafka's defaults.

    listeners=PLAINTEXT://127.0.0.1:9092,SASL_SSL://0.0.0.0:9093
    advertised.listeners=...          what clients are told to connect to; the same if it is missing

    listener.name.sasl_ssl.ssl.client.auth=required      only for the listener of that name
    listener.name.sasl_ssl.plain.sasl.jaas.config=...    only for that SASL mechanism of it

Settings of the log are those of `odradek.open`; what is neither has no effect. Listeners of controllers are left out.

Source in Kafka: `KafkaConfig`, `SocketServerConfigs`, `GroupCoordinatorConfig`, `TransactionLogConfig`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from odradek.errors import InvalidConfigError
from odradek.storage.config_def import ConfigValue, as_texts, boolean, int32, int64, one_of, words
from odradek.storage.directory.broker_config import BROKER_CONFIGS
from odradek.storage.directory.maintenance import MAINTENANCE_CONFIGS
from odradek.storage.topic_config import BROKER_SYNONYMS

_LISTENER = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([^:\[\]/]*)):(-?[0-9]+)")
_OF_LISTENER = re.compile(r"listener\.name\.([^.]+)\.(.+)", re.DOTALL)
_OF_MECHANISM = re.compile(r"([a-z0-9-]+)\.(sasl\..+|connections\.max\.reauth\.ms)", re.DOTALL)
_ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - no client can connect to it
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class Listener(NamedTuple):
    """An address that clients connect to.

    Attributes:
        name: Its name, in capitals.
        host: The host; empty for all interfaces.
        port: The port; 0 for any that is free.
    """

    name: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """The host and the port as clients are given them."""
        return address_text(self.host, self.port)


def address_text(host: str, port: int) -> str:
    """Return `HOST:PORT`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_listeners(text: str) -> tuple[Listener, ...]:
    """Parse `NAME://HOST:PORT,...`.

    Raises:
        ValueError: It is of another form, or a name occurs twice.
    """
    listeners = []
    for one in words(text):
        match = _LISTENER.fullmatch(one)
        if match is None or not 0 <= int(match[4]) <= 65535:
            raise ValueError("is not a list of NAME://HOST:PORT")
        listeners.append(Listener(match[1].upper(), match[2] or match[3] or "", int(match[4])))
    if len({listener.name for listener in listeners}) < len(listeners):
        raise ValueError("has a listener's name twice")
    return tuple(listeners)


def _protocol_map(text: str) -> dict[str, str]:
    found = {}
    for one in words(text):
        name, _, protocol = one.partition(":")
        if protocol.upper() not in _PROTOCOLS:
            raise ValueError(f"maps to none of {', '.join(_PROTOCOLS)}")
        found[name.upper()] = protocol.upper()
    return found


def _counts(text: str) -> dict[str, int]:
    """Parse `ADDRESS:COUNT,...`."""
    found = {}
    for one in words(text):
        address, _, count = one.rpartition(":")
        found[address.strip()] = int32(0)(count)
    return found


def _text(text: str) -> str:
    return text


_SETTINGS: dict[str, tuple[Callable[[str], Any], Any]] = {
    "listeners": (parse_listeners, (Listener("PLAINTEXT", "", 9092),)),
    "advertised.listeners": (parse_listeners, ()),
    "listener.security.protocol.map": (_protocol_map, {name: name for name in _PROTOCOLS}),
    "node.id": (int32(0), None),
    "controller.listener.names": (words, ()),
    "auto.create.topics.enable": (boolean, True),
    "delete.topic.enable": (boolean, True),
    "num.partitions": (int32(1), 1),
    "default.replication.factor": (int32(1), 1),
    "broker.rack": (_text, None),
    # network
    "socket.request.max.bytes": (int32(1), 104_857_600),
    "socket.listen.backlog.size": (int32(1), 50),
    # Kafka's 102,400 would keep the system from finding the best size.
    "socket.send.buffer.bytes": (int32(-1), -1),
    "socket.receive.buffer.bytes": (int32(-1), -1),
    "max.connections": (int32(0), (1 << 31) - 1),
    "max.connections.per.ip": (int32(0), (1 << 31) - 1),
    "max.connections.per.ip.overrides": (_counts, {}),
    "max.connection.creation.rate": (int32(0), (1 << 31) - 1),
    "connections.max.idle.ms": (int64(None), 600_000),
    # security
    "ssl.client.auth": (one_of("none", "requested", "required"), "none"),
    "ssl.enabled.protocols": (words, ("TLSv1.2", "TLSv1.3")),
    "ssl.keystore.type": (_text, "JKS"),
    "ssl.keystore.location": (_text, None),
    "ssl.keystore.password": (_text, None),
    "ssl.keystore.certificate.chain": (_text, None),
    "ssl.keystore.key": (_text, None),
    "ssl.key.password": (_text, None),
    "ssl.truststore.type": (_text, "JKS"),
    "ssl.truststore.location": (_text, None),
    "ssl.truststore.password": (_text, None),
    "ssl.truststore.certificates": (_text, None),
    "sasl.enabled.mechanisms": (words, ("GSSAPI",)),
    "sasl.jaas.config": (_text, None),
    "sasl.server.max.receive.size": (int32(1), 524_288),
    "connections.max.reauth.ms": (int64(None), 0),
    "connection.failed.authentication.delay.ms": (int32(0), 100),
    # fetches
    "fetch.max.bytes": (int32(1024), 57_671_680),
    "max.incremental.fetch.session.cache.slots": (int32(0), 1000),
    "request.timeout.ms": (int32(1), 30_000),
    # groups
    "group.min.session.timeout.ms": (int32(1), 6_000),
    "group.max.session.timeout.ms": (int32(1), 1_800_000),
    "group.initial.rebalance.delay.ms": (int32(0), 3_000),
    "group.max.size": (int32(1), (1 << 31) - 1),
    "offset.metadata.max.bytes": (int32(None), 4096),
    "offsets.retention.minutes": (int32(1), 10_080),
    "offsets.retention.check.interval.ms": (int64(1), 600_000),
    "offsets.topic.num.partitions": (int32(1), 50),
    "offsets.topic.segment.bytes": (int32(1), 104_857_600),
    # transactions
    "transaction.max.timeout.ms": (int32(1), 900_000),
    "transactional.id.expiration.ms": (int32(1), 604_800_000),
    "transaction.state.log.num.partitions": (int32(1), 50),
    "transaction.state.log.segment.bytes": (int32(1), 104_857_600),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": (int32(1), 10_000),
    "transaction.remove.expired.transaction.cleanup.interval.ms": (int32(1), 3_600_000),
    "transaction.partition.verification.enable": (boolean, True),
}


def _plain_name(name: str) -> str:
    """Return the name of a setting without the listener and the mechanism that it is for."""
    of_listener = _OF_LISTENER.fullmatch(name)
    if of_listener is not None:
        name = of_listener[2]
    of_mechanism = _OF_MECHANISM.fullmatch(name)
    return name if name in _SETTINGS or of_mechanism is None else of_mechanism[2]


_OF_DIRECTORY = frozenset(
    {"log.dir", "log.dirs", "process.roles", *MAINTENANCE_CONFIGS}
    | {name for synonyms in BROKER_SYNONYMS.values() for name, _ in synonyms}
)
_HAVE_EFFECT = frozenset(_SETTINGS) | _OF_DIRECTORY


def settings_with_effect() -> frozenset[str]:
    """Return the names of the settings that mean something to this broker."""
    return _HAVE_EFFECT


_OF_ONE_LISTENER = frozenset({name for name in _SETTINGS if name.startswith(("ssl.", "sasl."))}) | {
    "connections.max.reauth.ms",
    "max.connections",
    "max.connection.creation.rate",
}
"""What a listener may have of its own."""

_DYNAMIC = (
    "max.connections",
    "max.connections.per.ip",
    "max.connection.creation.rate",
    "transaction.partition.verification.enable",
)
"""The settings that can be changed while the broker runs, besides those that are defaults of topics."""


class BrokerConfig:
    """A broker's settings.

    Args:
        config: The settings by Kafka's names, as text, numbers or bools.

    Attributes:
        texts: All that were given, as text.
        changed: Is called after some were changed.

    Raises:
        InvalidConfigError: A value is not valid.
    """

    def __init__(self, config: Mapping[str, ConfigValue] | None = None) -> None:
        self.texts = as_texts(config)
        self.changed: Callable[[], None] = lambda: None
        self._values = {name: self._parse(name, default) for name, (_, default) in _SETTINGS.items()}
        for text in ("listeners", "advertised.listeners"):
            self._values[text] = tuple(one for one in self[text] if one.name not in self._controllers)
        self._check_listeners()

    @property
    def _controllers(self) -> set[str]:
        return {name.upper() for name in self["controller.listener.names"]}

    def _parse(self, name: str, default: Any) -> Any:
        if name not in self.texts:
            return default
        try:
            return _SETTINGS[_plain_name(name)][0](self.texts[name])
        except ValueError as error:
            raise InvalidConfigError(name, f"{self._shown(name)} {error}") from None

    def _shown(self, name: str) -> str:
        is_secret = name.endswith(("password", "keystore.key", "jaas.config"))
        return "its value" if is_secret else repr(self.texts[name])

    def _check_listeners(self) -> None:
        protocols = self["listener.security.protocol.map"]
        listeners = self["listeners"]
        if not listeners:
            raise InvalidConfigError("listeners", "a broker needs one at least")
        for listener in listeners:
            if listener.name not in protocols:
                raise InvalidConfigError("listeners", f"listener.security.protocol.map does not have {listener.name}")
        names = {listener.name for listener in listeners}
        advertised = {listener.name: listener for listener in self["advertised.listeners"]}
        for name in advertised:
            if name not in names:
                raise InvalidConfigError("advertised.listeners", f"{name} is not among the listeners")
        for listener in listeners:
            shown = (advertised.get(listener.name) or listener).host
            if shown in _ANY_ADDRESS:
                raise InvalidConfigError(
                    "advertised.listeners",
                    f"clients cannot connect to {shown}: advertise {listener.name} with a host that they can reach",
                )

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def of_listener(self, listener: str, name: str, mechanism: str | None = None) -> Any:
        """Return a setting as it is for a listener, or for a SASL mechanism of it.

        Raises:
            InvalidConfigError: Its value is not valid.
        """
        prefix = f"listener.name.{listener.lower()}."
        names = [f"{prefix}{name}", name]
        if mechanism is not None:
            own = f"{mechanism.lower()}.{name}"
            names = [f"{prefix}{own}", own, *names]
        for found in names:
            if found in self.texts:
                return self._parse(found, None)
        return self[name]

    @property
    def of_log(self) -> dict[str, str]:
        """All settings that were given but those that only one listener or mechanism has."""
        return {name: text for name, text in self.texts.items() if _plain_name(name) == name}

    def without_effect(self) -> list[str]:
        """Return the names that were given of settings that mean something to Kafka's broker, but nothing here."""
        return sorted(filter(self._is_without_effect, self.texts))

    def _is_without_effect(self, name: str) -> bool:
        plain, of_listener = _plain_name(name), _OF_LISTENER.fullmatch(name)
        if of_listener is None:
            return plain in BROKER_CONFIGS.keys() - _HAVE_EFFECT
        is_here = of_listener[1].upper() in {listener.name for listener in self["listeners"]}
        return not is_here or plain not in _OF_ONE_LISTENER

    def set_dynamic(self, texts: Mapping[str, str]) -> None:
        """Let settings of the metadata, which were checked, override those that were given.

        Args:
            texts: All that there are; those that cannot be changed while the broker runs have no effect.
        """
        for name in _DYNAMIC:
            parse, default = _SETTINGS[name]
            text = texts.get(name, self.texts.get(name))
            self._values[name] = default if text is None else parse(text)
        self.changed()

    def protocol(self, listener: str) -> str:
        """Return the security protocol of a listener: `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`."""
        return str(self["listener.security.protocol.map"][listener])
