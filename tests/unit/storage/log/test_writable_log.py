"""Appending: offsets, splits, rolls, what is refused, and readers meanwhile."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from odradek.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    LogError,
    OffsetOutOfRangeError,
    RecordListTooLargeError,
    RecordTooLargeError,
)
from odradek.records import Record
from odradek.records.append.validator import AppendOrigin
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.storage.log.log import Log
from odradek.storage.log.log_options import LogOptions
from odradek.storage.log.read_only_log import ReadOnlyLog
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.topic_config import TopicConfig
from peers.placed import offset_of

NEVER = (1 << 63) - 1


def make(tmp_path: Path, name: str = "t-0", **config: object) -> WritableLog:
    folder = tmp_path / name
    folder.mkdir(parents=True, exist_ok=True)
    overrides = {key.replace("_", "."): str(value) for key, value in config.items()}
    return WritableLog(folder, LogOptions(config=TopicConfig.load(overrides)))


def values(log: Log, *args: int) -> list[bytes | None]:
    return [record.value for record in log.read(*args)]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# -- appending and reading


def test_records_are_there_at_once(tmp_path: Path) -> None:
    log = make(tmp_path)
    assert log.append([Record(b"k", b"v", [("h", None)], timestamp=None)]) == 0
    first = next(log.read())
    assert (first.key, first.value, first.headers) == (b"k", b"v", (("h", None),))
    assert first.timestamp is not None
    assert log.append([Record(None, b""), Record(b"", None)]) == 1
    assert [(record.key, record.value, record.offset) for record in log.read(1)] == [(None, b"", 1), (b"", None, 2)]
    assert log.log_end_offset == 3
    log.close()
    with ReadOnlyLog(log.path) as reader:
        assert [record.offset for record in reader.read()] == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_segments_roll_and_batches_split(codec: str, tmp_path: Path) -> None:
    log = make(tmp_path, compression_type=codec, max_message_bytes=3000, internal_segment_bytes=10_000)
    expected = []
    for number in range(60):
        records = [Record(None, bytes([number]) * 50 + bytes([part]) * 450) for part in range(40)]
        expected += [record.value for record in records]
        assert log.append(records) == number * 40
    assert len(log.segments) > 3
    assert values(log) == expected
    for segment in log.segments:
        assert segment.size_bytes <= 10_000
        assert all(header.size_bytes <= 3000 for header in segment.scan(check_crc=True))
    assert values(log, 777, 900) == expected[777:900]
    log.close()
    with WritableLog(log.path, LogOptions(is_clean=True, recovery_point=2400)) as again:
        assert not again.report
        assert values(again) == expected
        assert again.append([Record(None, b"more")]) == 2400
        assert values(again, 2400) == [b"more"]


@pytest.mark.parametrize("codec", ["producer", "zstd"])
def test_no_batch_of_several_records_is_longer_than_a_segment(codec: str, tmp_path: Path) -> None:
    log = make(tmp_path, compression_type=codec, internal_segment_bytes=2000)
    noise = random.Random(7)
    for size in (1, 100, 700, 1900):
        records = [Record(None, noise.randbytes(size)) for _ in range(4000 // size)]
        first = log.append(records)
        assert values(log, first) == [record.value for record in records]
    assert all(segment.size_bytes <= 2000 for segment in log.segments)
    end_offset = log.log_end_offset
    with pytest.raises(RecordListTooLargeError):
        log.append([Record(None, b"v"), Record(None, noise.randbytes(2500))])
    assert log.log_end_offset == end_offset


@pytest.mark.slow
def test_readers_in_other_threads_see_whole_appends_in_order(tmp_path: Path) -> None:
    log = make(tmp_path, internal_segment_bytes=20_000, index_interval_bytes=100)
    failures: list[BaseException] = []
    done = threading.Event()

    def follow() -> None:
        try:
            offset = 0
            while not (done.is_set() and offset == log.log_end_offset):
                for record in log.read(offset):
                    assert record.value == b"%d" % offset_of(record)
                    offset += 1
                if offset:
                    assert values(log, offset // 2, offset // 2 + 1) == [b"%d" % (offset // 2)]
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=follow) for _ in range(2)]
    for reader in readers:
        reader.start()
    offset = 0
    for size in range(300):
        log.append([Record(None, b"%d" % (offset + number)) for number in range(size % 7 + 1)])
        offset = log.log_end_offset
    done.set()
    for reader in readers:
        reader.join(60)
    log.close()
    assert not failures


def test_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    log = make(tmp_path, max_message_bytes=1000, cleanup_policy="compact", internal_segment_bytes=1500)
    for records, error in [
        ([], InvalidRecordError),
        ([Record(b"k", b"v" * 1000)], RecordTooLargeError),
        ([Record(b"k", b"v"), Record(None, b"v")], InvalidRecordError),
        ([Record(b"k", b"v", timestamp=1 << 50)], InvalidTimestampError),
    ]:
        with pytest.raises(error):
            log.append(records)
    with pytest.raises(RecordListTooLargeError):
        log.append_batches(build_batch([Record(b"k", b"v")] * 200), origin=AppendOrigin.REPLICATION)
    assert log.log_end_offset == 0
    assert log.path.joinpath("00000000000000000000.log").stat().st_size == 0
    log.append_batches(build_batch([Record(b"k", b"v")], base_offset=5), origin=AppendOrigin.REPLICATION)
    with pytest.raises(OffsetOutOfRangeError):
        log.append_batches(build_batch([Record(b"k", b"v")], base_offset=5), origin=AppendOrigin.REPLICATION)
    assert log.log_end_offset == 6
    log.close()
    with pytest.raises(LogError, match="closed"):
        log.append([Record(b"k", b"v")])


@pytest.mark.parametrize("codec", list(Codec))
def test_ready_batches_get_their_offsets(codec: Codec, tmp_path: Path) -> None:
    log = make(tmp_path)
    log.append([Record(None, b"first")])
    result = log.append_batches(build_batch([Record(b"k", b"v", timestamp=5)] * 3, codec=codec), durable=True)
    assert result == (1, 3, None, False)
    assert values(log) == [b"first", b"v", b"v", b"v"]
    log.close()


def test_log_append_time_is_answered(tmp_path: Path) -> None:
    log = make(tmp_path, message_timestamp_type="LogAppendTime")
    result = log.append_batches(build_batch([Record(b"k", b"v", timestamp=5)]))
    (record,) = log.read()
    assert record.timestamp == result.append_time_ms
    assert record.timestamp_type == "LogAppendTime"
    log.append([Record(b"k", b"v", timestamp=5)])
    assert [record.timestamp_type for record in log.read()] == ["LogAppendTime"] * 2
    log.close()
