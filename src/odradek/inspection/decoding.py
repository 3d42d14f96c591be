"""What keys and values mean: the records of Kafka's own topics, and values of a known schema.

A decoder gives for a record what replaces its key and its value in a line: a byte string as it is, or the
text of a JSON value. What it cannot decode it leaves as it is, and reports.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from odradek.errors import FormatError
from odradek.inspection.record_json import Decode, to_text_json
from odradek.messages.coordinators.group_records import group_record_json
from odradek.messages.coordinators.share_records import share_record_json
from odradek.messages.coordinators.transaction_records import transaction_record_json
from odradek.messages.metadata.metadata_records import metadata_record_json
from odradek.records import Record
from odradek.records.kernels.lines import json_line
from odradek.storage.names import (
    CLUSTER_METADATA_TOPIC,
    CONSUMER_OFFSETS_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)

Content = bytes | str | None

ValueDecoder = Callable[[bytes], Any]
"""Returns a value that JSON can hold; raises ValueError if the bytes are of another kind."""

_REDACTED = "[redacted]"
_FRAME_BYTES = 5


def internal_decode(topic: str) -> Decode | None:
    """Return what decodes the records of a topic of Kafka's own; None for any other topic.

    Records of unknown types stay as they are.
    """
    if topic == CLUSTER_METADATA_TOPIC:
        return _decode_metadata
    coordinator = {
        CONSUMER_OFFSETS_TOPIC: group_record_json,
        TRANSACTION_STATE_TOPIC: transaction_record_json,
        SHARE_GROUP_STATE_TOPIC: share_record_json,
    }.get(topic)
    if coordinator is None:
        return None

    def decode(record: Record) -> tuple[Content, Content]:
        try:
            key, value = coordinator(record.key, record.value)
        except FormatError:
            return record.key, record.value
        return to_text_json(key), None if value is None else to_text_json(value)

    return decode


def _decode_metadata(record: Record) -> tuple[Content, Content]:
    try:
        return record.key, to_text_json(metadata_record_json(record.value))
    except FormatError:
        return record.key, record.value


def decode_json(data: bytes) -> Any:
    """Return a value that is JSON, after what a schema registry's serializer puts before it."""
    return json.loads(data[_FRAME_BYTES:] if data[:1] == b"\0" else data)


def values_decode(decoder: ValueDecoder, report: Callable[[Record, ValueError], None]) -> Decode:
    """Return what decodes values; one that cannot be decoded is reported and stays as it is.

    With `decode_json`, a value is written as it stands, if that is what every reader takes.
    """

    def decode(record: Record) -> tuple[Content, Content]:
        if record.value is None:
            return record.key, None
        try:
            line = json_line(record.value) if decoder is decode_json else None
            return record.key, to_text_json(decoder(record.value)) if line is None else line
        except RecursionError:
            report(record, ValueError("nested too deeply"))
        except ValueError as error:
            report(record, error)
        return record.key, record.value

    return decode


def decode_of(
    topic: str | None,
    values: ValueDecoder | None,
    redacted_paths: Sequence[str],
    report: Callable[[Record, ValueError], None],
) -> Decode | None:
    """Return what decodes keys and values of a topic as they are shown; None if they are shown as they are.

    Args:
        topic: Its name; None if records of Kafka's own topics are not decoded either.
        values: What decodes values of other topics.
        redacted_paths: What is left out, as for `redacted_decode`.
        report: Is told of a value that cannot be decoded, and why.
    """
    decode = None if topic is None else internal_decode(topic)
    if decode is None and values is not None:
        decode = values_decode(values, report)
    return redacted_decode(redacted_paths, decode) if redacted_paths else decode


def redacted_decode(paths: Sequence[str], inner: Decode | None) -> Decode:
    """Return what leaves out parts of keys and values that are JSON.

    Args:
        paths: Where they are: `value.card.number`; in a list, every element is meant. What is not JSON is left out as
            a whole, and so are text and numbers in which a path would go on.
        inner: What decodes before.
    """
    split = [path.split(".") for path in paths]
    of_key = [names for root, *names in split if root == "key"]
    of_value = [names for root, *names in split if root == "value"]

    def decode(record: Record) -> tuple[Content, Content]:
        key, value = (record.key, record.value) if inner is None else inner(record)
        return _without(key, of_key), _without(value, of_value)

    return decode


def _without(content: Content, paths: list[list[str]]) -> Content:
    if content is None or not paths:
        return content
    try:
        value = json.loads(content)
        for names in paths:
            value = _replaced(value, names)
        text = to_text_json(value)
    except (ValueError, RecursionError):
        return _REDACTED.encode()
    return text if isinstance(content, str) else text.encode("utf-8", "surrogatepass")


def _replaced(value: Any, names: list[str]) -> Any:
    if value is None:
        return None
    if names and isinstance(value, list):
        return [_replaced(item, names) for item in value]
    if not names or not isinstance(value, dict):
        # Text in which the path goes on may be JSON itself, or what the path would have led to.
        return _REDACTED
    for count in range(1, len(names) + 1):
        # A name may have dots in it.
        name = ".".join(names[:count])
        if name in value:
            value = value | {name: _replaced(value[name], names[count:])}
    return value
