"""The connections to a cluster that all clients here share: kafka-python's, opened on first use.

    settings in text -> client_config -> Cluster -> bootstrap, then requests to one node or any

kafka-python finds the brokers, speaks TLS and SASL, and knows every request.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka import errors
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from odradek.errors import OptionError
from odradek.kafka.servers import check_known
from odradek.kafka.stopping import LOOK_S, check_not_stopped, signals_held
from odradek.kafka.token_file import with_token
from odradek.key_stores import KeyStore, key_file, read_key_store, read_pem

_STORE_SETTINGS = frozenset(
    (
        *("ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.certificates", "ssl.key.password"),
        *("ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.key", "ssl.keystore.certificate.chain"),
        *("ssl.truststore.type", "ssl.keystore.type"),  # without effect: the bytes of a store tell its type
    )
)


_FILE_SETTINGS = frozenset(("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_crlfile"))
"""kafka-python's own names for what the stores hold."""

_JAAS_VALUE = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class ClosingSocket(KafkaNetSocket):  # type: ignore[misc]
    """How kafka-python opens a socket, but one that does not connect is closed: it leaves that to the collector.

    A client that waits for a broker would hold an open file for each attempt.
    """

    SCHEMES = ("odradek",)

    async def sock_connect(self, net: Any, sock: socket.socket, sockaddr: Any, timeout_at: float | None = None) -> Any:
        """Connect a socket, or close it and raise."""
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise


class _Outcome:
    """What the last connection failed with; None if it did not. A connection knows this, and not its manager."""

    failure: Exception | None = None
    has_connected = False
    cut_handshakes = 0

    def note(self, outcome: Any) -> None:
        self.failure = outcome if isinstance(outcome, Exception) else None
        self.has_connected |= self.failure is None
        is_cut = self.failure is not None and isinstance(self.failure.__context__, _CUT)
        self.cut_handshakes = self.cut_handshakes + 1 if is_cut else 0

    @property
    def is_final(self) -> bool:
        """Whether no other attempt would end otherwise."""
        # A broker that ends cuts a handshake once; a port without TLS cuts every one.
        is_plain = self.cut_handshakes >= _MOST_CUTS and not self.has_connected
        return self.failure is not None and (is_plain or _is_final(self.failure))


class Manager(KafkaConnectionManager):  # type: ignore[misc]
    """kafka-python's manager of connections, which says why there is none.

    kafka-python tries everything again until the time is over, and logs why. Kafka's own client gives up at once where
    the broker refuses a login, or cannot be trusted.
    """

    def __init__(self, net: Any, **settings: Any) -> None:
        super().__init__(net, **settings)
        self.last = _Outcome()

    def get_connection(self, *arguments: Any, **settings: Any) -> Any:
        """Return a connection, or raise what no other attempt would change."""
        failure = self.last.failure
        if failure is not None and self.last.is_final:
            self.last.failure = None
            if isinstance(failure, _REFUSALS):
                raise failure
            # A connection that is lost is worth another attempt; this one is not.
            told = f"{type(failure).__name__}: {failure}"
            if self.last.cut_handshakes:
                told += f" (is that a port for security.protocol={self.config['security_protocol']}?)"
            elif "CERTIFICATE_REQUIRED" in told:
                told += " (set ssl.keystore.location: the broker asks clients for a certificate)"
            raise errors.KafkaConfigurationError(told) from None
        connection = super().get_connection(*arguments, **settings)
        connection.init_future.add_both(self.last.note)
        return connection


def _is_final(failure: Exception) -> bool:
    if isinstance(failure, errors.KafkaConnectionError):
        # The cause of a failed handshake, or of a broker's refusal after it, which TLS 1.3 has.
        cause = failure.__context__ or next(iter(failure.args), None)
        return isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError)
    if isinstance(failure, OSError):
        # A file of `ssl.cafile` and its like, which is opened only now.
        return isinstance(failure, FileNotFoundError)
    # What is none of Kafka's comes of the settings.
    return isinstance(failure, _REFUSALS) or not isinstance(failure, errors.KafkaError)


_CUT = (ssl.SSLEOFError, ConnectionResetError)
_MOST_CUTS = 3
_REFUSALS = (
    errors.IllegalSaslStateError,
    errors.KafkaConfigurationError,
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
)


CONNECTION_DEFAULTS: Mapping[str, Any] = {"reconnect_backoff_max_ms": 1000, "proxy_url": "odradek://"}
"""kafka-python's settings of a connection, unless the user says otherwise; the "proxy" is `ClosingSocket`: none."""


@dataclass(frozen=True)
class TlsStores:
    """The stores of a connection over TLS, by Kafka's settings. Not opened yet: tasks of a cluster do that themselves.

    Attributes:
        settings: `ssl.truststore.*`, `ssl.keystore.*` and `ssl.key.password`.
        check_hostname: Whether the broker's certificate must name its host.
    """

    settings: Mapping[str, str]
    check_hostname: bool

    def context(self) -> ssl.SSLContext:
        """Read the stores.

        Raises:
            OptionError: One cannot be read.
        """
        trusted = self._trusted()
        own = self._store("keystore", "certificate.chain", "key")
        try:
            context = ssl.create_default_context(cadata=trusted.decode() or None)
            context.check_hostname = self.check_hostname
            if own.key:
                with key_file(own) as path:
                    # Without a password OpenSSL would ask at the terminal.
                    context.load_cert_chain(path, password=lambda: self.settings.get("ssl.key.password", ""))
        except ssl.SSLError as error:
            raise OptionError(f"the certificates or the key of ssl.* cannot be used: {error}") from None
        return context

    def _trusted(self) -> bytes:
        """Return the trusted certificates, as PEM; nothing without a trust store."""
        given = [f"ssl.truststore.{name}" for name in ("location", "certificates")]
        given = [name for name in given if name in self.settings]
        if not given:
            return b""
        store = self._store("truststore", "certificates")
        try:
            return store.trusted()
        except ValueError as error:
            raise OptionError(f"{given[0]} {error}") from None

    def _store(self, kind: str, certificates: str, key: str = "") -> KeyStore:
        location = self.settings.get(f"ssl.{kind}.location")
        where = f"ssl.{kind}.{certificates}" if location is None else f"ssl.{kind}.location: {location}"
        try:
            if location is None:
                given = (self.settings.get(f"ssl.{kind}.{name}") for name in (key, certificates))
                texts = [text for text in given if text is not None]
                return read_pem("".join(texts)) if texts else KeyStore(b"", b"")
            password, key_password = self.settings.get(f"ssl.{kind}.password"), self.settings.get("ssl.key.password")
            return read_key_store(Path(location).read_bytes(), password, key_password)
        except OSError as error:
            raise OptionError(f"{where} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise OptionError(f"{where} cannot be read: {error}") from None


def client_config(options: Mapping[str, str]) -> dict[str, Any]:
    """Turn settings with Kafka's names, as text, into kafka-python's settings of a connection.

    Raises:
        ValueError: A setting does not exist, or its value has the wrong type.
    """
    config: dict[str, Any] = {}
    options, token = with_token(options)
    if token is not None:
        config["sasl_oauth_token_provider"] = token
    options = _with_login(options)
    stores = {name: text for name, text in options.items() if name in _STORE_SETTINGS}
    for name, text in options.items():
        if name in stores:
            continue
        setting = name.replace(".", "_")
        if setting not in KafkaConnectionManager.DEFAULT_CONFIG or setting == "bootstrap_servers":
            raise ValueError(f"unknown option {name}")
        default = KafkaConnectionManager.DEFAULT_CONFIG[setting]
        if isinstance(default, bool):
            if text.lower() not in ("true", "false"):
                raise ValueError(f"{name} must be true or false, not {text!r}")
            config[setting] = text.lower() == "true"
        elif isinstance(default, int):
            try:
                config[setting] = int(text)
            except ValueError:
                raise ValueError(f"{name} must be a number, not {text!r:.100}") from None
        else:
            config[setting] = text
    if (protocol := config.get("security_protocol")) is not None:
        config["security_protocol"] = protocol.upper()
        if protocol.upper() not in _PROTOCOLS:
            # kafka-python would take any other for PLAINTEXT.
            raise ValueError(f"security.protocol is one of {', '.join(_PROTOCOLS)}, not {protocol!r}")
        if protocol.upper().startswith("SASL_"):
            _check_login(config)
    if stores:
        for setting in _FILE_SETTINGS.intersection(config):
            raise ValueError(f"{min(stores)} and {setting} are of two ways to name files: use one")
        config["ssl_context"] = TlsStores(stores, config.get("ssl_check_hostname", True))
    return config


def _with_login(options: Mapping[str, str]) -> Mapping[str, str]:
    """Return settings with the user and the password of `sasl.jaas.config` under kafka-python's names."""
    jaas = options.get("sasl.jaas.config")
    if jaas is None:
        return options
    values = {name: re.sub(r"\\(.)", r"\1", value) for name, value in _JAAS_VALUE.findall(jaas)}
    if "username" not in values or "password" not in values:
        raise ValueError("sasl.jaas.config must name a username and a password")
    login = {"sasl.plain.username": values["username"], "sasl.plain.password": values["password"]}
    return {name: text for name, text in options.items() if name != "sasl.jaas.config"} | login


def _check_login(config: Mapping[str, Any]) -> None:
    mechanism = config.get("sasl_mechanism")
    if mechanism is None:
        raise ValueError("sasl.mechanism is missing, such as PLAIN or SCRAM-SHA-512")
    if mechanism.startswith(("PLAIN", "SCRAM-")):
        for name in ("username", "password"):
            if config.get(f"sasl_plain_{name}") is None:
                raise ValueError(f"sasl.mechanism={mechanism} needs a {name}, in sasl.jaas.config")


def check(error_code: int, what: str) -> None:
    """Raise kafka-python's error for Kafka's error code; do nothing for 0."""
    if error_code:
        raise errors.for_code(error_code)(what)


def check_hosts(config: Mapping[str, Any]) -> None:
    """Do nothing if a host of the settings of a client is known; what hosts a proxy knows, nobody knows.

    Raises:
        kafka.errors.KafkaConfigurationError: The system knows none of them.
    """
    if config["proxy_url"] == CONNECTION_DEFAULTS["proxy_url"]:
        check_known(config["bootstrap_servers"])


def connection_config(bootstrap_servers: Sequence[str], client_id: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return kafka-python's settings of one client: those of `client_config` with our defaults, its stores opened.

    Raises:
        OptionError: A key store or trust store cannot be read.
    """
    found = {"client_id": client_id, **CONNECTION_DEFAULTS, **config, "bootstrap_servers": list(bootstrap_servers)}
    if isinstance(stores := config.get("ssl_context"), TlsStores):
        found["ssl_context"] = stores.context()
    return found


class Cluster:
    """The connections to a cluster. Its methods raise kafka-python's errors, and OSError.

    Args:
        bootstrap_servers: Its addresses.
        client_id: What the client calls itself.
        config: kafka-python's settings, of `client_config`.
        max_response_bytes: The longest response, unless the settings say otherwise.

    Raises:
        OptionError: A key store or trust store of the settings cannot be read.
    """

    def __init__(
        self, bootstrap_servers: Sequence[str], client_id: str, config: Mapping[str, Any], *, max_response_bytes: int
    ) -> None:
        self._client_id = client_id
        self._config = connection_config(
            bootstrap_servers, client_id, {"receive_message_max_bytes": max_response_bytes, **config}
        )
        self._net: Any = None
        self._manager: Any = None

    @property
    def is_open(self) -> bool:
        """Whether connections were made that `close` has not closed."""
        return self._manager is not None

    @property
    def is_known(self) -> bool:
        """Whether a broker has told the cluster's nodes."""
        return self._manager is not None and bool(self._manager.bootstrapped)

    def connected(self, timeout_ms: float) -> Any:
        """Return kafka-python's manager of connections, once it knows the cluster's nodes."""
        if self._manager is None:
            check_hosts(self._config)
            self._net = NetworkSelector(client_id=self._client_id)
            self._manager = Manager(self._net, **self._config)
        if not self._manager.bootstrapped:
            try:
                self.run(self._manager.bootstrap_async, timeout_ms)
            except errors.KafkaTimeoutError as error:
                why = self._manager.last.failure or self._what_to_check()
                raise errors.KafkaTimeoutError(f"{': '.join(map(str, error.args))}: {why}") from None
        return self._manager

    def _what_to_check(self) -> str:
        """Say what ends connections that were made, and were asked for the nodes."""
        protocol = self._config.get("security_protocol", "PLAINTEXT")
        return f"connected, and got no answer: is that a broker's port, and one for security.protocol={protocol}?"

    def ask(self, request: Any, node_id: Any = None, *, timeout_ms: float | None = None) -> Any:
        """Send one request to a node, or to any, once, and return the answer; `connected` was called before."""
        manager = self._manager

        async def send() -> Any:
            return await manager.send(request, node_id=node_id, request_timeout_ms=timeout_ms)

        return self.run(send)

    def run(self, action: Callable[..., Any], *arguments: Any) -> Any:
        """Run an action in the event loop, which this thread drives until it is done; `connected` was called before.

        Raises:
            StoppedError: The thread is to end.
        """
        future = self._net.call_soon_with_future(action, *arguments)
        while True:
            with signals_held():
                self._net.poll(timeout_ms=LOOK_S * 1000, future=future)
            if future.is_done:
                break
            check_not_stopped()
        if future.exception is not None:
            raise future.exception
        return future.value

    def close(self) -> None:
        """Close the connections; the next request makes them again."""
        if self._manager is not None:
            self._manager.close()
            # Its traceback holds the connection, and so its sockets.
            self._manager.last.failure = None
            self._net.close()
            self._manager = self._net = None
