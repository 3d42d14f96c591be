from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from odradek.errors import FormatError
from odradek.messages.coordinators.coordinator_records import CoordinatorRecord, UnknownCoordinatorRecordError, encode
from odradek.messages.coordinators.group_records import TYPES as GROUP_TYPES
from odradek.messages.coordinators.group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_record,
    encode_group_metadata,
    encode_offset_commit,
    group_record_json,
)
from odradek.messages.coordinators.transaction_records import TYPES as TRANSACTION_TYPES
from odradek.messages.coordinators.transaction_records import (
    TransactionState,
    TransactionTopic,
    TransactionValue,
    decode_transaction_record,
    encode_transaction_record,
    transaction_record_json,
)
from peers.batches import records_of
from peers.kafka_fixture import KafkaFixture

TOPIC_ID = UUID("c05633d0-06e3-4b5d-9284-7b28adaddd1a")
KEY = OffsetCommitKey("g-classic", "plain", 0)
KEY_BYTES = "0001 0009 672d636c6173736963 0005 706c61696e 00000000"
COMMITS = [
    (OffsetCommitValue(3, "meta", 5), 0, "0000 0000000000000003 0004 6d657461 0000000000000005"),
    (
        OffsetCommitValue(3, "", 5, expire_timestamp=9),
        1,
        "0001 0000000000000003 0000 0000000000000005 0000000000000009",
    ),
    (OffsetCommitValue(3, "", 5), 2, "0002 0000000000000003 0000 0000000000000005"),
    (OffsetCommitValue(3, "", 5, 7), 3, "0003 0000000000000003 00000007 0000 0000000000000005"),
    (OffsetCommitValue(3, "", 5, 7), 4, "0004 0000000000000003 00000007 01 0000000000000005 00"),
    (
        OffsetCommitValue(3, "meta", 0x1A1FB4AE69A, 0, topic_id=TOPIC_ID),
        4,
        f"0004 0000000000000003 00000000 05 6d657461 000001a1fb4ae69a 01 00 10 {TOPIC_ID.hex}",
    ),
]


@pytest.mark.parametrize(("commit", "version", "data"), COMMITS)
def test_offset_commits(commit: OffsetCommitValue, version: int, data: str) -> None:
    key, value = encode_offset_commit(KEY, commit, version)

    assert (key, value) == (bytes.fromhex(KEY_BYTES), bytes.fromhex(data))
    assert decode_group_record(key, value) == CoordinatorRecord(1, KEY, version, commit)
    assert decode_group_record(b"\0\0" + key[2:], value) == CoordinatorRecord(0, KEY, version, commit)
    for size in range(len(value or b"")):
        with pytest.raises(FormatError):
            decode_group_record(key, bytes.fromhex(data)[:size])


def test_versions_that_kafka_writes() -> None:
    assert decode_group_record(*encode_offset_commit(KEY, OffsetCommitValue(1, "", 2))).version == 4
    assert decode_group_record(*encode_offset_commit(KEY, OffsetCommitValue(1, "", 2, expire_timestamp=3))).version == 1
    with pytest.raises(ValueError, match="version 4 has no expire_timestamp"):
        encode_offset_commit(KEY, OffsetCommitValue(1, "", 2, expire_timestamp=3), 4)
    assert encode_offset_commit(KEY, None) == (bytes.fromhex(KEY_BYTES), None)
    assert decode_group_record(bytes.fromhex(KEY_BYTES), None) == CoordinatorRecord(1, KEY, -1, None)


def test_the_bytes_of_an_empty_group() -> None:
    value = GroupMetadataValue("", 0, None, None, (), 0x1A1FB4AE557)

    assert encode_group_metadata("g-classic", value) == (
        bytes.fromhex("0002 0009 672d636c6173736963"),
        bytes.fromhex("0003 0000 00000000 ffff ffff 000001a1fb4ae557 00000000"),
    )


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_group(version: int) -> None:
    members = (MemberMetadata("m", "c", "/h", 10, b"\1", b"", None if version < 3 else "i", -1 if version < 1 else 20),)
    value = GroupMetadataValue("consumer", 7, "range", "m", members, -1 if version < 2 else 30)

    key, data = encode_group_metadata("g", value, version)

    assert decode_group_record(key, data).value == value
    assert data is not None
    with pytest.raises(FormatError):
        decode_group_record(key, data[:-1])


def test_the_bytes_of_a_transaction() -> None:
    value = TransactionValue(
        producer_id=1,
        producer_epoch=0,
        transaction_timeout_ms=60000,
        transaction_status=TransactionState.ONGOING,
        transaction_partitions=(TransactionTopic("txn", (0,)),),
        transaction_last_update_timestamp_ms=5,
        transaction_start_timestamp_ms=6,
        previous_producer_id=1,
        client_transaction_version=2,
    )
    key, data = encode_transaction_record("tx-A", value)

    assert key == bytes.fromhex("0000 0004 74782d41")
    assert data == bytes.fromhex(
        "0001 0000000000000001 0000 0000ea60 01 02 04 74786e 02 00000000 00"
        "0000000000000005 0000000000000006 02 00 08 0000000000000001 02 02 0002"
    )
    assert decode_transaction_record(key, data).value == value
    assert encode_transaction_record("tx-A", None) == (key, None)
    with pytest.raises(ValueError, match="version 0 has no previous_producer_id"):
        encode_transaction_record("tx-A", value, 0)


def _printed(path: Any) -> list[tuple[Any, Any]]:
    """The JSON of each record in what Kafka's dump tool printed."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and " key: {" in line:
            key, payload = line.split(" key: ", 1)[1].split(" payload: ", 1)
            found.append((json.loads(key), None if payload == "<DELETE>" else json.loads(payload)))
    return found


@pytest.mark.parametrize(
    ("topic", "to_json", "types"),
    [
        ("__consumer_offsets-0", group_record_json, GROUP_TYPES),
        ("__transaction_state-0", transaction_record_json, TRANSACTION_TYPES),
    ],
)
def test_as_kafkas_dump_tool_prints_them(fixture_4_3_1: KafkaFixture, topic: str, to_json: Any, types: Any) -> None:
    decode = decode_group_record if types is GROUP_TYPES else decode_transaction_record
    printed = _printed(fixture_4_3_1.dump / f"{topic}.txt")
    shown = []
    for path in sorted((fixture_4_3_1.log_dir / topic).glob("*.log")):
        for record in records_of(path.read_bytes()):
            shown.append(to_json(record.key, record.value))
            assert encode(types, decode(record.key, record.value)) == (record.key, record.value)

    assert [list(value["data"]) for _, value in shown if value] == [
        list(value["data"]) for _, value in printed if value
    ]
    assert len(shown) > 5


def test_both_topics_of_kafka_2_8_are_written_as_they_were(fixture_2_8_2: KafkaFixture) -> None:
    for topic, types, decode in (
        ("__consumer_offsets-0", GROUP_TYPES, decode_group_record),
        ("__transaction_state-0", TRANSACTION_TYPES, decode_transaction_record),
    ):
        seen = 0
        for path in (fixture_2_8_2.log_dir / topic).glob("*.log"):
            for record in records_of(path.read_bytes()):
                assert encode(types, decode(record.key, record.value)) == (record.key, record.value)
                seen += 1
        assert seen > 4


@pytest.mark.parametrize(
    ("key", "value", "error", "reason"),
    [
        (None, b"", FormatError, "type in its key"),
        (b"\0", b"", FormatError, "type in its key"),
        (b"\0\x18", b"", UnknownCoordinatorRecordError, "type 24"),
        (bytes.fromhex(KEY_BYTES), b"\0", FormatError, "version in its value"),
        (bytes.fromhex(KEY_BYTES), b"\0\5", FormatError, "version 5"),
        (bytes.fromhex(KEY_BYTES)[:-1], None, FormatError, "claims 4 bytes"),
    ],
)
def test_damaged(key: bytes | None, value: bytes | None, error: type[FormatError], reason: str) -> None:
    with pytest.raises(error, match=reason):
        decode_group_record(key, value)


@pytest.mark.parametrize(
    ("classic", "tagged"),
    [
        (None, "01 00 01 00"),
        (
            ClassicMemberMetadata(45_000, (ClassicProtocol("range", b"\1"),)),
            "01 00 10 01 0000afc8 02 06 72616e6765 02 01 00 00",
        ),
    ],
)
def test_a_member_of_the_consumer_protocol_as_kafka_writes_it(
    classic: ClassicMemberMetadata | None, tagged: str
) -> None:
    """The first is of Kafka 4.3.1; the second follows its generated code."""
    key = bytes.fromhex("0005 0005 776f726473 0001 6d")
    value = bytes.fromhex(
        "0000 00 00 08 636f756e746572 0b 2f3132372e302e302e31 02 07 6576656e7473 01 000493e0 00" + tagged
    )
    record = decode_group_record(key, value)
    assert record.value == ConsumerGroupMemberMetadataValue(
        None, None, "counter", "/127.0.0.1", ("events",), "", 300_000, None, classic
    )
    assert encode(GROUP_TYPES, record) == (key, value)
