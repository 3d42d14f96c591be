"""One record by its offset: `Log.get`."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import odradek
from odradek.errors import FormatError, LogError, MissingRecordsError, OffsetOutOfRangeError, OptionError
from odradek.records import Record
from odradek.records.append.validator import AppendOrigin
from odradek.records.builder import build_batch
from odradek.records.kernels.encode import seal
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.log.log import Log
from odradek.storage.log.read_only_log import ReadOnlyLog
from odradek.testing.message_builder import build_message_set
from peers.batches import transactional


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[WritableLogDirectory]:
    with odradek.open(tmp_path) as logs:
        yield logs


def both(logs: WritableLogDirectory, topic: str = "t") -> list[Log]:
    return [logs[topic, 0], ReadOnlyLog(logs.path / f"{topic}-0")]


def rows(start: int, count: int, size: int = 20) -> list[Record]:
    rng = random.Random(start)
    return [Record(b"k%d" % number, rng.randbytes(size)) for number in range(start, start + count)]


@pytest.mark.sampled
@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "zstd", "lz4", "snappy"])
@pytest.mark.parametrize("size", [1, 400, 9000])
def test_each_record_is_the_one_that_read_gives(codec: str, size: int, logs: WritableLogDirectory) -> None:
    logs.create_topic("t", config={"compression.type": codec, "internal.segment.bytes": "100000"})
    log = logs["t", 0]
    for count in (1, 7, 1, 1, 3, 10, 1) * 6:
        log.append(rows(log.log_end_offset, count, size))
    assert len(log.segments) > 1 or size < 9000
    for one in both(logs):
        expected = list(one.read())
        assert [record.offset for record in expected] == list(range(log.log_end_offset))
        assert [one.get(offset) for offset in range(log.log_end_offset)] == expected


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1])
def test_messages_of_old_formats(magic: int, codec: int, logs: WritableLogDirectory) -> None:
    logs.create_topic("t")
    log = logs["t", 0]
    for offset in range(0, 12, 3):
        messages = [Record(b"k", b"%d" % number, timestamp=None if magic == 0 else 5) for number in range(3)]
        encoded = build_message_set(messages, magic=magic, base_offset=offset, codec=codec)
        log.append_batches(encoded, origin=AppendOrigin.REPLICATION)
    for one in both(logs):
        expected = list(one.read())
        assert len(expected) == 12
        assert [one.get(offset) for offset in range(12)] == expected


def test_an_offset_that_is_not_in_the_log(logs: WritableLogDirectory) -> None:
    logs.create_topic("t")
    log = logs["t", 0]
    log.append(rows(0, 5))
    log.delete_records(2)
    log.flush()
    for one in (log, logs["t", 0]):
        for offset in (-1, 0, 1, 5, 6):
            with pytest.raises(OffsetOutOfRangeError) as caught:
                one.get(offset)
            assert (caught.value.log_start_offset, caught.value.log_end_offset) == (2, 5)
        found = one.get(2)
        assert found is not None
        assert found.key == b"k2"
    with pytest.raises(TypeError):
        log.get("2")  # type: ignore[arg-type]
    with pytest.raises(OptionError):
        log.get(2, isolation="committed")  # type: ignore[arg-type]
    log.close()
    with pytest.raises(LogError):
        log.get(2)


def test_what_was_compacted_away_is_none(logs: WritableLogDirectory) -> None:
    logs.create_topic("t", config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    log = logs["t", 0]
    for number in range(5):
        log.append([Record(b"a", b"%d" % number), Record(b"b", b"%d" % number)])
    log.append([Record(b"c", b"")])
    log.roll()
    log.append([Record(b"d", b"")])
    logs.maintain()
    for one in both(logs):
        kept = {record.offset or 0: record for record in one.read()}
        assert sorted(kept) == [8, 9, 10, 11]
        assert [one.get(offset) for offset in range(12)] == [kept.get(offset) for offset in range(12)]


def test_transactions(logs: WritableLogDirectory) -> None:
    logs.create_topic("t")
    log = logs["t", 0]

    def data(producer_id: int, sequence: int) -> None:
        records = [Record(b"k", b"%d" % producer_id, timestamp=1_700_000_000_000)] * 2
        log.append_batches(transactional(records, producer_id, sequence))

    data(1, 0)
    data(2, 0)
    log.end_transaction(1, 0, commit=False)  # 4
    log.end_transaction(2, 0, commit=True)  # 5
    log.append(rows(6, 1))
    data(1, 2)  # 7, 8: undecided
    for one in both(logs):
        assert [one.get(offset) is None for offset in range(9)] == [False] * 4 + [True, True] + [False] * 3
        given = [one.get(offset, isolation="read_committed") for offset in range(7)]
        assert [record and record.offset for record in given] == [None, None, 2, 3, None, None, 6]
        for offset in (7, 8, 9):
            with pytest.raises(OffsetOutOfRangeError) as caught:
                one.get(offset, isolation="read_committed")
            assert caught.value.log_end_offset == 7


@pytest.mark.slow
@pytest.mark.parametrize("size", [20, 3000])
def test_indexes_that_are_gone_or_wrong_mislead_nobody(size: int, logs: WritableLogDirectory, tmp_path: Path) -> None:
    logs.create_topic("t", config={"index.interval.bytes": "100"})
    log = logs["t", 0]
    for _ in range(50):
        log.append(rows(log.log_end_offset, 4, size))
    expected = list(log.read())
    logs.close()
    folder = tmp_path / "t-0"
    path = folder / "00000000000000000000.index"
    entries = path.read_bytes()
    assert len(entries) > 80
    shifted = b"".join(entries[at : at + 4] + (at + 1).to_bytes(4, "big") for at in range(0, len(entries), 8))
    far = b"".join(entries[at : at + 4] + b"\x7f\xff\xff\xff" for at in range(0, len(entries), 8))
    # Between two entries there are several batches, or each entry leads to the batch after its own.
    sparse = b"".join(entries[at : at + 8] for at in range(0, len(entries), 24))
    late = b"".join(entries[at : at + 4] + entries[at + 12 : at + 16] for at in range(0, len(entries) - 8, 8))
    turned = entries[8:] + entries[:8]
    for content in (None, b"", entries[:8], shifted, far, sparse, late, turned, b"\xff" * len(entries)):
        copy = tmp_path / "copy" / "t-0"
        shutil.copytree(folder, copy)
        if content is None:
            (copy / path.name).unlink()
        else:
            (copy / path.name).write_bytes(content)
        with ReadOnlyLog(copy) as reader:
            assert [reader.get(record.offset or 0) for record in expected] == expected
        shutil.rmtree(copy)


def test_damage_is_an_error_and_only_where_it_is(logs: WritableLogDirectory, tmp_path: Path) -> None:
    logs.create_topic("t")
    log = logs["t", 0]
    sizes = []
    for _ in range(4):
        log.append(rows(log.log_end_offset, 3))
        sizes.append(log.size_bytes)
    log.roll()
    log.append(rows(12, 3))
    logs.close()
    path = tmp_path / "t-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[sizes[1] + 70] ^= 1
    path.write_bytes(data)
    with ReadOnlyLog(tmp_path / "t-0") as reader:
        for offset in (0, 5, 9, 11, 12, 14):
            found = reader.get(offset)
            assert found is not None
            assert found.offset == offset
        for offset in (6, 7, 8):
            with pytest.raises(FormatError) as caught:
                reader.get(offset)
            assert (caught.value.path, caught.value.position) == (str(path), sizes[1])


def test_an_offset_that_is_left_out_is_a_loss(logs: WritableLogDirectory, tmp_path: Path) -> None:
    logs.create_topic("t")
    log = logs["t", 0]
    for base_offset in (0, 5):
        batch = build_batch([Record(b"k", b"v")] * 3, base_offset=base_offset)
        log.append_batches(batch, origin=AppendOrigin.REPLICATION)
    assert log.get(2) is not None
    for offset in (3, 4):
        with pytest.raises(MissingRecordsError):
            log.get(offset)
    found = log.get(5)
    assert found is not None
    assert found.offset == 5


def test_a_large_batch_between_small_ones(logs: WritableLogDirectory) -> None:
    logs.create_topic("t", config={"max.message.bytes": "8000000"})
    log = logs["t", 0]
    for size in (1, 3_000_000, 1, 1, 200_000, 70_000, 1):
        log.append([Record(b"k", b"x" * size)])
    for one in both(logs):
        assert [len(record.value or b"") for offset in range(7) if (record := one.get(offset))] == [
            1,
            3_000_000,
            1,
            1,
            200_000,
            70_000,
            1,
        ]


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("records_count", [0, 1, 3])
def test_a_count_of_records_that_lies(codec: int, records_count: int, tmp_path: Path) -> None:
    """Its checksum is right. The batch is refused all the same, also where its last record is asked for."""
    batch = build_batch(rows(0, 2), codec=codec)
    lying = seal(batch[:57] + records_count.to_bytes(4, "big"), batch[61:])
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "00000000000000000000.log").write_bytes(lying)
    with ReadOnlyLog(tmp_path / "t-0") as log:
        for offset in (0, 1) if records_count < 2 else (1,):
            with pytest.raises(FormatError):
                log.get(offset)
            with pytest.raises(FormatError):
                list(log.read(offset))
