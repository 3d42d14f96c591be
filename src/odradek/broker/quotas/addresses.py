"""Quotas of addresses: how many connections a second one of them may make.

A connection that is too many is not counted. It is closed after some time, in which its client does not try again.

Source in Kafka: `ConnectionQuotas`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping
from time import perf_counter

from odradek.broker.clock import Clock
from odradek.broker.quotas.usages import Usages
from odradek.coordination.quotas.alterations import CONNECTION_CREATION_RATE
from odradek.coordination.quotas.limits import IP, Entity
from odradek.coordination.quotas.rates import Rate, Windows
from odradek.printable import logger

_logger = logger(__name__)

_UNLIMITED = (1 << 31) - 1
_RESOLVED_WITHIN_S = 5.0
_LONGEST_NAME = 253

MAPPED_IPV4 = "::ffff:"
"""What the addresses of clients over IPv4 begin with on a socket for both; quotas of them count in either form."""


def _address(name: str, flags: int) -> str | None:
    if len(name) > _LONGEST_NAME or "\0" in name or (flags and not name.isascii()):
        # Python takes a second for what is not ASCII in a long name.
        return None
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=flags)
    except (OSError, UnicodeError):
        return None
    # As Java does, IPv4 first.
    return str(min(found, key=lambda one: one[0] != socket.AF_INET)[4][0]).removeprefix(MAPPED_IPV4)


def resolver() -> Callable[[str], str | None]:
    """Return a function that returns the address of a host or None; in a thread that may wait for it.

    All its calls together wait some seconds only: names that come later have no address, unless they are one.
    """
    end = perf_counter() + _RESOLVED_WITHIN_S

    def resolve(name: str) -> str | None:
        found = _address(name, socket.AI_NUMERICHOST)
        return _address(name, 0) if found is None and perf_counter() < end else found

    return resolve


def host_addresses(entities: Iterable[Entity]) -> dict[str, str]:
    """Return the addresses of the hosts that have quotas, in a thread that may wait for them."""
    resolve = resolver()
    names = {one.entity_name for entity in entities for one in entity if one.entity_type == IP}
    found = {name: resolve(name) for name in names if name is not None}
    if lost := [name for name, address in found.items() if address is None]:
        _logger.warning("the quotas of %d hosts have no effect, as they have no address: %s ...", len(lost), lost[0])
    return {name: address for name, address in found.items() if address is not None}


class AddressQuotas:
    """The connections of addresses that have quotas. It belongs to the event loop's thread.

    Args:
        clock: The time.
        windows: How connections are counted.

    Attributes:
        windows: How connections are counted.
    """

    def __init__(self, clock: Clock, windows: Windows) -> None:
        self.windows = windows
        self._quotas: dict[str | None, int] = {}
        self._usages = Usages(lambda: Rate(windows), clock, windows.all_ms)

    def __len__(self) -> int:
        return len(self._usages)

    def set(self, names: Mapping[str, str | None], quotas: Mapping[str, float], addresses: Mapping[str, str]) -> bool:
        """Apply the quotas of an entity; return False if it is no address."""
        if IP not in names:
            return False
        name = names[IP]
        address = None if name is None else addresses.get(name, name)
        quota = quotas.get(CONNECTION_CREATION_RATE)
        if quota is None:
            self._quotas.pop(address, None)
        else:
            # Kafka has an integer here, which NaN makes 0.
            self._quotas[address] = int(min(max(quota, 0.0), _UNLIMITED)) if quota == quota else 0
        return True

    def throttle_ms(self, address: str) -> int:
        """Count a new connection, unless it is too many; return for how many milliseconds it is kept waiting then."""
        quota = self._quotas.get(address, self._quotas.get(None)) if self._quotas else None
        if quota is None or quota >= _UNLIMITED:
            return 0
        if not quota:
            return self.windows.size_ms
        now_ms = self._usages.now_ms()
        usage = self._usages.of(address, quota, now_ms)
        usage.record(1, quota, now_ms)
        throttle_ms = usage.throttle_ms(quota, now_ms)
        if throttle_ms:
            usage.record(-1, quota, now_ms)
        return min(throttle_ms, self.windows.size_ms)
