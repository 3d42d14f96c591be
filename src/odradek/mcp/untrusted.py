"""What strangers wrote, for a reader that might take it for orders: escaped, cut to a size, and under one name.

    {"topic":"events","partition":0,"offset":7,...,"untrusted":{"key":"k","value":{"text":"...","bytes":90000,...}}}

Control characters, marks of writing direction and what nobody sees (tags, variation selectors, fillers) are escaped as
Python does (`\\u202e`); `escaped` says that this was done.
"""

from __future__ import annotations

import binascii
import codecs
import re
from typing import Any

from odradek.inspection.decoding import Content
from odradek.printable import printable
from odradek.records.timestamps import iso_text
from odradek.sources.condition import Row, parsed_json

# Printable for Python, but without a shape of their own.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_LARGEST_JSON = 1 << 20
_MOST_HEADERS = 30
_NAME_BYTES = 200
_LONGEST_ID = 300


def visible(text: str) -> str:
    """Return a text in which every character can be seen, and none moves others."""
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), printable(text))


def visible_id(given: object) -> str | None:
    """Return an id that a client chose, cut to a size."""
    if given is None:
        return None
    shown = visible(str(given))
    return shown if len(shown) <= _LONGEST_ID else f"{shown[:_LONGEST_ID]}... ({len(shown) - _LONGEST_ID} more)"


def content(data: Content, most_bytes: int, from_byte: int = 0) -> Any:
    """Return a key or a value for an answer: null, a text that is shown whole and as it is, or an object.

    Args:
        data: The bytes, or JSON that was decoded.
        most_bytes: How many of its bytes are shown.
        from_byte: The first one.
    """
    if data is None:
        return None
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    part = data[from_byte : from_byte + most_bytes]
    is_last = from_byte + len(part) >= len(data)
    try:
        text, taken = codecs.utf_8_decode(part, "strict", is_last)
        shown = visible(text)
    except UnicodeDecodeError:
        taken = len(part)
        found: dict[str, Any] = {"base64": binascii.b2a_base64(part, newline=False).decode()}
    else:
        if is_last and not from_byte and shown == text:
            return text
        found = {"text": shown} | ({"escaped": True} if shown != text else {})
    found["bytes"] = len(data)
    if from_byte:
        found["from_byte"] = from_byte
    if not is_last:
        found["next_byte"] = from_byte + max(taken, 1)
    return found


def kind_of(data: Content) -> str:
    """Return what a value is: null, json, text, binary or, without a look at all of it, large."""
    if data is None:
        return "null"
    if len(data) > _LARGEST_JSON:
        return "large"
    if parsed_json(data)[0]:
        return "json"
    try:
        _ = data.decode() if isinstance(data, bytes) else data
    except UnicodeDecodeError:
        return "binary"
    return "text"


def untrusted_part(row: Row, most_bytes: int, from_byte: int = 0) -> dict[str, Any]:
    """Return what a producer wrote into a record."""
    headers = [
        [content(name.encode("utf-8", "surrogateescape"), _NAME_BYTES), content(value, most_bytes)]
        for name, value in row.headers[:_MOST_HEADERS]
    ]
    found = {
        "key": content(row.key, most_bytes),
        "value": content(row.value, most_bytes, from_byte),
        "headers": headers,
    }
    if len(row.headers) > _MOST_HEADERS:
        found["headers_left_out"] = len(row.headers) - _MOST_HEADERS
    return found


def record_item(row: Row, most_bytes: int, from_byte: int = 0) -> dict[str, Any]:
    """Return a record for an answer."""
    record = row.record
    return {
        "topic": row.owner.topic,
        "partition": row.owner.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "time": None if record.timestamp is None else iso_text(record.timestamp),
        "timestamp_type": record.timestamp_type,
        "value_kind": kind_of(row.value),
        "untrusted": untrusted_part(row, most_bytes, from_byte),
    }
