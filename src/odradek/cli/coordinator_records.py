"""The records of `__consumer_offsets` and `__transaction_state` as the JSON that Kafka's dump tool makes of them.

    key     type int16 | fields                    {"type":"1","data":{"group":"g","topic":"t","partition":0}}
    value   version int16 | fields                 {"version":"4","data":{"offset":7,...}}

A field is described by its name and how it is read; newer versions are *flexible*: lengths are unsigned varints, one
more than the length, and tagged fields follow.

Kafka: OffsetCommitKey/Value, GroupMetadataKey/Value, ConsumerProtocolSubscription/Assignment, TransactionLogKey/Value.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

from odradek.errors import FormatError
from odradek.storage.uuids import ZERO_UUID, format_uuid

Json = dict[str, Any]


class UnknownRecordTypeError(FormatError):
    """A type of record that is not known here."""

    def __init__(self, number: int) -> None:
        self.type = number
        super().__init__(f"unknown record type {number}")


class FieldReader:
    """Reads the fields of one message, one after the other.

    Args:
        data: The message.
        flexible: Whether its lengths are unsigned varints.
    """

    def __init__(self, data: bytes, *, flexible: bool = False) -> None:
        self._data = data
        self._position = 0
        self.flexible = flexible

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes.

        Raises:
            FormatError: There are not as many.
        """
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise FormatError(f"{size} bytes are claimed, {len(self._data) - self._position} are left")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def _unpack(self, form: str) -> int:
        number: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return number

    def int8(self) -> int:
        """Read an int8."""
        return self._unpack(">b")

    def int16(self) -> int:
        """Read an int16."""
        return self._unpack(">h")

    def int32(self) -> int:
        """Read an int32."""
        return self._unpack(">i")

    def int64(self) -> int:
        """Read an int64."""
        return self._unpack(">q")

    def uuid(self) -> UUID:
        """Read a UUID."""
        return UUID(bytes=self.take(16))

    def unsigned_varint(self) -> int:
        """Read an unsigned varint."""
        number = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise FormatError("a varint of more than five bytes")

    def _length(self, form: str) -> int:
        return self.unsigned_varint() - 1 if self.flexible else self._unpack(form)

    def string(self) -> str | None:
        """Read a string, or null."""
        size = self._length(">h")
        return None if size < 0 else self.take(size).decode("utf-8", "replace")

    def binary(self) -> bytes | None:
        """Read bytes, or null."""
        size = self._length(">i")
        return None if size < 0 else self.take(size)

    def array(self, element: Callable[[], Any]) -> list[Any] | None:
        """Read an array, or null."""
        count = self._length(">i")
        if count > len(self._data) - self._position:
            raise FormatError(f"{count} elements are claimed, {len(self._data) - self._position} bytes are left")
        return None if count < 0 else [element() for _ in range(count)]

    def tags(self) -> dict[int, bytes]:
        """Read the tagged fields of a flexible message, by their numbers."""
        if not self.flexible:
            return {}
        return {self.unsigned_varint(): self.take(self.unsigned_varint()) for _ in range(self.unsigned_varint())}


def _binary(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _dumps(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _offset_commit_value(reader: FieldReader, version: int) -> Json:
    fields: Json = {"offset": reader.int64()}
    if version >= 3:
        fields["leaderEpoch"] = reader.int32()
    fields["metadata"] = reader.string()
    fields["commitTimestamp"] = reader.int64()
    if version == 1:
        fields["expireTimestamp"] = reader.int64()
    topic_id = reader.tags().get(0)
    if topic_id is not None and len(topic_id) == 16 and UUID(bytes=topic_id) != ZERO_UUID:
        fields["topicId"] = format_uuid(UUID(bytes=topic_id))
    return fields


def _subscription(data: bytes) -> Json:
    reader = FieldReader(data)
    version = min(reader.int16(), 3)

    def owned() -> Json:
        return {"topic": reader.string(), "partitions": reader.array(reader.int32)}

    fields: Json = {"topics": reader.array(reader.string), "userData": _binary(reader.binary())}
    if version >= 1:
        fields["ownedPartitions"] = reader.array(owned)
    if version >= 2:
        fields["generationId"] = reader.int32()
    if version >= 3:
        fields["rackId"] = reader.string()
    return fields


def _assignment(data: bytes) -> Json:
    reader = FieldReader(data)
    reader.int16()

    def assigned() -> Json:
        return {"topic": reader.string(), "partitions": reader.array(reader.int32)}

    return {"assignedPartitions": reader.array(assigned), "userData": _binary(reader.binary())}


def _decoded(data: bytes | None, decode: Callable[[bytes], Json], *, is_consumer: bool) -> Json | str | None:
    if is_consumer and data:
        try:
            return decode(data)
        except FormatError:
            pass
    return _binary(data)


def _group_metadata_value(reader: FieldReader, version: int) -> Json:
    protocol_type = reader.string()
    is_consumer = protocol_type == "consumer"
    fields: Json = {
        "protocolType": protocol_type,
        "generation": reader.int32(),
        "protocol": reader.string(),
        "leader": reader.string(),
    }
    if version >= 2:
        fields["currentStateTimestamp"] = reader.int64()

    def member() -> Json:
        entry: Json = {"memberId": reader.string()}
        if version >= 3:
            entry["groupInstanceId"] = reader.string()
        entry["clientId"] = reader.string()
        entry["clientHost"] = reader.string()
        if version >= 1:
            entry["rebalanceTimeout"] = reader.int32()
        entry["sessionTimeout"] = reader.int32()
        entry["subscription"] = _decoded(reader.binary(), _subscription, is_consumer=is_consumer)
        entry["assignment"] = _decoded(reader.binary(), _assignment, is_consumer=is_consumer)
        reader.tags()
        return entry

    fields["members"] = reader.array(member)
    reader.tags()
    return fields


def _transaction_log_value(reader: FieldReader, version: int) -> Json:
    identity: Json = {"producerId": reader.int64()}
    epoch: Json = {"producerEpoch": reader.int16()}
    state: Json = {"transactionTimeoutMs": reader.int32(), "transactionStatus": reader.int8()}

    def partitions() -> Json:
        entry = {"topic": reader.string(), "partitionIds": reader.array(reader.int32)}
        reader.tags()
        return entry

    state["transactionPartitions"] = reader.array(partitions)
    state["transactionLastUpdateTimestampMs"] = reader.int64()
    state["transactionStartTimestampMs"] = reader.int64()
    tags = reader.tags()

    def add_tagged(fields: Json, number: int, name: str, default: int) -> None:
        if number in tags and (value := int.from_bytes(tags[number], "big", signed=True)) != default:
            fields[name] = value

    add_tagged(identity, 0, "previousProducerId", -1)
    add_tagged(identity, 1, "nextProducerId", -1)
    add_tagged(state, 2, "clientTransactionVersion", 0)
    add_tagged(epoch, 3, "nextProducerEpoch", -1)
    return identity | epoch | state


_OFFSETS_KEYS: dict[int, tuple[str, ...]] = {
    0: ("group", "topic", "partition"),
    1: ("group", "topic", "partition"),
    2: ("group",),
}


def offsets_record(key: bytes | None, value: bytes | None) -> tuple[str, str]:
    """Return key and value of a record of `__consumer_offsets` as JSON.

    Raises:
        UnknownRecordTypeError: The key is of a type other than offset commit and group metadata.
        FormatError: The record is cut short, or has no key.
    """
    reader = FieldReader(key or b"")
    number = reader.int16()
    if number not in _OFFSETS_KEYS:
        raise UnknownRecordTypeError(number)
    data: Json = {name: reader.int32() if name == "partition" else reader.string() for name in _OFFSETS_KEYS[number]}
    shown = _dumps({"type": str(number), "data": data})
    return shown, _value(value, _group_metadata_value if number == 2 else _offset_commit_value, flexible_from=4)


def transaction_record(key: bytes | None, value: bytes | None) -> tuple[str, str]:
    """Return key and value of a record of `__transaction_state` as JSON.

    Raises:
        UnknownRecordTypeError: The key is of another type than 0.
        FormatError: The record is cut short, or has no key.
    """
    reader = FieldReader(key or b"")
    number = reader.int16()
    if number:
        raise UnknownRecordTypeError(number)
    shown = _dumps({"type": "0", "data": {"transactionalId": reader.string()}})
    return shown, _value(value, _transaction_log_value, flexible_from=1)


def _value(value: bytes | None, decode: Callable[[FieldReader, int], Json], *, flexible_from: int) -> str:
    if value is None:
        return "<DELETE>"
    reader = FieldReader(value)
    version = reader.int16()
    if not 0 <= version <= 4:
        raise FormatError(f"version {version} is unknown")
    reader.flexible = version >= flexible_from
    return _dumps({"version": str(version), "data": decode(reader, version)})
