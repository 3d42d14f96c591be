"""The listeners' sockets: accepts connections, within the limits.

    max.connections                no more are accepted until one is closed: clients wait
    max.connection.creation.rate   no more are accepted for up to a second
    max.connections.per.ip         one more of that address is closed at once
    connection_creation_rate       a quota of addresses: one more is closed after up to a second
    few descriptors left           no more are accepted until one is closed, or for a second: logs need some, too

A listener may have its own `max.connections` and `max.connection.creation.rate`; those of the broker count all
listeners together.

Source in Kafka: `SocketServer.Acceptor`, `ConnectionQuotas`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from odradek.broker.clock import Clock, Timer
from odradek.broker.config import BrokerConfig, Listener
from odradek.broker.quotas.addresses import MAPPED_IPV4, AddressQuotas
from odradek.coordination.quotas.rates import Rate, Windows
from odradek.errors import LogError
from odradek.printable import logger

_logger = logger(__name__)

_ACCEPTED_AT_ONCE = 64
_PAUSE_MS = 1000
_MOST_CLOSED_LATER = 100
"""Each such connection has a descriptor, so further ones are closed at once."""

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_MOST_KEPT_DESCRIPTORS = 128
_UNLIMITED = 1 << 31


_ANY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 - what a listener is told to
"""As in Java, each of them is reached by IPv4 and by IPv6."""


class _Descriptors(NamedTuple):
    """How many file descriptors connections may use.

    Attributes:
        share: This many connections are accepted in any case.
        end: More are accepted only while the next free descriptor is below this number: the others are for logs.
    """

    share: int
    end: int

    @classmethod
    def of_process(cls) -> _Descriptors:
        """Return what the limit of this process allows."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY:
            return cls(_UNLIMITED, _UNLIMITED)
        return cls(soft // 4, soft - min(soft // 4, _MOST_KEPT_DESCRIPTORS))


class _ListeningSocket:
    """A socket that listens.

    Attributes:
        sock: The socket.
        listener: Its listener.
        most: The listener's `max.connections`.
        most_a_second: The listener's `max.connection.creation.rate`.
        rate: The rate of its connections.
        count: How many connections are open.
        is_accepting: Whether the event loop looks for connections.
        pause: The timer that ends its wait.
    """

    def __init__(self, sock: socket.socket, listener: Listener, windows: Windows) -> None:
        self.sock = sock
        self.listener = listener
        self.most = 0
        self.most_a_second = 0
        self.rate = Rate(windows)
        self.count = 0
        self.is_accepting = False
        self.pause: Timer | None = None


class Acceptor:
    """The listening sockets of a broker. It belongs to the event loop's thread.

    Args:
        config: The settings.
        clock: The time.
        quotas: The quotas of addresses.
        accepted: Takes a socket, its listener, and the address of the client.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        quotas: AddressQuotas,
        accepted: Callable[[socket.socket, Listener, str], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._quotas = quotas
        self._accepted = accepted
        self._loop = asyncio.get_running_loop()
        self._sockets: dict[str, _ListeningSocket] = {}
        self._rate = Rate(quotas.windows)
        self._count = 0
        self._closed_later: dict[socket.socket, Timer] = {}
        self._by_address: Counter[str] = Counter()
        self._descriptors = _Descriptors.of_process()

    def listen(self, given: Mapping[str, socket.socket]) -> dict[str, Listener]:
        """Open the sockets and accept connections.

        Args:
            given: Sockets that listen already, by the name of the listener.

        Returns:
            Where clients reach each listener.

        Raises:
            OdradekError: An address is in use, or not one of this machine, or a limit is not valid.
        """
        advertised = {listener.name: listener for listener in self._config["advertised.listeners"]}
        endpoints = {}
        for listener in self._config["listeners"]:
            sock = given.get(listener.name) or self._open(listener)
            sock.setblocking(False)
            self._sockets[listener.name] = _ListeningSocket(sock, listener, self._quotas.windows)
            port = sock.getsockname()[1]
            shown = advertised.get(listener.name) or listener._replace(port=port)
            endpoints[listener.name] = Listener(listener.name, shown.host or socket.getfqdn(), shown.port or port)
        self.limits_changed()
        return endpoints

    @property
    def hosts(self) -> dict[str, str]:
        """The address that each listener is bound to."""
        return {name: str(one.sock.getsockname()[0]) for name, one in self._sockets.items()}

    def _open(self, listener: Listener) -> socket.socket:
        backlog = self._config["socket.listen.backlog.size"]
        try:
            if listener.host in _ANY_ADDRESS and socket.has_dualstack_ipv6():
                sock = socket.create_server(
                    ("", listener.port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog
                )
            else:
                found = socket.getaddrinfo(
                    listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
                )
                # A name such as localhost may have both kinds of addresses, and clients try IPv4 first.
                family, _, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
                sock = socket.create_server(address, family=family, backlog=backlog)
        except OSError as error:
            reason = error.strerror or str(error)
            raise LogError(f"{listener.name}://{listener.address} cannot be opened: {reason}") from error
        for setting, option in (
            ("socket.receive.buffer.bytes", socket.SO_RCVBUF),
            ("socket.send.buffer.bytes", socket.SO_SNDBUF),
        ):
            # Accepted sockets inherit it.
            if self._config[setting] >= 0:
                sock.setsockopt(socket.SOL_SOCKET, option, self._config[setting])
        return sock

    def limits_changed(self) -> None:
        """Apply the limits of the settings, as they are now, to the connections to come.

        Raises:
            InvalidConfigError: One of a listener is not valid.
        """
        for one in self._sockets.values():
            one.most = self._config.of_listener(one.listener.name, "max.connections")
            one.most_a_second = self._config.of_listener(one.listener.name, "max.connection.creation.rate")
        self._go_on()

    @property
    def excess(self) -> int:
        """By how many the connections exceed `max.connections`, which was lowered."""
        return max(0, self._count - int(self._config["max.connections"]))

    def _has_room(self, one: _ListeningSocket) -> bool:
        return self._count < self._config["max.connections"] and one.count < one.most

    def _go_on(self) -> None:
        """Accept connections of those listeners that may have more."""
        for one in self._sockets.values():
            if not one.is_accepting and (one.pause is None or not one.pause.is_pending) and self._has_room(one):
                one.is_accepting = True
                self._loop.add_reader(one.sock.fileno(), self._accept, one)

    def _stop(self, one: _ListeningSocket, for_ms: float | None = None) -> None:
        """Accept no more connections of a listener, until one is closed, or for some time at least."""
        if one.is_accepting:
            one.is_accepting = False
            self._loop.remove_reader(one.sock.fileno())
        if for_ms is not None:
            one.pause = self._clock.after(for_ms, self._go_on)

    def _accept(self, one: _ListeningSocket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            if not self._has_room(one):
                name = one.listener.name
                _logger.warning("%d connections to %s: max.connections allows no more for now", one.count, name)
                self._stop(one)
            if not one.is_accepting:
                return
            try:
                self._check_descriptors(one.sock)
                sock, address = one.sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    # The error is about a connection that the client has closed already.
                    _logger.debug("a connection was not accepted: %s", error)
                    return
                _logger.error("no connection can be accepted for now: %s", error.strerror)
                for every in self._sockets.values():
                    self._stop(every)
                self._clock.after(_PAUSE_MS, self._go_on)
                return
            self._slow_down(one)
            peer = str(address[0]).removeprefix(MAPPED_IPV4)
            throttle_ms = self._quotas.throttle_ms(peer)
            if throttle_ms:
                self._throttle(one, sock, throttle_ms)
                continue
            most = self._config["max.connections.per.ip.overrides"].get(peer, self._config["max.connections.per.ip"])
            if self._by_address[peer] >= most:
                _logger.info("%s: has as many connections as max.connections.per.ip allows", peer)
                sock.close()
                continue
            self._count += 1
            one.count += 1
            self._by_address[peer] += 1
            self._accepted(sock, one.listener, peer)

    def _check_descriptors(self, sock: socket.socket) -> None:
        """Raise an OSError if one more connection would take what logs need."""
        if self._count < self._descriptors.share:
            return
        # A new descriptor has the smallest free number.
        number = os.dup(sock.fileno())
        os.close(number)
        if number >= self._descriptors.end:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def _slow_down(self, one: _ListeningSocket) -> None:
        """Accept no connection for a while if they come faster than the limits allow."""
        now_ms = int(self._clock.elapsed_ms())
        delay_ms = 0
        for rate, limit in (self._rate, self._config["max.connection.creation.rate"]), (one.rate, one.most_a_second):
            # The limit may be 0, by which Kafka divides.
            rate.record(1, limit, now_ms)
            delay_ms = max(delay_ms, min(rate.throttle_ms(max(limit, 1), now_ms), self._quotas.windows.size_ms))
        if delay_ms:
            _logger.debug("%s: no connection is accepted for %d ms", one.listener.name, delay_ms)
            self._stop(one, delay_ms)

    def _throttle(self, one: _ListeningSocket, sock: socket.socket, throttle_ms: int) -> None:
        """Close a connection of an address that makes too many, after some time; it does not count."""
        now_ms = int(self._clock.elapsed_ms())
        for rate in (self._rate, one.rate):
            rate.record(-1, 0, now_ms)
        if len(self._closed_later) >= _MOST_CLOSED_LATER:
            sock.close()
            return

        def close() -> None:
            del self._closed_later[sock]
            sock.close()

        self._closed_later[sock] = self._clock.after(throttle_ms, close)

    def closed(self, listener: str, peer: str) -> None:
        """A connection that was accepted was closed."""
        self._count -= 1
        self._by_address[peer] -= 1
        if not self._by_address[peer]:
            del self._by_address[peer]
        if listener in self._sockets:
            self._sockets[listener].count -= 1
        self._go_on()

    def close(self) -> None:
        """Close the sockets."""
        for one in self._sockets.values():
            self._stop(one)
            one.sock.close()
        self._sockets.clear()
        for sock, timer in self._closed_later.items():
            timer.cancel()
            sock.close()
        self._closed_later.clear()
