"""Subjects of certificates, byte for byte: what a certificate authority may let a client write into them."""

from __future__ import annotations

from collections.abc import Sequence

UTF8, NUMERIC, PRINTABLE, T61, IA5, VISIBLE, GENERAL, UNIVERSAL, BMP = (
    0x0C, 0x12, 0x13, 0x14, 0x16, 0x1A, 0x1B, 0x1C, 0x1E,
)  # fmt: skip
COMMON_NAME, ORGANIZATION, UNIT, GIVEN_NAME, SERIAL_NUMBER, EMAIL = (
    "2.5.4.3", "2.5.4.10", "2.5.4.11", "2.5.4.42", "2.5.4.5", "1.2.840.113549.1.9.1",
)  # fmt: skip


def der(tag: int, *contents: bytes) -> bytes:
    """Return a value in DER."""
    content = b"".join(contents)
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes([tag, 0x80 | len(length)]) + length + content


def number(text: str) -> bytes:
    """Return an object identifier in DER."""
    first, second, *rest = map(int, text.split("."))
    encoded = bytearray()
    for arc in (40 * first + second, *rest):
        groups = [arc & 0x7F]
        while arc := arc >> 7:
            groups.append(0x80 | arc & 0x7F)
        encoded += bytes(reversed(groups))
    return der(0x06, bytes(encoded))


def attribute(kind: str, value: str | bytes, tag: int = UTF8) -> bytes:
    """Return an attribute of a subject."""
    return der(0x30, number(kind), der(tag, value.encode() if isinstance(value, str) else value))


def subject(*parts: Sequence[bytes]) -> bytes:
    """Return a subject of some parts, each with one attribute or more."""
    return der(0x30, *(der(0x31, *attributes) for attributes in parts))


def certificate(name: bytes) -> bytes:
    """Return the beginning of a certificate with a subject, and no signature."""
    empty = der(0x30)
    version = der(0xA0, der(0x02, b"\2"))
    return der(0x30, der(0x30, version, der(0x02, b"\7"), empty, subject([attribute(COMMON_NAME, "CA")]), empty, name))
