"""The TLS of listeners: made again when a file of its keys or certificates is replaced, or its settings change.

    every 5 s: the same files as before?  no -> still the same 5 s later?  yes -> a new context, for new connections
                                                                             what it cannot be made of stays unused,
                                                                             and is tried again every 60 s

What fails may go by without a change of the file: too many files are open, or the certificate is not valid yet.

A file that is being written is left alone until it has not changed from one look to the next. Connections keep the
certificate that they began with. As in Kafka's dynamic settings, a new certificate has the name of the one before it,
and its alternative names at least, so that clients still know the broker. Other settings (`listener.name.ssl.
ssl.keystore.location` and its like in the metadata) are tried before they are taken, and then used at once.

Source in Kafka: `SslFactory.reconfigure`, `SslFactory.CertificateEntries`, `DynamicBrokerConfig`.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from odradek.broker.clock import Clock
from odradek.broker.config import BrokerConfig, is_of_store
from odradek.broker.tasks import Tasks
from odradek.broker.tls import ListenerTls, load_tls
from odradek.errors import LogError, OdradekError
from odradek.printable import logger
from odradek.storage.file_version import FileVersion, version_at

_logger = logger(__name__)

_LOOK_MS = 5_000
_AGAIN_MS = 60_000
_LOCATIONS = ("ssl.keystore.location", "ssl.truststore.location")
_MOST_RSA_BITS = 8192
"""Handshakes are the loop's: one of 8,192 bits takes 80 ms, one of 16,384 a second."""

_NO_VERSIONS = (None,) * 3
"""The versions of no listener's files: each has at most two."""

_Versions: TypeAlias = tuple[FileVersion | None, ...]


class _Watched:
    """A listener whose files are looked at.

    Attributes:
        settings: The listener's own settings of key stores, by name.
        paths: The files.
        tls: What new connections get.
        used: The files that this was made of.
        seen: The files at the last look.
        failed: The files that it could not be made of, and when it may be tried again.
        told: Why it could not.
    """

    def __init__(
        self, settings: Mapping[str, str], paths: tuple[str, ...], tls: ListenerTls, versions: _Versions
    ) -> None:
        self.settings = settings
        self.paths = paths
        self.tls = tls
        self.used = self.seen = versions
        self.failed: tuple[_Versions, float] | None = None
        self.told = ""

    def is_to_load(self, versions: _Versions, now_ms: float) -> bool:
        """Note how the files look; return whether they are to be read."""
        is_settled, self.seen = versions == self.seen, versions
        if versions == self.used:
            self.failed, self.told = None, ""
            return False
        has_failed = self.failed is not None and versions == self.failed[0] and now_ms < self.failed[1]
        return is_settled and not has_failed


class TlsFiles:
    """The TLS of a broker's listeners. It belongs to the event loop's thread.

    Args:
        config: The broker's settings.
        clock: The time.
        run: Runs an action in another thread.
    """

    def __init__(self, config: BrokerConfig, clock: Clock, run: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        self._config = config
        self._clock = clock
        self._run = run
        self._looks = Tasks(self._failed)
        self._listeners: dict[str, _Watched] = {}

    def add(self, listener: str) -> None:
        """Set up TLS for a listener.

        Raises:
            InvalidConfigError: A setting is missing, or its value is not valid.
            LogError: A key or certificate cannot be read.
        """
        try:
            self._add(self._config, listener)
        except OdradekError as error:
            given = self._config.with_stores({})
            before = _settings(given, listener).items()
            in_metadata = [
                name for name, text in _settings(self._config, listener).items() if (name, text) not in before
            ]
            if not in_metadata:
                raise
            if any(".ssl.truststore." in name for name in in_metadata):
                text = "the metadata have settings that cannot be used, and without them others may be trusted"
                raise LogError(f"{listener}: {text}: {error}") from error
            # They are tried again, and their owner needs a broker to remove them.
            try:
                self._add(given, listener)
            except OdradekError:
                raise error from None
            _logger.error(
                "%s: the settings in the metadata cannot be used, but those of the start: %s", listener, error
            )

    def _add(self, config: BrokerConfig, listener: str) -> None:
        paths = _paths(config, listener)
        versions = _versions(paths)
        self._listeners[listener] = _Watched(_settings(config, listener), paths, load_tls(config, listener), versions)

    def context(self, listener: str) -> ssl.SSLContext | None:
        """Return what a new connection of a listener gets; None without TLS."""
        found = self._listeners.get(listener)
        return None if found is None else found.tls.context

    def start(self) -> None:
        """Look at the files, from now on."""
        if self._listeners:
            self._clock.after(_LOOK_MS, self._look_later)

    def _look_later(self) -> None:
        self.start()
        self._look_now()

    def _look_now(self) -> None:
        if not self._looks:
            self._looks.start(self._look())

    def settings_changed(self) -> None:
        """Use changed settings."""
        if self._has_changed():
            self._look_now()

    def _has_changed(self) -> bool:
        return any(_settings(self._config, name) != one.settings for name, one in self._listeners.items())

    def check(self, texts: Mapping[str, str]) -> None:
        """Check that the key stores of settings in the metadata can be used. Any thread may call it.

        Raises:
            OdradekError: A key store cannot be used.
        """
        config = self._config.with_stores(texts)
        for name, watched in self._listeners.items():
            if _settings(config, name) != watched.settings:
                _load_again(config, name, watched.tls, self._clock.now_ms())

    async def _look(self) -> None:
        await self._look_once()
        # Settings may have changed meanwhile.
        while self._has_changed():
            await self._look_once()

    async def _look_once(self) -> None:
        for name, watched in self._listeners.items():
            config = copy(self._config)
            settings = _settings(config, name)
            if settings != watched.settings:
                watched.settings, watched.paths, watched.failed = settings, _paths(config, name), None
                # New settings are loaded even if the files are the same.
                watched.used, watched.seen = _NO_VERSIONS, await self._run(partial(_versions, watched.paths))
            versions = await self._run(partial(_versions, watched.paths))
            now_ms = self._clock.elapsed_ms()
            if not watched.is_to_load(versions, now_ms):
                continue
            watched.failed = versions, now_ms + _AGAIN_MS
            try:
                load = partial(_load_again, config, name, watched.tls, self._clock.now_ms())
                watched.tls = await self._run(load)
            except (OdradekError, OSError, MemoryError) as error:
                reason = str(error) or "no memory is left"
                if watched.told != reason:
                    watched.told = reason
                    text = "%s: %s changed, and the certificate before it stays in use: %s"
                    _logger.error(text, name, " or ".join(watched.paths) or "its settings", reason)
            else:
                watched.used, watched.failed, watched.told = versions, None, ""
                shown = " and ".join(watched.paths) or "what its settings have"
                _logger.info("%s: new connections use %s as it is now", name, shown)

    def _failed(self, error: BaseException) -> None:
        _logger.error("the files of certificates cannot be looked at", exc_info=error)


def _versions(paths: tuple[str, ...]) -> _Versions:
    return tuple(version_at(Path(path)) for path in paths)


def _paths(config: BrokerConfig, listener: str) -> tuple[str, ...]:
    locations = (config.of_listener(listener, name) for name in _LOCATIONS)
    return tuple(path for path in locations if path is not None)


def _settings(config: BrokerConfig, listener: str) -> dict[str, str]:
    """Return a listener's own settings of key stores."""
    prefix = f"listener.name.{listener.lower()}."
    return {name: text for name, text in config.texts.items() if name.startswith(prefix) and is_of_store(name)}


def _load_again(config: BrokerConfig, listener: str, before: ListenerTls, now_ms: int) -> ListenerTls:
    loaded = load_tls(config, listener)
    if loaded.certificates != before.certificates:
        allowed = {what: config.of_listener(listener, f"ssl.allow.{what}.changes") for what in ("dn", "san")}
        _check_successor(before.certificates, loaded.certificates, allowed, now_ms)
    return loaded


def _check_successor(before: bytes, after: bytes, allowed: Mapping[str, bool], now_ms: int) -> None:
    """Check that clients which know a certificate know the one that follows it.

    Args:
        before: The certificate in use, and others that it needs, as PEM.
        after: The new ones.
        allowed: Whether the name (`dn`) and the alternative names (`san`) may be others.
        now_ms: The time.

    Raises:
        LogError: They do not.
    """
    # Imported here: it takes as long as the start of a broker.
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    def alternatives(certificate: x509.Certificate) -> set[x509.GeneralName]:
        try:
            found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        except x509.ExtensionNotFound:
            return set()
        return set(found.value)

    try:
        old, new = (x509.load_pem_x509_certificate(pem) for pem in (before, after))
        names = alternatives(old) - alternatives(new)
        key = new.public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise LogError(f"its certificate cannot be read: {error}") from None
    if isinstance(key, RSAPublicKey) and key.key_size > _MOST_RSA_BITS:
        raise LogError(f"its key has {key.key_size} bits, more than {_MOST_RSA_BITS}")
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    if new.not_valid_before_utc > now:
        raise LogError(f"its certificate is valid from {new.not_valid_before_utc:%Y-%m-%d %H:%M:%S} UTC on")
    if new.not_valid_after_utc < now:
        raise LogError(f"its certificate expired at {new.not_valid_after_utc:%Y-%m-%d %H:%M:%S} UTC")

    def written(name: x509.Name) -> str:
        # As in Java, names that differ in case or blanks are the same.
        return " ".join(name.rfc4514_string().lower().split())

    if not allowed["dn"] and old.subject != new.subject and written(old.subject) != written(new.subject):
        text = f"its certificate is of {new.subject.rfc4514_string()}, not of {old.subject.rfc4514_string()}"
        raise LogError(f"{text}; set ssl.allow.dn.changes to allow that")
    if not allowed["san"] and names:
        shown = ", ".join(sorted(str(name.value) for name in names))
        raise LogError(f"its certificate is not for {shown}; set ssl.allow.san.changes to allow that")
