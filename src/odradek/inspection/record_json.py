"""A record as one line: JSON for programs, text for people, CSV for tables.

    {"topic":"t","partition":0,"offset":7,"timestamp":1,"timestamp_type":"CreateTime","key":"k","value":null,"headers":[]}
    t-0 offset=7 CreateTime=1 key="k" value=null headers={"h": "v"}
    t,0,7,1,CreateTime,"k",,"[[""h"",""v""]]"

A control record has one more field, at the end: its type, `"control":"COMMIT"`. A data record never has it.

In JSON and text a record is always one line: every character that a program or a terminal could take for the end of a
line, or for a command, is escaped. A byte string is text if it is valid UTF-8, else base64. CSV holds text as it is,
in quotes (RFC 4180); a field with nothing in it is null. What is not UTF-8, or begins with `base64:` itself, is base64
after `base64:`.

Records by the thousand are written by `odradek.inspection.record_lines`, in the same form.
"""

from __future__ import annotations

import binascii
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass
from json.encoder import encode_basestring

from odradek.errors import CorruptRecordError
from odradek.records import BatchHeader, Record
from odradek.records.byte_text import text_or_base64
from odradek.records.compression import Codec
from odradek.records.control import parse_control_key
from odradek.records.kernels.lines import json_line
from odradek.storage.names import TopicPartition

Decode = Callable[[Record], tuple[bytes | str | None, bytes | str | None]]
"""Returns what replaces a record's key and value: a byte string, or JSON that was made of it."""

CSV_HEADING = b"topic,partition,offset,timestamp,timestamp_type,key,value,headers\n"
"""The first line of records as CSV."""

REDACTED = '"[redacted]"'
"""What replaces what must not be shown."""

# In addition to the control characters that JSON escapes: DEL, C1, Unicode's line ends and marks of writing direction.
_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")

_SURROGATE = re.compile("[\ud800-\udfff]")

_TEXT_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def to_json(value: object) -> str:
    """Return a value as JSON in one line."""
    return json.dumps(value, separators=(",", ":"))


def to_text_json(value: object) -> str:
    """Return a value as JSON in one line, in which text is not escaped without need.

    Raises:
        ValueError: The value has a number that JSON has no form for: NaN, an infinity.
    """
    text = _TEXT_JSON.encode(value)
    if text.isascii() and "\x7f" not in text:
        return text
    return _SURROGATE.sub(_escape, _UNSAFE.sub(_escape, text))


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def quote(text: str) -> str:
    """Return a JSON string without characters that could end a line."""
    quoted: str = encode_basestring(text)
    return quoted if quoted.isascii() and "\x7f" not in quoted else _UNSAFE.sub(_escape, quoted)


def json_bytes(data: bytes | None) -> str:
    """Return a byte string in JSON: a string if it is UTF-8, else an object with its base64."""
    if data is None:
        return "null"
    try:
        return quote(data.decode())
    except UnicodeDecodeError:
        return f'{{"base64":{json_base64(data)}}}'


def json_base64(data: bytes | None) -> str:
    """Return a byte string in JSON, as base64."""
    return "null" if data is None else f'"{binascii.b2a_base64(data, newline=False).decode()}"'


def text_bytes(data: bytes | None) -> str:
    """Return a byte string for people: an object or an array of JSON as it is, not in quotes once more."""
    if data is None:
        return "null"
    if data.startswith((b"{", b"[")) and (line := json_line(data)) is not None:
        return line
    try:
        return quote(data.decode())
    except UnicodeDecodeError:
        return f"base64:{binascii.b2a_base64(data, newline=False).decode()}"


def text_base64(data: bytes | None) -> str:
    """Return a byte string for people, as base64."""
    return "null" if data is None else f"base64:{binascii.b2a_base64(data, newline=False).decode()}"


def csv_quote(text: str) -> str:
    """Return a quoted CSV field."""
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def csv_bytes(data: bytes | None) -> str:
    """Return a byte string as a CSV field."""
    return "" if data is None else csv_quote(text_or_base64(data))


def csv_base64(data: bytes | None) -> str:
    """Return a byte string as a CSV field, as base64."""
    return "" if data is None else json_base64(data)


_ENCODERS: dict[tuple[str, bool], Callable[[bytes | None], str]] = {
    ("text", False): text_bytes,
    ("text", True): text_base64,
    ("jsonl", False): json_bytes,
    ("jsonl", True): json_base64,
    ("csv", False): csv_bytes,
    ("csv", True): csv_base64,
}


def control_type(record: Record) -> str:
    """Return the type of a control record, by Kafka's name; `UNKNOWN` if its key is of no known type."""
    try:
        kind = parse_control_key(record.key)
    except CorruptRecordError:
        kind = None
    return "UNKNOWN" if kind is None else kind.name


def head(form: str, owner: TopicPartition | None) -> str:
    """Return what every record's line starts with.

    Args:
        form: `text`, `jsonl` or `csv`.
        owner: The partition; None if it is not known.
    """
    if form == "jsonl":
        topic = quote(owner.topic) if owner else "null"
        return f'{{"topic":{topic},"partition":{owner.partition if owner else "null"}'
    if form == "csv":
        return f"{owner.topic},{owner.partition}" if owner else ","
    return f"{owner} " if owner else ""


@dataclass(eq=False)
class RecordWriter(ABC):
    """Writes records of one partition, one by one.

    Attributes:
        form: The format.
        owner: The partition; None if it is not known.
        base64: Whether every byte string is written as base64.
        redact: What is left out: `key`, `value`, `headers`.
        decode: What replaces a record's key and value; without it they are byte strings.
    """

    form: str
    owner: TopicPartition | None
    _: KW_ONLY
    base64: bool = False
    redact: Collection[str] = ()
    decode: Decode | None = None

    @abstractmethod
    def __post_init__(self) -> None:
        """Prepare what the format needs."""

    def __call__(self, record: Record, *, control: bool = False) -> bytes:
        """Return what is written of a record, or of a control record."""
        key: bytes | str | None = record.key
        value: bytes | str | None = record.value
        if self.decode is not None and not control:
            key, value = self.decode(record)
        return self._written(record, key, value, control=control)

    @abstractmethod
    def _written(self, record: Record, key: bytes | str | None, value: bytes | str | None, *, control: bool) -> bytes:
        """Return what is written of a record, with this key and this value."""


class LineWriter(RecordWriter):
    """Writes records as lines; the format is `text`, `jsonl` or `csv`."""

    def __post_init__(self) -> None:
        self._write = {"text": self._text, "jsonl": self._json, "csv": self._csv}[self.form]
        self._head = head(self.form, self.owner)
        self._encode = _ENCODERS[self.form, self.base64]
        self._encode_header = self._encode if self.form != "csv" else _ENCODERS["jsonl", self.base64]

    def _written(self, record: Record, key: bytes | str | None, value: bytes | str | None, *, control: bool) -> bytes:
        text = self._write(
            record,
            self._field("key", key),
            self._field("value", value),
            control_type(record) if control else None,
        )
        return text.encode("utf-8", "surrogatepass")

    def _field(self, name: str, content: bytes | str | None) -> str:
        if content is not None and name in self.redact:
            return REDACTED
        if isinstance(content, str):
            return csv_quote(content) if self._write == self._csv else content
        return self._encode(content)

    def _headers(self, record: Record) -> list[tuple[str, str]]:
        return [
            (
                self._name(name),
                REDACTED if value is not None and "headers" in self.redact else self._encode_header(value),
            )
            for name, value in record.headers
        ]

    def _name(self, name: str) -> str:
        """Return the name of a header: text, or in the form of a value where it is not UTF-8."""
        if _SURROGATE.search(name) is None:
            return quote(name)
        data = name.encode("utf-8", "surrogateescape")
        return text_base64(data) if self.form == "text" else json_bytes(data)

    def _json(self, record: Record, key: str, value: str, control: str | None) -> str:
        headers = ",".join([f"[{name},{value}]" for name, value in self._headers(record)])
        timestamp = "null" if record.timestamp is None else record.timestamp
        kind = "null" if record.timestamp_type is None else f'"{record.timestamp_type}"'
        end = f',"control":"{control}"' if control else ""
        return (
            f'{self._head},"offset":{record.offset},"timestamp":{timestamp},"timestamp_type":{kind},'
            f'"key":{key},"value":{value},"headers":[{headers}]{end}}}\n'
        )

    def _text(self, record: Record, key: str, value: str, control: str | None) -> str:
        time = "no timestamp" if record.timestamp is None else f"{record.timestamp_type}={record.timestamp}"
        headers = ", ".join([f"{name}: {value}" for name, value in self._headers(record)])
        tail = f" headers={{{headers}}}" if headers else ""
        if control:
            tail += f" control={control}"
        return f"{self._head}offset={record.offset} {time} key={key} value={value}{tail}\n"

    def _csv(self, record: Record, key: str, value: str, control: str | None) -> str:
        headers = ",".join([f"[{name},{value}]" for name, value in self._headers(record)])
        timestamp = "" if record.timestamp is None else record.timestamp
        return (
            f"{self._head},{record.offset},{timestamp},{record.timestamp_type or ''},{key},{value},"
            f"{csv_quote(f'[{headers}]') if headers else '[]'}\n"
        )


def batch_fields(header: BatchHeader) -> dict[str, object]:
    """Return the fields of a batch's header, by Kafka's names."""
    codec = header.codec
    fields: dict[str, object] = {
        "position": header.position,
        "size_bytes": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records_count": header.records_count if header.magic == 2 or not codec else None,
        "magic": header.magic,
        "codec": Codec(codec).name.lower() if codec in list(Codec) else str(codec),
        "timestamp_type": header.timestamp_type,
        "max_timestamp": None if header.max_timestamp < 0 else header.max_timestamp,
        "crc": header.crc,
    }
    if header.magic == 2:
        fields |= {
            "partition_leader_epoch": header.partition_leader_epoch,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "last_sequence": header.last_sequence,
            "is_transactional": header.is_transactional,
            "is_control": header.is_control,
            "delete_horizon_ms": header.delete_horizon_ms,
        }
    return fields
