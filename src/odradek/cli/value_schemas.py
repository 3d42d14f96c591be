"""Decoders of values by a schema: JSON, Avro, Protocol Buffers, each by its own library.

A value may start as the serializers of a schema registry write it; the schema is always the one that is given:

    Avro, JSON   0 | schema id 4 | the value
    Protobuf     0 | schema id 4 | indexes of the message: their count, each a zig-zag varint; or 0 | the value
"""

from __future__ import annotations

import json
import math
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import click

from odradek.inspection.decoding import ValueDecoder, decode_json
from odradek.inspection.record_json import json_base64
from odradek.value_libraries import avro_value, descriptor_pool

_FRAME_BYTES = 5
_OF_JSON = frozenset({str, int, bool, type(None)})


def value_decoder(kind: str, schema: Path | None, message: str | None) -> ValueDecoder:
    """Return a decoder.

    Args:
        kind: `json`, `avro` or `protobuf`.
        schema: The file with the schema: Avro's JSON, or a compiled `FileDescriptorSet`.
        message: The full name of the Protobuf message.

    Raises:
        OSError: The file cannot be read.
        ImportError: The library is not installed.
        click.UsageError: The schema is missing or cannot be used.
    """
    if message is not None and kind != "protobuf":
        raise click.UsageError("--message is of --values protobuf")
    if kind == "json":
        if schema is not None:
            raise click.UsageError("--values json takes no --schema")
        return decode_json
    if schema is None:
        raise click.UsageError(f"--values {kind} needs --schema FILE")
    return _avro(schema) if kind == "avro" else _protobuf(schema, message)


def _avro(path: Path) -> ValueDecoder:
    import fastavro

    text = path.read_bytes()
    try:
        schema = fastavro.parse_schema(json.loads(text))
    except Exception as error:  # whatever the library makes of a wrong schema
        raise click.UsageError(f"{path}: no Avro schema: {error}") from error

    def plain(data: bytes) -> Any:
        try:
            value = avro_value(schema, data)
        except Exception as error:  # the library's errors of data have no common class
            raise ValueError(f"not of this Avro schema: {error or type(error).__name__}") from error
        return _plain(value)

    def decode(data: bytes) -> Any:
        if data[:1] == b"\0" and len(data) > _FRAME_BYTES:
            try:
                return plain(data[_FRAME_BYTES:])
            except ValueError:
                # A value without a frame may start with a zero, too.
                return plain(data)
        return plain(data)

    return decode


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    if type(value) in _OF_JSON:
        return value
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": json.loads(json_base64(value))}
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        # As Protocol Buffers write them.
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if isinstance(value, (int, float, str)) else str(value)


def _protobuf(path: Path, message: str | None) -> ValueDecoder:
    from google.protobuf import json_format, message_factory

    content = path.read_bytes()
    try:
        pool, names = descriptor_pool(content)
        for name in names:
            pool.FindMessageTypeByName(name)
    except Exception as error:  # whatever the library makes of a wrong set
        raise click.UsageError(f"{path}: no compiled FileDescriptorSet: {error}") from error
    if message is None:
        raise click.UsageError(f"--values protobuf needs --message NAME: {path} has {', '.join(names) or 'none'}")
    try:
        make = message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
    except KeyError as error:
        raise click.UsageError(f"{path} has no message {message}, but {', '.join(names) or 'none'}") from error

    def decode(data: bytes) -> Any:
        # A message never starts with a zero, because no field has the number 0: so this is a frame.
        position = _after_frame(data) if data[:1] == b"\0" else 0
        try:
            value = make.FromString(data[position:])
            return json_format.MessageToDict(value, preserving_proto_field_name=True, descriptor_pool=pool)
        except Exception as error:  # the library's errors of data have no common class
            raise ValueError(f"not of this message: {error}") from error

    return decode


def _after_frame(data: bytes) -> int:
    position, left = _FRAME_BYTES, -1
    while left:
        raw, shift = 0, 0
        while True:
            if position >= len(data) or shift > 28:
                raise ValueError("the indexes of its message do not end")
            byte = data[position]
            position += 1
            raw |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        left = (raw >> 1) ^ -(raw & 1) if left < 0 else left - 1
        if left < 0:
            raise ValueError("a negative count of indexes")
    return position
