"""One client's connection: frames in, responses out, in the order of the requests.

    bytes -> frame (size, request) -> queue -> one request at a time -> response -> bytes, and parts of files

A small frame is received into memory that all connections share, a larger one straight into memory of its own size. The
next frame is received while a request is worked on; further ones wait in the socket. Produce requests may overlap
while they wait for the disk.

A request that was received is finished, even if its client has disconnected: no change stops between two steps, and
a producer that waits for no answers loses nothing that it sent. Only what waits for records, or for the other members
of a group, ends with the client.

A connection belongs to the thread of the event loop.

Source in Kafka: `SocketServer`, `KafkaChannel`, `NetworkReceive`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from odradek.broker.protocol import PRODUCE_KEY, Encoded
from odradek.errors import OdradekError
from odradek.printable import logger
from odradek.records.kernels.frames import new_frame, whole_frames
from odradek.storage.segment.file_records import FileRecords

if TYPE_CHECKING:
    from odradek.broker.sasl import SaslServer

_logger = logger(__name__)

SCRATCH_BYTES = 1 << 16
_SIZE_BYTES, _KEY_BYTES = 4, 2
_FIRST_BYTES = (1 << 20) + (1 << 16)
"""A frame gets more memory than this only as its bytes come in: a size alone costs a client nothing.

A batch of `max.message.bytes`, and what is around it, fits.
"""

_MOST_OTHER_BYTES = 1 << 23
"""The largest request other than Produce: each of the things that it names costs memory and time."""

_MOST_OVERLAPPING = 8
_BEGUN_AT_ONCE = 32
"""After this many requests of one connection the others have their turn."""
_SENT_TOGETHER_BYTES = 1 << 14

Response: TypeAlias = Encoded | None
"""A response as bytes; None where the client wants none (`acks=0`)."""


class Channel(Protocol):
    """What a connection sends through."""

    @property
    def is_client_gone(self) -> bool:
        """Whether the client has closed its side."""

    def wake(self) -> None:
        """There is something to send."""

    def pause(self) -> None:
        """Receive nothing for now."""

    def resume(self) -> None:
        """Receive again."""

    def receive(self) -> None:
        """Receive what has come, also if it is less than is awaited of a large frame."""

    def close(self) -> None:
        """Send what was taken from the connection, and close the socket."""


class RequestHandler(Protocol):
    """What works on the requests of connections."""

    def handle(self, connection: Connection, frame: bytearray) -> Response | Awaitable[Response]:
        """Answer a request.

        Raises:
            ProtocolError: It makes no sense, so that the connection is closed.
        """

    def request_rules(self, frame: bytearray) -> tuple[bool, bool]:
        """Return how a request is worked on.

        Returns:
            Whether it may start before earlier ones are answered, and whether it ends when its client disconnects.
        """

    def active(self, connection: Connection, received: int, sent: int) -> None:
        """Note how many bytes were received or sent."""

    def outlives_client(self, task: asyncio.Future[Response]) -> None:
        """Note a request that continues although its client has disconnected."""

    def closed(self, connection: Connection) -> None:
        """Note that a connection was closed."""

    def refused(self, connection: Connection, reason: str, level: int = logging.WARNING) -> None:
        """Log why a connection ends, or does not begin; what comes often is not logged each time."""


class FilePart:
    """What is left to be sent of a part of a file.

    Attributes:
        records: The part of the file.
        position: Where the rest begins, in the file.
        left: How many bytes it has.
    """

    __slots__ = ("left", "position", "records")

    def __init__(self, records: FileRecords) -> None:
        self.records = records
        self.position = records.position
        self.left = records.size_bytes


class _Exchange:
    """A request that is being worked on, and its response once there is one."""

    __slots__ = ("ends_with_client", "is_done", "overlaps", "response", "task")

    def __init__(self, *, overlaps: bool, ends_with_client: bool) -> None:
        self.overlaps = overlaps
        self.ends_with_client = ends_with_client
        self.is_done = False
        self.response: Response = None
        self.task: asyncio.Future[Response] | None = None


class Connection:
    """What one client sends and is sent, without its socket.

    Args:
        handler: Works on the requests.
        listener: The name of the listener.
        peer: The client's address.
        max_request_bytes: A longer request closes the connection.

    Attributes:
        id: A number of this process.
        principal: Who the client is: `User:ANONYMOUS`, or as it has authenticated.
        sasl: How the client authenticates, on a listener that wants it to.
        is_admitted: Whether the client has authenticated for as long as the connection lasts.
        allowed: Topics that the client may read, and write to, after the version of the ACLs that say so.
        state: What the APIs keep about the connection, by name.
        out: What is to be sent.
    """

    _count = 0

    def __init__(self, handler: RequestHandler, listener: str, peer: str, max_request_bytes: int) -> None:
        Connection._count += 1
        self.id = Connection._count
        self.listener = listener
        self.peer = peer
        self.max_request_bytes = max_request_bytes
        self.principal = "User:ANONYMOUS"
        self.sasl: SaslServer | None = None
        self.is_admitted = False
        self.allowed: tuple[int, set[str], set[str]] = (-1, set(), set())
        self.state: dict[str, object] = {}
        self.channel: Channel | None = None
        self.is_closed = False
        self._handler = handler
        self._head = bytearray()
        self._frame: bytearray | None = None
        self._frame_bytes = 0
        self._filled = 0
        self._is_closing = False
        # Whether the last bytes received were not a request: the connection ends after the answers to earlier requests.
        self._is_garbled = False
        self._waiting: deque[bytearray] = deque()
        self._exchanges: deque[_Exchange] = deque()
        self._is_pumping = False
        # Whether the request that was started last keeps the next ones waiting.
        self._holds_others = False
        self._is_muted = False
        self.out: deque[memoryview | FilePart] = deque()

    def authenticated(self, user: str, sasl: SaslServer) -> None:
        """Note who the client is."""
        self.principal = f"User:{user}"
        self.is_admitted = sasl.admits_for_good
        self.allowed = (-1, set(), set())
        self.max_request_bytes = sasl.max_request_bytes

    # -- receiving

    def next_buffer(self) -> memoryview | None:
        """Return the memory that the rest of a frame is received into; None if any bytes may come."""
        return None if self._frame is None else memoryview(self._frame)[self._filled :]

    @property
    def user(self) -> str:
        """The client's user: its principal without the type."""
        return self.principal.partition(":")[2]

    @property
    def missing_bytes(self) -> int:
        """How many bytes are missing of the frame that is being received."""
        return 0 if self._frame is None else len(self._frame) - self._filled

    def received_into_frame(self, count: int) -> None:
        """Note how many bytes were received into `next_buffer`."""
        self._fill(count)
        self.pump()

    def received(self, data: memoryview) -> None:
        """Take what was received: ends and beginnings of frames."""
        position, end = 0, len(data)
        if self._frame is None and not self._head:
            # As a rule that is all.
            frames, position = whole_frames(data, self.max_request_bytes)
            self._waiting += frames
        while position < end and not self._is_garbled:
            if self._frame is not None:
                part = data[position : position + len(self._frame) - self._filled]
                self._frame[self._filled : self._filled + len(part)] = part
                position += len(part)
                self._fill(len(part))
                continue
            needed = _SIZE_BYTES - len(self._head)
            self._head += data[position : position + needed]
            position += needed
            if len(self._head) == _SIZE_BYTES:
                size = int.from_bytes(self._head, "big", signed=True)
                self._head.clear()
                if not 0 <= size <= self.max_request_bytes:
                    self._refuse(size)
                    break
                self._frame = new_frame(min(size, _FIRST_BYTES))
                self._frame_bytes = size
                self._filled = 0
                if size == 0:
                    self._fill(0)
        self.pump()

    def _refuse(self, size: int) -> None:
        """Read no more: a request is too large, or the bytes received are not a request."""
        self._handler.refused(self, f"a request of {size} bytes; the connection is closed")
        self._frame = None
        self._is_garbled = True

    def _fill(self, count: int) -> None:
        frame = self._frame
        assert frame is not None
        self._filled += count
        if self._filled == self._frame_bytes:
            self._frame = None
            self._waiting.append(frame)
        elif self._is_too_large(frame):
            self._refuse(self._frame_bytes)
        elif self._filled == len(frame):
            grown = new_frame(min(2 * self._filled, self._frame_bytes))
            grown[: self._filled] = frame
            self._frame = grown

    def _is_too_large(self, frame: bytearray) -> bool:
        """Whether a frame that is being received is above the limit of all APIs but Produce."""
        is_known = self._frame_bytes > _MOST_OTHER_BYTES and self._filled >= _KEY_BYTES
        return is_known and int.from_bytes(frame[:_KEY_BYTES], "big") != PRODUCE_KEY

    # -- working on requests

    @property
    def is_busy(self) -> bool:
        """Whether a request is being worked on."""
        return bool(self._exchanges)

    def pump(self) -> None:
        """Start the requests that may start, and send what can be sent."""
        if self._is_pumping or self.is_closed:
            return
        self._is_pumping = True
        # While the socket takes no more bytes, no request is started.
        is_blocked, begun, size = bool(self.out), 0, 0
        try:
            while self._waiting and not is_blocked and self._may_begin(self._waiting[0]):
                if begun == _BEGUN_AT_ONCE:
                    asyncio.get_running_loop().call_soon(self.pump)
                    break
                begun += 1
                # Small answers are sent together, as each send wakes the client.
                size += self._begin(self._waiting.popleft())
                if size > _SENT_TOGETHER_BYTES:
                    self._send()
                    is_blocked, size = bool(self.out), 0
            self._send()
        finally:
            self._is_pumping = False
        if self.is_closed:
            return
        is_ending = self._is_closing or (self._is_garbled and not self._waiting)
        if is_ending and not self._exchanges and not self.out:
            self.close()
        elif self.channel is not None:
            if self._waiting or is_ending or self._is_muted:
                self.channel.pause()
            else:
                self.channel.resume()

    def _may_begin(self, frame: bytearray) -> bool:
        if self._is_closing or self.is_closed or self._is_muted:
            return False
        if not self._exchanges:
            return True
        return (
            len(self._exchanges) < _MOST_OVERLAPPING
            and all(exchange.overlaps for exchange in self._exchanges)
            and self._handler.request_rules(frame)[0]
        )

    @property
    def is_client_gone(self) -> bool:
        """Whether the client has disconnected, also if that has not been received yet."""
        return self.is_closed or (self.channel is not None and self.channel.is_client_gone)

    def mute(self) -> None:
        """Receive nothing and start no request, until `unmute`; answers are sent."""
        self._is_muted = True
        if self.channel is not None:
            self.channel.pause()

    def unmute(self) -> None:
        """Receive again."""
        self._is_muted = False
        self.pump()

    def hold_others(self) -> None:
        """Start no further request until the running ones have been answered."""
        self._holds_others = True
        for exchange in self._exchanges:
            exchange.overlaps = False

    def _begin(self, frame: bytearray) -> int:
        """Start a request; return how many bytes are to be sent, if it is answered at once."""
        handler = self._handler
        overlaps, ends_with_client = handler.request_rules(frame)
        self._holds_others = False
        try:
            response = handler.handle(self, frame)
        except Exception as error:
            self._fail(error, is_last=bool(self._exchanges))
            return 0
        if response is None or isinstance(response, Encoded):
            if not self._exchanges:
                return 0 if response is None or self.is_closed else self._add(response)
            exchange = self._new_exchange(overlaps, ends_with_client)
            exchange.response, exchange.is_done = response, True
            return 0
        exchange = self._new_exchange(overlaps, ends_with_client)
        exchange.task = asyncio.ensure_future(response)
        exchange.task.add_done_callback(lambda task: self._finished(exchange, task))
        return 0

    def _new_exchange(self, overlaps: bool, ends_with_client: bool) -> _Exchange:
        exchange = _Exchange(overlaps=overlaps and not self._holds_others, ends_with_client=ends_with_client)
        self._exchanges.append(exchange)
        return exchange

    def _finished(self, exchange: _Exchange, task: asyncio.Future[Response]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if self.is_closed:
            if error is not None and not task.cancelled():
                self._log_error(error, "its client had gone")
            return
        if error is not None:
            self._fail(error)
            return
        exchange.response, exchange.is_done = task.result(), True
        while self._exchanges and self._exchanges[0].is_done:
            response = self._exchanges.popleft().response
            if response is not None:
                self._add(response)
        self._send()
        self.pump()

    def _fail(self, error: BaseException, *, is_last: bool = False) -> None:
        """Close the connection, because no answer could report the error.

        Args:
            error: The error.
            is_last: Whether requests before the one that failed are still to be answered.
        """
        self._log_error(error, "the connection is closed")
        if is_last:
            self.close_when_sent()
        else:
            self.close()

    def _log_error(self, error: BaseException, outcome: str) -> None:
        """Log an error; with a traceback only if the broker is at fault."""
        if isinstance(error, OdradekError):
            self._handler.refused(self, f"{error}; {outcome}")
        else:
            _logger.error("%s: %s", self.peer, outcome, exc_info=error)

    def _send(self) -> None:
        if self.out and self.channel is not None:
            self.channel.wake()

    def _add(self, response: Encoded) -> int:
        """Queue a response to be sent; return how many bytes it has."""
        view, sent = memoryview(response), 0
        if not response.regions:
            self.out.append(view)
            return len(view)
        for position, region in response.regions:
            if position > sent:
                self.out.append(view[sent:position])
                sent = position
            self.out.append(FilePart(region))
        if sent < len(view):
            self.out.append(view[sent:])
        return response.size_bytes

    def close_when_sent(self) -> None:
        """Close the connection after the answers to the running requests; further requests are not read."""
        if not self._is_closing and not self.is_closed:
            self._is_closing = True
            self._waiting.clear()
            # Later: the answer of the request that closes the connection may not have been added yet.
            asyncio.get_running_loop().call_soon(self.pump)

    def client_ended(self) -> None:
        """Note that the client sends no more: it may still read, so it gets the answers that it waits for, as at Kafka.

        If it has gone, the first answer fails.
        """
        if self._exchanges or self.out:
            self.stop()
        else:
            self.close()

    def stop(self) -> None:
        """Start no more requests, and close the connection after the answers to the running ones.

        Requests that wait for records are not answered.
        """
        if any(one.ends_with_client and one.task is not None and not one.is_done for one in self._exchanges):
            self.close()
        else:
            self.close_when_sent()

    def close(self) -> None:
        """Close the connection; nothing more is sent, but for answers that waited to be sent together."""
        if self.is_closed:
            return
        self._waiting.clear()
        if self._is_pumping:
            # Cleared first, so that a failure of `_send` does not come here again.
            self._is_pumping = False
            self._send()
            self.close()
            return
        self.is_closed = True
        self.out.clear()
        self._frame = None
        exchanges, self._exchanges = self._exchanges, deque()
        for exchange in exchanges:
            if exchange.task is None or exchange.task.done():
                continue
            if exchange.ends_with_client:
                # Later, when the task has begun: what it waits for ends with it only then.
                asyncio.get_running_loop().call_soon(exchange.task.cancel)
            else:
                self._handler.outlives_client(exchange.task)
        if self.channel is not None:
            self.channel.close()
        self._handler.closed(self)
