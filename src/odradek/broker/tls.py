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

import re
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from odradek.broker.config import BrokerConfig
from odradek.errors import InvalidConfigError, LogError
from odradek.key_stores import KeyStore, key_file, read_key_store, read_pem

_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_SHORT_NAMES = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_TO_ESCAPE = re.compile(r'([,+"\\<>;])')


def tls_context(config: BrokerConfig, listener: str) -> ssl.SSLContext:
    """Return the SSL context of a listener.

    Raises:
        InvalidConfigError: A setting is missing, or its value is not valid.
        LogError: A key or certificate cannot be read.
    """
    settings = _Settings(config, listener)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _limit_versions(context, settings)
    with key_file(_key_store(settings)) as path:
        try:
            # Without a password OpenSSL would ask at the terminal.
            context.load_cert_chain(path, password=lambda: (settings["ssl.key.password"] or "").encode())
        except (ssl.SSLError, OSError) as error:
            raise LogError(f"{listener}: the key and certificate in ssl.keystore cannot be used: {error}") from None
    context.verify_mode = _CLIENT_AUTH[settings["ssl.client.auth"]]
    trusted = _trust_store(settings)
    if trusted:
        try:
            context.load_verify_locations(cadata=trusted.decode())
        except ssl.SSLError as error:
            raise LogError(f"{listener}: the certificates in ssl.truststore cannot be used: {error}") from None
    elif context.verify_mode is not ssl.CERT_NONE:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return context


class _Settings:
    """A listener's settings by name."""

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        self._config = config
        self.listener = listener

    def __getitem__(self, name: str) -> Any:
        return self._config.of_listener(self.listener, name)


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
    return _read(location, settings["ssl.keystore.password"], settings["ssl.key.password"])


def _trust_store(settings: _Settings) -> bytes:
    """Return the trusted certificates, as PEM."""
    certificates, location = settings["ssl.truststore.certificates"], settings["ssl.truststore.location"]
    if certificates is not None:
        return _pem(certificates, "ssl.truststore.certificates").certificates
    if location is None:
        return b""
    return _read(location, settings["ssl.truststore.password"], None).certificates


def _read(location: str, password: str | None, key_password: str | None) -> KeyStore:
    try:
        return read_key_store(Path(location).read_bytes(), password, key_password)
    except OSError as error:
        raise LogError(f"{location} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise LogError(f"{location} cannot be read: {error}") from None


def _pem(text: str, name: str) -> KeyStore:
    try:
        return read_pem(text)
    except ValueError as error:
        raise InvalidConfigError(name, str(error)) from None


def principal_of(certificate: Mapping[str, Any] | None) -> str | None:
    """Return who a client is by its certificate: `User:CN=alice,O=Example`, the last part of the name first."""
    if not certificate:
        return None
    subject: Sequence[Sequence[tuple[str, str]]] = certificate["subject"]
    parts = [
        "+".join(f"{_SHORT_NAMES.get(kind, kind)}={_escaped(value)}" for kind, value in part)
        for part in reversed(subject)
    ]
    return f"User:{','.join(parts)}"


def _escaped(text: str) -> str:
    return _TO_ESCAPE.sub(r"\\\1", text)
