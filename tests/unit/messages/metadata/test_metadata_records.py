from __future__ import annotations

from uuid import UUID

import pytest

from odradek.errors import FormatError
from odradek.messages.metadata.control_records import control_record_json, decode_control_record, encode_control_record
from odradek.messages.metadata.metadata_records import (
    BeginTransactionRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnknownRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
    decode_metadata_record,
    encode_metadata_record,
    metadata_record_json,
)
from odradek.records import Record, read_records, scan_batches
from peers.kafka_fixture import KafkaFixture

TOPIC_ID = UUID("00000000-0000-4000-8000-000000000005")
DIRECTORY_ID = UUID("00000000-0000-4000-8000-000000000006")
PARTITION = PartitionRecord(0, TOPIC_ID, (1,), (1,), 1)
VECTORS: list[tuple[MetadataRecord, int, str]] = [
    (TopicRecord("odr", TOPIC_ID), 0, f"010200 04 6f6472 {TOPIC_ID.hex} 00"),
    (
        PartitionRecord(0, TOPIC_ID, (1,), (1,), 1, directories=(DIRECTORY_ID,)),
        1,
        f"010301 00000000 {TOPIC_ID.hex} 0200000001 0200000001 01 01 00000001 00000000 00000000"
        f"02 {DIRECTORY_ID.hex} 00",
    ),
    (PARTITION, 0, f"010300 00000000 {TOPIC_ID.hex} 0200000001 0200000001 01 01 00000001 00000000 00000000 00"),
    (FeatureLevelRecord("metadata.version", 30), 0, "010c00 11 6d657461646174612e76657273696f6e 001e 00"),
    (ConfigRecord(4, "", "a", None), 0, "010400 04 01 0261 00 00"),
    (UserScramCredentialRecord("a", 2, b"s", b"k", b"v", 4096), 0, "010b00 0261 02 0273 026b 0276 00001000 00"),
    (RemoveUserScramCredentialRecord("a", 2), 0, "011600 0261 02 00"),
    (
        DelegationTokenRecord("User:a", "User:b", ("User:c", "User:d"), 1, 3, 2, "i"),
        0,
        "010a00 07 557365723a61 07 557365723a62 03 07 557365723a63 07 557365723a64"
        "0000000000000001 0000000000000003 0000000000000002 0269 00",
    ),
    (RemoveDelegationTokenRecord("i"), 0, "011a00 0269 00"),
    (UnregisterControllerRecord(3), 0, "011d00 00000003 00"),
    (NoOpRecord(), 0, "011400 00"),
    (BeginTransactionRecord("B"), 0, "011700 01 00 02 0242"),
    (PartitionChangeRecord(1, TOPIC_ID, leader=-1), 0, f"010500 00000001 {TOPIC_ID.hex} 01 01 04 ffffffff"),
    (UnknownRecord(300, 2, b"\1\2"), 0, "01 ac02 02 0102"),
    (UnknownRecord(2, 1, b"\1\2"), 0, "01 02 01 0102"),
]


@pytest.mark.parametrize(("record", "version", "data"), VECTORS)
def test_both_ways(record: MetadataRecord, version: int, data: str) -> None:
    assert encode_metadata_record(record, version) == bytes.fromhex(data)
    assert decode_metadata_record(bytes.fromhex(data)) == record


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "without a value"),
        (b"", "are left"),
        (bytes.fromhex("021400 00"), "frame version 2"),
        (bytes.fromhex("011400 00 00"), "1 bytes too many"),
        (bytes.fromhex("011400"), "are left"),
    ],
)
def test_damaged(value: bytes | None, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        decode_metadata_record(value)


def test_directories_are_not_lost_in_an_old_version() -> None:
    with pytest.raises(ValueError, match="version 0 has no directories"):
        encode_metadata_record(PartitionRecord(0, TOPIC_ID, (1,), (1,), 1, directories=(DIRECTORY_ID,)), 0)


def _records(fixture: KafkaFixture) -> list[tuple[Record, bool]]:
    files = [fixture.log_dir / "bootstrap.checkpoint"]
    folder = fixture.log_dir / "__cluster_metadata-0"
    files += [path for path in sorted(folder.iterdir()) if path.suffix in {".log", ".checkpoint"}]
    found = []
    for path in files:
        data = path.read_bytes()
        for header in scan_batches(data):
            found += [(record, header.is_control) for record in read_records(data, header)]
    return found


def test_every_record_of_kafka_is_known_and_written_as_it_was(fixture_4_3_1: KafkaFixture) -> None:
    records = _records(fixture_4_3_1)
    kinds = set()
    for record, is_control in records:
        if is_control:
            control = decode_control_record(record)
            assert control is not None
            assert encode_control_record(control) == (record.key, record.value)
            kinds.add(type(control).__name__)
        else:
            assert record.value is not None
            decoded = decode_metadata_record(record.value)
            assert not isinstance(decoded, UnknownRecord)
            version = metadata_record_json(record.value)["version"]
            assert encode_metadata_record(decoded, version) == record.value
            kinds.add(type(decoded).__name__)

    assert len(records) > 250
    assert {"TopicRecord", "PartitionChangeRecord", "RegisterBrokerRecord", "LeaderChange", "KRaftVoters"} <= kinds


def test_json_is_that_of_kafkas_dump_tool(fixture_4_3_1: KafkaFixture) -> None:
    records = _records(fixture_4_3_1)
    controls = dict(filter(None, (control_record_json(record) for record, is_control in records if is_control)))
    partitions = [
        metadata_record_json(record.value)
        for record, is_control in records
        if not is_control and isinstance(decode_metadata_record(record.value), PartitionRecord)
    ]

    assert controls["SnapshotFooter"] == {"version": 0}
    assert controls["KRaftVersion"] == {"version": 0, "kRaftVersion": 1}
    assert (partitions[0]["type"], partitions[0]["version"]) == ("PARTITION_RECORD", 2)
    assert list(partitions[0]["data"]) == [
        *("partitionId", "topicId", "replicas", "isr", "removingReplicas", "addingReplicas"),
        *("leader", "leaderEpoch", "partitionEpoch", "directories"),
    ]
