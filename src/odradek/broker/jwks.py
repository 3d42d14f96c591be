"""Where the keys of tokens come from: a file, or an address.

    file:///etc/odradek/jwks.json     read again when it has changed
    https://login.example.org/keys    fetched at the start, every hour, and when a token names a key that is not known

Keys that were read once stay in use as long as newer ones cannot be read. An address is asked in a thread that nothing
waits for, for some seconds at most and for no more than a key set may have; it is not followed to another address.

Source in Kafka: `JwksFileVerificationKeyResolver`, `RefreshingHttpsJwks`.
"""

from __future__ import annotations

import asyncio
import io
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable
from functools import partial
from http.client import HTTP_PORT, HTTPS_PORT, HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from odradek.arguments import path_of_file_url
from odradek.broker.clock import Clock, Timer
from odradek.coordination.oauthbearer.keys import MOST_JWKS_BYTES, KeySet
from odradek.errors import OdradekError
from odradek.printable import logger
from odradek.storage.file_version import version_at
from odradek.storage.regular_files import read_file

_logger = logger(__name__)

_FETCHED_WITHIN_S = 10.0
_MOST_ANSWER_BYTES = MOST_JWKS_BYTES + (1 << 16)
"""A key set, the headers of the answer and what is around the parts of its body."""

_SENT = re.compile(r"[!-~]*")
"""What the first line of a request of HTTP may have as its path."""

_EXPEDITED_MS = 10_000
"""Strangers name keys that do not exist: the address is asked no more often than this for them."""


class JwksFile:
    """Keys in a file. Any thread may use it.

    Args:
        path: The file.

    Raises:
        ValueError: It cannot be read, or is no key set.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        try:
            self._version = version_at(path)
            self._keys = KeySet(read_file(path, MOST_JWKS_BYTES))
        except (OSError, OdradekError) as error:
            raise ValueError(f"cannot be read: {error}") from None

    def keys(self) -> KeySet:
        """Return the keys; read them if the file has changed."""
        with self._lock:
            try:
                version = version_at(self._path)
                if version != self._version:
                    # Noted first: a file that cannot be read is logged once.
                    self._version = version
                    self._keys = KeySet(read_file(self._path, MOST_JWKS_BYTES))
            except (OSError, OdradekError, ValueError) as error:
                _logger.warning("the keys of %s stay as they were: %s", self._path, error)
            return self._keys

    async def ready(self) -> None:
        """Do nothing: the file was read."""

    async def refresh(self) -> bool:
        """Return False: each call of `keys` looks at the file."""
        return False

    def close(self) -> None:
        """Do nothing."""


class JwksAddress:
    """Keys at an address. It belongs to the event loop's thread, but for `keys`.

    Args:
        url: The address.
        clock: The time.
        refresh_ms: How often they are fetched.
        backoff_ms: After what time a fetch that failed is tried again; after the next one twice of it.
        most_backoff_ms: After what time at most.
        fetch: Fetches them, in a thread.
    """

    def __init__(
        self,
        url: SplitResult,
        clock: Clock,
        refresh_ms: int,
        backoff_ms: int,
        most_backoff_ms: int,
        fetch: Callable[[SplitResult], bytes],
    ) -> None:
        self._url = url
        self._clock = clock
        self._refresh_ms = refresh_ms
        self._backoff_ms = backoff_ms
        self._most_backoff_ms = most_backoff_ms
        self._fetch = fetch
        self._loop = asyncio.get_running_loop()
        self._keys: KeySet | None = None
        self._failures = 0
        self._expedited_ms = clock.elapsed_ms() - _EXPEDITED_MS
        self._timer: Timer | None = None
        self._is_closed = False
        self._running: asyncio.Future[None] | None = None
        self._first = self._begin()

    def keys(self) -> KeySet | None:
        """Return the keys that were fetched last."""
        return self._keys

    async def ready(self) -> None:
        """Wait for the first fetch, but not for ever, so that a client that comes with the broker is not refused."""
        await asyncio.wait([self._first], timeout=_FETCHED_WITHIN_S)

    async def refresh(self) -> bool:
        """Fetch the keys if they have not just been fetched for this reason."""
        running = self._running
        if running is None:
            now_ms = self._clock.elapsed_ms()
            if self._is_closed or now_ms - self._expedited_ms < _EXPEDITED_MS:
                return False
            self._expedited_ms = now_ms
            running = self._begin()
        await asyncio.wait([running], timeout=_FETCHED_WITHIN_S)
        return True

    def close(self) -> None:
        """Fetch no more keys; a fetch that runs ends unnoticed."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._running is not None and not self._running.done():
            self._running.set_result(None)

    def _begin(self) -> asyncio.Future[None]:
        if self._timer is not None:
            self._timer.cancel()
        running = self._running = self._loop.create_future()
        try:
            threading.Thread(target=self._run, name="odradek-jwks", daemon=True).start()
        except RuntimeError as error:
            # The system has no thread left. It may have one later; otherwise no key would be fetched any more.
            self._end(None, str(error))
        return running

    def _run(self) -> None:
        keys, error = None, ""
        try:
            keys = KeySet(self._fetch(self._url))
        except (OSError, HTTPException, ValueError) as failed:
            # Without what the server sent.
            error = f"{type(failed).__name__}: {failed}" if isinstance(failed, OSError | ValueError) else "no HTTP"
        except Exception as failed:
            error = type(failed).__name__
        try:
            self._loop.call_soon_threadsafe(partial(self._end, keys, error))
        except RuntimeError:
            # The loop has ended.
            return

    def _end(self, keys: KeySet | None, error: str) -> None:
        if self._is_closed:
            return
        delay_ms = self._refresh_ms
        if keys is not None:
            self._keys, self._failures = keys, 0
        else:
            delay_ms = min(self._backoff_ms << min(self._failures, 30), self._most_backoff_ms)
            self._failures += 1
            _logger.warning("%s: the keys of tokens cannot be fetched (%s)", _shown(self._url), error)
        running, self._running = self._running, None
        self._timer = self._clock.after(delay_ms, self._again)
        if running is not None:
            running.set_result(None)

    def _again(self) -> None:
        if self._running is None:
            self._begin()


def _shown(url: SplitResult) -> str:
    """Return an address without a user, a password and parameters."""
    return f"{url.scheme}://{url.hostname}{'' if url.port is None else f':{url.port}'}{url.path}"


class _LimitedSocket(io.RawIOBase):
    """What is received from a server until a time, and up to a size."""

    def __init__(self, sock: socket.socket, end_s: float) -> None:
        self._sock = sock
        # Keeps the socket open when the connection lets go of it.
        self._raw = sock.makefile("rb", buffering=0)
        self._end_s = end_s
        self._left = _MOST_ANSWER_BYTES

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left_s)
        count = self._raw.readinto(buffer) or 0
        self._left -= count
        if self._left < 0:
            raise ValueError(f"more than {MOST_JWKS_BYTES} bytes")
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def fetch_jwks(url: SplitResult, context: ssl.SSLContext | None = None, within_s: float = _FETCHED_WITHIN_S) -> bytes:
    """Return what is at an address of HTTP. It waits for the server.

    Args:
        url: The address.
        context: Whose certificates are trusted; None for those that the system trusts.
        within_s: How long it may take to connect, and to get the answer.

    Raises:
        OSError: The server cannot be reached, is not the one of its certificate, or is too slow.
        HTTPException: It does not speak HTTP.
        ValueError: It sends too much, an error, or to another address.
    """
    end_s = time.monotonic() + within_s
    assert url.hostname is not None
    # With a port in any case: without one the end of an IPv6 address would be taken for it.
    connection = (
        HTTPSConnection(url.hostname, url.port or HTTPS_PORT, timeout=within_s, context=context)
        if url.scheme == "https"
        else HTTPConnection(url.hostname, url.port or HTTP_PORT, timeout=within_s)
    )

    def response(sock: socket.socket, *arguments: Any, **options: Any) -> HTTPResponse:
        return HTTPResponse(_LimitedSocket(sock, end_s), *arguments, **options)  # type: ignore[arg-type]

    connection.response_class = response  # type: ignore[assignment]
    try:
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        connection.request("GET", path, headers={"Accept": "application/json", "Connection": "close"})
        answer = connection.getresponse()
        if answer.status != 200:
            # A redirection too: it could lead to where this program may look and others may not.
            raise ValueError(f"HTTP status {answer.status}")
        data = answer.read(MOST_JWKS_BYTES + 1)
        answer.close()
        return data
    finally:
        connection.close()


def parse_jwks_url(text: str) -> SplitResult | Path:
    """Return the address or the file that `sasl.oauthbearer.jwks.endpoint.url` names.

    Raises:
        ValueError: It is neither.
    """
    url = urlsplit(text)
    path = path_of_file_url(url)
    if path is not None:
        return path
    if url.scheme in ("http", "https") and url.hostname and url.username is None and url.port != 0:
        if not _SENT.fullmatch(url.path + url.query):
            raise ValueError("has blanks or characters that are not ASCII: write them as %20 and its like")
        return url
    raise ValueError("is no address of the form https://HOST/PATH, http://HOST/PATH or file:///PATH")
