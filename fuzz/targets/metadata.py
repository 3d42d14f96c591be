"""Records within records: KRaft's metadata, the coordinators' topics, what group members tell each other.

input   kind: 1 byte | key length: 2 bytes | key | value        several metadata records: each with its length before it
"""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Callable, Hashable, Sequence
from uuid import UUID

from decoders import words
from mutation import mutate_bytes
from odradek.errors import FormatError
from odradek.messages.coordinators import group_records, transaction_records
from odradek.messages.coordinators.consumer_protocol import ASSIGNMENT, SUBSCRIPTION, protocol_json
from odradek.messages.coordinators.coordinator_records import encode
from odradek.messages.metadata.control_records import control_record_json, decode_control_record, encode_control_record
from odradek.messages.metadata.metadata_records import (
    BeginTransactionRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
    decode_metadata_record,
    encode_metadata_record,
    metadata_record_json,
)
from odradek.records import Record, read_records, scan_batches
from odradek.storage.metadata.metadata_image import MetadataImage
from seeds import broker_files
from targets import Target

_NUMBER = re.compile(r"[0-9a-f]*[0-9][0-9a-f-]*")
_LENGTH = struct.Struct(">H")
_VERSIONS = 6


def _pack(kind: int, key: bytes | None, value: bytes | None) -> bytes:
    return bytes([kind]) + _LENGTH.pack(len(key or b"")) + (key or b"") + (value or b"")


def _group(key: bytes, value: bytes) -> None:
    record = group_records.decode_group_record(key, value)
    json.dumps(group_records.group_record_json(key, value))
    again = encode(group_records.TYPES, record)
    assert group_records.decode_group_record(*again) == record, "written again it differs"
    group_records.decode_group_record(key, None)


def _transaction(key: bytes, value: bytes) -> None:
    record = transaction_records.decode_transaction_record(key, value)
    json.dumps(transaction_records.transaction_record_json(key, value))
    again = encode(transaction_records.TYPES, record)
    assert transaction_records.decode_transaction_record(*again) == record, "written again it differs"


def _control(key: bytes, value: bytes) -> None:
    record = Record(key, value)
    decoded = decode_control_record(record)
    json.dumps(control_record_json(record))
    if decoded is not None and 0 <= decoded.version <= 1:
        assert decode_control_record(Record(*encode_control_record(decoded))) == decoded, "written again it differs"


def _metadata(key: bytes, value: bytes) -> None:
    image = MetadataImage()
    position = 0
    while len(value) - position >= _LENGTH.size:
        (size,) = _LENGTH.unpack_from(value, position)
        position += _LENGTH.size
        part = value[position : position + size]
        position += size
        record = decode_metadata_record(part)
        json.dumps(metadata_record_json(part))
        assert any(_survives(record, version) for version in range(_VERSIONS)), f"{record} cannot be written again"
        image.apply(record)


def _survives(record: object, version: int) -> bool:
    try:
        return decode_metadata_record(encode_metadata_record(record, version)) == record  # type: ignore[arg-type]
    except (ValueError, FormatError):
        return False


def _protocol(key: bytes, value: bytes) -> None:
    for schema in (SUBSCRIPTION, ASSIGNMENT):
        json.dumps(protocol_json(schema, value))


_KINDS: tuple[Callable[[bytes, bytes], None], ...] = (_group, _transaction, _control, _metadata, _protocol)


def _seeds() -> Sequence[bytes]:
    found = []
    values = []
    for name, data in broker_files().items():
        if not name.endswith((".log", ".checkpoint")) or ("__" not in name and "checkpoint" not in name):
            continue
        for header in scan_batches(data):
            for record in read_records(data, header):
                if header.is_control:
                    found.append(_pack(2, record.key, record.value))
                elif "__consumer_offsets" in name:
                    found.append(_pack(0, record.key, record.value))
                elif "__transaction_state" in name:
                    found.append(_pack(1, record.key, record.value))
                elif record.value is not None:
                    values.append(record.value)
    for start in range(0, len(values), 6):
        found.append(_pack(3, b"", b"".join(_LENGTH.pack(len(v)) + v for v in values[start : start + 6])))
    first, second = UUID(int=1), UUID(int=2)
    lives: list[MetadataRecord] = [
        BeginTransactionRecord("a"),
        TopicRecord("t", first),
        PartitionRecord(0, first, (1,), (1,), 1),
        PartitionChangeRecord(0, first, isr=(1,)),
        ConfigRecord(2, "t", "retention.ms", "5"),
        EndTransactionRecord(),
        RemoveTopicRecord(first),
        TopicRecord("t", second),
        FeatureLevelRecord("metadata.version", 20),
        FeatureLevelRecord("metadata.version", 0),
        UserScramCredentialRecord("alice", 1, b"salt", b"stored", b"server", 4096),
        RemoveUserScramCredentialRecord("alice", 1),
        DelegationTokenRecord("User:alice", "User:bob", ("User:carol",), 1, 3, 2, "id"),
        RemoveDelegationTokenRecord("id"),
    ]
    life = [encode_metadata_record(record) for record in lives]
    found.append(_pack(3, b"", b"".join(_LENGTH.pack(len(value)) + value for value in life)))
    subscription = bytes.fromhex("0003 0000 0001 0001 61 ffffffff 00000001 0001 61 00000001 00000000 00000005 ffff")
    assignment = bytes.fromhex("0000 0000 0001 0001 61 00000002 00000000 00000001 ffffffff")
    found += [_pack(4, b"", subscription.replace(b" ", b"")), _pack(4, b"", assignment)]
    short = sorted({data for data in found if len(data) <= 2000})
    return short[:: max(1, len(short) // 300)]


def _mutate(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    kind, key, value = _unpack(data)
    alike = [_unpack(other) for other in others[-200:] if other[:1] == data[:1]]
    if kind == 3 and rng.random() < 0.8:
        parts = _parts(value)
        index = rng.randrange(len(parts) + 1)
        if index < len(parts):
            parts[index] = mutate_bytes(rng, parts[index], [other[2] for other in alike])
        else:
            parts = [*parts, *_parts(rng.choice(alike)[2])] if alike else parts * 2
        value = b"".join(_LENGTH.pack(len(part) & 0xFFFF) + part for part in parts)
    elif rng.random() < 0.3:
        key = mutate_bytes(rng, key, [other[1] for other in alike])
    else:
        value = mutate_bytes(rng, value, [other[2] for other in alike])
    return _pack(kind, key[:60000], value)


def _unpack(data: bytes) -> tuple[int, bytes, bytes]:
    if len(data) < 3:
        return 0, b"", b""
    (size,) = _LENGTH.unpack_from(data, 1)
    return data[0] % len(_KINDS), data[3 : 3 + size], data[3 + size :]


def _parts(value: bytes) -> list[bytes]:
    parts = []
    while len(value) >= _LENGTH.size:
        (size,) = _LENGTH.unpack_from(value)
        parts.append(value[_LENGTH.size : _LENGTH.size + size])
        value = value[_LENGTH.size + size :]
    return parts


def _check(data: bytes) -> Hashable:
    kind, key, value = _unpack(data)
    try:
        _KINDS[kind](key, value)
    except FormatError as error:
        return kind, _NUMBER.sub("#", error.reason)
    return kind, key[:2]


def _words(data: bytes) -> str:
    kind, key, value = _unpack(data)
    try:
        _KINDS[kind](key, value)
    except FormatError as error:
        return words(error)
    return "none"


TARGETS = [Target("metadata", _seeds, _mutate, _check, words=_words)]
