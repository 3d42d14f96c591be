"""Which listeners anybody may use who reaches them: they are not on the loopback, and ask for no login.

    PLAINTEXT://0.0.0.0:9092                            anybody
    SSL://0.0.0.0:9093, ssl.client.auth=requested       anybody; with `required` only clients with a certificate

The address that a listener is bound to counts, not the one that clients are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.broker.config import BrokerConfig
from odradek.cross_site import is_loopback
from odradek.printable import logger

_logger = logger(__name__)


def exposed(config: BrokerConfig, hosts: Mapping[str, str]) -> Iterable[str]:
    """Return a warning for each listener that admits anybody.

    Args:
        config: The broker's settings.
        hosts: The address that each listener is bound to.
    """
    for name, host in hosts.items():
        protocol = config.protocol(name)
        has_login = protocol.startswith("SASL") or (
            protocol == "SSL" and config.of_listener(name, "ssl.client.auth") == "required"
        )
        # A socket of the file system has permissions, which count there.
        if has_login or is_loopback(host) or host.startswith("/"):
            continue
        able = (
            "do what access control lists allow User:ANONYMOUS" if config.has_authorizer else "read, write and delete"
        )
        yield (
            f"{name} ({protocol}) is reachable from other machines and asks for no login: whoever reaches it may "
            f"{able}; listen on 127.0.0.1, or use SASL_SSL, or SSL with ssl.client.auth=required"
        )


def warn_of_exposed(config: BrokerConfig, hosts: Mapping[str, str]) -> None:
    """Log the warnings of `exposed`."""
    for warning in exposed(config, hosts):
        _logger.warning("%s", warning)
