"""Tagged fields that the broker does not know (KIP-482): they are skipped, wherever they stand."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from odradek.broker import protocol
from odradek.broker.api import ADVERTISED
from odradek.broker.protocol import decode_header, encode_request, request_class
from odradek.broker.request_body import decode_request
from odradek.errors import ProtocolError
from peers.request_examples import example

PRODUCE, GROUPS = 0, 16
FIRST_PRODUCE = 3
"""The versions before it are refused (KIP-896)."""

UNKNOWN = b"\x63\x03xyz" + b"\xff\xff\xff\xff\x07\x00" + b"\x63\x01z" + b"\x05\x00"
"""Four tagged fields: not in their order, one twice, empty ones, the highest tag."""


def tagged_request(key: int, version: int, message: Any) -> bytes:
    """Return a request in which each structure has tags that nobody knows."""
    write_of = protocol._tags

    def tags(writers: Any) -> Callable[[Any, Any], None]:
        write_known = write_of(writers)

        def write(out: Any, value: Any) -> None:
            start = len(out)
            write_known(out, value)
            out[start] += 4
            out[start + 1 : start + 1] = UNKNOWN

        return write

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "_tags", tags)
        protocol._writer_of.cache_clear()
        frame = encode_request(key, version, 1, "test", message)
    protocol._writer_of.cache_clear()
    return frame


def read(request: bytes) -> Any:
    frame = bytearray(request[4:])
    return decode_request(frame, decode_header(frame))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("key", ADVERTISED)
def test_every_request_is_read_without_them(key: int) -> None:
    for version in range(FIRST_PRODUCE if key == PRODUCE else ADVERTISED[key][1].start, ADVERTISED[key][1].stop):
        kind = request_class(key, version)
        if kind.__flexible__:
            fields = example(kind)
            request = tagged_request(key, version, fields)
            assert UNKNOWN in request
            assert read(request) == read(encode_request(key, version, 1, "test", fields)), f"version {version}"


def body(*tags: bytes, count: int | None = None) -> bytearray:
    """ListGroups v5 without filters, and a section of tags."""
    number = protocol.Encoded()
    protocol._write_varint(number, len(tags) if count is None else count)
    return bytearray(struct.pack(">hhih", GROUPS, 5, 1, -1) + b"\x00" + b"\x01\x01" + number + b"".join(tags))


@pytest.mark.parametrize(
    "frame",
    [
        body(b"\x63\x03xy"),
        body(b"\x63\x03xyz", count=2),
        body(b"\x63\xff\xff\xff\xff\x0f"),
        body(b"\x63\x00", count=(1 << 32) - 1),
        body(b"\xff\xff\xff\xff\xff\x01\x00"),
        body(b"\x63"),
    ],
)
def test_tags_that_do_not_fit_are_refused(frame: bytearray) -> None:
    with pytest.raises(ProtocolError):
        decode_request(frame, decode_header(frame))


def test_many_of_them_cost_no_memory_of_their_own() -> None:
    frame = body(b"\x63\x00" * 90_000, count=90_000)
    header = decode_header(frame)
    decode_request(frame, header)
    tracemalloc.start()
    try:
        assert decode_request(frame, header).types_filter == ()
        assert tracemalloc.get_traced_memory()[1] < 1 << 16
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("tags", [b"\x01\x63\x03xy", b"\x02\x63\x03xyz", b"\xff\xff\xff\xff\x0f" + b"\x63\x00" * 9])
def test_tags_of_a_header_that_do_not_fit_are_refused(tags: bytes) -> None:
    frame = bytearray(struct.pack(">hhih", GROUPS, 5, 1, -1) + tags)
    with pytest.raises(ProtocolError):
        decode_header(frame)


def test_the_tags_of_a_header_are_skipped() -> None:
    head = struct.pack(">hhih", GROUPS, 5, 1, -1) + b"\x04" + UNKNOWN
    header = decode_header(bytearray(head + b"\x01\x01\x00"))
    assert header.body_position == len(head)


@pytest.mark.parametrize("place", ["header", "body"])
def test_a_request_has_no_more_than_100_000_of_them(place: str) -> None:
    """A Produce request of 100 MB had 50 million, which kept the event loop for seconds."""

    def frame(count: int) -> bytearray:
        size = (count & 0x7F | 0x80, count >> 7 & 0x7F | 0x80, count >> 14)
        tags = bytes(size) + b"\x7f\0" * count
        head, body = struct.pack(">hhih", PRODUCE, 9, 1, -1), b"\0" + struct.pack(">hi", 1, 1000) + b"\1"
        return bytearray(head + tags + body + b"\0" if place == "header" else head + b"\0" + body + tags)

    def read_all(frame: bytearray) -> None:
        decode_request(frame, decode_header(frame))

    read_all(frame(100_000))
    with pytest.raises(ProtocolError, match="more than 100,000 items of arrays and tagged fields"):
        read_all(frame(100_001))
