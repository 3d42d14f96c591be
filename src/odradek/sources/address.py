"""The address of a broker: `kafka://[user:password@]host:port[,host:port][/topic][?setting=value]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from odradek.arguments import split_address
from odradek.errors import OptionError
from odradek.kafka.settings import BrokerSettings
from odradek.storage.formats.meta_properties import parse_properties
from odradek.storage.regular_files import read_file

_MOST_BYTES = 1 << 20


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

        A user and password are those of SASL: PLAIN without TLS, unless the settings say otherwise.

        Args:
            address: The address.
            config: Settings by the names of Kafka's clients or of kafka-python, which go before those of the address.

        Raises:
            OptionError: The address or a setting is not valid.
        """
        form = "a broker's address is kafka://host:port[,host:port][/topic]"
        try:
            parts = split_address(address)
        except ValueError as error:
            raise OptionError(f"{form}: {error}") from error
        userinfo, at, hosts = parts.netloc.rpartition("@")
        topic = unquote(parts.path.removeprefix("/"))
        if parts.scheme != "kafka" or not hosts or "/" in topic:
            raise OptionError(f"{form}, not {parts.scheme}://{hosts}{parts.path}")
        options = {**dict(parse_qsl(parts.query, keep_blank_values=True)), **(config or {})}
        if at:
            user, _, password = userinfo.partition(":")
            options.setdefault("sasl.plain.username", unquote(user))
            options.setdefault("sasl.plain.password", unquote(password))
            options.setdefault("security.protocol", "SASL_PLAINTEXT")
            options.setdefault("sasl.mechanism", "PLAIN")
        options["bootstrap.servers"] = hosts
        return cls(f"kafka://{hosts}{parts.path}", BrokerSettings.parse(options), topic or None)


def read_command_config(path: Path) -> dict[str, str]:
    """Read the settings in a file of Java properties, as `--command-config` of Kafka's tools takes it.

    Raises:
        OSError: The file cannot be read, or is not a regular file.
    """
    return dict(parse_properties(read_file(path, _MOST_BYTES).decode(errors="replace")))
