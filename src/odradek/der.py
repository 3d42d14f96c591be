"""DER, in which keys and certificates are written: a tag, a length, and the content.

    30 05 | 02 03 01 00 01        a sequence (30) of 5 bytes: an integer (02) of 3 bytes
    30 82 01 0a | ...             from 128 bytes on the length has a length: 2 bytes, 266

OpenSSL reads more than that; what it alone reads is refused.
"""

from __future__ import annotations

from typing import TypeVar

_Bytes = TypeVar("_Bytes", bytes, memoryview)


def first_element(data: _Bytes, what: str) -> tuple[int, _Bytes, _Bytes]:
    """Return the tag and the content of the first element, and what follows it.

    Args:
        data: The elements.
        what: What they are part of, for the error.

    Raises:
        ValueError: The element is incomplete, or not in DER.
    """
    if len(data) < 2:
        raise ValueError(f"the {what} is damaged")
    length, start = data[1], 2
    if length == 0x80:
        # An element that only its end marks: no DER, but OpenSSL reads it.
        raise ValueError(f"the {what} is not DER")
    if length & 0x80:
        start = 2 + (length & 0x7F)
        length = int.from_bytes(data[2:start])
    if start + length > len(data):
        raise ValueError(f"the {what} is damaged")
    return data[0], data[start : start + length], data[start + length :]
