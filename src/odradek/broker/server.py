"""Has the requests of connections answered by their APIs.

    Acceptor -> socket -> Connection -> frame -> header -> api.handle(request) -> response -> Connection -> socket

All of it runs on one event loop, in one thread.

Source in Kafka: `SocketServer`, `KafkaRequestHandler`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from odradek.broker.acceptor import Acceptor
from odradek.broker.api import APIS, Api, Request
from odradek.broker.broker import Broker
from odradek.broker.channels import SocketChannel, TlsChannel
from odradek.broker.clock import Timer
from odradek.broker.config import Listener
from odradek.broker.connection import SCRATCH_BYTES, Connection, RequestHandler, Response
from odradek.broker.errors import ApiError, code_of, message_of
from odradek.broker.protocol import (
    API_VERSIONS_KEY,
    Encoded,
    Message,
    RequestHeader,
    decode_header,
    encode_response,
)
from odradek.broker.request_body import decode_request
from odradek.broker.tls import tls_context
from odradek.errors import BrokerError, LogError, ProtocolError
from odradek.printable import logger

if TYPE_CHECKING:
    from odradek.broker.sasl import SaslServer

_logger = logger(__name__)

_DRAINED_WITHIN_S = 5.0
_LOOK_S = 0.01
_QUIET_TURNS = 50
"""What a thread returned goes from task to task, a turn of the loop each, until it is an answer."""


class Server:
    """The network of a broker. It belongs to the event loop's thread.

    Args:
        broker: The broker.

    Attributes:
        broker: The broker.
        connections: The open connections, the longest unused one first, with the time that each was last used at.
        metrics: What is counted.
        handler: Works on the requests of the connections that are accepted from now on: the server itself, or what a
            test put before it.

    Raises:
        OdradekError: A setting is not valid, or a certificate cannot be read.
    """

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.connections: OrderedDict[Connection, float] = OrderedDict()
        self.metrics = broker.metrics
        self.handler: RequestHandler = self
        self._apis: Mapping[int, Api | None] = APIS
        self._loop = asyncio.get_running_loop()
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._acceptor = Acceptor(broker.config, broker.clock, self._accepted)
        self._tls: dict[str, ssl.SSLContext] = {}
        self._sasl: dict[str, Callable[[], SaslServer]] = {}
        for listener in broker.config["listeners"]:
            protocol = broker.config.protocol(listener.name)
            if protocol.endswith("SSL"):
                self._tls[listener.name] = tls_context(broker.config, listener.name)
            if protocol.startswith("SASL"):
                # Imported here: most brokers need no SASL, and start faster.
                from odradek.broker.sasl import SaslConfig, SaslServer

                self._sasl[listener.name] = partial(SaslServer, SaslConfig(broker.config, listener.name))
        self._tasks: set[asyncio.Future[Response]] = set()
        self._idle_ms: int = broker.config["connections.max.idle.ms"]
        self._idle_timer: Timer | None = None

    # -- connections

    def listen(self, sockets: Mapping[str, socket.socket] | None = None) -> None:
        """Open the listeners' sockets and accept connections.

        Args:
            sockets: Sockets that listen already, by the name of the listener.

        Raises:
            OdradekError: An address is in use, or not one of this machine.
        """
        self.broker.endpoints.update(self._acceptor.listen(sockets or {}))
        self.broker.config.changed = self._settings_changed

    def _settings_changed(self) -> None:
        """Apply changed limits; if there are too many connections, close those that were unused for longest."""
        self._acceptor.limits_changed()
        for connection in list(self.connections)[: self._acceptor.excess]:
            connection.close()

    def _accepted(self, sock: socket.socket, listener: Listener, peer: str) -> None:
        new_sasl = self._sasl.get(listener.name)
        connection = Connection(self.handler, listener.name, peer, self.broker.config["socket.request.max.bytes"])
        if new_sasl is not None:
            connection.sasl = new_sasl()
            connection.max_request_bytes = connection.sasl.max_request_bytes
        self.connections[connection] = self.broker.clock.elapsed_ms()
        self.metrics.connections += 1
        if self._idle_timer is None and self._idle_ms >= 0:
            self._idle_timer = self.broker.clock.after(self._idle_ms, self._close_idle)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            context = self._tls.get(listener.name)
            if context is not None:
                sock = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        except OSError as error:
            # The client has gone already.
            _logger.debug("%s: %s", peer, error)
            sock.close()
            connection.close()
            return
        if isinstance(sock, ssl.SSLSocket):
            TlsChannel(self._loop, connection, sock, self._scratch, self)
        else:
            SocketChannel(self._loop, connection, sock, self._scratch, self)

    def active(self, connection: Connection, received: int, sent: int) -> None:
        """Note that so many bytes were received or sent."""
        self.metrics.received_bytes += received
        self.metrics.sent_bytes += sent
        if connection in self.connections:
            self.connections[connection] = self.broker.clock.elapsed_ms()
            self.connections.move_to_end(connection)

    def _close_idle(self) -> None:
        """Close the connections that were not used for `connections.max.idle.ms`."""
        self._idle_timer = None
        now = self.broker.clock.elapsed_ms()
        while self.connections:
            connection, used_ms = next(iter(self.connections.items()))
            if now - used_ms < self._idle_ms:
                self._idle_timer = self.broker.clock.after(self._idle_ms - (now - used_ms), self._close_idle)
                return
            if connection.is_busy:
                # The client waits for the broker, so it is not idle.
                self.connections[connection] = now
                self.connections.move_to_end(connection)
                continue
            if connection.channel is not None:
                connection.channel.receive()
            if self.connections.get(connection) == used_ms:
                _logger.debug("%s: idle; the connection is closed", connection.peer)
                connection.close()

    def goes_on(self, task: asyncio.Future[Response]) -> None:
        """Note a request that is worked on although its client has gone."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def closed(self, connection: Connection) -> None:
        """Note that a connection was closed."""
        if self.connections.pop(connection, None) is not None:
            self._acceptor.closed(connection.listener, connection.peer)

    async def drain(self) -> None:
        """Accept and begin nothing more, and finish what was begun, but for what waits for other clients."""
        self._acceptor.close()
        for connection in list(self.connections):
            connection.stop()
        end, quiet, sent = self._loop.time() + _DRAINED_WITHIN_S, 0, -1
        while quiet < _QUIET_TURNS and self._loop.time() < end:
            if await self.broker.executor.wait(end - self._loop.time()):
                quiet = 0
            elif self.broker.is_opening_logs:
                quiet = 0
                await asyncio.sleep(0)
            elif sent < self.metrics.sent_bytes and any(connection.out for connection in self.connections):
                # Clients still receive answers.
                sent = self.metrics.sent_bytes
                await asyncio.sleep(_LOOK_S)
            else:
                quiet += 1
                await asyncio.sleep(0)

    def close(self) -> None:
        """Close the listeners and all connections."""
        self._acceptor.close()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for connection in list(self.connections):
            connection.close()
        for task in self._tasks:
            task.cancel()

    # -- answering

    def manner(self, frame: bytearray) -> tuple[bool, bool]:
        """Return whether a request may overlap with those before it, and whether it ends when its client has gone."""
        found = self._apis[int.from_bytes(frame[:2], "big", signed=True)]
        return (False, False) if found is None else (found.overlaps, found.ends_with_client)

    def handle(self, connection: Connection, frame: bytearray) -> Response | Awaitable[Response]:
        """Answer a request.

        Raises:
            ProtocolError: It makes no sense, or asks for what was not advertised.
        """
        begun = perf_counter()
        sasl = connection.sasl
        if sasl is not None and sasl.wants_plain_token:
            return self._take_token(connection, sasl, frame)
        found = self._apis[int.from_bytes(frame[:2], "big", signed=True)]
        if sasl is None and found is not None and found.at_once is not None:
            try:
                encoded = found.at_once(self.broker, connection, frame)
            except Exception as error:
                return self._failed(found, self._read(found, connection, frame, decode_header(frame)), error, begun)
            if encoded is not None:
                self.metrics.answered(found.name, perf_counter() - begun)
                return encoded
        header = decode_header(frame)
        if found is None:
            raise ProtocolError(f"API key {header.api_key} is not advertised")
        if sasl is not None:
            sasl.admit(
                header.api_key,
                found.name,
                before_authentication=found.before_authentication,
                now_ms=self.broker.clock.elapsed_ms(),
            )
        if header.version not in found.versions:
            if header.api_key == API_VERSIONS_KEY:
                from odradek.broker.api.k18_api_versions import unsupported_version

                # KIP-511: a body that every client can read.
                header = header._replace(version=0)
                return encode_response(header, unsupported_version())
            raise ProtocolError(f"version {header.version} of {found.name} is not advertised")
        request = self._read(found, connection, frame, header)
        try:
            answer = found.handle(request)
            # `dict` first: most answers are one, and `Mapping` alone takes several times as long to check.
            if answer is None or isinstance(answer, (dict, Mapping)):
                return self._answer(found, request, answer, begun)
        except Exception as error:
            return self._failed(found, request, error, begun)
        return self._answer_later(found, request, answer, begun)

    def _read(self, found: Api, connection: Connection, frame: bytearray, header: RequestHeader) -> Request:
        body = decode_request(frame, header) if found.decode is None else found.decode(frame, header)
        return Request(self.broker, connection, header, body)

    async def _answer_later(
        self, found: Api, request: Request, answer: Awaitable[Message | None], begun: float
    ) -> Response:
        try:
            return self._answer(found, request, await answer, begun)
        except Exception as error:
            return self._failed(found, request, error, begun)

    def _answer(self, found: Api, request: Request, message: Message | None, begun: float) -> Response:
        response = None if message is None else found.encode(request.header, message)
        self.metrics.answered(found.name, perf_counter() - begun)
        if message is not None and not found.counts_errors:
            self.metrics.count_errors(found.name, message)
        return response

    def _failed(self, found: Api, request: Request, error: Exception, begun: float) -> Response:
        """Return the answer that tells of an error."""
        if isinstance(error, ProtocolError):
            raise error
        if isinstance(error, OSError) and error.errno is not None:
            # An error of the disk. It is logged once, as every further request would fail in the same way.
            self.broker.disk_failed(str(error))
        elif not isinstance(error, BrokerError | LogError):
            _logger.error("%s of %s failed", found.name, request.connection.peer, exc_info=error)
        code, text = code_of(error), message_of(error)
        if found.failed is not None:
            message = found.failed(request, code, text)
        else:
            message = {"error_code": code, "error_message": text}
        try:
            return self._answer(found, request, message, begun)
        except KeyError as missing:
            raise ProtocolError(f"{found.name} failed: {text}") from missing

    # -- tokens without requests around them

    def _take_token(self, connection: Connection, sasl: SaslServer, token: bytearray) -> Response | Awaitable[Response]:
        try:
            user, _ = sasl.authenticate(bytes(token), self.broker.clock.elapsed_ms())
        except ApiError as error:
            return self._refuse(error)
        connection.principal = f"User:{user}"
        connection.max_request_bytes = sasl.max_request_bytes
        answer = Encoded()
        # An empty token, after its size.
        answer += b"\0\0\0\0"
        return answer

    async def _refuse(self, error: ApiError) -> Response:
        await self.broker.clock.sleep(self.broker.config["connection.failed.authentication.delay.ms"])
        raise ProtocolError(error.reason)
