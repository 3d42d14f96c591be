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
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from odradek import system
from odradek.der import first_element

_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_JKS_KEY, _JKS_TRUSTED = 1, 2
_WHITENER = b"Mighty Aphrodite"
_DIGEST_BYTES = 20
_SEQUENCE, _INTEGER = 0x30, 0x02
_MOST_ROUNDS = 2_000_000
"""About a second of work. Clients may set a key while a broker runs, and tools of today use 2,048 to 600,000."""

_MOST_CERTIFICATES = 2000
"""OpenSSL sorts them again for each one: 2,000 take a second, 40,000 many minutes. Operating systems have hundreds."""

_LONGEST_ALGORITHM = 1000
_SCRYPT = bytes.fromhex("2b06010401da47040b")
"""Its object identifier: Java, and so Kafka, has no such keys, and they may take hours."""

_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([^-]*+(?:-(?!----)[^-]*+)*+)-----END \1-----")
"""A block ends at the next dashes: a search for its own end would read a damaged file again for each block."""


class KeyStore(NamedTuple):
    """What a store holds, as PEM.

    Attributes:
        key: The private key, encrypted if it is so in a PEM file; empty if there is none.
        certificates: The certificates; those of the key first.
    """

    key: bytes
    certificates: bytes

    def trusted(self) -> bytes:
        """Return the certificates of a trust store.

        Raises:
            ValueError: It has none. OpenSSL would then trust what the system trusts, or what it trusted before.
        """
        if not self.certificates:
            raise ValueError("has no certificates, and nobody would be trusted")
        return self.certificates


def read_key_store(data: bytes, password: str | None, key_password: str | None = None) -> KeyStore:
    """Read a store of any of the formats.

    Args:
        data: The file.
        password: The store's password; without one a JKS store is not checked.
        key_password: The password of the key in a JKS store, if it is another one.

    Raises:
        ValueError: It is of no such format, or damaged, or too large, or the password is wrong.
    """
    if data.startswith(_JKS_MAGIC):
        store = _read_jks(data, password, key_password)
    elif b"-----BEGIN " in data:
        store = read_pem(data.decode("utf-8", "replace"))
    else:
        store = _read_pkcs12(data, password)
    if store.certificates.count(b"-----BEGIN ") > _MOST_CERTIFICATES:
        raise ValueError(f"has more than {_MOST_CERTIFICATES:,} certificates")
    return store


def read_pem(text: str) -> KeyStore:
    """Read PEM, also in one line, as settings may have it.

    Raises:
        ValueError: It holds none, or a key that takes very long to decrypt.
    """
    keys: list[bytes] = []
    certificates: list[bytes] = []
    for kind, body in _PEM.findall(text):
        if kind == "ENCRYPTED PRIVATE KEY":
            # With headers it is refused: OpenSSL skips short ones.
            _check_rounds("".join(body.split()))
        if ":" in body:
            # An encrypted key of the old kind has headers, and so its lines already.
            block = f"-----BEGIN {kind}-----{body}-----END {kind}-----\n".encode()
        else:
            block = _pem_block(kind, "".join(body.split()))
        (keys if kind.endswith("PRIVATE KEY") else certificates).append(block)
    if not keys and not certificates:
        raise ValueError("holds no PEM: -----BEGIN ...-----")
    # OpenSSL would decrypt one key after another until it knows the kind of one; Kafka takes no more than one.
    return KeyStore(b"".join(keys[:1]), b"".join(certificates))


@contextmanager
def key_file(store: KeyStore) -> Iterator[str]:
    """Give a key and its certificates a path, since Python loads them from files only."""
    with system.secret_file(store.key + store.certificates) as path:
        yield path


def _pem_block(kind: str, encoded: str) -> bytes:
    lines = "\n".join(encoded[at : at + 64] for at in range(0, len(encoded), 64))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n".encode()


def _check_rounds(encoded: str) -> None:
    """Check that decrypting a key (PKCS #8) does not take long: its algorithm identifier has the number of rounds.

    Raises:
        ValueError: The key takes too many rounds, or cannot be read.
    """
    _, info, _ = first_element(base64.b64decode(encoded, validate=True), "key")
    _, algorithm, _ = first_element(info, "key")
    if len(algorithm) > _LONGEST_ALGORITHM or _SCRYPT in algorithm:
        raise ValueError("has a key that is encrypted in a way that is not supported")
    left = [algorithm]
    while left:
        tag, content, rest = first_element(left.pop(), "key")
        left += [part for part in (rest, content if tag == _SEQUENCE else b"") if part]
        if tag == _INTEGER and int.from_bytes(content, "big") > _MOST_ROUNDS:
            raise ValueError(f"has a key that takes more than {_MOST_ROUNDS:,} rounds to decrypt")


def _read_pkcs12(data: bytes, password: str | None) -> KeyStore:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        raise ValueError(f"PKCS12 needs the package cryptography ({error})") from error

    if "\0" in (password or ""):
        # The package fails by it with what is no exception.
        raise ValueError("the password has a NUL character")
    try:
        found = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from error
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
    _, sequence, _ = first_element(info, "key")
    _, _, rest = first_element(sequence, "key")  # the algorithm
    kind, protected, _ = first_element(rest, "key")
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


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")


def _digest(*parts: bytes) -> bytes:
    return hashlib.sha1(b"".join(parts), usedforsecurity=False).digest()
