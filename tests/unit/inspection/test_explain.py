"""`explain`: the bytes of a batch field by field, and who is given a record, as real consumers were."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.inspection import Reason, UnknownPathError, explain
from odradek.inspection.explaining.fields import fields_of_batch
from odradek.places.opening import open_place
from odradek.records import Record, scan_batches
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.sources.arrow import record_batches
from odradek.storage.names import TopicPartition
from odradek.testing import Broker
from peers.command import run
from peers.kafka_fixture import KafkaFixture

SmallLogDirectory = Callable[..., Path]

# As Kafka 4.3.1 wrote it: four records, of which one has a null key, one a null value and one headers.
EXAMPLE = bytes.fromhex(
    "0000000000000000 00000065 00000000 02 9786171b 0000 00000003 0000018bcfe56800 0000018bcfe56805"
    "ffffffffffffffff ffff ffffffff 00000004"
    "14 00 00 00 04 6b31 04 7631 00"
    "16 00 0a 02 01 0a 6e6f6b6579 00"
    "10 00 06 04 04 6b32 01 00"
    "26 00 02 06 04 6b33 04 7633 04 04 6831 02 78 04 6832 01"
)
FIRST, LAST = "2023-11-14T22:13:20.000+00:00", "2023-11-14T22:13:20.005+00:00"
EXAMPLE_FIELDS = [
    (0, 8, "base_offset", 0, ""),
    (8, 4, "batch_length", 101, "113 bytes with those up to here"),
    (12, 4, "partition_leader_epoch", 0, ""),
    (16, 1, "magic", 2, ""),
    (17, 4, "crc", 0x9786171B, "0x9786171b, as its bytes give"),
    (21, 2, "attributes", 0, "not compressed, CreateTime"),
    (23, 4, "last_offset_delta", 3, "last offset 3"),
    (27, 8, "base_timestamp", 1_700_000_000_000, FIRST),
    (35, 8, "max_timestamp", 1_700_000_000_005, LAST),
    (43, 8, "producer_id", -1, "none"),
    (51, 2, "producer_epoch", -1, "none"),
    (53, 4, "base_sequence", -1, "none"),
    (57, 4, "records_count", 4, ""),
    (61, 1, "record 0 length", 10, ""),
    (62, 1, "record 0 attributes", 0, ""),
    (63, 1, "record 0 timestamp_delta", 0, f"timestamp 1700000000000, {FIRST}"),
    (64, 1, "record 0 offset_delta", 0, "offset 0"),
    (65, 1, "record 0 key_length", 2, ""),
    (66, 2, "record 0 key", b"k1", ""),
    (68, 1, "record 0 value_length", 2, ""),
    (69, 2, "record 0 value", b"v1", ""),
    (71, 1, "record 0 headers_count", 0, ""),
    (72, 1, "record 1 length", 11, ""),
    (73, 1, "record 1 attributes", 0, ""),
    (74, 1, "record 1 timestamp_delta", 5, f"timestamp 1700000000005, {LAST}"),
    (75, 1, "record 1 offset_delta", 1, "offset 1"),
    (76, 1, "record 1 key_length", -1, "null"),
    (77, 1, "record 1 value_length", 5, ""),
    (78, 5, "record 1 value", b"nokey", ""),
    (83, 1, "record 1 headers_count", 0, ""),
    (84, 1, "record 2 length", 8, ""),
    (85, 1, "record 2 attributes", 0, ""),
    (86, 1, "record 2 timestamp_delta", 3, "timestamp 1700000000003, 2023-11-14T22:13:20.003+00:00"),
    (87, 1, "record 2 offset_delta", 2, "offset 2"),
    (88, 1, "record 2 key_length", 2, ""),
    (89, 2, "record 2 key", b"k2", ""),
    (91, 1, "record 2 value_length", -1, "null"),
    (92, 1, "record 2 headers_count", 0, ""),
    (93, 1, "record 3 length", 19, ""),
    (94, 1, "record 3 attributes", 0, ""),
    (95, 1, "record 3 timestamp_delta", 1, "timestamp 1700000000001, 2023-11-14T22:13:20.001+00:00"),
    (96, 1, "record 3 offset_delta", 3, "offset 3"),
    (97, 1, "record 3 key_length", 2, ""),
    (98, 2, "record 3 key", b"k3", ""),
    (100, 1, "record 3 value_length", 2, ""),
    (101, 2, "record 3 value", b"v3", ""),
    (103, 1, "record 3 headers_count", 2, ""),
    (104, 1, "record 3 header 0 key_length", 2, ""),
    (105, 2, "record 3 header 0 key", b"h1", ""),
    (107, 1, "record 3 header 0 value_length", 1, ""),
    (108, 1, "record 3 header 0 value", b"x", ""),
    (109, 1, "record 3 header 1 key_length", 2, ""),
    (110, 2, "record 3 header 1 key", b"h2", ""),
    (112, 1, "record 3 header 1 value_length", -1, "null"),
]


def test_every_field_of_the_example() -> None:
    [header] = scan_batches(EXAMPLE)
    fields = list(fields_of_batch(EXAMPLE, header))
    found = [(one.position, len(one.data), one.name, one.value, one.note) for one in fields]
    assert found == EXAMPLE_FIELDS
    assert b"".join(one.data for one in fields) == EXAMPLE


OLD = {
    "v0": "0000000000000000 00000012 8697724c 00 00 00000002 6b30 00000002 7630",
    "v1, null value": "0000000000000007 00000018 4c322210 01 00 0000018bcfe56807 00000002 6b37 ffffffff",
}


@pytest.mark.parametrize("name", OLD)
def test_every_field_of_an_old_message(name: str) -> None:
    data = bytes.fromhex(OLD[name])
    [header] = scan_batches(data)
    fields = list(fields_of_batch(data, header))
    names = ["offset", "message_size", "crc", "magic", "attributes", "key_length", "key", "value_length", "value"]
    if header.magic == 1:
        names = [*names[:5], "timestamp", *names[5:-1]]
        assert fields[-1][3:5] == (-1, "null")
    assert [one.name for one in fields] == names
    assert b"".join(one.data for one in fields) == data
    assert fields[2].note.endswith("as its bytes give")


@pytest.mark.sampled
@pytest.mark.parametrize("partition", ["v2-none-0", "v2-zstd-0", "v1-gzip-0", "v0-snappy-0", "v2-append-time-0"])
def test_every_byte_is_in_one_field(fixture_2_8_2: KafkaFixture, partition: str) -> None:
    """Also where a byte is wrong, and of what was compressed."""
    data = min((fixture_2_8_2.log_dir / partition).glob("*.log")).read_bytes()
    header = next(iter(scan_batches(data)))
    for position in (None, *range(17, header.size_bytes, 97)):
        changed = bytearray(data[: header.end_position])
        if position is not None:
            changed[position] ^= 0x81
        read = next(iter(scan_batches(changed, check_crc=False)), None)
        if read is None:
            continue
        fields = list(fields_of_batch(bytes(changed), read))
        assert b"".join(one.data for one in fields if not one.is_decompressed) == changed[: read.size_bytes]
        assert ("but its bytes give" in next(one.note for one in fields if one.name == "crc")) == (position is not None)
        inner = [one for one in fields if one.is_decompressed]
        assert [one.position for one in inner[1:]] == [one.position + len(one.data) for one in inner[:-1]]


PARTITIONS = ["transactional-0", "truncated-head-0", "compacted-0", "v2-lz4-0", "v1-gzip-0", "v0-none-0"]


@pytest.mark.slow
@pytest.mark.parametrize("partition", PARTITIONS)
def test_it_says_what_consumers_saw(fixture_2_8_2: KafkaFixture, partition: str) -> None:
    folder = fixture_2_8_2.log_dir / partition
    consumed = fixture_2_8_2.consumed[partition]
    seen, committed = (
        {record["offset"] for record in found[partition]["records"]}
        for found in (fixture_2_8_2.consumed, fixture_2_8_2.consumed_committed)
    )
    end = consumed["highWatermark"]
    for offset in [*range(0, end, 1 + end // 40), end - 1, end, end + 1]:
        found = explain(folder, offset)
        assert (found.log_start_offset, found.log_end_offset) == (consumed["logStartOffset"], end)
        assert found.read_uncommitted.is_given == (offset in seen), (offset, found.read_uncommitted)
        assert found.read_committed.is_given == (offset in committed), (offset, found.read_committed)
        assert not found.findings
        if offset in seen:
            assert found.record is not None
            assert found.record.offset == offset


@pytest.mark.slow
def test_every_record_of_transactions_is_what_it_was_to_consumers(fixture_4_3_1: KafkaFixture) -> None:
    """Visible, aborted or a marker: as Kafka's own consumers of 4.3.1 saw it, for each offset there is."""
    folder = fixture_4_3_1.log_dir / "transactional-0"
    seen, committed = (
        {record["offset"] for record in found[folder.name]["records"]}
        for found in (fixture_4_3_1.consumed, fixture_4_3_1.consumed_committed)
    )
    end = fixture_4_3_1.consumed[folder.name]["highWatermark"]
    reasons = {}
    for offset in range(end):
        found = explain(folder, offset)
        assert found.last_stable_offset == end
        reasons[offset] = found.read_uncommitted.reason, found.read_committed.reason
    markers = {offset for offset in range(end) if offset not in seen}
    assert committed < seen
    assert markers
    expected = dict.fromkeys(range(end), (Reason.GIVEN, Reason.ABORTED))
    expected |= dict.fromkeys(committed, (Reason.GIVEN, Reason.GIVEN))
    expected |= dict.fromkeys(markers, (Reason.CONTROL_RECORD, Reason.CONTROL_RECORD))
    assert reasons == expected


@pytest.mark.slow
def test_every_record_of_an_open_transaction_is_what_it_was_to_a_consumer(
    fixture_4_3_1: KafkaFixture, tmp_path: Path
) -> None:
    """The log as it was at some of its ends, with the transactions that were open then: beside a consumer of it."""
    shutil.copytree(fixture_4_3_1.log_dir, tmp_path / "data")
    folder = tmp_path / "data" / "transactional-0"
    for path in folder.iterdir():
        if path.suffix != ".log":
            path.unlink()
    segments = sorted(folder.glob("*.log"))
    for segment in reversed(segments):
        data = segment.read_bytes()
        for header in list(scan_batches(data))[::-17]:
            segment.write_bytes(data[: header.end_position])
            shutil.rmtree(tmp_path / "served", ignore_errors=True)
            shutil.copytree(tmp_path / "data", tmp_path / "served")
            with Broker(tmp_path / "served") as broker, open_place(f"kafka://{broker.bootstrap_servers}") as source:
                name = TopicPartition("transactional", 0)
                given = {
                    row["offset"]
                    for batch in record_batches(source, name, isolation="read_committed")
                    for row in batch.to_pylist()
                }
                stable = source.bounds(name, "read_committed").end_offset
            for offset in range(max(0, header.next_offset - 30), header.next_offset):
                found = explain(tmp_path / "served" / folder.name, offset)
                assert found.last_stable_offset == stable
                assert found.read_committed.is_given == (offset in given), (offset, found.read_committed)
        segment.unlink()


def test_an_aborted_transaction_and_its_index(fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    folder = tmp_path / "transactional-0"
    shutil.copytree(fixture_4_3_1.log_dir / folder.name, folder)
    found = explain(folder, 9)
    transaction = found.transaction
    assert transaction is not None
    assert (transaction.first_offset, transaction.marker_offset, transaction.is_aborted) == (9, 13, True)
    entry = transaction.index_entry
    assert entry is not None
    assert (entry.path.name, entry.number, entry.value) == (f"{8:020d}.txnindex", 0, 13)
    assert found.read_committed.reason is Reason.ABORTED
    # A broker filters by the index alone.
    entry.path.unlink()
    found = explain(folder, 9)
    assert found.read_committed.is_given
    assert found.read_committed.reason is Reason.ABORTED
    assert explain(folder, 13).read_uncommitted.reason is Reason.CONTROL_RECORD


def test_an_open_transaction(fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    folder = tmp_path / "transactional-0"
    shutil.copytree(fixture_4_3_1.log_dir / folder.name, folder)
    for path in folder.glob(f"{215:020d}.*"):
        path.unlink()
    for path in folder.glob(f"{218:020d}.*"):
        path.unlink()
    segment = folder / f"{8:020d}.log"
    headers = list(scan_batches(segment.read_bytes()))
    data = next(header for header in headers if header.is_transactional and not header.is_control)
    segment.write_bytes(segment.read_bytes()[: data.end_position])
    found = explain(folder, data.base_offset)
    assert found.last_stable_offset == data.base_offset
    assert found.read_uncommitted.is_given
    assert found.read_committed.reason is Reason.UNDECIDED


def test_above_the_high_watermark_of_several_replicas(fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    """Without the metadata, which say that there is but one replica, the checkpoint counts."""
    shutil.copytree(fixture_4_3_1.log_dir / "v2-none-0", tmp_path / "v2-none-0")
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nv2-none 0 100\n")
    assert explain(tmp_path / "v2-none-0", 99).read_uncommitted.is_given
    found = explain(tmp_path / "v2-none-0", 100)
    assert found.read_uncommitted.reason is Reason.ABOVE_HIGH_WATERMARK
    assert (found.high_watermark, found.last_stable_offset) == (100, 100)
    assert explain(tmp_path, 100).read_uncommitted == found.read_uncommitted


@pytest.mark.slow
def test_damage(small_log_dir: SmallLogDirectory) -> None:
    folder = small_log_dir("v2-none-0") / "v2-none-0"
    segment = min(folder.glob("*.log"))
    data = bytearray(segment.read_bytes())
    first, second, third = list(scan_batches(bytes(data)))[:3]
    data[second.position + 80] ^= 1
    segment.write_bytes(data)
    found = explain(folder, second.base_offset)
    assert found.read_uncommitted.reason is Reason.DAMAGED
    assert found.batch == second._replace(crc=found.batch.crc if found.batch else 0)
    assert [finding.position for finding in found.findings] == [second.position]
    for other in (first, third):
        assert explain(folder, other.base_offset).read_uncommitted.is_given
    # Where its length is wrong, it is no batch at all.
    data[second.position + 8] ^= 0x80
    segment.write_bytes(data)
    found = explain(folder, second.base_offset)
    assert (found.batch, found.read_uncommitted.reason) == (None, Reason.DAMAGED)
    assert explain(folder, third.base_offset).batch == third
    # And where it is not there at all, it is missing.
    del data[second.position : second.end_position]
    segment.write_bytes(data)
    assert explain(folder, second.base_offset).read_uncommitted.reason is Reason.MISSING


@pytest.mark.slow
def test_a_large_batch_is_not_in_memory_as_a_whole(tmp_path: Path) -> None:
    folder = tmp_path / "plain-0"
    folder.mkdir()
    batch = build_batch([Record(b"%d" % number, bytes(100_000)) for number in range(400)], codec=Codec.ZSTD)
    (folder / f"{0:020}.log").write_bytes(batch)
    tracemalloc.start()
    try:
        found = explain(folder, 321)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20  # of 40 MB
    finally:
        tracemalloc.stop()
    assert (found.record_number, found.read_uncommitted.is_given) == (321, True)
    assert {one.record for one in found.own_fields} == {None, 321}
    assert [one.data for one in found.own_fields if one.name == "record 321 key"] == [b"321"]
    assert sum(1 for one in found.all_fields() if one.name.endswith(" value")) == 400


def test_what_is_no_partition(fixture_4_3_1: KafkaFixture) -> None:
    with pytest.raises(UnknownPathError, match="18 partitions"):
        explain(fixture_4_3_1.log_dir, 0)
    with pytest.raises(UnknownPathError, match="nor a segment"):
        explain(fixture_4_3_1.log_dir / "meta.properties", 0)


def test_an_index_that_leads_past_the_batch(small_log_dir: SmallLogDirectory) -> None:
    folder = small_log_dir("v2-none-0") / "v2-none-0"
    index = min(folder.glob("*.index"))
    entries = bytearray(index.read_bytes())
    entries[4:8] = (1 << 30).to_bytes(4, "big")
    index.write_bytes(entries)
    [finding] = explain(folder, int.from_bytes(entries[:4], "big")).findings
    assert (finding.path, finding.position) == (index, 0)


def test_the_command_line(fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    folder = tmp_path / "plain-0"
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(EXAMPLE)
    result = run("explain", folder, "3", "--all-records", code=0)
    dump = result.stdout.partition("\n\n")[2].splitlines()
    assert dump[4] == "        17  97 86 17 1b              crc = 2542147355  (0x9786171b, as its bytes give)"
    assert dump[18] == '        66  6b 31                    record 0 key = "k1"'
    assert len(dump) == len(EXAMPLE_FIELDS)
    one = run("explain", folder, "3", "--format", "jsonl")
    fields = json.loads(one.stdout)["fields"]
    wanted = [field for field in EXAMPLE_FIELDS if not field[2].startswith(("record 0", "record 1", "record 2"))]
    assert [field["name"] for field in fields] == [field[2] for field in wanted]
    segment = min((fixture_4_3_1.log_dir / "v2-none-0").glob("*.log"))
    cut = run("explain", segment, "0").stdout
    full = run("explain", segment, "0", "--full").stdout
    assert "bytes more" in cut
    assert "bytes more" not in full
