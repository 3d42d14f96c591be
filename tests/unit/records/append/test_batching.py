"""Records that become batches: a topic asks the same of them as of a producer's batch."""

from __future__ import annotations

import pytest

from odradek.errors import InvalidRecordError, InvalidTimestampError, RecordRefusedError, RecordTooLargeError
from odradek.records import Record, scan_batches
from odradek.records.append.batching import BatchBuilder
from odradek.records.append.validator import AppendRules, validate_append
from odradek.records.builder import build_batch
from odradek.testing.message_builder import build_message_set

NOW = 1_700_000_000_000
HOUR = 3_600_000
COMPACTED = AppendRules(compacted=True)
BOUNDED = AppendRules(compacted=True, timestamp_before_max_ms=HOUR, timestamp_after_max_ms=HOUR)


@pytest.mark.parametrize(
    ("records", "rules", "error", "message", "refused"),
    [
        ([Record(b"k", timestamp=NOW), Record(None, timestamp=NOW)], COMPACTED, InvalidRecordError, "1: .* a key", 1),
        ([Record(b"k", timestamp=NOW + HOUR + 1)], AppendRules(), InvalidTimestampError, f"{NOW + HOUR + 1} is not", 1),
        (
            [Record(b"k", timestamp=NOW - HOUR - 1)],
            BOUNDED,
            InvalidTimestampError,
            f"{NOW - HOUR - 1} is not within",
            1,
        ),
        ([Record(None, timestamp=NOW + HOUR + 1)], BOUNDED, InvalidRecordError, "a key", 1),
        (
            [Record(None, timestamp=NOW), Record(b"k", timestamp=NOW + HOUR + 1), Record(b"k", timestamp=NOW)],
            BOUNDED,
            InvalidTimestampError,
            "2 records are refused, record 0: .* a key; record 1: timestamp",
            2,
        ),
        ([Record(None, timestamp=NOW)] * 1000, COMPACTED, InvalidRecordError, "1000 records are refused", 1000),
        # What is wrong with the last of them counts too, though it is not among those that are told.
        (
            [Record(None, timestamp=NOW)] * 1000 + [Record(b"k", timestamp=NOW + HOUR + 1)],
            BOUNDED,
            InvalidTimestampError,
            "1001 records are refused",
            1001,
        ),
    ],
)
def test_objects_and_bytes_are_judged_alike(
    records: list[Record], rules: AppendRules, error: type[RecordRefusedError], message: str, refused: int
) -> None:
    with pytest.raises(error, match=message) as of_objects:
        BatchBuilder(rules).build(records, NOW)
    for data in (build_batch(records), build_message_set(records, magic=1)):
        with pytest.raises(error) as of_bytes:
            validate_append(data, rules, base_offset=0, partition_leader_epoch=0, now_ms=NOW)
        assert str(of_bytes.value) == str(of_objects.value)
        assert of_bytes.value.record_errors == of_objects.value.record_errors
    assert len(of_objects.value.record_errors) == min(refused, 100)
    assert error is not InvalidRecordError or of_objects.value.error_code == 87


def test_timestamps_at_the_bounds_are_taken() -> None:
    records = [Record(b"k", timestamp=NOW - HOUR), Record(b"k", timestamp=NOW + HOUR), Record(b"k")]
    assert BatchBuilder(BOUNDED).build(records, NOW)


@pytest.mark.parametrize("timestamp", [1 << 63, -(1 << 63) - 1])
def test_a_timestamp_that_no_batch_can_hold_is_out_of_bounds(timestamp: int) -> None:
    with pytest.raises(InvalidTimestampError, match=str(timestamp)):
        BatchBuilder(BOUNDED).build([Record(b"k", timestamp=timestamp)], NOW)


def test_a_leader_that_stamps_looks_at_no_timestamp() -> None:
    rules = AppendRules(timestamp_type="LogAppendTime")
    assert BatchBuilder(rules).build([Record(b"k", timestamp=NOW + 9 * HOUR)], NOW)


@pytest.mark.parametrize(
    "parts",
    [
        [(b"k", b"v")],
        [(None, None)],
        [(b"", b"")],
        [(None, bytes(64)), (bytes(64), None)],
        [(b"k", bytes(8192))] * 3,
        [(None, b"%d" % number) for number in range(9000)],
    ],
)
def test_records_of_keys_and_values_become_the_batch_that_any_records_do(
    parts: list[tuple[bytes | None, bytes | None]],
) -> None:
    plain = [Record(key, value) for key, value in parts]
    expected = build_batch([Record(key, value, timestamp=NOW) for key, value in parts])
    assert BatchBuilder(AppendRules()).build(plain, NOW) == expected
    # Whatever takes more than that: a time, headers, a key that is required, a second batch.
    timed = [*plain[:-1], Record(*parts[-1], timestamp=NOW)]
    assert BatchBuilder(AppendRules()).build(timed, NOW) == expected
    named = [*plain[:-1], Record(*parts[-1], [("name", b"")])]
    assert BatchBuilder(AppendRules()).build(named, NOW) == build_batch(
        [Record(one.key, one.value, one.headers, NOW) for one in named]
    )
    assert BatchBuilder(AppendRules(max_message_bytes=len(expected))).build(plain, NOW) == expected
    if len(parts) > 1:
        split = BatchBuilder(AppendRules(max_message_bytes=len(expected) - 1)).build(plain, NOW)
        assert [header.records_count for header in scan_batches(split)] == [len(parts) - 1, 1]
    else:
        with pytest.raises(RecordTooLargeError, match=f"{len(expected)} bytes"):
            BatchBuilder(AppendRules(max_message_bytes=len(expected) - 1)).build(plain, NOW)
