"""Decodes values of Avro and Protocol Buffers into Spark's types, each by its own library, in the tasks.

    schema  ->  decoder  ->  data_type: StructType(...)       the driver
                         ->  decode(bytes) -> dict            each task, which parses the schema once

The types are those that Spark's `from_avro` and `from_protobuf` make of a schema; their packages are not needed.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from datetime import UTC
from decimal import Decimal
from functools import cached_property
from typing import Any

from pyspark.sql import types

from odradek.spark.pipeline.value_format import ValueFormat
from odradek.value_libraries import avro_value, descriptor_pool

_AVRO_TYPES = {
    "null": types.NullType(),
    "boolean": types.BooleanType(),
    "int": types.IntegerType(),
    "long": types.LongType(),
    "float": types.FloatType(),
    "double": types.DoubleType(),
    "bytes": types.BinaryType(),
    "string": types.StringType(),
    "fixed": types.BinaryType(),
    "enum": types.StringType(),
}
_AVRO_LOGICAL_TYPES = {
    ("int", "date"): types.DateType(),
    ("long", "timestamp-millis"): types.TimestampType(),
    ("long", "timestamp-micros"): types.TimestampType(),
    ("long", "local-timestamp-millis"): types.TimestampNTZType(),
    ("long", "local-timestamp-micros"): types.TimestampNTZType(),
}
_WIDER = ({"int": "long", "long": "long"}, {"float": "double", "double": "double"})
_MOST_DIGITS = 38
_TIMESTAMP, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"


class ValueDecoder(ABC):
    """Decodes values by one schema. It is sent to tasks as the schema alone.

    Args:
        value: The format, and the schema.
        fails: Whether a value that does not fit is an error; else it is None.
    """

    def __init__(self, value: ValueFormat, *, fails: bool) -> None:
        self._value = value
        self._fails = fails

    def __reduce__(self) -> tuple[Any, ...]:
        return _decoder, (self._value, self._fails)

    @property
    @abstractmethod
    def data_type(self) -> types.DataType:
        """The type of the values.

        Raises:
            ValueError: It is not a schema, or has what no column can hold.
            ImportError: The library is not installed.
        """

    @abstractmethod
    def _decoded(self, content: bytes) -> Any: ...

    def __call__(self, value: bytes | None) -> Any:
        """Decode one value.

        Raises:
            ValueError: It does not fit, and that is an error.
        """
        if value is None:
            return None
        try:
            return self._decoded(bytes(value))
        except Exception as error:  # the libraries' errors of data have no common class
            if not self._fails:
                return None
            raise ValueError(f"a value is not of this schema: {error or type(error).__name__}") from error


class _AvroDecoder(ValueDecoder):
    @cached_property
    def _schema(self) -> Any:
        import fastavro

        content = json.loads(self._value.schema)
        try:
            return fastavro.parse_schema(_without_plain_logical_types(content))
        except Exception as error:  # whatever the library makes of a wrong schema
            raise ValueError(f"{type(error).__name__}: {error}") from error

    @cached_property
    def data_type(self) -> types.DataType:
        return _avro_type(self._schema, {}, ())

    def _decoded(self, content: bytes) -> Any:
        return avro_value(self._schema, content)


def _without_plain_logical_types(schema: Any) -> Any:
    """Return a schema without the logical types that Spark has none for: times of day are numbers, ids are text."""
    if isinstance(schema, list):
        return [_without_plain_logical_types(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    has_none = str(schema.get("logicalType")).startswith(("time-", "uuid", "duration"))
    return {
        name: _without_plain_logical_types(part) if name in ("type", "items", "values", "fields") else part
        for name, part in schema.items()
        if not (has_none and name == "logicalType")
    }


def _avro_type(schema: Any, named: dict[str, Any], within: tuple[str, ...]) -> types.DataType:
    """Return the type of a column for a parsed schema.

    Args:
        schema: The schema.
        named: The named schemas so far.
        within: The names of the records that it is a part of.
    """
    if isinstance(schema, list):
        kinds = [one for one in schema if one != "null"]
        for wider in _WIDER:
            if len(kinds) > 1 and all(isinstance(kind, str) and kind in wider for kind in kinds):
                kinds = [wider[kinds[0]]]
        if len(kinds) != 1:
            raise ValueError(f"a union of {len(kinds)} types cannot be a column: only one beside null")
        return _avro_type(kinds[0], named, within)
    if isinstance(schema, str):
        if schema in within:
            raise ValueError(f"{schema} is a part of itself, which no column can be")
        return _AVRO_TYPES[schema] if schema in _AVRO_TYPES else _avro_type(named[schema], named, within)
    kind, name = schema["type"], schema.get("name")
    if name is not None:
        named[name] = schema
    if schema.get("logicalType") == "decimal":
        if schema["precision"] > _MOST_DIGITS:
            raise ValueError(f"a decimal of {schema['precision']} digits; Spark has {_MOST_DIGITS}")
        return types.DecimalType(schema["precision"], schema.get("scale", 0))
    if kind in ("record", "error"):
        return types.StructType(
            [
                types.StructField(part["name"], _avro_type(part["type"], named, (*within, name)))
                for part in schema["fields"]
            ]
        )
    if kind == "array":
        return types.ArrayType(_avro_type(schema["items"], named, within))
    if kind == "map":
        return types.MapType(types.StringType(), _avro_type(schema["values"], named, within))
    if not isinstance(kind, str):
        return _avro_type(kind, named, within)
    logical = _AVRO_LOGICAL_TYPES.get((kind, schema.get("logicalType", "")))
    return _avro_type(kind, named, within) if logical is None else logical


class _ProtobufDecoder(ValueDecoder):
    @cached_property
    def _descriptor(self) -> Any:
        try:
            pool, _ = descriptor_pool(self._value.schema)
            return pool.FindMessageTypeByName(self._value.message)
        except KeyError as error:
            raise ValueError(f"the descriptor set has no message {self._value.message}") from error
        except Exception as error:  # whatever the library makes of a wrong set
            raise ValueError(f"no compiled FileDescriptorSet: {error}") from error

    @cached_property
    def _message(self) -> Any:
        from google.protobuf import message_factory

        return message_factory.GetMessageClass(self._descriptor)

    @cached_property
    def data_type(self) -> types.DataType:
        return _message_type(self._descriptor, ())

    def _decoded(self, content: bytes) -> Any:
        return _message_value(self._message.FromString(content))


def _is_repeated(field: Any) -> bool:
    # Version 6 has added the one, and version 7 warns of the other.
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _message_type(descriptor: Any, within: tuple[str, ...]) -> types.DataType:
    if descriptor.full_name == _TIMESTAMP:
        return types.TimestampType()
    if descriptor.full_name == _DURATION:
        return types.DayTimeIntervalType()
    if descriptor.full_name in within:
        raise ValueError(f"{descriptor.full_name} is a part of itself, which no column can be")
    inside = (*within, descriptor.full_name)
    fields = []
    for field in descriptor.fields:
        kind: types.DataType
        if _is_map(field):
            key, item = (_field_type(field.message_type.fields_by_name[name], inside) for name in ("key", "value"))
            kind = types.MapType(key, item)
        else:
            kind = _field_type(field, inside)
            kind = types.ArrayType(kind) if _is_repeated(field) else kind
        fields.append(types.StructField(field.name, kind))
    return types.StructType(fields)


def _field_type(field: Any, within: tuple[str, ...]) -> types.DataType:
    if field.message_type is not None:
        return _message_type(field.message_type, within)
    return {
        field.CPPTYPE_INT32: types.IntegerType(),
        field.CPPTYPE_INT64: types.LongType(),
        field.CPPTYPE_UINT32: types.LongType(),
        field.CPPTYPE_UINT64: types.DecimalType(20, 0),
        field.CPPTYPE_DOUBLE: types.DoubleType(),
        field.CPPTYPE_FLOAT: types.FloatType(),
        field.CPPTYPE_BOOL: types.BooleanType(),
        field.CPPTYPE_ENUM: types.StringType(),
        field.CPPTYPE_STRING: types.BinaryType() if field.type == field.TYPE_BYTES else types.StringType(),
    }[field.cpp_type]


def _message_value(message: Any) -> Any:
    descriptor = message.DESCRIPTOR
    if descriptor.full_name == _TIMESTAMP:
        return message.ToDatetime(tzinfo=UTC)
    if descriptor.full_name == _DURATION:
        return message.ToTimedelta()
    found: dict[str, Any] = {}
    for field in descriptor.fields:
        value = getattr(message, field.name)
        if _is_map(field):
            item = field.message_type.fields_by_name["value"]
            found[field.name] = {key: _field_value(item, value[key]) for key in value}
        elif _is_repeated(field):
            found[field.name] = [_field_value(field, one) for one in value]
        elif field.has_presence and not message.HasField(field.name):
            found[field.name] = None
        else:
            found[field.name] = _field_value(field, value)
    return found


def _field_value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _message_value(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return Decimal(value) if field.cpp_type == field.CPPTYPE_UINT64 else value


def _decoder(value: ValueFormat, fails: bool) -> ValueDecoder:
    return (_AvroDecoder if value.format == "avro" else _ProtobufDecoder)(value, fails=fails)


def value_decoder(value: ValueFormat) -> ValueDecoder:
    """Return the decoder of a format, whose schema was parsed.

    Raises:
        ValueError: It is not a schema, or has what no column can hold.
        ImportError: The library is not installed.
    """
    made = _decoder(value, value.options.get("mode", "").upper() == "FAILFAST")
    # So that a wrong schema is found here, and not in a task.
    assert made.data_type is not None
    return made
