"""Logs that real brokers wrote, read from the files alone."""

import base64
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.errors import (
    CorruptRecordError,
    FormatError,
    LogError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from odradek.records.kernels.objects import Record
from odradek.records.scan import scan_batches
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.formats.checkpoints import write_offset_checkpoint
from odradek.storage.log.read_only_log import ReadOnlyLog
from odradek.storage.segment.open_segments import OpenSegments
from peers.kafka_fixture import KafkaFixture
from peers.placed import offset_of, offsets_of, timestamp_of, timestamps_of

Copy = Callable[[str], Path]
Harm = Callable[[Path], None]


def as_consumed(record: Record) -> dict[str, Any]:
    def text(value: bytes | None) -> str | None:
        return None if value is None else base64.b64encode(value).decode()

    return {
        "offset": record.offset,
        "timestampType": record.timestamp_type or "NoTimestampType",
        "timestamp": -1 if record.timestamp is None else record.timestamp,
        "key": text(record.key),
        "value": text(record.value),
        "headers": [[name, text(value)] for name, value in record.headers],
    }


@pytest.fixture(params=["log_dir", "log_dir_unclean"])
def log_dir(request: pytest.FixtureRequest, kafka_fixture: KafkaFixture, tmp_path: Path) -> Path:
    path: Path = getattr(kafka_fixture, request.param)
    if request.param == "log_dir":
        return path
    # Records were deleted from the head, and the broker died before it wrote the checkpoint that says so.
    shutil.copytree(path, tmp_path / "unclean")
    write_offset_checkpoint(tmp_path / "unclean" / "log-start-offset-checkpoint", kafka_fixture.log_start_offsets)
    return tmp_path / "unclean"


@pytest.mark.slow
def test_every_record_is_what_a_consumer_was_given(kafka_fixture: KafkaFixture, log_dir: Path) -> None:
    with LogDirectory(log_dir) as logs:
        assert {str(topic_partition) for topic_partition in logs.topic_partitions()} >= set(kafka_fixture.consumed)
        for name, expected in kafka_fixture.consumed.items():
            topic, _, partition = name.rpartition("-")
            log = logs[topic, int(partition)]
            assert log.log_start_offset == expected["logStartOffset"]
            assert log.log_end_offset == expected["highWatermark"]
            assert log.damage == []
            assert [as_consumed(record) for record in log.read()] == expected["records"], name
            committed = [as_consumed(record) for record in log.read(isolation="read_committed")]
            assert committed == kafka_fixture.consumed_committed[name]["records"], name
        assert logs.problems == []


@pytest.mark.sampled
def test_offsets_for_times_are_what_kafka_answered(kafka_fixture: KafkaFixture, log_dir: Path) -> None:
    with LogDirectory(log_dir) as logs:
        for asked in kafka_fixture.offsets_for_times:
            found = logs[asked["topic"], asked["partition"]].offset_for_time(asked["timestamp"])
            expected = None if asked["offset"] in {-1, "UNSUPPORTED_FOR_MESSAGE_FORMAT"} else asked["offset"]
            assert found == expected, asked


@pytest.fixture
def copy(kafka_fixture: KafkaFixture, tmp_path: Path) -> Copy:
    """Copies one log of the unclean directory, to be damaged."""

    def make(name: str) -> Path:
        target = tmp_path / name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(kafka_fixture.log_dir_unclean / name, target, ignore=shutil.ignore_patterns("*.deleted"))
        return target

    return make


def indexes(folder: Path) -> list[Path]:
    return [*folder.glob("*.index"), *folder.glob("*.timeindex")]


def drop_indexes(folder: Path) -> None:
    for path in indexes(folder):
        path.unlink()


def empty_indexes(folder: Path) -> None:
    for path in indexes(folder):
        path.write_bytes(b"")


def pad_indexes(folder: Path) -> None:
    for path in indexes(folder):
        path.write_bytes(path.read_bytes() + bytes(12345))


def garble_indexes(folder: Path) -> None:
    chance = random.Random(folder.name)
    for path in indexes(folder):
        path.write_bytes(chance.randbytes(chance.randrange(600)))


def swap_indexes(folder: Path) -> None:
    """Give each segment the indexes of another one: well formed, and all wrong."""
    for suffix in ("index", "timeindex"):
        paths = sorted(folder.glob(f"*.{suffix}"))
        contents = [path.read_bytes() for path in paths]
        for path, content in zip(paths, contents[1:] + contents[:1], strict=True):
            path.write_bytes(content)


@pytest.mark.sampled
@pytest.mark.parametrize("harm", [drop_indexes, empty_indexes, pad_indexes, garble_indexes, swap_indexes])
@pytest.mark.parametrize("name", ["v2-none-0", "v2-lz4-0", "compacted-0", "keyed-1"])
def test_indexes_are_no_more_than_hints(kafka_fixture: KafkaFixture, copy: Copy, harm: Harm, name: str) -> None:
    folder = copy(name)
    with ReadOnlyLog(folder) as whole:
        records = list(whole.read())
        times = timestamps_of(records)
        asked = [(at, whole.offset_for_time(at)) for at in [*times[::9], min(times) - 1, max(times) + 1]]
        last = whole.find_max_timestamp()
    harm(folder)
    with ReadOnlyLog(folder) as log:
        assert [as_consumed(record) for record in log.read()] == kafka_fixture.consumed[name]["records"]
        assert log.damage == []
        for record in records[::7]:
            assert next(log.read(record.offset)).offset == record.offset
        assert log.find_max_timestamp() == last
        for at, found in asked:
            assert log.offset_for_time(at) == found


@pytest.mark.slow
def test_every_time_is_found_as_by_looking_at_every_record(kafka_fixture: KafkaFixture) -> None:
    with LogDirectory(kafka_fixture.log_dir_unclean) as logs:
        for name in ("v2-none", "v2-gzip", "keyed", "compacted", "v2-append-time"):
            log = logs[name, 0]
            records = list(log.read(include_control=True))
            times = sorted({at + more for at in timestamps_of(records) for more in (-1, 0, 1)})
            for timestamp in [*times[:30], *times[30:-30:7], *times[-30:]]:
                expected = next((r.offset for r in records if timestamp_of(r) >= timestamp), None)
                assert log.offset_for_time(timestamp) == expected
            largest = max(timestamps_of(records))
            found = log.find_max_timestamp()
            assert found is not None
            assert found[:2] == (largest, next(r.offset for r in records if r.timestamp == largest))


@pytest.mark.slow
def test_ranges_from_and_to_every_offset(kafka_fixture: KafkaFixture, log_dir: Path) -> None:
    with LogDirectory(log_dir) as logs:
        for name in ("v2-zstd-0", "compacted-0", "transactional-0", "truncated-head-0"):
            topic, _, partition = name.rpartition("-")
            log = logs[topic, int(partition)]
            records = offsets_of(log.read())
            for offset in range(log.log_start_offset, log.log_end_offset + 1, 13):
                assert [r.offset for r in log.read(offset)] == [found for found in records if found >= offset]
                assert [r.offset for r in log.read(None, offset)] == [found for found in records if found < offset]
                middle = [r.offset for r in log.read(offset, offset + 20)]
                assert middle == [found for found in records if offset <= found < offset + 20]
            for offset in (log.log_start_offset - 1, log.log_end_offset + 1):
                with pytest.raises(OffsetOutOfRangeError):
                    next(log.read(offset))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("slice_bytes", [1, 1000, 5000, 40_000, 1 << 30])
@pytest.mark.parametrize("harm", [None, drop_indexes, garble_indexes])
def test_slices_are_whole_batches_and_miss_none(copy: Copy, slice_bytes: int, harm: Harm | None) -> None:
    folder = copy("v2-snappy-0")
    if harm is not None:
        harm(folder)
    with ReadOnlyLog(folder) as log:
        batches = [header for segment in log.segments for header in segment.scan(check_crc=True)]
        found, last = [], None
        for part in log.slices(slice_bytes=slice_bytes):
            scan = scan_batches(part.data, part.position, part.end_position, origin=part.origin)
            inside = list(scan)
            assert scan.damage is None
            assert part.size_bytes <= slice_bytes or len(inside) == 1
            if last is not None and last.path == part.path:
                assert last.end_position == part.position
            found += inside
            last = part
        assert found == batches


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v2-none-0", "v2-lz4-0", "transactional-0", "compacted-zstd-0"])
def test_a_segment_cut_at_every_byte_of_its_last_batches(
    kafka_fixture: KafkaFixture, tmp_path: Path, name: str
) -> None:
    with ReadOnlyLog(kafka_fixture.log_dir_unclean / name) as log:
        original = log.segments[-1]
        batches = list(original.scan())[-2:]
        base = original.base_offset
        records = offsets_of(log.read(base, include_control=True))
    (tmp_path / name).mkdir()
    for suffix in (".log", ".index", ".timeindex", ".snapshot"):
        shutil.copy(original.path.with_suffix(suffix), tmp_path / name)
    path = tmp_path / name / original.path.name
    data = path.read_bytes()
    # Around the ends of the batches every byte, elsewhere every fifth.
    ends = {*range(len(data), batches[0].position - 1, -5), *range(batches[1].position - 20, batches[1].position + 20)}
    for cut in sorted({*ends, *range(len(data) - 20, len(data)), batches[0].position}, reverse=True):
        os.truncate(path, cut)
        whole = [header for header in batches if header.end_position <= cut]
        end = max((header.next_offset for header in whole), default=batches[0].base_offset)
        good = max((header.end_position for header in whole), default=batches[0].position)
        with ReadOnlyLog(path.parent) as log:
            assert log.log_end_offset == end
            assert [r.offset for r in log.read(include_control=True)] == [offset for offset in records if offset < end]
            assert [(damage.path, damage.position) for damage in log.damage] == [(str(path), good)] * (good != cut)


def test_the_tail_of_zeros_of_a_preallocated_segment_is_reported(copy: Copy) -> None:
    folder = copy("v2-none-0")
    with ReadOnlyLog(folder) as log:
        last, end = log.segments[-1].path, log.log_end_offset
    size = last.stat().st_size
    with last.open("ab") as file:
        file.write(bytes(100_000))
    with ReadOnlyLog(folder) as log:
        assert log.log_end_offset == end == len(list(log.read()))
        assert [damage.position for damage in log.damage] == [size]


def test_corruption_before_the_end_is_raised_where_it_is_met(kafka_fixture: KafkaFixture, copy: Copy) -> None:
    folder = copy("v2-gzip-0")
    with ReadOnlyLog(folder) as log:
        segment = log.segments[1]
        broken = list(segment.scan())[2]
        offsets = offsets_of(log.read())
    data = bytearray(segment.path.read_bytes())
    data[broken.end_position - 1] ^= 1
    segment.path.write_bytes(data)
    with ReadOnlyLog(folder) as log:
        given: list[int] = []
        with pytest.raises(CorruptRecordError) as caught:
            given.extend(offset_of(record) for record in log.read())
        assert given == [offset for offset in offsets if offset < broken.base_offset]
        assert caught.value.path == str(segment.path)
        assert caught.value.position == broken.position
        behind = [record.offset for record in log.read(broken.next_offset)]
        assert behind == [offset for offset in offsets if offset >= broken.next_offset]
    segment.path.write_bytes(data[: broken.end_position - 5])
    with ReadOnlyLog(folder) as log:
        assert [damage.position for damage in log.damage] == [broken.position]
        given = []
        with pytest.raises(FormatError):
            given.extend(offset_of(record) for record in log.read())
        assert given == [offset for offset in offsets if offset < broken.base_offset]


@pytest.mark.sampled
def test_committed_without_transaction_index_and_snapshots(kafka_fixture: KafkaFixture, copy: Copy) -> None:
    expected = kafka_fixture.consumed_committed["transactional-0"]["records"]
    for patterns in (["*.txnindex"], ["*.snapshot"], ["*.txnindex", "*.snapshot"], ["*.txnindex", "*.index"]):
        folder = copy("transactional-0")
        with ReadOnlyLog(folder) as log:
            aborted = log.aborted_transactions(0, log.log_end_offset)
            assert aborted
        for pattern in patterns:
            for path in folder.glob(pattern):
                path.unlink()
        with ReadOnlyLog(folder) as log:
            assert [as_consumed(record) for record in log.read(isolation="read_committed")] == expected
            found = log.aborted_transactions(0, log.log_end_offset)
            assert [transaction[:3] for transaction in found] == [transaction[:3] for transaction in aborted]
            for offset in range(0, log.log_end_offset, 11):
                part = [as_consumed(record) for record in log.read(offset, offset + 30, isolation="read_committed")]
                assert part == [record for record in expected if offset <= record["offset"] < offset + 30]


@pytest.mark.slow
def test_the_last_stable_offset_is_where_the_oldest_open_transaction_begins(copy: Copy) -> None:
    folder = copy("transactional-0")
    with ReadOnlyLog(folder) as log:
        last = log.segments[-1]
        batches = list(last.scan())
        assert log.last_stable_offset == log.log_end_offset
    data = last.path.read_bytes()
    checked = 0
    for number, header in enumerate(batches):
        last.path.write_bytes(data[: header.end_position])
        with ReadOnlyLog(folder) as log:
            opened: dict[int, int] = {}
            for batch in (batch for segment in log.segments for batch in segment.scan()):
                if batch.is_transactional and batch.is_control:
                    opened.pop(batch.producer_id, None)
                elif batch.is_transactional:
                    opened.setdefault(batch.producer_id, batch.base_offset)
            expected = min(opened.values(), default=header.next_offset)
            assert log.last_stable_offset == expected
            assert all(offset < expected for offset in offsets_of(log.read(isolation="read_committed")))
            checked += expected < header.next_offset
        if number > 40:
            break
    assert checked


def test_a_compaction_that_a_crash_cut_short(fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    folder = tmp_path / "v2-none-0"
    shutil.copytree(fixture_4_3_1.log_dir / "v2-none-0", folder)
    with ReadOnlyLog(folder) as log:
        offsets = [record.offset for record in log.read()]
        first, second, third = (segment.path for segment in log.segments[:3])
    # Two segments became one, which is complete, while one of them still lies there.
    merged = first.read_bytes() + second.read_bytes()
    (folder / f"{first.name}.swap").write_bytes(merged)
    first.rename(folder / f"{first.name}.deleted")
    (folder / f"{third.name}.cleaned").write_bytes(b"half")
    with ReadOnlyLog(folder) as log:
        assert [record.offset for record in log.read()] == offsets
        assert [segment.path.suffix for segment in log.segments[:2]] == [".swap", ".log"]
        assert log.segments[1].path == third
    # A swap at or behind a file that was still being written is no more than a beginning.
    (folder / f"{first.name}.deleted").rename(first)
    (folder / f"{first.name}.cleaned").write_bytes(b"half")
    with ReadOnlyLog(folder) as log:
        assert [record.offset for record in log.read()] == offsets
        assert log.segments[0].path == first


def test_a_running_kafka_deletes_the_head(copy: Copy) -> None:
    folder = copy("v2-none-0")
    with ReadOnlyLog(folder) as log:
        segments = log.segments
        everything = log.read()
        explicit = log.read(0)
        assert next(everything).offset == 0
        assert next(explicit).offset == 0
        for path in folder.glob(f"{segments[1].path.stem}.*"):
            path.rename(f"{path}.deleted")
        segments[0].path.rename(f"{segments[0].path}.deleted")
        rest = [record.offset for record in everything]
        assert rest == [*range(1, segments[1].base_offset), *range(segments[2].base_offset, log.log_end_offset)]
        assert log.log_start_offset == segments[2].base_offset
        with pytest.raises(OffsetOutOfRangeError):
            list(explicit)


def test_a_log_that_grows_is_followed(copy: Copy) -> None:
    folder = copy("v2-lz4-0")
    with ReadOnlyLog(folder) as log:
        offsets = [record.offset for record in log.read()]
        paths = [segment.path for segment in log.segments]
    contents = [path.read_bytes() for path in paths]
    for path in paths[1:]:
        path.unlink()
    drop_indexes(folder)
    with ReadOnlyLog(folder) as log:
        seen: list[int] = []
        for path, content in zip(paths, contents, strict=True):
            for written in range(0, len(content) + 3000, 3000):
                path.write_bytes(content[:written])
                log.refresh()
                seen += offsets_of(log.read(seen[-1] + 1 if seen else None))
                assert seen == offsets[: len(seen)]
        assert seen == offsets


def test_more_segments_than_may_be_open(copy: Copy) -> None:
    folder = copy("v2-none-0")
    opened = OpenSegments(limit=2)
    with ReadOnlyLog(folder, opened=opened) as log:
        assert len(log.segments) > 5
        slices = list(log.slices())
        assert len(opened) <= 2
        assert [record.offset for record in log.read()] == list(range(log.log_end_offset))
        assert sum(1 for part in slices for _ in scan_batches(part.data, part.position, part.end_position)) > 5
        random_offsets = random.Random(1).sample(range(log.log_end_offset), 50)
        assert [next(log.read(offset)).offset for offset in random_offsets] == random_offsets
    assert len(opened) == 0


def test_only_partitions_are_listed(kafka_fixture: KafkaFixture, tmp_path: Path) -> None:
    for name in ("orders-0", "orders-10", "orders-2", "a-1", f"b-0.{'a' * 32}-delete", f"b-1.{'a' * 32}-stray", "junk"):
        (tmp_path / name).mkdir()
    (tmp_path / f"c-0.{'a' * 32}-future").mkdir()
    (tmp_path / "file-0").touch()
    with LogDirectory(tmp_path) as logs:
        assert logs.topics() == ["a", "orders"]
        assert logs.topic_partitions("orders") == [("orders", 0), ("orders", 2), ("orders", 10)]
        assert ("orders", 2) in logs
        assert logs["a", 1] is logs["a", 1]
        assert (logs["a", 1].log_start_offset, logs["a", 1].log_end_offset, list(logs["a", 1].read())) == (0, 0, [])
        with pytest.raises(UnknownTopicOrPartitionError, match="a-2 is not in"):
            _ = logs["a", 2]
        with pytest.raises(UnknownTopicOrPartitionError):
            logs.topic_partitions("b")
        assert logs.meta_properties is None
    with pytest.raises(LogError, match="no-such"):
        LogDirectory(tmp_path / "no-such")
    with LogDirectory(kafka_fixture.log_dir) as logs:
        assert logs.meta_properties is not None
        assert logs.meta_properties.node_id == 1
        assert len(list(logs)) == len(logs) > 10


def test_a_checkpoint_that_cannot_be_read_is_reported_and_no_more(kafka_fixture: KafkaFixture, copy: Copy) -> None:
    folder = copy("v2-none-0")
    (folder.parent / "log-start-offset-checkpoint").write_text("7\n")
    with ReadOnlyLog(folder) as log:
        assert log.log_start_offset == 0
        assert [Path(damage.path or "").name for damage in log.damage] == ["log-start-offset-checkpoint"]
    with LogDirectory(folder.parent) as logs:
        assert logs["v2-none", 0].log_start_offset == 0
        assert len(logs.problems) == 1
    (folder.parent / "log-start-offset-checkpoint").write_text("0\n1\nv2-none 0 100\n")
    with ReadOnlyLog(folder) as log, LogDirectory(folder.parent) as logs:
        assert log.log_start_offset == logs["v2-none", 0].log_start_offset == 100
        assert next(log.read()).offset == 100


@pytest.mark.parametrize("text", ["0\n1\n0 777\n", "0\n1\n3 777\n", "", "x"])
def test_a_log_starts_where_the_checkpoint_or_its_first_segment_says_whatever_its_epochs_say(
    fixture_4_3_1: KafkaFixture, tmp_path: Path, text: str
) -> None:
    folder = tmp_path / "truncated-head-0"
    shutil.copytree(fixture_4_3_1.log_dir / "truncated-head-0", folder)
    (folder / "leader-epoch-checkpoint").write_text(text)
    with ReadOnlyLog(folder) as log:
        assert log.log_start_offset == 702
        assert next(log.read()).offset == 702


@pytest.mark.parametrize("epochs", [None, "0\n1\n0 40\n"])
def test_epochs_that_begin_late_hide_no_record_from_a_writer(tmp_path: Path, epochs: str | None) -> None:
    # Kafka writes `0 40` itself where it makes the file again in a recovery from offset 40 on.
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t", config={"internal.segment.bytes": "1000", "retention.ms": "-1"})
        for number in range(61):
            logs["t", 0].append([Record(b"k", b"%060d" % number)])
        assert len(logs["t", 0].segments) > 3
    path = tmp_path / "t-0" / "leader-epoch-checkpoint"
    path.unlink() if epochs is None else path.write_text(epochs)
    with odradek.open(tmp_path) as logs:
        assert logs["t", 0].log_start_offset == 0
        logs.maintain()
        assert [record.offset for record in logs["t", 0].read()] == list(range(61))
