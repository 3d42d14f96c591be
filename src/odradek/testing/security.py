"""Logins, certificates and access control lists for the broker of a test, and what its clients need to know of them.

    Broker(users={"alice": "secret"}, acls=[allow("alice", "READ", topic="events")])

A process makes one certificate authority, and one certificate of the broker that is signed by it, when it first needs
them. Both stay in memory; clients get the authority's certificate as text.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from odradek.broker.restrictions import STANDARD_AUTHORIZER
from odradek.broker.sasl import PLAIN, SCRAM_MODULE
from odradek.broker.sasl_plain import PLAIN_MODULE
from odradek.coordination.authorization.acls import (
    CLUSTER_NAME,
    Acl,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
)
from odradek.coordination.scram.credentials import MECHANISMS, ScramMechanism, credential_of_password
from odradek.errors import OptionError
from odradek.messages.metadata.metadata_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from odradek.storage.config_def import ConfigValue
from odradek.storage.metadata.cluster import ScramChange

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import CertificateBuilder

ClientName: TypeAlias = Literal["confluent-kafka", "kafka-python", "aiokafka", "java"]

_USER = "User:"
_HOSTS = ("localhost", "host.docker.internal")
_ADDRESSES = ("127.0.0.1", "::1")
_VALID = timedelta(days=365)


class _Tls(NamedTuple):
    """What a listener with TLS and its clients need, as PEM."""

    authority: str
    certificate: str
    key: str


def _certificate(name: str, key: EllipticCurvePrivateKey, issuer: str) -> CertificateBuilder:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    now = datetime.now(UTC)
    subject, by = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in (name, issuer))
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + _VALID)
    )


@cache
def tls() -> _Tls:
    """Return the certificates of this process; they are made by the first call."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    name = "odradek.testing"
    authority = _certificate(name, authority_key, name).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    hosts = (*_HOSTS, *filter(str.isascii, (socket.gethostname(),)))
    names = [*map(x509.DNSName, dict.fromkeys(hosts)), *(x509.IPAddress(ip_address(one)) for one in _ADDRESSES)]
    certificate = (
        _certificate("localhost", key, name)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )
    signed = [one.sign(authority_key, hashes.SHA256()) for one in (authority, certificate)]
    shown = [one.public_bytes(serialization.Encoding.PEM).decode() for one in signed]
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return _Tls(shown[0], shown[1], key.private_bytes(*form).decode())


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def broker_settings(
    config: Mapping[str, ConfigValue],
    listeners: Sequence[str] | None,
    users: Mapping[str, str] | None,
    *,
    has_acls: bool,
) -> dict[str, ConfigValue]:
    """Return the settings of a broker's listeners and its authorizer, and those that were given.

    Raises:
        OptionError: The listeners were given twice, or are no list; the users are no mapping, or a login has none.
    """
    if listeners is not None and "listeners" in config:
        raise OptionError("give either listeners or config['listeners']")
    if isinstance(listeners, str):
        raise OptionError(f"listeners is a list, such as [{listeners!r}]")
    if users is not None and not isinstance(users, Mapping):
        raise OptionError('users is a mapping of passwords, such as {"alice": "secret"}')
    found: dict[str, ConfigValue] = {}
    if listeners is None:
        listeners = ["PLAINTEXT" if users is None else "SASL_SSL"]
    found["listeners"] = ",".join(one if "://" in one else f"{one}://127.0.0.1:0" for one in listeners)
    opened = str(config.get("listeners", found["listeners"]))
    if "SSL" in opened and not any("ssl.keystore." in name for name in config):
        made = tls()
        found["ssl.keystore.type"] = "PEM"
        found["ssl.keystore.key"], found["ssl.keystore.certificate.chain"] = made.key, made.certificate
    for name, password in (users or {}).items():
        _check_password(name, password)
    if "SASL" in opened and users is None and not any("sasl.enabled.mechanisms" in name for name in config):
        raise OptionError("a listener with SASL needs users; users={} if they come later")
    if users is not None and "SASL" in opened:
        found["sasl.enabled.mechanisms"] = ",".join((PLAIN, *MECHANISMS))
        logins = (f"{_quoted(f'user_{name}')}={_quoted(password)}" for name, password in users.items())
        found["plain.sasl.jaas.config"] = f"{PLAIN_MODULE} required {' '.join(logins)};"
    if has_acls:
        found["authorizer.class.name"] = STANDARD_AUTHORIZER
    return {**found, **config}


def _check_password(name: object, password: object) -> None:
    if not isinstance(name, str) or not isinstance(password, str):
        raise OptionError(f"the user {name!r}: names and passwords are texts")


@lru_cache(256)
def _credential(name: str, mechanism: ScramMechanism, password: str) -> UserScramCredentialRecord:
    """Return a credential; hashing takes longer than all else that a broker of a test does, so tests share them."""
    return credential_of_password(name, mechanism, password)


def credentials(users: Mapping[str, str | None]) -> list[ScramChange]:
    """Return the records that give users passwords for SCRAM, and remove those without one.

    Raises:
        OptionError: A name or a password is not for SCRAM.
    """
    found: list[ScramChange] = []
    for name, password in users.items():
        for mechanism in MECHANISMS.values():
            if password is None:
                found.append(RemoveUserScramCredentialRecord(name, mechanism.type))
                continue
            _check_password(name, password)
            try:
                found.append(_credential(name, mechanism, password))
            except ValueError as error:
                raise OptionError(f"the user {name!r}: {error}") from None
    return found


class Login(NamedTuple):
    """How a client connects to a listener.

    Attributes:
        bootstrap_servers: Where it is.
        protocol: Its security protocol.
        mechanism: The mechanism of SASL.
        user: The user's name and password; None without a login.
    """

    bootstrap_servers: str
    protocol: str
    mechanism: str
    user: tuple[str, str] | None

    def settings(self, client: ClientName) -> dict[str, Any]:
        """Return the settings of a client, by its own names.

        Raises:
            OptionError: It is another client.
        """
        match client:
            case "confluent-kafka":
                names = ("bootstrap.servers", "security.protocol", "sasl.mechanism", "sasl.username", "sasl.password")
                trust: dict[str, Any] = {"ssl.ca.pem": tls().authority} if self._has_tls else {}
            case "kafka-python" | "aiokafka":
                names = (
                    *("bootstrap_servers", "security_protocol", "sasl_mechanism"),
                    *("sasl_plain_username", "sasl_plain_password"),
                )
                trust = {"ssl_context": ssl.create_default_context(cadata=tls().authority)} if self._has_tls else {}
            case "java":
                return self._java()
            case _:
                raise OptionError(f"expected confluent-kafka, kafka-python, aiokafka or java, got {client!r}")
        login = () if self.user is None else (self.mechanism, *self.user)
        return dict(zip(names, (self.bootstrap_servers, self.protocol, *login), strict=False)) | trust

    @property
    def _has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    def _java(self) -> dict[str, str]:
        found = {"bootstrap.servers": self.bootstrap_servers, "security.protocol": self.protocol}
        if self.user is not None:
            module = PLAIN_MODULE if self.mechanism == PLAIN else SCRAM_MODULE
            name, password = map(_quoted, self.user)
            found["sasl.mechanism"] = self.mechanism
            found["sasl.jaas.config"] = f"{module} required username={name} password={password};"
        if self._has_tls:
            # On one line, as a file of properties has it; Kafka takes any white space.
            found["ssl.truststore.type"] = "PEM"
            found["ssl.truststore.certificates"] = tls().authority.strip().replace("\n", " ")
        return found


def allow(
    principal: str,
    operation: str,
    *,
    topic: str | None = None,
    group: str | None = None,
    transactional_id: str | None = None,
    user: str | None = None,
    cluster: bool = False,
    prefixed: bool = False,
    host: str = "*",
) -> Acl:
    """Return an access control list that allows something: `allow("alice", "READ", topic="events")`.

    Args:
        principal: Whom: `alice`, or `User:alice`; `*` is everybody.
        operation: What: `READ`, `WRITE`, `DESCRIBE`, `ALL` and so on, by Kafka's names.
        topic: Of which topic; `*` is every one.
        group: Of which group.
        transactional_id: Of which transactional id.
        user: Of which user.
        cluster: Of the cluster.
        prefixed: Whether the name is the beginning of names.
        host: From which address.

    Raises:
        OptionError: It is about nothing, or several things, or there is no such operation.
    """
    named = {
        ResourceType.TOPIC: topic,
        ResourceType.GROUP: group,
        ResourceType.TRANSACTIONAL_ID: transactional_id,
        ResourceType.USER: user,
        ResourceType.CLUSTER: CLUSTER_NAME if cluster else None,
    }
    given = [(kind, name) for kind, name in named.items() if name is not None]
    if len(given) != 1:
        raise OptionError("an ACL is about one topic, group, transactional_id or user, or the cluster")
    if not all(isinstance(text, str) for text in (principal, operation, given[0][1], host)):
        raise OptionError("an ACL is made of texts")
    if operation.upper() not in Operation.__members__:
        raise OptionError(f"expected an operation such as READ, got {operation!r}")
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    who = principal if principal.startswith(_USER) else f"{_USER}{principal}"
    found = Acl(*given[0], pattern, who, host, Operation[operation.upper()], PermissionType.ALLOW)
    if (reason := found.why_invalid()) is not None:
        raise OptionError(reason)
    return found


def deny(principal: str, operation: str, **options: Any) -> Acl:
    """Return an access control list that denies something; the options are those of `allow`."""
    return allow(principal, operation, **options)._replace(permission_type=PermissionType.DENY)
