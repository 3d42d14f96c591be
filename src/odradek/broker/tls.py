"""TLS for listeners: certificates and keys by Kafka's settings, as one of Python's SSL contexts.

    ssl.keystore.type=PEM      ssl.keystore.location=FILE       a private key and its certificates in one file
                               ssl.keystore.key=-----BEGIN...   ... or in the settings themselves
                               ssl.keystore.certificate.chain=-----BEGIN...
    ssl.keystore.type=PKCS12   ssl.keystore.location=FILE       what `keytool` makes today, also by the name of JKS
    ssl.keystore.type=JKS      ssl.keystore.location=FILE       what it made before
    ssl.truststore.*           likewise: whose certificates clients may have, if ssl.client.auth wants one

The bytes of a file tell its format (`odradek.key_stores`).

Source in Kafka: `DefaultSslEngineFactory`, `SslFactory`, `DefaultKafkaPrincipalBuilder`.
"""

from __future__ import annotations

import ssl
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from odradek.broker.config import BrokerConfig
from odradek.errors import FormatError, InvalidConfigError, LogError
from odradek.key_stores import KeyStore, key_file, read_key_store, read_pem
from odradek.printable import logger
from odradek.storage.regular_files import read_file

_logger = logger(__name__)

_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_TOO_WEAK = {"CA_MD_TOO_WEAK", "CA_KEY_TOO_SMALL", "EE_KEY_TOO_SMALL"}
_CIPHERS_AT_LEVEL_0 = "@SECLEVEL=0:ECDH+AESGCM:ECDH+CHACHA20:ECDH+AES:DHE+AES:!aNULL:!eNULL:!aDSS:!SHA1:!AESCCM"
"""Python's default, but for the level, by which OpenSSL also refuses certificates that are signed with SHA-1."""
_PLACES = (
    "ssl.keystore.location",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
)
_MOST_BYTES = 1 << 22
"""How large a store may be: those of operating systems, which have hundreds of certificates, have 250 KB.

Its text is searched while no other thread runs, in some 100 ms.
"""

_TYPES = ("JKS", "PEM", "PKCS12")


class ListenerTls(NamedTuple):
    """The TLS of a listener.

    Attributes:
        context: What connections are made with.
        certificates: Its certificates as PEM, its own first.
    """

    context: ssl.SSLContext
    certificates: bytes


def read_store(location: str, password: str | None, key_password: str | None = None) -> KeyStore:
    """Read the file of a key store or a trust store.

    Raises:
        FormatError: It is not a regular file, or too large.
        OSError: It cannot be read.
        ValueError: It is no store, or the password is not its own.
    """
    # A FIFO would wait for its writer, and a thread of the broker with it, whenever it is read again.
    return read_key_store(read_file(Path(location), _MOST_BYTES), password, key_password)


def load_tls(config: BrokerConfig, listener: str) -> ListenerTls:
    """Read the keys and certificates of a listener.

    Raises:
        InvalidConfigError: A setting is missing, or its value is not valid.
        LogError: A key or certificate cannot be read.
    """
    settings = _Settings(config, listener)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _limit_versions(context, settings)
    store = _key_store(settings)
    with key_file(store) as path:
        try:
            _load_chain(context, path, settings)
        except (ssl.SSLError, OSError) as error:
            raise LogError(f"{listener}: {settings.given('keystore')} cannot be used: {error}") from None
    context.verify_mode = _CLIENT_AUTH[settings["ssl.client.auth"]]
    trusted = _trust_store(settings)
    if trusted:
        try:
            # As a file, since Python lets no other thread run while it reads text.
            with key_file(KeyStore(b"", trusted)) as path:
                context.load_verify_locations(path)
        except OSError as error:
            raise LogError(f"{listener}: {settings.given('truststore')} cannot be used: {error}") from None
    elif context.verify_mode is not ssl.CERT_NONE:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return ListenerTls(context, store.certificates)


def _load_chain(context: ssl.SSLContext, path: str, settings: _Settings) -> None:
    # Without a password OpenSSL would ask at the terminal.
    load = partial(context.load_cert_chain, path, password=lambda: (settings["ssl.key.password"] or "").encode())
    try:
        load()
    except ssl.SSLError as error:
        if error.reason not in _TOO_WEAK:
            raise
        # Java shows its own certificates whatever they are; only their clients judge them.
        text = "%s: a certificate in ssl.keystore is weak (%s); clients may refuse it"
        _logger.warning(text, settings.listener, error.reason.lower().replace("_", " "))
        context.set_ciphers(_CIPHERS_AT_LEVEL_0)
        load()


class _Settings:
    """A listener's settings by name."""

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        self._config = config
        self.listener = listener

    def __getitem__(self, name: str) -> Any:
        return self._config.of_listener(self.listener, name)

    def given(self, store: str) -> str:
        """Return the settings that say where a store is, for an error."""
        names = [name for name in _PLACES if name.startswith(f"ssl.{store}.") and self[name] is not None]
        return " and ".join(names)

    def read(self, store: str, key_password: str | None) -> KeyStore:
        """Read the file of a store.

        Raises:
            InvalidConfigError: It cannot be read.
        """
        location = self[f"ssl.{store}.location"]
        name = self._config.name_for(self.listener, f"ssl.{store}.location") or ""
        # The bytes tell the type, but Apache Kafka would use none of the broker's settings in the metadata.
        if self[f"ssl.{store}.type"].upper() not in _TYPES:
            raise InvalidConfigError(f"ssl.{store}.type", f"needs one of {', '.join(_TYPES)}")
        try:
            return read_store(location, self[f"ssl.{store}.password"], key_password)
        except OSError as error:
            raise InvalidConfigError(name, f"{location} cannot be read: {error.strerror}") from error
        except FormatError as error:
            raise InvalidConfigError(name, f"{location} cannot be read: {error.reason}") from None
        except ValueError as error:
            raise InvalidConfigError(name, f"{location} cannot be read: {error}") from None


def _limit_versions(context: ssl.SSLContext, settings: _Settings) -> None:
    names = settings["ssl.enabled.protocols"]
    known = [_VERSIONS[name] for name in names if name in _VERSIONS]
    if not known:
        raise InvalidConfigError("ssl.enabled.protocols", f"needs one of {', '.join(_VERSIONS)}")
    context.minimum_version, context.maximum_version = min(known), max(known)


def _key_store(settings: _Settings) -> KeyStore:
    """Return the private key and its certificates."""
    chain, key, location = (settings[f"ssl.keystore.{part}"] for part in ("certificate.chain", "key", "location"))
    if chain is not None or key is not None:
        if settings["ssl.keystore.type"].upper() != "PEM":
            raise InvalidConfigError("ssl.keystore.type", "certificates in the settings themselves are PEM")
        if chain is None or key is None:
            raise InvalidConfigError("ssl.keystore.key", "ssl.keystore.key needs ssl.keystore.certificate.chain")
        certificates = _pem(chain, "ssl.keystore.certificate.chain").certificates
        return KeyStore(_pem(key, "ssl.keystore.key").key, certificates)
    if location is None:
        name = f"listener.name.{settings.listener.lower()}.ssl.keystore.location"
        raise InvalidConfigError(name, f"the listener {settings.listener} needs a key and a certificate")
    return settings.read("keystore", settings["ssl.key.password"])


def _trust_store(settings: _Settings) -> bytes:
    """Return the trusted certificates, as PEM; nothing without a trust store."""
    certificates, location = settings["ssl.truststore.certificates"], settings["ssl.truststore.location"]
    if certificates is None and location is None:
        return b""
    name = f"ssl.truststore.{'location' if certificates is None else 'certificates'}"
    store = settings.read("truststore", None) if certificates is None else _pem(certificates, name)
    try:
        return store.trusted()
    except ValueError as error:
        raise InvalidConfigError(name, str(error) if certificates is not None else f"{location} {error}") from None


def _pem(text: str, name: str) -> KeyStore:
    try:
        return read_pem(text)
    except ValueError as error:
        raise InvalidConfigError(name, str(error)) from None
