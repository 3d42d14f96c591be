"""The settings that restrict what clients may do at Apache Kafka, and that this broker does not enforce.

    authorizer.class.name=com.example.OwnAuthorizer                                   the broker refuses to start
    sasl.kerberos.principal.to.local.rules=DEFAULT                                    restricts nobody

A broker that ignored such a setting would admit clients that its owner locked out. Other settings without effect only
cost speed, memory or features.

Source in Kafka: `SocketServerConfigs`, `BrokerSecurityConfigs`, `SslConfigs`, `ServerConfigs`, `StandardAuthorizer`.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.broker.oauth_settings import HANDLER_CLASS, OAUTHBEARER_HANDLER
from odradek.errors import InvalidConfigError
from odradek.storage.config_def import trimmed

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SUPER_USERS, ALLOW_IF_NONE = "super.users", "allow.everyone.if.no.acl.found"

_EMPTY = frozenset({""})

NOT_ENFORCED: Mapping[str, frozenset[str]] = {
    # who may do what
    "authorizer.class.name": frozenset({"", STANDARD_AUTHORIZER}),
    SUPER_USERS: _EMPTY,
    ALLOW_IF_NONE: frozenset({"true"}),
    "alter.config.policy.class.name": _EMPTY,
    "create.topic.policy.class.name": _EMPTY,
    # who a client is
    "principal.builder.class": frozenset(
        {"", "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"}
    ),
    "sasl.kerberos.principal.to.local.rules": frozenset({"", "DEFAULT"}),
    # Of OAUTHBEARER; for another mechanism it stops the start, too.
    HANDLER_CLASS: frozenset({"", OAUTHBEARER_HANDLER}),
    "ssl.cipher.suites": _EMPTY,
    "ssl.engine.factory.class": _EMPTY,
    "ssl.trustmanager.algorithm": frozenset({"", "PKIX", "SunX509"}),
    # how much a client may use
    "client.quota.callback.class": _EMPTY,
    "queued.max.request.bytes": frozenset({"", "-1"}),
    # where data may be
    "cordoned.log.dirs": _EMPTY,
}
"""The settings by their names, each with the values that restrict nobody."""


_NEEDED_PROTOCOLS = {
    "ssl.client.auth": "SSL",
    "sasl.enabled.mechanisms": "SASL",
    "sasl.jaas.config": "SASL",
    HANDLER_CLASS: "SASL",
}
"""Settings that restrict who connects to a listener, each with the security protocols that enforce it."""


def check_listener_restriction(name: str, plain_name: str, text: str, protocol: str) -> None:
    """Check that a setting of one listener asks for no login that the listener's security protocol does not have.

    Args:
        name: The name as it was given.
        plain_name: The name without a listener and a mechanism.
        text: The value.
        protocol: The security protocol.

    Raises:
        InvalidConfigError: Its owner may believe that clients are checked, and they are not.
    """
    needed = _NEEDED_PROTOCOLS.get(plain_name, "")
    if needed not in protocol and trimmed(text) not in ("", "none"):
        raise InvalidConfigError(
            name, f"{protocol} checks no client by it: give the listener a protocol with {needed}, or remove it"
        )


def check_restriction(name: str, plain_name: str, text: str) -> None:
    """Check that a setting asks for no restriction that this broker does not enforce.

    Args:
        name: The name as it was given.
        plain_name: The name without a listener and a mechanism.
        text: The value.

    Raises:
        InvalidConfigError: Apache Kafka would restrict clients by it.
    """
    harmless = NOT_ENFORCED.get(plain_name)
    if harmless is not None and trimmed(text) not in harmless:
        raise InvalidConfigError(
            name, "restricts clients at Apache Kafka, and this broker does not enforce it; remove it to serve without"
        )
