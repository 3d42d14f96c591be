"""The sockets of connections: plain ones, and those with TLS.

    SocketChannel   a non-blocking socket on the loop's readers and writers; parts of files go from the page cache to
                    the socket by `sendfile`
    TlsChannel      the same with TLS; parts of files are read, as they must be encrypted

Both receive into memory that all connections share, or into the frame, and leave off after some megabytes so that the
other connections have their turn. The rest of a large frame is taken when a megabyte of it is there, or all.

Source in Kafka: `PlaintextTransportLayer`, `SslTransportLayer`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections import deque
from contextlib import suppress
from typing import ClassVar

from odradek import system
from odradek.broker.connection import Connection, FilePart, RequestHandler
from odradek.broker.distinguished_names import distinguished_name
from odradek.broker.principal_rules import PrincipalRules
from odradek.errors import OdradekError, ProtocolError
from odradek.printable import logger

_logger = logger(__name__)

_LISTED_PARTS = 64
_MORE_TO_COME = system.more_to_come()
_TURN_BYTES = 1 << 22
_SENDFILE_BYTES = 1 << 20
_TLS_PART_BYTES = 1 << 16
_AWAITED_BYTES = 1 << 20
"""The loop is woken for this much of a large frame at a time: each turn costs as much as receiving 100 KB."""
_HANDSHAKE_TIMEOUT_S = 30.0


def _log_end(connection: Connection, error: Exception) -> None:
    """Log why a connection ends, as a warning unless the client has just disconnected."""
    if isinstance(error, ConnectionError | TimeoutError | ssl.SSLError):
        _logger.debug("%s: %s", connection.peer, error)
    else:
        _logger.warning("%s: %s; the connection is closed", connection.peer, error)


class SocketChannel:
    """A connection's non-blocking socket on an event loop.

    Args:
        loop: The event loop.
        connection: The connection.
        sock: Its socket.
        scratch: Memory that is used for receiving, shared by all connections of the loop.
        handler: Notified of bytes that are received and sent.
    """

    _not_now: ClassVar[tuple[type[OSError], ...]] = (BlockingIOError, InterruptedError)

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: Connection,
        sock: socket.socket,
        scratch: memoryview,
        handler: RequestHandler,
    ) -> None:
        self._loop = loop
        self._connection = connection
        self._socket = sock
        self._descriptor = sock.fileno()
        self._scratch = scratch
        self._handler = handler
        self._is_reading = False
        self._is_writing = False
        self._awaited_bytes = 1
        connection.channel = self
        self.resume()

    def pause(self) -> None:
        """Receive nothing for now."""
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._descriptor)

    def resume(self) -> None:
        """Receive again."""
        if not self._is_reading and self._descriptor >= 0:
            self._is_reading = True
            self._loop.add_reader(self._descriptor, self._readable)

    def receive(self) -> None:
        """Receive what has come, also if it is less than is awaited of a large frame."""
        if self._is_reading:
            self._readable()

    @property
    def is_client_gone(self) -> bool:
        """Whether the client has closed its side; what it sent before may still be in the socket."""
        if self._descriptor < 0:
            return True
        try:
            return system.is_closed_by_peer(self._socket)
        except OSError:
            return False

    def _readable(self) -> None:
        connection = self._connection
        buffer = connection.next_buffer()
        if buffer is None and self._take(None) == len(self._scratch) and self._is_reading:
            # There is more: usually the rest of a large frame.
            buffer = connection.next_buffer()
        if buffer is not None:
            self._take(buffer)
        missing = connection.missing_bytes
        if missing or self._awaited_bytes > 1:
            self._await(missing)

    def _take(self, buffer: memoryview | None) -> int:
        """Receive into the memory of a frame, or any bytes; return how many there were."""
        connection = self._connection
        try:
            count = self._receive(self._scratch if buffer is None else buffer)
        except self._not_now:
            return 0
        except OSError as error:
            _log_end(connection, error)
            connection.close()
            return 0
        if not count:
            connection.client_ended()
            return 0
        self._handler.active(connection, count, 0)
        if buffer is None:
            connection.received(self._scratch[:count])
        else:
            connection.received_into_frame(count)
        return count

    def _await(self, count: int) -> None:
        """Wake the loop only when this many bytes have arrived; few bytes are not worth the system call."""
        awaited = min(count, _AWAITED_BYTES) if count > len(self._scratch) else 1
        if awaited != self._awaited_bytes and self._descriptor >= 0:
            self._awaited_bytes = awaited
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, awaited)

    def _receive(self, buffer: memoryview) -> int:
        return self._socket.recv_into(buffer)

    def wake(self) -> None:
        """Send as much as the socket takes."""
        if not self._is_writing:
            self._send()

    def _writable(self) -> None:
        self._send()
        self._connection.pump()

    def _send(self) -> None:
        out = self._connection.out
        sent, is_full = 0, False
        try:
            while out and sent < _TURN_BYTES:
                part = out[0]
                if isinstance(part, FilePart):
                    sent += self._send_file(part)
                    if not part.left:
                        out.popleft()
                else:
                    sent += self._send_bytes(out)
        except self._not_now:
            is_full = True
        except (OdradekError, OSError) as error:
            _log_end(self._connection, error)
            self._connection.close()
            return
        if sent:
            self._handler.active(self._connection, 0, sent)
        if is_full or out:
            if not self._is_writing:
                self._is_writing = True
                self._loop.add_writer(self._descriptor, self._writable)
            return
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._descriptor)

    def _send_file(self, part: FilePart) -> int:
        sent = os.sendfile(self._descriptor, part.records.fileno(), part.position, min(part.left, _SENDFILE_BYTES))
        if sent == 0:
            raise ProtocolError("a log file ended before the records that were found in it")
        part.position += sent
        part.left -= sent
        return sent

    def _send_bytes(self, out: deque[memoryview | FilePart]) -> int:
        first = out[0]
        if len(out) == 1 and isinstance(first, memoryview):
            sent = self._socket.send(first)
            if sent < len(first):
                out[0] = first[sent:]
            else:
                out.clear()
            return sent
        parts: list[memoryview] = []
        flags = 0
        for part in out:
            if isinstance(part, FilePart) or len(parts) == _LISTED_PARTS:
                flags = _MORE_TO_COME
                break
            parts.append(part)
        sent = self._socket.sendmsg(parts, [], flags) if len(parts) > 1 else self._socket.send(parts[0], flags)
        left = sent
        while left:
            part = parts.pop(0)
            if left < len(part):
                out[0] = part[left:]
                break
            left -= len(part)
            out.popleft()
        return sent

    def close(self) -> None:
        """Close the socket."""
        if self._descriptor < 0:
            return
        self.pause()
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._descriptor)
        self._descriptor = -1
        self._socket.close()


class TlsChannel(SocketChannel):
    """A connection's non-blocking socket with TLS.

    OpenSSL works on the socket itself, so a client that is refused gets an alert that says why.

    Args:
        loop: The event loop.
        connection: The connection.
        sock: Its socket, before the handshake.
        scratch: Memory that is used for receiving, shared by all connections of the loop.
        handler: Notified of bytes that are received and sent.
        rules: What a client is called that has a certificate.
    """

    _not_now = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: Connection,
        sock: ssl.SSLSocket,
        scratch: memoryview,
        handler: RequestHandler,
        rules: PrincipalRules,
    ) -> None:
        self._tls = sock
        self._rules = rules
        self._is_shaking_hands = True
        self._handshake_timer = loop.call_later(_HANDSHAKE_TIMEOUT_S, self._refuse, "it took too long")
        super().__init__(loop, connection, sock, scratch, handler)

    # -- the handshake

    def _shake_hands(self) -> None:
        wants_to_write = False
        try:
            self._tls.do_handshake()
        except ssl.SSLWantWriteError:
            wants_to_write = True
        except ssl.SSLWantReadError:
            pass
        except OSError as error:
            self._refuse(str(error))
            return
        else:
            self._is_shaking_hands = False
            self._handshake_timer.cancel()
            try:
                self._name_client()
            except ValueError as error:
                self._refuse(str(error))
                return
            self._take_decrypted()
        if wants_to_write != self._is_writing and self._descriptor >= 0:
            self._is_writing = wants_to_write
            if wants_to_write:
                self._loop.add_writer(self._descriptor, self._shake_hands)
            else:
                self._loop.remove_writer(self._descriptor)

    def _name_client(self) -> None:
        """Call the client as its certificate says, if it has one.

        Raises:
            ValueError: No rule is about it.
        """
        certificate = self._tls.getpeercert(binary_form=True)
        if certificate is None:
            return
        name = distinguished_name(certificate)
        principal = self._rules.name(name)
        if principal is None:
            raise ValueError(f"no rule of ssl.principal.mapping.rules is about {name}")
        self._connection.principal = f"User:{principal}"

    def _refuse(self, reason: str) -> None:
        self._handler.refused(self._connection, f"the TLS handshake failed: {reason}", logging.INFO)
        with suppress(OSError):
            # A socket that is closed with unread bytes resets the connection, and the client does not see the alert.
            socket.socket.recv_into(self._tls, self._scratch)
        self._connection.close()

    # -- receiving

    def resume(self) -> None:
        """Receive again."""
        super().resume()
        if self._is_reading and self._tls.pending():
            # The loop does not know of bytes that OpenSSL has already taken from the socket.
            self._loop.call_soon(self._take_decrypted)

    def _readable(self) -> None:
        if self._is_shaking_hands:
            self._shake_hands()
        else:
            super()._readable()
            self._take_decrypted()

    def _receive(self, buffer: memoryview) -> int:
        count = more = self._tls.recv_into(buffer)
        # OpenSSL returns 16 KB at most.
        while more and count < min(len(buffer), _TURN_BYTES):
            try:
                more = self._tls.recv_into(buffer[count:])
            except self._not_now:
                break
            count += more
        return count

    def _await(self, count: int) -> None:
        """Wait for any bytes, not for many: OpenSSL may already have taken some of them from the socket."""

    def _take_decrypted(self) -> None:
        while self._is_reading and self._tls.pending():
            super()._readable()

    # -- sending

    def _send_file(self, part: FilePart) -> int:
        data = part.records.read(part.position - part.records.position, min(part.left, _TLS_PART_BYTES))
        if not data:
            raise ProtocolError("a log file ended before the records that were found in it")
        sent = self._tls.send(data)
        part.position += sent
        part.left -= sent
        return sent

    def _send_bytes(self, out: deque[memoryview | FilePart]) -> int:
        part = out[0]
        assert isinstance(part, memoryview)
        # If the socket was full, OpenSSL must be given the same bytes again.
        sent = self._tls.send(part[:_TLS_PART_BYTES])
        if sent < len(part):
            out[0] = part[sent:]
        else:
            out.popleft()
        return sent

    def close(self) -> None:
        """Say that this is the end, and close the socket."""
        self._handshake_timer.cancel()
        if self._descriptor >= 0 and not self._is_shaking_hands:
            with suppress(OSError, ValueError):
                self._tls.unwrap()
        super().close()
