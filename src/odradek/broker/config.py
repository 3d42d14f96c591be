"""The settings of a broker, by Kafka's names and with Kafka's defaults.

    listeners=PLAINTEXT://127.0.0.1:9092,SASL_SSL://0.0.0.0:9093
    advertised.listeners=...          the addresses that clients get; by default the same

    listener.name.sasl_ssl.ssl.client.auth=required      only for the listener of that name
    listener.name.sasl_ssl.plain.sasl.jaas.config=...    only for that SASL mechanism of it

Settings of the log are those of `odradek.open`. All other settings have no effect; but if one would restrict clients,
the broker does not start (`odradek.broker.restrictions`). Listeners of controllers are ignored.

Source in Kafka: `KafkaConfig`, `SocketServerConfigs`, `GroupCoordinatorConfig`, `TransactionLogConfig`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import copy
from ipaddress import ip_address
from typing import Any, NamedTuple

from odradek.broker.group_bounds import check_group_bounds
from odradek.broker.oauth_settings import OAUTH_PARSERS, OAUTH_SETTINGS, OAUTH_TOKEN_SETTINGS
from odradek.broker.principal_rules import PrincipalRules
from odradek.broker.restrictions import (
    ALLOW_IF_NONE,
    SUPER_USERS,
    check_listener_restriction,
    check_restriction,
)
from odradek.broker.share_settings import SHARE_SETTINGS, share_assignors
from odradek.coordination.groups.assignors import ASSIGNORS
from odradek.coordination.groups.migration_policy import POLICIES
from odradek.errors import InvalidConfigError
from odradek.storage.config_def import (
    ConfigValue,
    Parser,
    as_texts,
    boolean,
    check_literal,
    int32,
    int64,
    one_of,
    trimmed,
    words,
)
from odradek.storage.directory.broker_config import BROKER_CONFIGS, nearest_setting
from odradek.storage.directory.maintenance import MAINTENANCE_CONFIGS
from odradek.storage.topic_config import BROKER_SYNONYMS

_LISTENER = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([^:\[\]/]*)):(-?[0-9]+)")
_OF_LISTENER = re.compile(r"listener\.name\.([^.]+)\.(.+)", re.DOTALL)
_OF_MECHANISM = re.compile(r"([a-z0-9-]+)\.(sasl\..+|connections\.max\.reauth\.ms)", re.DOTALL)
_OF_MISSPELT_MECHANISM = re.compile(_OF_MECHANISM.pattern, re.DOTALL | re.IGNORECASE)
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


def _assignors(text: str) -> tuple[str, ...]:
    """Parse the names of assignors; Kafka takes the names of classes, too."""
    names = words(text)
    unknown = [name for name in names if name not in ASSIGNORS]
    if unknown or not names:
        raise ValueError(f"is not a list of {', '.join(ASSIGNORS)}")
    return tuple(names)


def _migration_policy(text: str) -> str:
    """Parse the name of a policy, in small or large letters."""
    parse = one_of(*POLICIES)
    name: str = parse(text.lower())
    return name


def _counts(text: str) -> dict[str, int]:
    """Parse `ADDRESS:COUNT,...`; a name instead of an address would match no client."""
    found = {}
    for one in words(text):
        address, _, count = one.rpartition(":")
        found[str(ip_address(address.strip()))] = int32(0)(count)
    return found


SETTINGS: Mapping[str, str] = {
    "listeners": "The addresses that clients connect to.",
    "advertised.listeners": "The addresses that clients get, if not `listeners`.",
    "listener.security.protocol.map": "The security protocol of each listener.",
    "node.id": "The number of the node; that of `meta.properties`.",
    "controller.listener.names": "The listeners of a controller, which this node does not open.",
    "auto.create.topics.enable": "Whether a topic is created when a client asks for it.",
    "delete.topic.enable": "Whether clients may delete topics.",
    "num.partitions": "How many partitions a topic has if its creator does not say.",
    "default.replication.factor": "How many replicas a partition has if its creator does not say.",
    "broker.rack": "The rack that the broker is in.",
    # network
    "socket.request.max.bytes": "How large a request may be.",
    "socket.listen.backlog.size": "How many connections may wait to be accepted.",
    "socket.send.buffer.bytes": "The size of a connection's send buffer; -1: the system's.",
    "socket.receive.buffer.bytes": "The size of a connection's receive buffer; -1: the system's.",
    "max.connections": "How many connections may be open.",
    "max.connections.per.ip": "How many connections one address may have.",
    "max.connections.per.ip.overrides": "`max.connections.per.ip` of single addresses.",
    "max.connection.creation.rate": "How many connections may be made in a second.",
    "connections.max.idle.ms": "How long a connection may be idle before it is closed.",
    # security
    "authorizer.class.name": "The class that decides who may do what; empty: everybody may do everything.",
    "ssl.allow.dn.changes": "Whether a certificate that replaces another may have another name.",
    "ssl.allow.san.changes": "Whether a certificate that replaces another may lack alternative names of it.",
    "ssl.client.auth": "Whether clients need a certificate: required, requested or none.",
    "ssl.enabled.protocols": "The versions of TLS that clients may use.",
    "ssl.keystore.type": "The format of the key store.",
    "ssl.keystore.location": "The file with the broker's key and certificates.",
    "ssl.keystore.password": "The password of the key store.",
    "ssl.keystore.certificate.chain": "The broker's certificates, as PEM.",
    "ssl.keystore.key": "The broker's key, as PEM.",
    "ssl.key.password": "The password of the key.",
    "ssl.principal.mapping.rules": "What a client with a certificate is called.",
    "ssl.truststore.type": "The format of the trust store.",
    "ssl.truststore.location": "The file with the certificates that are trusted.",
    "ssl.truststore.password": "The password of the trust store.",
    "ssl.truststore.certificates": "The certificates that are trusted, as PEM.",
    "sasl.enabled.mechanisms": "The SASL mechanisms that clients may use.",
    "sasl.jaas.config": "The users of SASL, and their passwords.",
    **OAUTH_SETTINGS,
    "sasl.server.max.receive.size": "How large a message of SASL may be.",
    "connections.max.reauth.ms": "After what time a SASL client must authenticate again; 0: never.",
    "connection.failed.authentication.delay.ms": "How long a failed authentication takes at least.",
    "delegation.token.secret.key": "The secret by which delegation tokens are made; without it there are none.",
    "delegation.token.max.lifetime.ms": "How long a delegation token is valid, however often it is renewed.",
    "delegation.token.expiry.time.ms": "How long a delegation token is valid until it is renewed.",
    "delegation.token.expiry.check.interval.ms": "How often expired delegation tokens are removed.",
    # quotas of clients
    "quota.window.num": "Over how many windows a client's use is measured, with the current one.",
    "quota.window.size.seconds": "How long each window is.",
    "controller.quota.window.num": "`quota.window.num` of partitions that are created and deleted.",
    "controller.quota.window.size.seconds": "`quota.window.size.seconds` of partitions that are created and deleted.",
    # fetches
    "fetch.max.bytes": "How many bytes a Fetch answers at most.",
    "max.incremental.fetch.session.cache.slots": "How many incremental fetch sessions there may be.",
    "max.request.partition.size.limit": "How many partitions DescribeTopicPartitions answers.",
    "request.timeout.ms": "How long a request may take.",
    # groups
    "group.min.session.timeout.ms": "The shortest session time-out of a group's member.",
    "group.max.session.timeout.ms": "The longest session time-out of a group's member.",
    "group.initial.rebalance.delay.ms": "How long an empty group waits for more members.",
    "group.max.size": "How many members a group may have.",
    "group.coordinator.rebalance.protocols": "The protocols that groups may have.",
    "group.consumer.session.timeout.ms": "How long a member of a consumer group may be silent.",
    "group.consumer.heartbeat.interval.ms": "How often a member of a consumer group sends a heartbeat.",
    "group.consumer.assignment.interval.ms": "How often a consumer group's assignment is made at most.",
    "group.consumer.min.session.timeout.ms": "The shortest session time-out of a consumer group.",
    "group.consumer.max.session.timeout.ms": "The longest session time-out of a consumer group.",
    "group.consumer.min.heartbeat.interval.ms": "The shortest heartbeat interval of a consumer group.",
    "group.consumer.max.heartbeat.interval.ms": "The longest heartbeat interval of a consumer group.",
    "group.consumer.min.assignment.interval.ms": "The shortest assignment interval of a consumer group.",
    "group.consumer.max.assignment.interval.ms": "The longest assignment interval of a consumer group.",
    "group.consumer.max.size": "How many members a consumer group may have.",
    "group.consumer.migration.policy": "Whether groups move between the classic and the consumer protocol.",
    "group.consumer.assignors": "The assignors of consumer groups, the default first.",
    "group.consumer.regex.refresh.interval.ms": "How often the patterns of consumer groups are tried again.",
    **SHARE_SETTINGS,
    "offset.metadata.max.bytes": "How large the metadata of a committed offset may be.",
    "offsets.retention.minutes": "How long an empty group's offsets are kept.",
    "offsets.retention.check.interval.ms": "How often offsets that are too old are removed.",
    "offsets.topic.num.partitions": "How many partitions `__consumer_offsets` gets.",
    "offsets.topic.segment.bytes": "`segment.bytes` of `__consumer_offsets`.",
    "group.share.max.share.sessions": "How many share sessions there may be.",
    "share.coordinator.state.topic.num.partitions": "How many partitions `__share_group_state` gets.",
    "share.coordinator.state.topic.segment.bytes": "`segment.bytes` of `__share_group_state`.",
    "share.coordinator.state.topic.prune.interval.ms": "How often records that are not needed are deleted from it.",
    "share.coordinator.snapshot.update.records.per.snapshot": "How many updates are written between two snapshots.",
    "share.coordinator.cold.partition.snapshot.interval.ms": "After what time a snapshot is written in any case.",
    # transactions
    "transaction.max.timeout.ms": "The longest transaction time-out of a producer.",
    "transactional.id.expiration.ms": "How long an unused transactional id is remembered.",
    "transaction.state.log.num.partitions": "How many partitions `__transaction_state` gets.",
    "transaction.state.log.segment.bytes": "`segment.bytes` of `__transaction_state`.",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "How often old transactions are aborted.",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "How often unused transactional ids are forgotten.",
    "transaction.partition.verification.enable": "Whether a batch of a transaction is checked against the coordinator.",
}
"""What the settings do that the broker reads, besides those of its log directory."""

_PARSERS: Mapping[str, Parser] = {
    "listeners": parse_listeners,
    "advertised.listeners": parse_listeners,
    "listener.security.protocol.map": _protocol_map,
    "default.replication.factor": int32(1),
    "socket.send.buffer.bytes": int32(-1),
    "socket.receive.buffer.bytes": int32(-1),
    "max.connections.per.ip.overrides": _counts,
    "ssl.client.auth": one_of("none", "requested", "required"),
    "ssl.principal.mapping.rules": PrincipalRules,
    "sasl.server.max.receive.size": int32(1),
    **OAUTH_PARSERS,
    "request.timeout.ms": int32(1),
    "group.min.session.timeout.ms": int32(1),
    "group.max.session.timeout.ms": int32(1),
    "group.initial.rebalance.delay.ms": int32(0),
    "group.consumer.assignors": _assignors,
    "group.consumer.migration.policy": _migration_policy,
    "group.share.assignors": share_assignors,
}
"""How settings are read for which Kafka's type and lowest value are not enough."""

_DEFAULTS: Mapping[str, Any] = {
    "advertised.listeners": (),
    "controller.listener.names": (),
    # Kafka's 102,400 would keep the system from finding the best size.
    "socket.send.buffer.bytes": -1,
    "socket.receive.buffer.bytes": -1,
}
"""The defaults that are not Kafka's."""

_OF_TYPE: Mapping[str, Parser] = {"BOOLEAN": boolean, "LIST": words, "STRING": str, "PASSWORD": str}


def _setting(name: str) -> tuple[Parser, Any]:
    """Return how a setting is read, and its default."""
    known = BROKER_CONFIGS[name]
    parse = _PARSERS.get(name) or _OF_TYPE.get(known.type)
    if parse is None:
        parse = (int32 if known.type == "INT" else int64)(known.bounds[0])
    return parse, _DEFAULTS.get(name, None if known.default is None else parse(known.default))


_SETTINGS = {name: _setting(name) for name in SETTINGS}


def plain_name(name: str) -> str:
    """Return the name of a setting without the listener and the mechanism that it is for."""
    of_listener = _OF_LISTENER.fullmatch(name)
    if of_listener is not None:
        name = of_listener[2]
    of_mechanism = _OF_MECHANISM.fullmatch(name)
    return name if name in _SETTINGS or of_mechanism is None else of_mechanism[2]


def is_secret(name: str) -> bool:
    """Return whether the value of a setting is shown to nobody: Kafka's type PASSWORD."""
    known = BROKER_CONFIGS.get(plain_name(name))
    return known is not None and known.type == "PASSWORD"


_OF_DIRECTORY = frozenset(
    {"log.dir", "log.dirs", "process.roles", *MAINTENANCE_CONFIGS}
    | {name for synonyms in BROKER_SYNONYMS.values() for name, _ in synonyms}
)
_HAVE_EFFECT = frozenset(_SETTINGS) | _OF_DIRECTORY


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
    "group.consumer.assignment.interval.ms",
    "group.share.assignment.interval.ms",
)
"""The settings that can be changed while the broker runs, besides those that are defaults of topics."""

_FROM_START = _OF_ONE_LISTENER | {
    "authorizer.class.name",
    "listeners",
    "listener.security.protocol.map",
    "max.connections.per.ip.overrides",
}


_STORES = frozenset(name for name in _SETTINGS if name.startswith(("ssl.key", "ssl.truststore.")))


def is_of_store(name: str) -> bool:
    """Return whether a setting is about the key store or trust store of one listener.

    These settings can be changed while the broker runs.
    """
    of_listener = _OF_LISTENER.fullmatch(name)
    return of_listener is not None and of_listener[1] == of_listener[1].lower() and of_listener[2] in _STORES


def restricts_from_start(name: str) -> bool:
    """Return whether a setting restricts clients, but only as it was when the broker started.

    Taken while the broker runs, it would let its owner believe in a restriction that does not exist.
    """
    plain = plain_name(name)
    return plain in _FROM_START and not (plain == name and name in _DYNAMIC) and not is_of_store(name)


def settings_with_effect() -> frozenset[str]:
    """Return the names of the settings that mean something to this broker."""
    return _HAVE_EFFECT


class BrokerConfig:
    """A broker's settings.

    Args:
        config: The settings by Kafka's names, as text, numbers or bools.
        unsecured_tokens: Whether listeners may take tokens without a signature.

    Attributes:
        texts: All given settings as text; those of key stores in the metadata take precedence.
        changed: Called after some were changed.
        check_stores: Called with the settings of this broker in the metadata, before those of key stores change; raises
            an `OdradekError` if they cannot be used. Any thread may call it.
        allows_unsecured_tokens: Whether listeners may take tokens without a signature.

    Raises:
        InvalidConfigError: A value is not valid.
    """

    def __init__(self, config: Mapping[str, ConfigValue] | None = None, *, unsecured_tokens: bool = False) -> None:
        self.texts = self._given = as_texts(config)
        self.changed: Callable[[], None] = lambda: None
        self.check_stores: Callable[[Mapping[str, str]], object] = self.with_stores
        self.allows_unsecured_tokens = unsecured_tokens
        self._check_literals()
        self._check_names()
        self._values = {name: self._parse(name, default) for name, (_, default) in _SETTINGS.items()}
        for text in ("listeners", "advertised.listeners"):
            self._values[text] = tuple(one for one in self[text] if one.name not in self._controllers)
        self._check_listeners()
        self._check_restrictions()
        for group_type in ("consumer", "share"):
            check_group_bounds(self, group_type)

    @property
    def has_authorizer(self) -> bool:
        """Whether access control lists decide who may do what."""
        return bool(self["authorizer.class.name"].strip())

    @property
    def token_secret_key(self) -> str:
        """The secret by which delegation tokens are made; empty: there are none."""
        return trimmed(self["delegation.token.secret.key"] or "")

    @property
    def _controllers(self) -> set[str]:
        return {name.upper() for name in self["controller.listener.names"]}

    def _parse(self, name: str, default: Any) -> Any:
        if name not in self.texts:
            return default
        try:
            return _SETTINGS[plain_name(name)][0](self.texts[name])
        except ValueError as error:
            raise InvalidConfigError(name, f"{self._shown(name)} {error}") from None

    def _shown(self, name: str) -> str:
        return "its value" if is_secret(name) else repr(self.texts[name])

    def _check_literals(self) -> None:
        for name, text in self.texts.items():
            try:
                check_literal(text)
            except ValueError as error:
                raise InvalidConfigError(name, str(error)) from None

    def _check_names(self) -> None:
        """Check the names of what a listener or a mechanism has of its own: misspelt, they would restrict nobody."""
        for name in self.texts:
            plain, of_listener = plain_name(name), _OF_LISTENER.fullmatch(name)
            if of_listener is not None and of_listener[1] != of_listener[1].lower():
                raise InvalidConfigError(name, f"write the listener in small letters: {of_listener[1].lower()}")
            of_mechanism = _OF_MISSPELT_MECHANISM.fullmatch(name if of_listener is None else of_listener[2])
            if of_mechanism is not None and of_mechanism[1] != of_mechanism[1].lower():
                raise InvalidConfigError(name, f"write the mechanism in small letters: {of_mechanism[1].lower()}")
            if of_mechanism is not None and of_mechanism[1] != "oauthbearer" and plain in OAUTH_TOKEN_SETTINGS:
                raise InvalidConfigError(name, f"only the mechanism oauthbearer has it, not {of_mechanism[1]}")
            if plain not in (name, *BROKER_CONFIGS) and (nearest := nearest_setting(plain)) in BROKER_CONFIGS:
                raise InvalidConfigError(name, f"no such setting of a listener; did you mean {nearest}?")

    def _check_restrictions(self) -> None:
        for name, text in self.texts.items():
            if self.is_of_this_node(name) and not (self.has_authorizer and name in (SUPER_USERS, ALLOW_IF_NONE)):
                check_restriction(name, plain_name(name), text)
                of_listener = _OF_LISTENER.fullmatch(name)
                if of_listener is not None:
                    protocol = self.protocol(of_listener[1].upper())
                    check_listener_restriction(name, plain_name(name), text, protocol)

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
        found = self.name_for(listener, name, mechanism)
        return self[name] if found is None else self._parse(found, None)

    def name_for(self, listener: str, name: str, mechanism: str | None = None) -> str | None:
        """Return the name that a setting was given by which counts for a listener; None if it was not given."""
        prefix = f"listener.name.{listener.lower()}."
        names = [f"{prefix}{name}", name]
        if mechanism is not None:
            own = f"{mechanism.lower()}.{name}"
            names = [f"{prefix}{own}", own, *names]
        return next((found for found in names if found in self.texts), None)

    @property
    def of_log(self) -> dict[str, str]:
        """All settings that were given but those that only one listener or mechanism has."""
        return {name: text for name, text in self.texts.items() if plain_name(name) == name}

    def without_effect(self) -> list[str]:
        """Return the names that were given of settings that mean something to Kafka's broker, but nothing here."""
        return sorted(filter(self._is_without_effect, self.texts))

    def _is_without_effect(self, name: str) -> bool:
        plain = plain_name(name)
        if _OF_LISTENER.fullmatch(name) is None:
            return plain in BROKER_CONFIGS and plain not in _HAVE_EFFECT
        return not self.is_of_this_node(name) or plain not in _OF_ONE_LISTENER

    def is_of_this_node(self, name: str) -> bool:
        """Return whether a setting is not only for a listener that this broker does not have."""
        of_listener = _OF_LISTENER.fullmatch(name)
        # As in Kafka, one that is for a listener in capital letters is for none.
        return of_listener is None or of_listener[1] in {listener.name.lower() for listener in self["listeners"]}

    def set_dynamic(self, texts: Mapping[str, str]) -> None:
        """Let settings of the metadata, which were checked, override those that were given.

        Args:
            texts: All that there are; those that cannot be changed while the broker runs have no effect.

        Raises:
            InvalidConfigError: One of a key store refers to a config provider.
        """
        self.texts = self.with_stores(texts).texts
        for name in _DYNAMIC:
            parse, default = _SETTINGS[name]
            text = texts.get(name, self.texts.get(name))
            self._values[name] = default if text is None else parse(text)
        self.changed()

    def with_stores(self, texts: Mapping[str, str]) -> BrokerConfig:
        """Return these settings with the metadata's settings of key stores. Any thread may call it.

        Raises:
            InvalidConfigError: One of them refers to a config provider.
        """
        other = copy(self)
        stores = {name: text for name, text in texts.items() if is_of_store(name) and self.is_of_this_node(name)}
        other.texts = {**self._given, **stores}
        other._check_literals()
        return other

    def protocol(self, listener: str) -> str:
        """Return the security protocol of a listener: `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`."""
        return str(self["listener.security.protocol.map"][listener])
