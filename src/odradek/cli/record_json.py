"""A record as one line: JSON for programs, text for people.

    {"topic":"t","partition":0,"offset":7,"timestamp":1,"timestamp_type":"CreateTime","key":"k","value":null,"headers":[]}
    t-0 offset=7 CreateTime=1 key="k" value=null headers={"h": "v"}

A control record has one more field, at the end: its type, `"control":"COMMIT"`. A data record never has it.

A record is always one line: every character that a program or a terminal could take for the end of a line, or for a
command, is escaped. A byte string is text if it is valid UTF-8, else base64.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable
from json.encoder import encode_basestring

from odradek.errors import CorruptRecordError
from odradek.inspection.log_files import LogFile
from odradek.records import BatchHeader, Record
from odradek.records.compression import Codec
from odradek.records.control import parse_control_key

# In addition to the control characters that JSON escapes: DEL, C1, Unicode's line ends and marks of writing direction.
_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")


def to_json(value: object) -> str:
    """Return a value as JSON in one line."""
    return json.dumps(value, separators=(",", ":"))


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
    """Return a byte string for people."""
    if data is None:
        return "null"
    try:
        return quote(data.decode())
    except UnicodeDecodeError:
        return f"base64:{binascii.b2a_base64(data, newline=False).decode()}"


def text_base64(data: bytes | None) -> str:
    """Return a byte string for people, as base64."""
    return "null" if data is None else f"base64:{binascii.b2a_base64(data, newline=False).decode()}"


def control_type(record: Record) -> str:
    """Return the type of a control record, by Kafka's name; `UNKNOWN` if its key is of no known type."""
    try:
        kind = parse_control_key(record.key)
    except CorruptRecordError:
        kind = None
    return "UNKNOWN" if kind is None else kind.name


def json_line(file: LogFile, *, base64: bool, control: bool = False) -> Callable[[Record], str]:
    """Return a function that formats a record of `file`, or a control record, as a line of JSON."""
    owner = file.topic_partition
    start = (
        f'{{"topic":{quote(owner.topic)},"partition":{owner.partition}' if owner else '{"topic":null,"partition":null'
    )
    encode = json_base64 if base64 else json_bytes

    def line(record: Record) -> str:
        headers = ",".join([f"[{quote(name)},{encode(value)}]" for name, value in record.headers])
        timestamp = "null" if record.timestamp is None else record.timestamp
        kind = "null" if record.timestamp_type is None else f'"{record.timestamp_type}"'
        end = f',"control":"{control_type(record)}"' if control else ""
        return (
            f'{start},"offset":{record.offset},"timestamp":{timestamp},"timestamp_type":{kind},'
            f'"key":{encode(record.key)},"value":{encode(record.value)},"headers":[{headers}]{end}}}\n'
        )

    return line


def text_line(file: LogFile, *, base64: bool, control: bool = False) -> Callable[[Record], str]:
    """Return a function that formats a record of `file`, or a control record, as a line of text."""
    start = f"{file.topic_partition} " if file.topic_partition else ""
    encode = text_base64 if base64 else text_bytes

    def line(record: Record) -> str:
        time = "no timestamp" if record.timestamp is None else f"{record.timestamp_type}={record.timestamp}"
        headers = ", ".join([f"{quote(name)}: {encode(value)}" for name, value in record.headers])
        tail = f" headers={{{headers}}}" if headers else ""
        if control:
            tail += f" control={control_type(record)}"
        return f"{start}offset={record.offset} {time} key={encode(record.key)} value={encode(record.value)}{tail}\n"

    return line


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
