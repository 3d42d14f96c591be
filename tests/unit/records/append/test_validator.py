"""What a leader does to batches before it appends them; the cases are those of Kafka's LogValidatorTest."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest

from odradek.buffers import Buffer
from odradek.errors import (
    BrokerError,
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
)
from odradek.records import Record, read_records, scan_batches
from odradek.records.append.validator import AppendOrigin, AppendRules, ValidatedAppend, accept_plain, validate_append
from odradek.records.builder import build_batch, build_control_batch
from odradek.records.compression import Codec, compress
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.records.header import BatchHeader
from odradek.records.kernels.encode import seal
from odradek.testing.message_builder import build_message_set

NOW = 1_700_000_000_000
HOUR = 3_600_000
RECORDS = [Record(b"key %d" % number, b"value %d" % number, (), NOW - number) for number in range(5)]
CODECS = list(Codec)
OLD_CODECS = CODECS[:4]


def _validate(data: bytes | bytearray, rules: AppendRules | None = None, **options: Any) -> ValidatedAppend:
    arguments: dict[str, Any] = {"base_offset": 1234, "partition_leader_epoch": 7, "now_ms": NOW, **options}
    validated = _judge(data, rules or AppendRules(), arguments)
    scan = scan_batches(validated.data)
    assert list(scan) == [validated.header]
    assert scan.damage is None
    assert (validated.header.magic, validated.header.partition_leader_epoch) == (2, 7)
    assert [record.offset for record in _records(validated)] == list(range(1234, 1234 + validated.header.records_count))
    return validated


def _judge(data: bytes | bytearray, rules: AppendRules, arguments: dict[str, Any]) -> ValidatedAppend:
    """Validate, and see that a batch which is accepted as it is becomes the same, and that no other one is touched."""
    memory, accepted = bytearray(data), None
    if arguments.get("origin", AppendOrigin.CLIENT) is AppendOrigin.CLIENT:
        given = {name: arguments[name] for name in ("base_offset", "partition_leader_epoch", "now_ms")}
        accepted = accept_plain(memory, rules, **given)
    if accepted is None:
        assert memory == data
        return validate_append(data, rules, **arguments)
    validated = validate_append(data, rules, **arguments)
    assert bytes(validated.data) == memory
    assert accepted.headers() == [validated.header]
    assert (validated.append_time_ms, validated.is_rebuilt) == (None, False)
    return validated


def _records(validated: ValidatedAppend) -> list[Record]:
    return read_records(validated.data, validated.header)


def _content(records: list[Record]) -> list[tuple[object, ...]]:
    return [(record.key, record.value, record.headers, record.timestamp) for record in records]


def _patched(batch: bytes, layout: str, position: int, *values: int) -> bytes:
    """Change a field of the header and mend the checksum."""
    header = bytearray(batch[:61])
    struct.pack_into(layout, header, position, *values)
    return seal(bytes(header), batch[61:])


def _crc(batch: Buffer) -> bytes:
    return bytes(memoryview(batch)[17:21])


# -- batches that stay as they are ---------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_a_fitting_batch_is_changed_in_place(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec, producer_id=5, producer_epoch=1, base_sequence=9)
    memory = bytearray(batch)
    validated = _validate(memory)
    assert not validated.is_rebuilt
    assert validated.append_time_ms is None
    assert bytes(validated.data) == memory
    # Offset and leader epoch lie outside of what the checksum covers.
    assert memory[:8] == (1234).to_bytes(8, "big")
    assert memory[12:16] == (7).to_bytes(4, "big")
    assert memory[8:12] + memory[16:] == batch[8:12] + batch[16:]


def test_what_is_accepted_as_it_is() -> None:
    def is_accepted(batch: bytes | bytearray, rules: AppendRules | None = None) -> bool:
        memory = bytearray(batch)
        where = {"base_offset": 1234, "partition_leader_epoch": 7, "now_ms": NOW}
        return accept_plain(memory, rules or AppendRules(), **where) is not None

    batch = build_batch(RECORDS, producer_id=5, producer_epoch=1, base_sequence=9)
    assert is_accepted(batch)
    assert is_accepted(batch, AppendRules(codec=Codec.NONE, compacted=True))
    assert is_accepted(build_batch(RECORDS))
    damaged = bytearray(batch)
    damaged[-1] ^= 1
    assert not is_accepted(damaged)
    assert not is_accepted(batch + b"\0")
    assert not is_accepted(batch[:-1])
    assert not is_accepted(batch[:61])
    assert not is_accepted(b"")
    assert not is_accepted(build_batch(RECORDS, base_offset=1))
    assert not is_accepted(build_batch(RECORDS, codec=Codec.GZIP))
    assert not is_accepted(batch, AppendRules(codec=Codec.GZIP))
    assert not is_accepted(batch, AppendRules(timestamp_type="LogAppendTime"))
    assert not is_accepted(batch, AppendRules(max_message_bytes=len(batch) - 1))
    assert not is_accepted(batch, AppendRules(timestamp_before_max_ms=3))
    assert not is_accepted(build_batch([Record(None, b"")]), AppendRules(compacted=True))
    for layout, position, value in ((">h", 21, 0x20), (">h", 21, 0x08), (">i", 23, 3), (">q", 35, NOW + 1)):
        assert not is_accepted(_patched(batch, layout, position, value))
    assert not is_accepted(_patched(batch, ">i", 53, -1))


def test_read_only_memory_is_copied() -> None:
    batch = build_batch(RECORDS)
    kept = bytes(batch)
    assert _validate(batch).header.base_offset == 1234
    assert batch == kept


@pytest.mark.parametrize("codec", CODECS)
def test_a_record_is_measured_as_it_decompresses(codec: Codec) -> None:
    """The largest one counts, without the length before it; what is not compressed is bounded by the batch's size."""
    values = (b"a", b"b" * 200, b"c")
    batch = build_batch([Record(offset=at, value=one) for at, one in enumerate(values)], codec=codec)
    # Attributes, two deltas, no key, the value behind two bytes of length, no headers.
    largest = 1 + 1 + 1 + 1 + 2 + 200 + 1
    _validate(batch, AppendRules(max_decompressed_message_bytes=largest))
    too_small = AppendRules(max_decompressed_message_bytes=largest - 1)
    if not codec:
        _validate(batch, too_small)
        return
    with pytest.raises(InvalidRecordError, match=r"a record of 207 bytes, decompressed, is above max\.decompressed"):
        _validate(batch, too_small)


@pytest.mark.parametrize("codec", CODECS)
def test_append_time_is_stamped(codec: Codec) -> None:
    batch = build_batch([Record(timestamp=5), Record(timestamp=NOW + 9 * HOUR)], codec=codec)
    validated = _validate(batch, AppendRules(timestamp_type="LogAppendTime"))
    assert not validated.is_rebuilt
    assert validated.append_time_ms == NOW
    assert {(record.timestamp, record.timestamp_type) for record in _records(validated)} == {(NOW, "LogAppendTime")}
    assert (validated.header.base_timestamp, validated.header.max_timestamp) == (5, NOW)
    assert _crc(validated.data) != _crc(batch)


@pytest.mark.parametrize("codec", CODECS)
def test_a_wrong_max_timestamp_is_put_right(codec: Codec) -> None:
    batch = _patched(build_batch(RECORDS, codec=codec), ">q", 35, 3)
    assert _validate(batch).header.max_timestamp == NOW


def test_records_without_timestamps() -> None:
    assert _validate(build_batch([Record(), Record()])).header.max_timestamp == -1


def test_what_is_cut_short_at_the_end_is_left_out() -> None:
    batch = build_batch(RECORDS)
    validated = _validate(bytearray(batch + batch[:-1]))
    assert memoryview(validated.data).nbytes == len(batch)


# -- batches that are built anew -----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", CODECS)
@pytest.mark.parametrize("source", CODECS)
def test_a_topic_s_codec_decides(source: Codec, target: Codec) -> None:
    batch = build_batch(RECORDS, codec=source, producer_id=5, producer_epoch=1, base_sequence=9, is_transactional=True)
    validated = _validate(batch, AppendRules(codec=target))
    header = validated.header
    assert validated.is_rebuilt == (source != target)
    assert (header.codec, header.producer_id, header.producer_epoch, header.base_sequence) == (target, 5, 1, 9)
    assert header.is_transactional
    assert header.max_timestamp == NOW
    assert _content(_records(validated)) == _content(RECORDS)


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_another_codec_and_timestamps(timestamp_type: str) -> None:
    validated = _validate(build_batch(RECORDS), AppendRules(codec=Codec.ZSTD, level=1, timestamp_type=timestamp_type))
    stamped = timestamp_type == "LogAppendTime"
    assert validated.append_time_ms == (NOW if stamped else None)
    expected = [NOW] * 5 if stamped else [record.timestamp for record in RECORDS]
    assert [record.timestamp for record in _records(validated)] == expected


@pytest.mark.parametrize("codec", CODECS)
def test_offset_deltas_that_are_not_a_row_are_written_anew(codec: Codec) -> None:
    plain = build_batch([Record(value=b"a", offset=0), Record(value=b"b", offset=2)], keep_offsets=True)
    batch = _patched(plain, ">i", 23, 1)
    if codec:
        header = bytearray(batch[:61])
        header[22] = codec
        batch = seal(bytes(header), compress(codec, batch[61:]))
    validated = _validate(batch)
    assert validated.is_rebuilt
    assert [record.value for record in _records(validated)] == [b"a", b"b"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", [None, *CODECS])
@pytest.mark.parametrize("source", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_become_one_batch(magic: int, source: Codec, target: Codec | None) -> None:
    data = build_message_set(RECORDS, magic=magic, codec=source)
    validated = _validate(data, AppendRules(codec=target))
    assert validated.is_rebuilt
    assert validated.header.codec == (source if target is None else target)
    assert validated.header.max_timestamp == (NOW if magic else -1)
    assert _content(_records(validated)) == [
        (record.key, record.value, (), record.timestamp if magic else None) for record in RECORDS
    ]


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_are_stamped(magic: int, codec: Codec) -> None:
    data = build_message_set(RECORDS, magic=magic, codec=codec)
    validated = _validate(data, AppendRules(timestamp_type="LogAppendTime"))
    assert {(record.timestamp, record.timestamp_type) for record in _records(validated)} == {(NOW, "LogAppendTime")}


def test_markers_of_a_coordinator_are_never_compressed() -> None:
    marker = build_control_batch(
        EndTransactionMarker(ControlRecordType.COMMIT, 3), producer_id=1, producer_epoch=0, timestamp=NOW
    )
    rules = AppendRules(codec=Codec.GZIP, compacted=True)
    validated = _validate(bytearray(marker), rules, origin=AppendOrigin.COORDINATOR)
    assert (validated.is_rebuilt, validated.header.is_control, validated.header.codec) == (False, True, 0)


# -- refusals ------------------------------------------------------------------------------------------------------

BATCH = build_batch(RECORDS)
KEYLESS = [Record(b"k", b"v", (), NOW), Record(None, b"v", (), NOW), Record(None, b"v", (), NOW)]
MARKER = build_control_batch(
    EndTransactionMarker(ControlRecordType.ABORT, 0), producer_id=1, producer_epoch=0, timestamp=NOW
)
WRAPPER = build_message_set(RECORDS, magic=1, codec=Codec.GZIP)
COMPACTED = AppendRules(compacted=True)
BEFORE = AppendRules(timestamp_before_max_ms=HOUR)


def _inner(payload: bytes, codec: Codec = Codec.GZIP) -> bytes:
    """Wrap inner messages of any content."""
    return _wrapper(compress(codec, payload, magic=1), codec)


def _wrapper(value: bytes | None, codec: Codec) -> bytes:
    message = bytearray(build_message_set([Record(None, value, (), NOW)], magic=1, base_offset=4))
    message[17] = codec
    message[12:16] = _crc32(message[16:])
    return bytes(message)


def _crc32(data: bytes | bytearray) -> bytes:
    return zlib.crc32(data).to_bytes(4, "big")


INNER = build_message_set(RECORDS, magic=1)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("data", "rules", "error", "reason"),
    [
        (b"", AppendRules(), InvalidRecordError, "no batch to append"),
        (BATCH[:-1], AppendRules(), InvalidRecordError, "no batch to append"),
        (BATCH[:-1] + b"?", AppendRules(), CorruptMessageError, "position 0: checksum mismatch"),
        (BATCH[:16] + b"\3" + BATCH[17:], AppendRules(), CorruptMessageError, "magic 3"),
        (BATCH[:8] + bytes(4) + BATCH[12:], AppendRules(), CorruptMessageError, "size field 0"),
        (BATCH, AppendRules(max_message_bytes=len(BATCH) - 1), RecordTooLargeError, "max.message.bytes"),
        (BATCH + BATCH, AppendRules(), InvalidRecordError, "more than one batch"),
        (WRAPPER + WRAPPER, AppendRules(), InvalidRecordError, "more than one batch"),
        (V0 := build_message_set(RECORDS, magic=0), AppendRules(max_message_bytes=30), RecordTooLargeError, "above"),
        (V0 + BATCH, AppendRules(), InvalidRecordError, "magic 2 after one of magic 0"),
        (build_batch(RECORDS, base_offset=1), AppendRules(), InvalidRecordError, "starts at offset 0, this one at 1"),
        (MARKER, AppendRules(), InvalidRecordError, "control records"),
        (
            build_batch(RECORDS, producer_id=4, producer_epoch=0),
            AppendRules(),
            InvalidRecordError,
            "producer 4 with base sequence -1",
        ),
        (_patched(BATCH, ">i", 57, 0), AppendRules(), InvalidRecordError, "batch of 0 records"),
        (_patched(BATCH, ">i", 57, -1), AppendRules(), InvalidRecordError, "contradict"),
        (_patched(BATCH, ">i", 23, 5), AppendRules(), InvalidRecordError, "5 records whose offsets are 6"),
        (_patched(BATCH, ">i", 23, -1), AppendRules(), InvalidRecordError, "contradict"),
        (_patched(BATCH, ">ii", 53, -1, 6)[:23] + BATCH[23:], AppendRules(), CorruptMessageError, "checksum"),
        (build_batch(KEYLESS), COMPACTED, InvalidRecordError, "2 records are refused, record 1: .* needs a key"),
        (build_message_set(KEYLESS, magic=1), COMPACTED, InvalidRecordError, "record 1: .* needs a key"),
        (
            build_batch([Record(timestamp=NOW + HOUR + 1)]),
            AppendRules(),
            InvalidTimestampError,
            f"record 0: timestamp {NOW + HOUR + 1} is not within",
        ),
        (build_batch([Record(timestamp=NOW - HOUR - 1)]), BEFORE, InvalidTimestampError, "not within"),
        (build_message_set([Record(timestamp=NOW - HOUR - 1)], magic=1), BEFORE, InvalidTimestampError, "not within"),
        (
            build_batch(RECORDS, timestamp_type="LogAppendTime", append_time_ms=NOW),
            AppendRules(timestamp_type="LogAppendTime"),
            InvalidTimestampError,
            "LogAppendTime",
        ),
        (
            build_message_set(RECORDS, magic=1, timestamp_type="LogAppendTime", append_time_ms=NOW),
            AppendRules(timestamp_type="LogAppendTime"),
            InvalidTimestampError,
            "LogAppendTime",
        ),
        (seal(BATCH[:61], BATCH[61:] + b"\0"), AppendRules(), InvalidRecordError, "1 bytes after the last of 5"),
        (seal(BATCH[:61], BATCH[61:-1]), AppendRules(), InvalidRecordError, "record 4 at byte"),
        (
            seal(build_batch(RECORDS, codec=Codec.ZSTD)[:61], b"not zstd"),
            AppendRules(),
            InvalidRecordError,
            "cannot be decompressed",
        ),
        (_wrapper(None, Codec.GZIP), AppendRules(), InvalidRecordError, "without a value"),
        (_inner(b""), AppendRules(), InvalidRecordError, "nothing in it"),
        (_inner(INNER[:-1] + b"?"), AppendRules(), CorruptMessageError, "checksum"),
        (_inner(build_message_set(RECORDS, magic=0)), AppendRules(), InvalidRecordError, "another format"),
        (_inner(_inner(INNER)), AppendRules(), InvalidRecordError, "another format"),
    ],
)
def test_refusals(data: bytes, rules: AppendRules, error: type[BrokerError], reason: str) -> None:
    with pytest.raises(error, match=reason):
        validate_append(data, rules, base_offset=0, partition_leader_epoch=0, now_ms=NOW)


def test_a_batch_that_grows_past_the_limit_when_it_is_compressed_anew() -> None:
    batch = build_batch([Record(b"k", bytes(100_000))], codec=Codec.GZIP)
    with pytest.raises(RecordTooLargeError, match=r"above max\.message\.bytes of 1000"):
        _validate(batch, AppendRules(codec=Codec.NONE, max_message_bytes=1000))


def test_a_refused_batch_is_left_as_it_was() -> None:
    memory = bytearray(build_batch(KEYLESS))
    kept = bytes(memory)
    with pytest.raises(InvalidRecordError):
        validate_append(memory, COMPACTED, base_offset=5, partition_leader_epoch=3, now_ms=NOW)
    assert memory == kept


def test_the_header_of_a_validated_batch_is_its_own() -> None:
    validated = _validate(bytearray(BATCH))
    assert isinstance(validated.header, BatchHeader)
    assert validated.header.last_offset == 1238
