"""Appends what real brokers were sent, and looks whether the files that come out are theirs, byte for byte.

A batch is appended twice over: as a replica does, as it is, and as a producer sent it, without offset and leader epoch.
What cannot be the same, and why, is in `docs/storage.md`.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odradek.records import Record
from odradek.records.append.validator import AppendOrigin
from odradek.records.header import BatchHeader
from odradek.records.kernels.checksums import crc32c
from odradek.records.scan import scan_batches
from odradek.storage.formats.checkpoints import LOG_START_OFFSET_CHECKPOINT, write_offset_checkpoint
from odradek.storage.log.log_options import LogOptions
from odradek.storage.log.read_only_log import ReadOnlyLog
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.segment.offset_lookup import locate_batch
from odradek.storage.segment.open_segments import OpenSegments
from odradek.storage.segment.segment import Segment
from odradek.storage.topic_config import TopicConfig
from peers.kafka_fixture import KafkaFixture

INDEXES = (".index", ".timeindex", ".txnindex")
SEGMENT_FILES = (".log", *INDEXES, ".snapshot")
INTERNAL = ("__consumer_offsets-0", "__transaction_state-0")
KAFKA_4_3_1 = (
    *INTERNAL,
    *("empty-0", "empty-1", "keyed-0", "keyed-1", "keyed-2", "transactional-0", "v2-append-time-0"),
    *("v2-gzip-0", "v2-lz4-0", "v2-none-0", "v2-snappy-0", "v2-zstd-0"),
)
# Of these the start of each append call is known, or does not matter.
KAFKA_2_8_2 = (
    *(*INTERNAL, "keyed-0", "keyed-1", "keyed-2", "transactional-0"),
    *("v0-gzip-0", "v0-lz4-0", "v0-snappy-0", "v1-append-time-0", "v1-gzip-0", "v1-lz4-0", "v1-snappy-0"),
    *("v2-append-time-0", "v2-gzip-0", "v2-lz4-0", "v2-snappy-0", "v2-zstd-0"),
)
OLD_FORMATS = (
    *(f"v0-{codec}-0" for codec in ("none", "gzip", "snappy", "lz4")),
    *(f"v1-{codec}-0" for codec in ("none", "gzip", "snappy", "lz4", "append-time")),
)

MAGIC_POSITION, CRC_POSITION, ATTRIBUTES_POSITION = 16, 17, 21
APPEND_TIME = 0x08


class Clock:
    """The time as the test sets it."""

    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def batches_of(path: Path) -> Iterator[tuple[BatchHeader, bytes]]:
    """Give the batches of a `.log` file."""
    data = path.read_bytes()
    scan = scan_batches(data)
    for header in scan:
        yield header, data[header.position : header.end_position]
    assert scan.damage is None


def config_of(fixture: KafkaFixture, partition: str) -> TopicConfig:
    """Return the settings that the topic was created with."""
    topic = fixture.topics.get(partition.rpartition("-")[0], {"config": {}})
    config = dict(topic["config"])
    if int(config.get("segment.bytes", 1 << 30)) < 1 << 20:
        # 4.3.1 takes so small a value under this name only.
        config["internal.segment.bytes"] = config.pop("segment.bytes")
    return TopicConfig.load(config)


def as_sent(header: BatchHeader, batch: bytes) -> bytearray:
    """Undo what the leader did to a batch; of the time that it stamped, all but the records' own times is left."""
    sent = bytearray(batch)
    struct.pack_into(">q", sent, 0, 0)
    if header.magic == 2:
        struct.pack_into(">i", sent, 12, -1)
        if header.timestamp_type == "LogAppendTime":
            sent[ATTRIBUTES_POSITION + 1] &= ~APPEND_TIME
            struct.pack_into(">I", sent, CRC_POSITION, crc32c(sent[ATTRIBUTES_POSITION:]))
    return sent


def origin_of(partition: str, header: BatchHeader) -> AppendOrigin:
    """Return who sent a batch to the leader."""
    if header.is_control or partition in INTERNAL:
        return AppendOrigin.COORDINATOR
    return AppendOrigin.CLIENT


def files_of(folder: Path, *suffixes: str) -> dict[str, bytes]:
    """Return the content of the files that end so, by their names."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name.endswith(suffixes)}


def assert_same(ours: Path, kafkas: Path, *suffixes: str) -> None:
    """Compare two folders' files."""
    written, expected = files_of(ours, *suffixes), files_of(kafkas, *suffixes)
    assert sorted(written) == sorted(expected)
    assert [name for name in sorted(expected) if written[name] != expected[name]] == []


@contextmanager
def written(
    fixture: KafkaFixture, ours: Path, paths: list[Path] | None = None, *, is_leader: bool = False, start: int = 0
) -> Iterator[WritableLog]:
    """Give a log of the batches of Kafka's files, appended as a leader or a follower does, when they were there."""
    ours.mkdir()
    clock = Clock()
    paths = paths or sorted((fixture.log_dir / ours.name).glob("*.log"))
    with WritableLog(
        ours, LogOptions(config=config_of(fixture, ours.name), log_start_offset=start, clock=clock)
    ) as log:
        for header, batch in (item for path in paths for item in batches_of(path)):
            clock.now_ms = max(clock.now_ms, header.max_timestamp)
            if is_leader:
                result = log.append_batches(as_sent(header, batch), origin=origin_of(ours.name, header))
                assert result.first_offset == header.base_offset
            else:
                log.append_batches(batch, origin=AppendOrigin.REPLICATION)
        yield log


@pytest.mark.sampled
@pytest.mark.parametrize("is_leader", [True, False], ids=["leader", "replica"])
@pytest.mark.parametrize("partition", KAFKA_4_3_1)
def test_what_4_3_1_was_sent_becomes_its_files(
    fixture_4_3_1: KafkaFixture, tmp_path: Path, partition: str, is_leader: bool
) -> None:
    kafkas, ours = fixture_4_3_1.log_dir / partition, tmp_path / partition
    with written(fixture_4_3_1, ours, is_leader=is_leader):
        pass
    assert_same(ours, kafkas, *SEGMENT_FILES, "leader-epoch-checkpoint")
    assert len(files_of(ours, "")) == len(files_of(kafkas, "")) - 1  # partition.metadata is the directory's to write


@pytest.mark.sampled
@pytest.mark.parametrize("partition", KAFKA_2_8_2)
def test_what_2_8_2_was_sent_becomes_its_files(fixture_2_8_2: KafkaFixture, tmp_path: Path, partition: str) -> None:
    with written(fixture_2_8_2, tmp_path / partition):
        pass
    assert_same(tmp_path / partition, fixture_2_8_2.log_dir / partition, *SEGMENT_FILES)


def test_the_metadata_log_becomes_its_files(fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    kafkas, ours = fixture_4_3_1.log_dir / "__cluster_metadata-0", tmp_path / "__cluster_metadata-0"
    with written(fixture_4_3_1, ours):
        pass
    assert_same(ours, kafkas, *SEGMENT_FILES, "leader-epoch-checkpoint")


@pytest.mark.parametrize("is_leader", [True, False], ids=["leader", "replica"])
def test_a_deleted_head_leaves_the_same(fixture_4_3_1: KafkaFixture, tmp_path: Path, is_leader: bool) -> None:
    partition = "truncated-head-0"
    kafkas, ours = fixture_4_3_1.log_dir / partition, tmp_path / partition
    paths = [*sorted(kafkas.glob("*.log.deleted")), *sorted(kafkas.glob("*.log"))]
    with written(fixture_4_3_1, ours, paths, is_leader=is_leader) as log:
        log.delete_records(777)
        deleted = log.upkeep.delete_old_segments()
        assert len(deleted) == 4
    assert_same(ours, kafkas, *SEGMENT_FILES, "leader-epoch-checkpoint", ".deleted")


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["compacted-0", "compacted-zstd-0"])
def test_segments_that_were_compacted_away_become_the_same(
    fixture_4_3_1: KafkaFixture, tmp_path: Path, partition: str
) -> None:
    kafkas, ours = fixture_4_3_1.log_dir / partition, tmp_path / partition

    def is_original(path: Path) -> bool:
        # The cleaner leaves a batch with fewer records than offsets of every one that it touches.
        headers = [header for header, _ in batches_of(path)]
        return bool(headers) and all(header.records_count == header.last_offset_delta + 1 for header in headers)

    paths = [path for path in sorted(kafkas.glob("*.log.deleted")) if is_original(path)]
    last = max(kafkas.glob("*.log"))
    with written(fixture_4_3_1, ours, [*paths, last], start=int(paths[0].name[:20])):
        pass
    assert len(paths) > 20
    compared = 0
    for path in paths:
        base = path.name[:20]
        # The first segment of a log has no snapshot; Kafka's first one was compacted more than once, and is not here.
        for suffix in SEGMENT_FILES[: -1 if path == paths[0] else None]:
            kafka_file = kafkas / f"{base}{suffix}.deleted"
            if kafka_file.exists():
                assert (ours / f"{base}{suffix}").read_bytes() == kafka_file.read_bytes(), kafka_file.name
                compared += 1
    assert compared >= 4 * len(paths) - 1
    for path in kafkas.glob(f"{last.stem}.*"):
        assert (ours / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.sampled
@pytest.mark.parametrize("partition", ["v0-none-0", "v1-none-0", "v2-none-0", "truncated-head-0", "keyed-0"])
def test_look_ups_answer_as_with_the_files_of_2_8_2(
    fixture_2_8_2: KafkaFixture, tmp_path: Path, partition: str
) -> None:
    kafkas, ours = fixture_2_8_2.log_dir / partition, tmp_path / partition
    ours.mkdir()
    clock = Clock()
    paths = sorted(kafkas.glob("*.log"))
    start = int(paths[0].stem)
    config = config_of(fixture_2_8_2, partition)
    with WritableLog(ours, LogOptions(config=config, log_start_offset=start, clock=clock)) as log:
        for path in paths:
            # As many at once as one segment holds: a message of these formats is a batch of its own.
            log.append_batches(path.read_bytes(), origin=AppendOrigin.REPLICATION)
        # The records that were deleted from the head are those before the checkpointed log start.
        log.delete_records(fixture_2_8_2.consumed[partition]["logStartOffset"])
    assert_same(ours, kafkas, ".log")
    write_offset_checkpoint(tmp_path / LOG_START_OFFSET_CHECKPOINT, fixture_2_8_2.log_start_offsets)
    with ReadOnlyLog(ours) as log, ReadOnlyLog(kafkas) as theirs:
        assert list(log.read()) == list(theirs.read())
        times = sorted({record.timestamp for record in log.read() if record.timestamp is not None})
        for time_ms in {value + near for value in times for near in (-1, 0, 1)}:
            assert log.offset_for_time(time_ms) == theirs.offset_for_time(time_ms)
    opened = OpenSegments()
    for path in paths:
        segment, expected = (Segment(folder, int(path.stem), opened) for folder in (ours, kafkas))
        for offset in range(segment.base_offset, segment.end().next_offset + 1):
            assert locate_batch(segment, offset) == locate_batch(expected, offset)
            # Each index points at or before the batch, at the beginning of one.
            for index in (segment.offset_index, expected.offset_index):
                position = index.lookup(offset).position
                floor = segment.batch_at(position)
                assert floor is not None
                assert floor.base_offset <= offset
        segment.close()
        expected.close()


@pytest.mark.costly
@pytest.mark.sampled
@pytest.mark.parametrize("state", ["log_dir", "log_dir_unclean"])
@pytest.mark.parametrize("partition", OLD_FORMATS)
def test_old_formats_are_recovered_appended_to_and_served(
    fixture_2_8_2: KafkaFixture, tmp_path: Path, partition: str, state: str
) -> None:
    folder = Path(shutil.copytree(getattr(fixture_2_8_2, state) / partition, tmp_path / partition))
    kafkas = fixture_2_8_2.log_dir / partition
    for path in folder.iterdir():
        if path.name.endswith(INDEXES):
            path.unlink()
    with ReadOnlyLog(kafkas) as theirs:
        records, times = list(theirs.read()), {}
        for record in records:
            if record.timestamp is not None:
                times[record.timestamp] = theirs.offset_for_time(record.timestamp)
    assert records
    end = records[-1].offset + 1 if records[-1].offset is not None else 0
    added = [Record(b"k", b"v%d" % number, timestamp=1_700_000_000_000) for number in range(3)]
    with WritableLog(folder, LogOptions(config=config_of(fixture_2_8_2, partition))) as log:
        assert log.log_end_offset == end
        # What is read stays valid while it is appended to.
        assert list(log.read()) == records
        assert log.append(added) == end
    # The whole ones of the segments that were not appended to are Kafka's, and end as at a roll.
    for path in sorted(kafkas.glob("*.log"))[:-1]:
        assert (folder / path.name).read_bytes() == path.read_bytes()
    with WritableLog(folder, LogOptions(config=config_of(fixture_2_8_2, partition), is_clean=True)) as log:
        assert log.append(added) == end + 3
        found = list(log.read())
        assert found[: len(records)] == records
        assert [record.value for record in found[len(records) :]] == [b"v0", b"v1", b"v2"] * 2
        assert [record.offset for record in found[len(records) :]] == list(range(end, end + 6))
        for time_ms, offset in list(times.items())[::10]:
            assert log.offset_for_time(time_ms) == offset
