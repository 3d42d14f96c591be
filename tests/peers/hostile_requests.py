"""Small requests of every API as hostile clients send them; made from kio's schemas and a seed."""

from __future__ import annotations

import struct
from dataclasses import Field, fields
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from odradek.broker.api import APIS
from odradek.broker.protocol import encode_request, request_class, without_none
from odradek.records.builder import build_batch
from odradek.records.kernels.objects import Record
from peers.sized_requests import TIMES, item_of

_SIZES = {"int8": 8, "uint8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64, "uint64": 64}
_SURROGATE = "\x01SURR"
_TEXTS = (
    *("", "t0", "t0", "t1", "t31", "none", "a" * 249, "a" * 250, "b" * 4000, "b" * 32767, "\0", "t0\0", "..", "a/b"),
    *(
        "\x1b[31m",
        "\r\n",
        "\U0001f600",
        _SURROGATE,
        "__consumer_offsets",
        "__transaction_state",
        "*",
        "(a+)+$",
        "(",
        "0",
    ),
    *("cleanup.policy", "compact,delete", "retention.ms", "-1", "NaN", "9" * 400, "consumer", "range", "PLAIN"),
    *("Stable", "Ongoing", "metadata.version", "transaction.version"),
)
_MOST_NAMED = 4
_ACL_KEYS = (29, 30, 31)
_ACL_CODES = ("operation", "type", "type_filter")


class Hostile(NamedTuple):
    """A request.

    Attributes:
        key: Its API.
        frame: What is sent, with its size.
        is_valid: Whether it follows its schema, so that it must be answered.
        text: What it is, to find it again.
    """

    key: int
    frame: bytes
    is_valid: bool
    text: str


def hostile_requests(key: int, count: int, seed: int) -> list[Hostile]:
    """Returns requests of an API; the same ones for a seed."""
    rng = Random(f"{seed} {key}")
    return [_request(rng, key, f"request {number} of {count}, API key {key}, seed {seed}") for number in range(count)]


def _request(rng: Random, key: int, text: str) -> Hostile:
    api = APIS[key]
    assert api is not None
    version = rng.choice(api.versions)
    maker = _Maker(rng, may_be_null=rng.random() < 0.2)
    frame = bytearray(
        encode_request(key, version, 1, rng.choice([None, "", "tests", "\x1b[0m"]), maker.body(key, version))
    )
    has_surrogate = _SURROGATE.encode() in frame
    frame = frame.replace(_SURROGATE.encode(), b"\xed\xa0\x80\xed\xb0\x80"[:5])
    kind = rng.choice(("whole",) * 5 + ("cut", "longer", "version", "flipped", "huge", "tagged"))
    if kind in _BREAK:
        _BREAK[kind](rng, frame)
    if kind == "tagged" and request_class(key, version).__flexible__:
        # In place of the last structure's empty tags.
        frame[-1:] = b"\x02" + b"\xd0\x86\x03\x03abc" + b"\xff\xff\xff\xff\x07\x00"
    frame[:4] = struct.pack(">i", len(frame) - 4)
    # To requests about ACLs with an UNKNOWN type or operation Apache Kafka does not answer.
    is_unknown = key in _ACL_KEYS and maker.has_unknown
    is_valid = kind == "whole" and not (maker.has_null or has_surrogate or is_unknown)
    return Hostile(key, bytes(frame), is_valid, f"{text}: {api.name} v{version}, {kind}")


def _cut(rng: Random, frame: bytearray) -> None:
    del frame[rng.randrange(4, len(frame)) :]


def _longer(rng: Random, frame: bytearray) -> None:
    frame += rng.randbytes(rng.choice([1, 4, 100]))


def _version(rng: Random, frame: bytearray) -> None:
    frame[6:8] = struct.pack(">h", rng.choice([-32768, -1, 0, 99, 32767, rng.randrange(20)]))


def _flipped(rng: Random, frame: bytearray) -> None:
    for _ in range(rng.randrange(1, 4)):
        frame[rng.randrange(8, len(frame))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])


def _huge(rng: Random, frame: bytearray) -> None:
    at = rng.randrange(8, len(frame))
    size = rng.choice([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\xff\xff"])
    frame[at : at + len(size)] = size


_BREAK = {"cut": _cut, "longer": _longer, "version": _version, "flipped": _flipped, "huge": _huge}


class _Maker:
    def __init__(self, rng: Random, *, may_be_null: bool) -> None:
        self._rng = rng
        self._may_be_null = may_be_null
        self.has_null = False
        self.has_unknown = False

    def body(self, key: int, version: int) -> dict[str, Any]:
        return self._structure(request_class(key, version))

    def _structure(self, kind: Any) -> dict[str, Any]:
        return dict(self._field(field) for field in fields(kind))

    def _field(self, field: Field[Any]) -> tuple[str, Any]:
        item, is_array = item_of(field)
        _, is_optional = without_none(field.type)
        kafka_type = field.metadata.get("kafka_type")
        name = f"{field.name}_ms" if kafka_type in TIMES else field.name
        if self._is_null(is_optional, is_array, kafka_type):
            return name, None
        if not is_array:
            value = self._one(item, kafka_type)
            self.has_unknown |= value == 0 and name.endswith(_ACL_CODES)
            return name, value
        values = [self._one(item, kafka_type) for _ in range(self._rng.choice([0, 1, 1, 2, _MOST_NAMED]))]
        # Some are named twice.
        return name, values + values[: self._rng.choice([0, 0, 1])]

    def _is_null(self, is_optional: bool, is_array: bool, kafka_type: str | None) -> bool:
        if is_optional:
            return self._rng.random() < 0.2
        can_be = is_array or kafka_type in ("string", "bytes", "records")
        if can_be and self._may_be_null and self._rng.random() < 0.2:
            self.has_null = True
            return True
        return False

    def _one(self, item: Any, kafka_type: str | None) -> Any:
        rng = self._rng
        if kafka_type is None:
            return self._structure(item)
        match kafka_type:
            case "string":
                return rng.choice(_TEXTS)
            case "uuid":
                return UUID(int=rng.choice([0, 1, (1 << 128) - 1]))
            case "records":
                batch = bytes(build_batch([Record(value=b"value", timestamp=1)]))
                return rng.choice([batch, batch[:-1], batch * 2, b"", rng.randbytes(70)])
            case "bytes":
                return rng.choice([b"", b"\0", rng.randbytes(100)])
            case "bool":
                return rng.random() < 0.5
            case "float64":
                return rng.choice([0.0, -1.0, float("nan"), float("inf")])
        bits = {"error_code": 16, "timedelta_i32": 32, "timedelta_i64": 64, "datetime_i64": 64}.get(kafka_type)
        bits = bits or _SIZES[kafka_type]
        if kafka_type.startswith("uint"):
            return rng.choice([0, 1, (1 << bits) - 1])
        most = (1 << (bits - 1)) - 1
        edges = [-1, 0, 0, 1, 1, 2, 31, -2, -3, 100, 10_000, most, -most - 1, most // 1000]
        return max(-most - 1, min(most, rng.choice(edges)))
