"""The address of a broker: `kafka://[user:password@]host:port[,host:port][/topic][?setting=value]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from odradek.arguments import address_options, split_address, split_login
from odradek.errors import OptionError
from odradek.kafka.settings import BrokerSettings


@dataclass(frozen=True)
class BrokerAddress:
    """A broker, how to log in there, and perhaps one topic.

    Attributes:
        text: The address without password and settings.
        settings: How to reach the broker.
        topic: The topic; None for all.
    """

    text: str
    settings: BrokerSettings
    topic: str | None

    @classmethod
    def parse(cls, address: str, config: Mapping[str, str] | None = None) -> BrokerAddress:
        """Take an address apart.

        Args:
            address: The address.
            config: Settings by the names of Kafka's clients or of kafka-python, which go before those of the address.

        Raises:
            OptionError: The address or a setting is not valid.
        """
        form = "a broker's address is kafka://host:port[,host:port][/topic]"
        try:
            parts = split_address(address)
            given = address_options(parts.query)
        except ValueError as error:
            raise OptionError(f"{form}: {error}") from error
        user, password, hosts = split_login(parts.netloc)
        topic = unquote(parts.path.removeprefix("/"))
        if parts.scheme != "kafka" or not hosts or "/" in topic:
            # What is before an @ may be a password.
            place = f"//{hosts}{parts.path}" if hosts else parts.path.rpartition("@")[2]
            raise OptionError(f"{form}, not {parts.scheme}:{place}")
        settings = broker_settings(hosts, user, password, {**given, **(config or {})})
        return cls(f"kafka://{hosts}{parts.path}", settings, topic or None)


def broker_settings(hosts: str, user: str | None, password: str | None, options: Mapping[str, str]) -> BrokerSettings:
    """Return how to reach the broker of an address.

    A user and password are those of SASL: PLAIN without TLS, unless the settings say otherwise.

    Args:
        hosts: The brokers.
        user: The user; None if the address has none.
        password: The password.
        options: Settings, by the names of Kafka's clients or of kafka-python.

    Raises:
        OptionError: A setting is not valid.
    """
    login = {
        "sasl.plain.username": user or "",
        "sasl.plain.password": password or "",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
    }
    given = options if user is None and password is None else {**login, **options}
    return BrokerSettings.parse({**given, "bootstrap.servers": hosts})
