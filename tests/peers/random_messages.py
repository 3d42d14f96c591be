"""Random values for the schemas of Kafka's own records, so that every field of every version is written once."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from odradek.messages import field_types
from odradek.messages.coordinators.coordinator_records import CoordinatorRecord, RecordType, encode
from odradek.messages.field_types import BOOL, UUID_FIELD, FieldType
from odradek.messages.metadata.metadata_records import SCHEMAS, encode_metadata_record
from odradek.messages.schema import Schema

TEXTS = ["", "a", "consumer", "é日🙂", '\x01\x0b\x1f\x7f"\\u001f\n', "x" * 200]
SIZES = {field_types.INT8: 8, field_types.INT16: 16, field_types.INT32: 32, field_types.INT64: 64}


def random_value(source: random.Random, kind: FieldType, version: int) -> Any:
    if isinstance(kind, Schema):
        fields = {}
        for field in kind.fields:
            has_default = field.name in kind.record._field_defaults  # type: ignore[attr-defined]
            is_written = field.since <= version <= field.until and (field.tag is None or source.random() < 0.7)
            if is_written or not has_default:
                fields[field.name] = random_value(source, field.type, version)
        return kind.record(**fields)
    if isinstance(kind, field_types.Nullable):
        return None if source.random() < 0.3 else random_value(source, kind._record, version)
    if getattr(kind, "_nullable", False) and source.random() < 0.3:
        return None
    if isinstance(kind, field_types.Array):
        return tuple(random_value(source, kind._element, version) for _ in range(source.randrange(3)))
    if kind in SIZES:
        half = 1 << SIZES[kind] - 1
        return source.choice([-half, half - 1, 0, 1, source.randrange(half)])
    if kind is field_types.UINT16:
        return source.choice([0, 1, 0xFFFF])
    if kind is field_types.FLOAT64:
        return source.choice([0.0, -2.5, 1048576.0, 1e7, 1e-4, 1e300, source.random(), math.inf, -math.inf, math.nan])
    if kind is BOOL:
        return source.random() < 0.5
    if kind is UUID_FIELD:
        return UUID(int=source.choice([0, source.getrandbits(128)]))
    if kind in (field_types.STRING, field_types.NULLABLE_STRING):
        return source.choice(TEXTS)
    return source.choice([b"", b"\0", source.randbytes(20)])


def coordinator_records(
    source: random.Random, types: Mapping[int, RecordType], each: int
) -> list[tuple[bytes, bytes | None]]:
    """Return keys and values of every type, in every version, and a tombstone of each type."""
    made = []
    for number, (key, value) in types.items():
        for version in range(value.latest + 1):
            for _ in range(each):
                content = (random_value(source, kind, version) for kind in (key, value))
                made.append(encode(types, CoordinatorRecord(number, next(content), version, next(content))))
        made.append(encode(types, CoordinatorRecord(number, random_value(source, key, 0), -1, None)))
    return made


def metadata_values(source: random.Random, each: int) -> list[bytes]:
    """Return records of the metadata log: every type in every version."""
    return [
        encode_metadata_record(random_value(source, schema, version), version)
        for schema in SCHEMAS.values()
        for version in range(schema.latest + 1)
        for _ in range(each)
    ]
