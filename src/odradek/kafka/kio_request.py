"""Requests that kafka-python does not know, sent over its connections: kio has their schemas.

    request    size | api key | version | correlation id | client id | tags | body         all of them are flexible
    response   correlation id | tags | body

A `KioRequest` looks to kafka-python like one of its own requests. Its version is chosen when it is sent; then the
message is built for that version.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from importlib import import_module
from typing import Any

from kafka import errors
from kio.serial import entity_reader, entity_writer

_HEADER = struct.Struct(">hhi")
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_NO_TAGS = b"\0"
_MOST_VARINT_BYTES = 5


class KioRequest:
    """A request of a flexible version.

    Args:
        name: Its name, such as `ShareGroupDescribe`.
        api_key: Its number.
        versions: The first and the last version that `build` can build.
        build: Returns the message; called with the module of kio that has the classes of the version.
    """

    def __init__(self, name: str, api_key: int, versions: tuple[int, int], build: Callable[[Any], Any]) -> None:
        self.name = name
        self.API_KEY = api_key
        self.API_VERSION: int | None = None
        self.min_version, self.max_version = versions
        self._min_version, self._max_version = versions
        self._build = build
        self.header: _Header | None = None

    def expect_response(self) -> bool:
        """Whether the broker answers."""
        return True

    def with_header(self, correlation_id: int, client_id: str) -> None:
        """Take the fields of the header."""
        assert self.API_VERSION is not None
        self.header = _Header(self.name, self.API_KEY, self.API_VERSION, correlation_id, client_id)

    def encode(self, *, framed: bool, header: bool) -> bytes:
        """Return the request as bytes, from its size on."""
        assert framed
        assert header
        assert self.header is not None
        module = self.header.module("request")
        message = self._build(module)
        written = io.BytesIO()
        written.write(self.header.encode())
        entity_writer(type(message))(written, message)
        return _INT32.pack(written.tell()) + written.getvalue()


class _Header:
    """The header of a request, which knows how its response is read."""

    def __init__(self, name: str, api_key: int, version: int, correlation_id: int, client_id: str) -> None:
        self.api_key, self.api_version, self.correlation_id = api_key, version, correlation_id
        self._name, self._client_id = name, client_id.encode()

    def module(self, kind: str) -> Any:
        """Return kio's module of the request or the response."""
        folder = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in self._name).lstrip("_")
        return import_module(f"kio.schema.{folder}.v{self.api_version}.{kind}")

    def encode(self) -> bytes:
        """Return the header as bytes."""
        head = _HEADER.pack(self.api_key, self.api_version, self.correlation_id)
        return head + _INT16.pack(len(self._client_id)) + self._client_id + _NO_TAGS

    def get_response_class(self) -> _ResponseReader:
        """Return what reads the response."""
        return _ResponseReader(getattr(self.module("response"), f"{self._name}Response"))


class _ResponseReader:
    """Reads a response, in the two steps of kafka-python."""

    def __init__(self, kind: type[Any]) -> None:
        self._kind = kind
        self.correlation_id = -1

    def parse_header(self, buffer: Any) -> _ResponseReader:
        """Read the header; the result has the correlation id."""
        (self.correlation_id,) = _INT32.unpack(buffer.read(_INT32.size))
        for _ in range(_varint(buffer)):
            _varint(buffer)
            buffer.read(_varint(buffer))
        return self

    def decode(self, buffer: Any) -> Any:
        """Read the body.

        Raises:
            ValueError: It does not follow its schema.
        """
        data = buffer.read()
        try:
            message, size = entity_reader(self._kind)(data, 0)
        except Exception as error:
            # kio raises errors of its own, and of Python: of too few bytes, bad text, sizes that make no sense.
            raise ValueError(f"{self._kind.__name__}: {error}") from error
        if size != len(data):
            raise ValueError(f"{self._kind.__name__} has {len(data) - size} bytes too many")
        return message


def _varint(buffer: Any) -> int:
    value = 0
    for number in range(_MOST_VARINT_BYTES):
        read = buffer.read(1)
        if not read:
            raise errors.KafkaProtocolError("the header of a response is cut short")
        value |= (read[0] & 0x7F) << (7 * number)
        if read[0] < 0x80:
            break
    return value
