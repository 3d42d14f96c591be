"""Dispatches each request of a connection to the module of its API.

    Acceptor -> socket -> Connection -> frame -> header -> api.handle(request) -> response -> Connection -> socket

All of it runs on one event loop, in one thread; other threads only read large requests and write large answers.

Source in Kafka: `SocketServer`, `KafkaRequestHandler`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from odradek.broker.acceptor import Acceptor
from odradek.broker.api import APIS, Api, Request
from odradek.broker.broker import Broker
from odradek.broker.clock import Timer
from odradek.broker.config import Listener
from odradek.broker.connection import Connection, RequestHandler, Response
from odradek.broker.errors import ApiError, code_of, fenced_as_before, message_of
from odradek.broker.exposure import warn_of_exposed
from odradek.broker.failures import failure
from odradek.broker.listeners import Listeners
from odradek.broker.metrics import errors_in
from odradek.broker.protocol import (
    API_VERSIONS_KEY,
    PRODUCE_KEY,
    Encoded,
    Message,
    RequestHeader,
    client_id_of,
    decode_header,
    encode_response,
)
from odradek.broker.refusals import ClientRefusals
from odradek.broker.request_body import LARGE_BYTES, decode_request
from odradek.errors import BrokerError, LogError, ProtocolError
from odradek.printable import logger

if TYPE_CHECKING:
    from odradek.broker.partitions import Partition
    from odradek.broker.sasl import SaslServer, Step

_logger = logger(__name__)

_DRAINED_WITHIN_S = 5.0
_LOOK_S = 0.01
_MOST_AT_ONCE = 1000
"""An answer with more structures is written in another thread, because that takes some milliseconds."""

_QUIET_TURNS = 50
"""A thread's result passes from task to task, one turn of the loop each, until it is an answer."""


def _encode(found: Api, header: RequestHeader, held: list[Message | None]) -> tuple[Response, list[int]]:
    message = held.pop()
    if message is None:
        return None, []
    return found.encode(header, message), [] if found.counts_errors else errors_in(message)


def _structures(message: Message, most: int) -> int:
    """Count the structures in a message, and stop when there are more than `most`."""
    count = 1
    for values in message.values():
        if type(values) is not list:
            continue
        count += len(values)
        for value in values:
            if count > most or not isinstance(value, dict):
                break
            count += _structures(value, most - count) - 1
    return count


def _encode_failure(found: Api, request: Request, code: int, text: str, throttle_ms: int) -> tuple[Response, list[int]]:
    code = fenced_as_before(code, is_old=request.version < found.fenced_since)
    if found.failed is None:
        message = failure(request.header, request.body, code, text)
    else:
        message = found.failed(request, code, text)
    return _encode(found, request.header, [{**message, "throttle_time_ms": throttle_ms} if throttle_ms else message])


class Server:
    """The network of a broker. It belongs to the event loop's thread.

    Args:
        broker: The broker.

    Attributes:
        broker: The broker.
        connections: The open connections, the longest unused one first, with the time of each one's last use.
        metrics: What is counted.
        handler: Answers the requests of connections that are accepted from now on: the server itself, or what a test
            put in front of it.

    Raises:
        OdradekError: A setting is not valid, or a certificate cannot be read.
    """

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.connections: OrderedDict[Connection, float] = OrderedDict()
        self.metrics = broker.metrics
        self.handler: RequestHandler = self
        self._quotas = broker.quotas
        self._apis: Mapping[int, Api | None] = APIS
        self._check_access: Callable[[Request], None] | None = None
        if broker.authorization is not None:
            from odradek.broker.access import check_access

            self._check_access = check_access
        self._loop = asyncio.get_running_loop()
        self._acceptor = Acceptor(broker.config, broker.clock, broker.quotas.addresses, self._accepted)
        self._refusals = ClientRefusals(broker.clock.elapsed_ms)
        self._listeners = Listeners(broker, self._refusals)
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
        self.broker.config.check_stores = self._listeners.tls.check
        self._listeners.tls.start()
        warn_of_exposed(self.broker.config, self._acceptor.hosts)

    def _settings_changed(self) -> None:
        """Apply changed settings; if there are too many connections, close those that have been unused longest."""
        self._acceptor.limits_changed()
        self._listeners.tls.settings_changed()
        for connection in list(self.connections)[: self._acceptor.excess]:
            connection.close()

    def _accepted(self, sock: socket.socket, listener: Listener, peer: str) -> None:
        connection = self._listeners.connection(self.handler, listener, peer)
        self.connections[connection] = self.broker.clock.elapsed_ms()
        self.metrics.connections += 1
        if self._idle_timer is None and self._idle_ms >= 0:
            self._idle_timer = self.broker.clock.after(self._idle_ms, self._close_idle)
        self._listeners.open(connection, sock, self)

    def active(self, connection: Connection, received: int, sent: int) -> None:
        """Note how many bytes were received or sent."""
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

    def refused(self, connection: Connection, reason: str, level: int = logging.WARNING) -> None:
        """Log why a connection ends, or does not begin; what comes often is not logged each time."""
        self._refusals.connection(connection.peer, reason, level)

    def outlives_client(self, task: asyncio.Future[Response]) -> None:
        """Note a request that continues although its client has disconnected."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def closed(self, connection: Connection) -> None:
        """Note that a connection was closed."""
        if self.connections.pop(connection, None) is not None:
            self._acceptor.closed(connection.listener, connection.peer)
        self.broker.disconnected(connection)

    async def drain(self) -> None:
        """Accept nothing more, and finish running requests; requests that wait for other clients are dropped."""
        self._acceptor.close()
        for connection in list(self.connections):
            connection.stop()
        end, quiet, sent = self._loop.time() + _DRAINED_WITHIN_S, 0, -1
        while quiet < _QUIET_TURNS and self._loop.time() < end:
            threads = self.broker.executor, self.broker.syncs
            if any([await one.wait(end - self._loop.time()) for one in threads]):
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
        self._listeners.close()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for connection in list(self.connections):
            connection.close()
        for task in self._tasks:
            task.cancel()

    # -- answering

    def request_rules(self, frame: bytearray) -> tuple[bool, bool]:
        """Return whether a request may overlap with earlier ones, and whether it ends when its client disconnects."""
        found = self._apis[int.from_bytes(frame[:2], "big", signed=True)]
        return (False, False) if found is None else (found.overlaps, found.ends_with_client)

    def handle(self, connection: Connection, frame: bytearray) -> Response | Awaitable[Response]:
        """Answer a request.

        Raises:
            ProtocolError: It cannot be read, or its API or version was not advertised.
        """
        begun = perf_counter()
        sasl = None if connection.is_admitted else connection.sasl
        if sasl is not None and sasl.wants_plain_token:
            return self._take_token(connection, sasl, frame)
        found = self._apis[int.from_bytes(frame[:2], "big", signed=True)]
        if (
            found is not None
            and found.at_once is not None
            and (sasl is None or sasl.admits_all)
            and not (self._quotas.is_active and self._is_limited(connection, client_id_of(frame)))
        ):
            try:
                encoded = found.at_once(self.broker, connection, frame)
            except Exception as error:
                return self._failed(found, self._read(found, connection, frame, decode_header(frame)), error, begun)
            if isinstance(encoded, Encoded):
                self.metrics.answered(found.name, perf_counter() - begun)
                return encoded
            if encoded is not None:
                return self._encoded_later(found, encoded, begun)
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
        if len(frame) > LARGE_BYTES and header.api_key != PRODUCE_KEY:
            return self._handle_large(found, connection, frame, header, begun)
        request = self._read(found, connection, frame, header)
        try:
            answer = self._begin(found, request)
            # `dict` first: most answers are one, and `Mapping` alone takes several times as long to check.
            if answer is None or isinstance(answer, (dict, Mapping)):
                if answer is None or _structures(answer, _MOST_AT_ONCE) <= _MOST_AT_ONCE:
                    return self._answer(found, request, answer, begun)
                return self._answer_large(found, header, [answer], begun)
        except Exception as error:
            return self._failed(found, request, error, begun)
        return self._answer_later(found, request, answer, begun)

    async def _handle_large(
        self, found: Api, connection: Connection, frame: bytearray, header: RequestHeader, begun: float
    ) -> Response:
        """Answer a large request, which is read in another thread, as its answer is written in one."""
        run = self.broker.run
        request = await run(partial(self._read, found, connection, frame, header))
        try:
            answer = self._begin(found, request)
            held = [await answer if isinstance(answer, Awaitable) else answer]
            del answer
            return await self._answer_large(found, header, held, begun)
        except Exception as error:
            if found.counts_errors:
                return self._failed(found, request, error, begun)
            code, text = self._reason(found, request, error)
            throttle_ms = self.broker.throttling.failed(request)
            response, errors = await run(partial(_encode_failure, found, request, code, text, throttle_ms))
        self._count(found, errors, begun)
        return response

    def _begin(self, found: Api, request: Request) -> Message | Awaitable[Message | None] | None:
        if self._quotas.is_active and self._is_limited(request.connection, request.client_id):
            return self.broker.throttling.throttled(request, partial(self._begin_unthrottled, found, request))
        return self._begin_unthrottled(found, request)

    def _is_limited(self, connection: Connection, client_id: str) -> bool:
        """Whether a request counts; as in Kafka, none of a login does: strangers could spend the quotas of others."""
        is_known = connection.sasl is None or not connection.sasl.is_in_login
        return is_known and self._quotas.are_for(connection.user, client_id)

    def _begin_unthrottled(self, found: Api, request: Request) -> Message | Awaitable[Message | None] | None:
        if self._check_access is not None:
            self._check_access(request)
        return self._begin_alone(found, request) if found.group_ids is None else self._handle_of_groups(found, request)

    def _begin_alone(self, found: Api, request: Request) -> Message | Awaitable[Message | None] | None:
        answer = found.handle(request)
        return self.broker.turns.take(answer) if isinstance(answer, Generator) else answer

    def _handle_of_groups(self, found: Api, request: Request) -> Message | Awaitable[Message | None] | None:
        """Handle a request about groups, once the logs that they are kept in are open."""
        assert found.group_ids is not None
        numbers = self.broker.turns.take(self.broker.groups.partition_numbers(found.group_ids(request)))
        if isinstance(numbers, Awaitable):
            return self._handle_later(found, request, numbers)
        return self._handle_of_partitions(found, request, numbers)

    async def _handle_later(self, found: Api, request: Request, numbers: Awaitable[set[int]]) -> Message | None:
        answer = self._handle_of_partitions(found, request, await numbers)
        return await answer if isinstance(answer, Awaitable) else answer

    def _handle_of_partitions(
        self, found: Api, request: Request, numbers: set[int]
    ) -> Message | Awaitable[Message | None] | None:
        groups = self.broker.groups
        begin = partial(self._begin_of_groups, found, request, numbers)
        full = groups.full(numbers)
        answer = self._when_room(full, begin) if full else begin()
        if isinstance(answer, Mapping) and not groups.unsynced(numbers):
            return answer
        return self._when_synced(numbers, answer)

    def _begin_of_groups(
        self, found: Api, request: Request, numbers: set[int]
    ) -> Message | Awaitable[Message | None] | None:
        closed = self.broker.groups.closed(numbers)
        return self.broker.partitions.when_open(closed, partial(self._begin_alone, found, request))

    async def _when_room(
        self, full: list[Partition], begin: Callable[[], Message | Awaitable[Message | None] | None]
    ) -> Message | None:
        for partition in full:
            await partition.make_room()
        answer = begin()
        return await answer if isinstance(answer, Awaitable) else answer

    async def _when_synced(
        self, numbers: set[int], answer: Message | Awaitable[Message | None] | None
    ) -> Message | None:
        """Return an answer about groups when what it says is on the disk, if the settings ask for that."""
        message = await answer if isinstance(answer, Awaitable) else answer
        for partition in self.broker.groups.unsynced(numbers):
            with self.broker.groups.topic.errors():
                await partition.synced()
        return message

    def _read(self, found: Api, connection: Connection, frame: bytearray, header: RequestHeader) -> Request:
        body = decode_request(frame, header) if found.decode is None else found.decode(frame, header)
        return Request(self.broker, connection, header, body, len(frame))

    async def _answer_later(
        self, found: Api, request: Request, answer: Awaitable[Message | None], begun: float
    ) -> Response:
        try:
            held = [await answer]
            if held[0] is None or _structures(held[0], _MOST_AT_ONCE) <= _MOST_AT_ONCE:
                return self._answer(found, request, held[0], begun)
            return await self._answer_large(found, request.header, held, begun)
        except Exception as error:
            return self._failed(found, request, error, begun)

    async def _encoded_later(self, found: Api, answer: Awaitable[Encoded | None], begun: float) -> Response:
        encoded = await answer
        self.metrics.answered(found.name, perf_counter() - begun)
        return encoded

    def _answer(self, found: Api, request: Request, message: Message | None, begun: float) -> Response:
        response = None if message is None else found.encode(request.header, message)
        self._count(found, [] if message is None or found.counts_errors else errors_in(message), begun)
        return response

    async def _answer_large(
        self, found: Api, header: RequestHeader, held: list[Message | None], begun: float
    ) -> Response:
        """Encode an answer in another thread, and free it there: both take long. Only the list may hold it."""
        response, errors = await self.broker.run(partial(_encode, found, header, held))
        self._count(found, errors, begun)
        return response

    def _count(self, found: Api, errors: Sequence[int], begun: float) -> None:
        self.metrics.answered(found.name, perf_counter() - begun)
        self.metrics.count_errors(found.name, errors)

    def _failed(self, found: Api, request: Request, error: Exception, begun: float) -> Response:
        """Return the answer that reports an error."""
        code, text = self._reason(found, request, error)
        response, errors = _encode_failure(found, request, code, text, self.broker.throttling.failed(request))
        self._count(found, errors, begun)
        return response

    def _reason(self, found: Api, request: Request, error: Exception) -> tuple[int, str]:
        """Return the code and the message of an error, which is logged if the broker is at fault."""
        if isinstance(error, ProtocolError):
            raise error
        if isinstance(error, OSError) and error.errno is not None:
            # An error of the disk. It is logged once, as every further request would fail in the same way.
            self.broker.disk_failed(str(error))
        elif not isinstance(error, BrokerError | LogError):
            _logger.error("%s of %s failed", found.name, request.connection.peer, exc_info=error)
        return code_of(error), message_of(error)

    # -- tokens without requests around them

    def _take_token(self, connection: Connection, sasl: SaslServer, token: bytearray) -> Response | Awaitable[Response]:
        try:
            step = sasl.authenticate(bytes(token), self.broker.clock.elapsed_ms())
        except ApiError:
            return self._refuse(connection)
        if isinstance(step, Awaitable):
            return self._take_token_later(connection, sasl, step)
        return self._admit(connection, sasl, step)

    def _admit(self, connection: Connection, sasl: SaslServer, step: Step) -> Response:
        if step.user is not None:
            connection.authenticated(step.user, sasl)
        answer = Encoded()
        answer += len(step.answer).to_bytes(4, "big") + step.answer
        return answer

    async def _take_token_later(self, connection: Connection, sasl: SaslServer, step: Awaitable[Step]) -> Response:
        try:
            return self._admit(connection, sasl, await step)
        except ApiError:
            return await self._refuse(connection)

    async def _refuse(self, connection: Connection) -> Response:
        await self.broker.clock.sleep(self.broker.config["connection.failed.authentication.delay.ms"])
        connection.close()
        return None
