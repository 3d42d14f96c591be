"""The addresses of brokers as `bootstrap.servers` holds them: `host[:port]`, several with commas.

What no broker can have is refused at once: a client would try it again until its time is over.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable

from kafka import errors

_DEFAULT_PORT = 9092
_SERVER = re.compile(
    r"(?:[A-Za-z_]+://)?(?:\[(?P<ipv6>[0-9A-Fa-f:.]+(?:%[^\]\s]+)?)\]|(?P<host>[^][:/@\s]+))(?::(?P<port>[0-9]+))?"
)
_UNKNOWN = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))


def parse_servers(text: str) -> tuple[str, ...]:
    """Return the addresses in a text.

    Raises:
        ValueError: One of them cannot be the address of a broker, or there is none.
    """
    servers = tuple(part.strip() for part in text.split(",") if part.strip())
    if not servers:
        raise ValueError("names no broker")
    for server in servers:
        host, port = _host_and_port(server)
        if not 0 < port < 1 << 16:
            raise ValueError(f"{server!r}: a port is a number from 1 to 65535")
        if ":" in host:
            try:
                socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
            except OSError:
                raise ValueError(f"{server!r}: {host} is no IPv6 address") from None
    return servers


def check_known(servers: Iterable[str]) -> None:
    """Do nothing if the host of an address is known, or if that cannot be found out now.

    Raises:
        kafka.errors.KafkaConfigurationError: The system knows none of them.
    """
    unknown = []
    for server in servers:
        host, port = _host_and_port(server)
        try:
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            if error.errno not in _UNKNOWN:
                return
        except UnicodeError:
            # No name of a host is so long, or has such characters.
            pass
        else:
            return
        unknown.append(host)
    raise errors.KafkaConfigurationError(f"unknown host: {', '.join(unknown)}")


def _host_and_port(server: str) -> tuple[str, int]:
    match = _SERVER.fullmatch(server)
    if match is None:
        advice = "; an IPv6 address is written in brackets" if server.count(":") > 1 else ""
        raise ValueError(f"{server!r} is not HOST:PORT{advice}")
    return match["ipv6"] or match["host"], int((match["port"] or str(_DEFAULT_PORT))[:9])
