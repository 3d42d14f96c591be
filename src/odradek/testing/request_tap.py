"""What stands before a broker in a test: it keeps the requests that come in, and answers some of them wrongly.

    connection -> RequestTap -> Server          no fault matches
                  |
                  +-> an error, a delay, a closed connection, or no answer at all

The first fault that matches a request decides.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from functools import cached_property
from math import inf
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from odradek.broker.connection import Connection, Response
from odradek.broker.protocol import FETCH_KEY, RequestHeader, decode_header, decode_response, encode_response, given
from odradek.broker.request_body import decode_request
from odradek.broker.server import Server
from odradek.errors import OptionError, ProtocolError
from odradek.printable import logger
from odradek.testing.api_names import API_NAMES, api_key_of, error_code_of
from odradek.testing.error_answers import SESSION_ERRORS, error_answer
from odradek.testing.plain_fields import plain_fields

_logger = logger(__name__)

_PRODUCE_KEY = 0
_METADATA_KEY = 3
_FETCH_SESSION_ID_NOT_FOUND = 70
_FIRST_EPOCHS = (-1, 0)

MAX_KEPT_REQUESTS = 10_000
MAX_KEPT_BYTES = 32 << 20

Lost: TypeAlias = bool | Literal["answer"]
"""What is lost: nothing, the request (True), or only the answer to it."""


class ReceivedRequest:
    """A request that came in.

    Attributes:
        api: Kafka's name of the API.
        version: The version of the API.
        client_id: What the client calls itself.
        peer: The client's address.
        time_ms: When it came, by the broker's clock, in ms since 1970.
    """

    def __init__(self, frame: bytes, header: RequestHeader, peer: str, time_ms: int) -> None:
        self.api = API_NAMES.get(header.api_key, str(header.api_key))
        self.version = header.version
        self.client_id = header.client_id
        self.peer = peer
        self.time_ms = time_ms
        self.header = header
        self.frame = frame

    def __repr__(self) -> str:
        return f"<{self.api} v{self.version} of {self.client_id!r}>"

    @property
    def body(self) -> Any:
        """The body, as an object of kio's class.

        Raises:
            ProtocolError: It cannot be read.
        """
        return decode_request(bytearray(self.frame), self.header)

    @cached_property
    def fields(self) -> dict[str, Any]:
        """The body's fields, by Kafka's names: `request.fields["topics"][0]["name"]`.

        Raises:
            ProtocolError: It cannot be read.
        """
        return plain_fields(self.body)


class RequestFault:
    """What goes wrong with some requests, until it is removed or was done often enough.

    A context manager that removes it. Any thread may use it.
    """

    def __init__(
        self,
        tap: RequestTap,
        api: str | int,
        *,
        error: str | int | None = None,
        delay_ms: float = 0,
        disconnect: Lost = False,
        drop: Lost = False,
        times: int | None = None,
        when: Callable[[ReceivedRequest], object] | None = None,
    ) -> None:
        if error is None and not (delay_ms or disconnect or drop):
            raise OptionError("a fault is one of error, delay_ms, disconnect and drop")
        if not 0 <= delay_ms < inf:
            raise OptionError(f"delay_ms must be 0 or more, not {delay_ms}")
        for name, lost in (("disconnect", disconnect), ("drop", drop)):
            if lost not in (False, True, "answer"):
                raise OptionError(f"{name} must be true, false or 'answer', not {lost!r}")
        if times is not None and (times < 1 or times != int(times)):
            raise OptionError(f"times must be a whole number from 1 on, not {times}")
        self.api_key = api_key_of(api)
        self.error = None if error is None else error_code_of(error)
        self.delay_ms = delay_ms
        self.disconnect = disconnect
        self.drop = drop
        self._tap = tap
        self._times = times
        self._when = when
        self._changed = threading.Condition()
        self._fired = 0
        self._wrong: Exception | None = None

    @property
    def fired(self) -> int:
        """How many requests it was done to."""
        return self._fired

    def wait(self, count: int = 1, timeout_s: float = 30.0) -> None:
        """Return when it was done to a number of requests.

        Raises:
            TimeoutError: It was not, in this time.
            Exception: What `when` raised.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._fired >= count or self._wrong is not None, timeout_s):
                raise TimeoutError(f"the fault of {API_NAMES[self.api_key]} fired {self._fired} times, not {count}")
            if self._wrong is not None:
                raise self._wrong

    def remove(self) -> None:
        """Let requests be answered rightly from now on."""
        self._tap.remove(self)

    def takes(self, request: ReceivedRequest) -> bool:
        """Return whether it is to be done to a request, which then counts."""
        if request.header.api_key != self.api_key:
            return False
        try:
            # Whatever cannot be read is the broker's to refuse.
            request.fields  # noqa: B018
        except (ProtocolError, LookupError, RuntimeError):
            return False
        try:
            found = self._when is None or bool(self._when(request))
        except Exception as error:
            _logger.exception("the condition of a fault of %s failed", API_NAMES[self.api_key])
            found, self._wrong = False, error
        with self._changed:
            self._fired += found
            self._changed.notify_all()
        if found and self._fired == self._times:
            self.remove()
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


class RequestTap:
    """Stands before a server: the handler of its connections.

    Faults are set and requests are looked at from any thread; all else belongs to the event loop's.

    Args:
        server: The server.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._faults: tuple[RequestFault, ...] = ()
        self._requests: deque[ReceivedRequest] = deque()
        self._kept_bytes = 0
        server.handler = self

    # -- for tests

    def add(self, fault: RequestFault) -> None:
        """Set a fault; of several that match, the one that was set first is done."""
        with self._lock:
            self._faults = (*self._faults, fault)

    def remove(self, fault: RequestFault) -> None:
        """Remove a fault."""
        with self._lock:
            self._faults = tuple(one for one in self._faults if one is not fault)

    def clear(self) -> None:
        """Remove all faults, and forget the requests."""
        with self._lock:
            self._faults = ()
            self._requests.clear()
            self._kept_bytes = 0

    def requests(self, api: str | int | None = None) -> list[ReceivedRequest]:
        """Return the requests that came in, the last 10,000 of them and 32 MB at most.

        Args:
            api: Only those of this API.

        Raises:
            OptionError: Kafka has no such API.
        """
        key = None if api is None else api_key_of(api)
        with self._lock:
            return [request for request in self._requests if key is None or request.header.api_key == key]

    def _keep(self, request: ReceivedRequest) -> None:
        with self._lock:
            self._requests.append(request)
            self._kept_bytes += len(request.frame)
            while len(self._requests) > MAX_KEPT_REQUESTS or self._kept_bytes > MAX_KEPT_BYTES:
                self._kept_bytes -= len(self._requests.popleft().frame)

    # -- as the handler of connections

    def request_rules(self, frame: bytearray) -> tuple[bool, bool]:
        """Return whether a request may overlap with those before it, and whether it ends with its client."""
        # One that is delayed must keep those after it waiting, and one that is never answered would go on for ever.
        return (False, True) if self._faults else self._server.request_rules(frame)

    def active(self, connection: Connection, received: int, sent: int) -> None:
        """Note bytes that were received or sent."""
        self._server.active(connection, received, sent)

    def outlives_client(self, task: asyncio.Future[Response]) -> None:
        """Note a request that runs although its client has disconnected."""
        self._server.outlives_client(task)

    def closed(self, connection: Connection) -> None:
        """A connection was closed."""
        self._server.closed(connection)

    def refused(self, connection: Connection, reason: str, level: int = logging.WARNING) -> None:
        """Log why a connection ends."""
        self._server.refused(connection, reason, level)

    def handle(self, connection: Connection, frame: bytearray) -> Response | Awaitable[Response]:
        """Answer a request, or do what a fault wants.

        Raises:
            ProtocolError: The request makes no sense.
        """
        if connection.sasl is not None and connection.sasl.wants_plain_token:
            return self._server.handle(connection, frame)
        clock = self._server.broker.clock
        # The broker changes the records of a request where they are.
        request = ReceivedRequest(bytes(frame), decode_header(frame), connection.peer, clock.now_ms())
        self._keep(request)
        if self._faults:
            known = self._without_session(request)
            if known is not None:
                return known
            for fault in self._faults:
                if fault.takes(request):
                    return self._wrongly(fault, connection, frame, request)
        return self._server.handle(connection, frame)

    def _without_session(self, request: ReceivedRequest) -> Response:
        """End a session of fetches, whose requests do not say what they want, if an error is to be told to partitions.

        The client then sends a request that does.
        """
        if request.header.api_key != FETCH_KEY or not any(
            fault.api_key == FETCH_KEY and fault.error is not None and fault.error not in SESSION_ERRORS
            for fault in self._faults
        ):
            return None
        body = request.body
        if given(body, "session_epoch", -1) in _FIRST_EPOCHS:
            return None
        self._server.broker.fetch_sessions.end(body.session_id)
        answer = {"error_code": _FETCH_SESSION_ID_NOT_FOUND, "session_id": 0, "responses": []}
        return encode_response(request.header, answer)

    async def _wrongly(
        self, fault: RequestFault, connection: Connection, frame: bytearray, request: ReceivedRequest
    ) -> Response:
        if fault.delay_ms:
            over = asyncio.Event()
            self._server.broker.clock.after(fault.delay_ms, over.set)
            await over.wait()
        if True not in (fault.disconnect, fault.drop):
            if fault.error is not None:
                answer = await self._failed(fault.error, connection, frame, request)
            else:
                found = self._server.handle(connection, frame)
                answer = await found if isinstance(found, Awaitable) else found
            if not fault.disconnect and not fault.drop:
                return answer
        if fault.disconnect:
            connection.close()
            return None
        # It ends when the client closes the connection.
        never: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        return await never

    async def _failed(self, code: int, connection: Connection, frame: bytearray, request: ReceivedRequest) -> Response:
        header, body = request.header, request.body
        if header.api_key == _PRODUCE_KEY and body.acks == 0:
            # So a client that wants no answer learns of errors.
            connection.close()
            return None
        if header.api_key == _METADATA_KEY:
            # Without the brokers' addresses a client could not go on.
            found = self._server.handle(connection, frame)
            answered = await found if isinstance(found, Awaitable) else found
            assert answered is not None
            message = plain_fields(decode_response(header.api_key, header.version, memoryview(answered)[4:])[1])
            topics = [{**topic, "error_code": code, "partitions": []} for topic in message["topics"]]
            return encode_response(header, {**message, "topics": topics})
        return encode_response(header, error_answer(header, body, code))
