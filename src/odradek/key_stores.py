"""Key stores and trust stores of Java: private keys and certificates, in one of three formats that their bytes tell.

    PEM       -----BEGIN PRIVATE KEY----- ... -----BEGIN CERTIFICATE----- ...     text (KIP-651)
    PKCS12    30 82 ...                                                           what `keytool` makes today
    JKS       FE ED FE ED | version 4 | count 4 | entries | SHA-1 20              what it made before Java 9

    entry     1 | alias | time 8 | length 4, key | count 4, certificates          a private key and its chain
              2 | alias | time 8 | certificate                                    a trusted certificate
    certificate      type (version 2) | length 4, X.509        alias, type       length 2, text

The digest at the end is of the password, a constant and all bytes before it. A key is the XOR of its bytes with a
stream of digests, in an `EncryptedPrivateKeyInfo` of PKCS8: salt 20 | key | digest of password and key 20. Source in
Java: `sun.security.provider.JavaKeyStore`, `KeyProtector`. Kafka names such a store by `ssl.keystore.type`, whose
default is JKS; Java opens PKCS12 by that name too. Source in Kafka: `DefaultSslEngineFactory`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_JKS_KEY, _JKS_TRUSTED = 1, 2
_WHITENER = b"Mighty Aphrodite"
_DIGEST_BYTES = 20
_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


class KeyStore(NamedTuple):
    """What a store holds, as PEM.

    Attributes:
        key: The private key, encrypted if it is so in a PEM file; empty if there is none.
        certificates: The certificates; those of the key first.
    """

    key: bytes
    certificates: bytes


def read_key_store(data: bytes, password: str | None, key_password: str | None = None) -> KeyStore:
    """Read a store of any of the formats.

    Args:
        data: The file.
        password: The store's password; without one a JKS store is not checked.
        key_password: The password of the key in a JKS store, if it is another one.

    Raises:
        ValueError: It is of no such format, or damaged, or the password is wrong.
    """
    if data.startswith(_JKS_MAGIC):
        return _read_jks(data, password, key_password)
    if b"-----BEGIN " in data:
        return read_pem(data.decode("utf-8", "replace"))
    return _read_pkcs12(data, password)


def read_pem(text: str) -> KeyStore:
    """Read PEM, also in one line, as settings may have it.

    Raises:
        ValueError: It holds none.
    """
    keys: list[bytes] = []
    certificates: list[bytes] = []
    for kind, body in _PEM.findall(text):
        if ":" in body:
            # An encrypted key of the old kind has headers, and so its lines already.
            block = f"-----BEGIN {kind}-----{body}-----END {kind}-----\n".encode()
        else:
            block = _pem_block(kind, "".join(body.split()))
        (keys if kind.endswith("PRIVATE KEY") else certificates).append(block)
    if not keys and not certificates:
        raise ValueError("holds no PEM: -----BEGIN ...-----")
    return KeyStore(b"".join(keys), b"".join(certificates))


@contextmanager
def key_file(store: KeyStore) -> Iterator[str]:
    """Give a key and its certificates a path, as Python loads them from files only; they are never on the disk."""
    descriptor = os.memfd_create("odradek-key")
    try:
        os.write(descriptor, store.key + store.certificates)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _pem_block(kind: str, encoded: str) -> bytes:
    lines = "\n".join(encoded[at : at + 64] for at in range(0, len(encoded), 64))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n".encode()


def _read_pkcs12(data: bytes, password: str | None) -> KeyStore:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        raise ValueError(f"PKCS12 needs the package cryptography ({error})") from error

    found = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    own = [] if found.cert is None else [found.cert]
    pem = serialization.Encoding.PEM
    certificates = b"".join(one.certificate.public_bytes(pem) for one in (*own, *found.additional_certs))
    if found.key is None:
        return KeyStore(b"", certificates)
    plain = serialization.NoEncryption()
    return KeyStore(found.key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain), certificates)


def _read_jks(data: bytes, password: str | None, key_password: str | None) -> KeyStore:
    if len(data) < len(_JKS_MAGIC) + 8 + _DIGEST_BYTES:
        raise ValueError("the JKS store ends too early")
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None and not hmac.compare_digest(_digest(_utf16(password), _WHITENER, content), digest):
        raise ValueError("the password is wrong, or the JKS store is damaged")
    reader = _JksReader(content, len(_JKS_MAGIC))
    version = reader.number(4)
    if version not in (1, 2):
        raise ValueError(f"version {version} of JKS is unknown")
    key, chain, trusted = b"", [], []
    for _ in range(reader.number(4)):
        tag = reader.number(4)
        reader.block(2)  # the alias
        reader.number(8)
        if tag == _JKS_KEY:
            protected = reader.block(4)
            certificates = [_certificate(reader, version) for _ in range(reader.number(4))]
            # Of several keys Java takes one too.
            if not key:
                secret = key_password if key_password is not None else password
                if secret is None:
                    raise ValueError("the key needs a password")
                plain = _unprotected(protected, _utf16(secret))
                key, chain = _pem_block("PRIVATE KEY", base64.b64encode(plain).decode()), certificates
        elif tag == _JKS_TRUSTED:
            trusted.append(_certificate(reader, version))
        else:
            raise ValueError(f"the JKS store has an entry of an unknown kind, {tag}")
    return KeyStore(key, b"".join((*chain, *trusted)))


class _JksReader:
    """Reads numbers and blocks, one after another."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position

    def number(self, size: int) -> int:
        """Read an unsigned number of some bytes."""
        return int.from_bytes(self._take(size))

    def block(self, length_bytes: int) -> bytes:
        """Read bytes after their length."""
        return self._take(self.number(length_bytes))

    def _take(self, count: int) -> bytes:
        end = self._position + count
        if end > len(self._data):
            raise ValueError("the JKS store ends too early")
        taken, self._position = self._data[self._position : end], end
        return taken


def _certificate(reader: _JksReader, version: int) -> bytes:
    if version == 2 and (kind := reader.block(2)) != b"X.509":
        raise ValueError(f"the JKS store has a certificate of an unknown kind, {kind!r}")
    return ssl.DER_cert_to_PEM_cert(reader.block(4)).encode()


def _unprotected(info: bytes, password: bytes) -> bytes:
    """Return the key in an `EncryptedPrivateKeyInfo`, whose second part is what Java's `KeyProtector` made."""
    _, sequence, _ = _der(info)
    _, _, rest = _der(sequence)  # the algorithm
    kind, protected, _ = _der(rest)
    if kind != 0x04 or len(protected) < 2 * _DIGEST_BYTES:
        raise ValueError("the key in the JKS store is damaged")
    salt, hidden, check = protected[:20], protected[20:-20], protected[-20:]
    stream, part = b"", salt
    while len(stream) < len(hidden):
        part = _digest(password, part)
        stream += part
    plain = bytes(one ^ other for one, other in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(_digest(password, plain), check):
        raise ValueError("the key's password (ssl.key.password) is wrong")
    return plain


def _der(data: bytes) -> tuple[int, bytes, bytes]:
    """Return the tag and the content of the first element of DER, and what follows it."""
    if len(data) < 2:
        raise ValueError("the key in the JKS store is damaged")
    length, start = data[1], 2
    if length & 0x80:
        start = 2 + (length & 0x7F)
        length = int.from_bytes(data[2:start])
    if start + length > len(data):
        raise ValueError("the key in the JKS store is damaged")
    return data[0], data[start : start + length], data[start + length :]


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")


def _digest(*parts: bytes) -> bytes:
    return hashlib.sha1(b"".join(parts), usedforsecurity=False).digest()
