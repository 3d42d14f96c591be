from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

import pytest

from odradek.errors import FormatError
from odradek.messages.field_types import (
    BYTES,
    INT8,
    INT16,
    INT32,
    NULLABLE_STRING,
    STRING,
    UUID_FIELD,
    Array,
    FieldReader,
    FieldWriter,
)
from odradek.messages.schema import Field, Schema

ZERO_UUID = UUID(int=0)


class Inner(NamedTuple):
    name: str
    weight: int = -1


class Outer(NamedTuple):
    name: str | None
    parts: tuple[Inner, ...] = ()
    since_one: int = 0
    only_zero: int = 0
    data: bytes = b""
    note: str | None = None
    id: UUID = ZERO_UUID


INNER = Schema(Inner, (Field("name", STRING), Field("weight", INT32, since=2, tag=0)))
OUTER = Schema(
    Outer,
    (
        Field("name", NULLABLE_STRING),
        Field("note", NULLABLE_STRING, since=2, tag=3),
        Field("parts", Array(INNER)),
        Field("since_one", INT16, since=1, needed=True),
        Field("only_zero", INT8, until=0),
        Field("data", BYTES),
        Field("id", UUID_FIELD, since=2, tag=1),
    ),
    latest=2,
    flexible_since=2,
)
PARTS = (Inner("x"), Inner("é"))
CASES = [
    (Outer("ab", PARTS, 0, 5, b"\0\xff"), 0, "0002 6162 00000002 0001 78 0002 c3a9 05 00000002 00ff"),
    (Outer(None, (), 7), 1, "ffff 00000000 0007 00000000"),
    (Outer(None, (), 7), 2, "00 01 0007 01 00"),
    (
        Outer("ab", (Inner("x", 9),), 7, 0, b"\1", "n", UUID(int=5)),
        2,
        "03 6162 02 0278 01 00 04 00000009 0007 0201 02 0110 00000000000000000000000000000005 0302 026e",
    ),
]


@pytest.mark.parametrize(("record", "version", "data"), CASES)
def test_both_ways(record: Outer, version: int, data: str) -> None:
    encoded = bytes.fromhex(data)

    assert OUTER.encode(record, version) == encoded
    assert OUTER.decode(encoded, version) == (record, len(encoded))
    assert OUTER.decode(b"??" + encoded + b"!", version, position=2) == (record, len(encoded) + 2)


@pytest.mark.parametrize(("record", "version", "data"), CASES)
def test_cut_at_every_byte(record: Outer, version: int, data: str) -> None:
    encoded = bytes.fromhex(data)

    for size in range(len(encoded)):
        with pytest.raises(FormatError):
            OUTER.decode(encoded[:size], version)


@pytest.mark.parametrize(
    ("data", "version", "reason"),
    [
        ("0003 616263 7fffffff", 0, "length of 2147483647"),
        ("0001 ff", 0, "UTF-8"),
        ("8002 6162", 1, "length of -32766"),
        ("00 00", 2, "null"),
        ("00 01 0007 01 ffffffff0f", 2, "claims"),
        ("00 ffffffff0f", 2, "length of"),
        ("ffffffffffff01", 2, "32 bits"),
        ("00 01 0007 01 01 01 0105 00", 2, "claims 16 bytes, 1 are left"),
        ("00 01 0007 01 01 03 03 026e 00", 2, "too many"),
        ("00", 3, "version 3 is unknown"),
        ("00", -1, "version -1 is unknown"),
    ],
)
def test_damaged(data: str, version: int, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        OUTER.decode(bytes.fromhex(data), version)


def test_unknown_tags_are_passed_over() -> None:
    assert OUTER.decode(bytes.fromhex("00 01 0007 01 02 07 03 aabbcc 09 00"), 2) == (Outer(None, (), 7), 13)


def test_what_a_version_cannot_say_is_refused() -> None:
    with pytest.raises(ValueError, match="version 0 has no since_one"):
        OUTER.encode(Outer("a", since_one=1), 0)
    with pytest.raises(ValueError, match="null"):
        INNER.encode(Inner(None), 0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="40000"):
        OUTER.encode(Outer("a", since_one=40000), 1)
    with pytest.raises(ValueError, match="longer than"):
        INNER.encode(Inner("x" * 0x8000), 0)


def test_json_has_the_fields_of_the_version_in_order() -> None:
    record = CASES[3][0]

    assert OUTER.to_json(record, 2) == {
        "name": "ab",
        "note": "n",
        "parts": [{"name": "x", "weight": 9}],
        "sinceOne": 7,
        "data": "AQ==",
        "id": "AAAAAAAAAAAAAAAAAAAABQ",
    }
    assert list(OUTER.to_json(record, 0)) == ["name", "parts", "onlyZero", "data"]


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 16383, 16384, 0xFFFFFFFF])
def test_unsigned_varint(value: int) -> None:
    writer = FieldWriter()
    writer.unsigned_varint(value)

    reader = FieldReader(writer.data)
    assert reader.unsigned_varint() == value
    assert reader.left == 0
