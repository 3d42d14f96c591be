from __future__ import annotations

import dataclasses
import shutil
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek.errors import CorruptRecordError, LogError
from odradek.records import read_records, scan_batches
from odradek.records.builder import build_batch, build_control_batch
from odradek.records.compression import Codec
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.records.kernels.objects import Record
from odradek.storage.cleaning.cleanable import CleanerConfig, CleaningRange, CleaningStats, Throttle, segments_between
from odradek.storage.cleaning.cleaner import Cleaner, group_segments
from odradek.storage.formats.offset_index import OffsetIndex
from odradek.storage.formats.time_index import TimeIndex
from odradek.storage.formats.transaction_index import TransactionIndex
from odradek.storage.log.read_only_log import ReadOnlyLog
from odradek.testing.faults import FaultyFileSystem
from peers.folder_log import COMPACT, FolderLog
from peers.kafka_fixture import KafkaFixture

NOW = 2_000_000_000_000
RETENTION = 1000
CONFIG = dataclasses.replace(COMPACT, delete_retention_ms=RETENTION, index_interval_bytes=0)


def data(offset: int, *pairs: str, codec: int = 0, **options: object) -> bytes:
    """Build a batch of records: "k=v", "k" for a tombstone, "=v" for a record without a key."""
    records = []
    for number, pair in enumerate(pairs):
        key, equals, value = pair.partition("=")
        records.append(Record(key.encode() or None, value.encode() if equals else None, (), 1000 + offset + number))
    return build_batch(records, base_offset=offset, codec=codec, **options)  # type: ignore[arg-type]


ACTIVE = [data(100, "z=0")]


def log_of(path: Path, *segments: list[bytes]) -> FolderLog:
    """Return a log of segments, each of which begins with its first batch, and an active one at 100."""
    log = FolderLog(path / "t-0", CONFIG)
    for batches in (*segments, ACTIVE):
        log.write(int.from_bytes(batches[0][:8], "big"), *batches)
    return log


def marker(offset: int, kind: str, pid: int = 1, epoch: int = 0) -> bytes:
    return build_control_batch(
        EndTransactionMarker(ControlRecordType[kind], 0),
        producer_id=pid,
        producer_epoch=epoch,
        timestamp=5000 + offset,
        base_offset=offset,
    )


def transactional(offset: int, *pairs: str, pid: int = 1, sequence: int = 0, epoch: int = 0) -> bytes:
    return data(offset, *pairs, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, is_transactional=True)


def idempotent(offset: int, *pairs: str, pid: int = 1, sequence: int = 0) -> bytes:
    return data(offset, *pairs, producer_id=pid, producer_epoch=0, base_sequence=sequence)


def clean(
    log: FolderLog, start: int = 0, end: int | None = None, *, now_ms: int = NOW, slots: int = 0
) -> CleaningStats:
    config = CleanerConfig(dedupe_buffer_size=slots * 24) if slots else CleanerConfig()
    end = log.segments[-1].base_offset if end is None else end
    return Cleaner(config).clean(log, CleaningRange(start, end), now_ms)


def left(log: FolderLog) -> list[str]:
    """Return what the log holds: `offset:key=value`, `offset:COMMIT`, and `offset:-` for an emptied batch."""
    found = []
    for segment in log.segments:
        scan = scan_batches(segment.data)
        for header in scan:
            if header.records_count == 0:
                found.append(f"{header.last_offset}:-")
            for record in read_records(segment.data, header):
                if header.is_control:
                    found.append(f"{record.offset}:{ControlRecordType((record.key or b'')[3]).name}")
                    continue
                value = "" if record.value is None else "=" + record.value.decode()
                found.append(f"{record.offset}:{(record.key or b'').decode()}{value}")
        assert scan.damage is None
    return found


class Case(NamedTuple):
    """Segments (by base offset), the times of the rounds, and what is left after each."""

    segments: dict[int, list[bytes]]
    rounds: list[tuple[int, str]]


EXPIRY = NOW + RETENTION

CASES = {
    "the newest of each key stays": Case(
        {0: [data(0, "a=1", "b=1", "a=2"), data(3, "b=2", "c=1")], 5: [data(5, "a=3")], 100: ACTIVE},
        [(NOW, "3:b=2 4:c=1 5:a=3")],
    ),
    "a batch without a survivor goes": Case(
        {0: [data(0, "a=1"), data(1, "a=2"), data(2, "b=1")], 100: ACTIVE}, [(NOW, "1:a=2 2:b=1")]
    ),
    "the active segment does not count": Case({0: [data(0, "z=1")], 100: ACTIVE}, [(NOW, "0:z=1")]),
    "records without a key go": Case({0: [data(0, "=1", "a=1")], 100: ACTIVE}, [(NOW, "1:a=1")]),
    "a key may be empty, a value too": Case(
        {0: [build_batch([Record(b"", b"1"), Record(b"", b""), Record(b"a", b"")])], 100: ACTIVE},
        [(NOW, "1:= 2:a=")],
    ),
    "a tombstone stays until its horizon": Case(
        {0: [data(0, "a=1", "a", "b=1")], 100: ACTIVE},
        [(NOW, "1:a 2:b=1"), (EXPIRY - 1, "1:a 2:b=1"), (EXPIRY, "2:b=1")],
    ),
    "a superseded tombstone goes": Case({0: [data(0, "a", "a=1")], 100: ACTIVE}, [(NOW, "1:a=1")]),
    "the last batch of a round leaves its header": Case(
        {0: [data(0, "a=1"), data(1, "a")], 2: ACTIVE}, [(NOW, "1:a 100:z=0"), (EXPIRY, "1:- 100:z=0")]
    ),
    "the last batch of an active producer leaves its header": Case(
        {0: [idempotent(0, "a=1"), idempotent(1, "a=2", pid=2), data(2, "a=3")], 100: ACTIVE},
        [(NOW, "0:- 1:- 2:a=3"), (NOW, "0:- 1:- 2:a=3")],
    ),
    "earlier ones of it do not": Case(
        {0: [idempotent(0, "a=1"), idempotent(1, "a=2", sequence=1), data(2, "a=3")], 100: ACTIVE},
        [(NOW, "1:- 2:a=3")],
    ),
    "aborted data goes at once, its marker after the horizon": Case(
        {
            0: [transactional(0, "a=1", "b=1"), marker(2, "ABORT"), transactional(3, "c=1", sequence=2)],
            4: [marker(4, "COMMIT")],
            100: ACTIVE,
        },
        # With the data gone the marker is of no use; the round that finds out stamps it.
        [
            (NOW, "2:ABORT 3:c=1 4:COMMIT"),
            (NOW, "2:ABORT 3:c=1 4:COMMIT"),
            (EXPIRY - 1, "2:ABORT 3:c=1 4:COMMIT"),
            (EXPIRY, "3:c=1 4:COMMIT"),
        ],
    ),
    "aborted data does not supersede": Case(
        {0: [data(0, "a=1"), transactional(1, "a=2"), marker(2, "ABORT", epoch=1)], 100: ACTIVE},
        [(NOW, "0:a=1 2:ABORT")],
    ),
    "committed data does, and its marker stays with it": Case(
        {0: [data(0, "a=1"), transactional(1, "a=2"), marker(2, "COMMIT", epoch=1)], 100: ACTIVE},
        [(NOW, "1:a=2 2:COMMIT"), (EXPIRY, "1:a=2 2:COMMIT")],
    ),
    "a commit without data goes after the horizon, though not the last of a producer": Case(
        {
            0: [transactional(0, "a=1"), marker(1, "COMMIT", epoch=1), data(2, "a=2")],
            3: [transactional(3, "b=1", epoch=1), marker(4, "COMMIT", epoch=2)],
            100: ACTIVE,
        },
        [
            (NOW, "1:COMMIT 2:a=2 3:b=1 4:COMMIT"),
            (NOW, "1:COMMIT 2:a=2 3:b=1 4:COMMIT"),
            (EXPIRY, "2:a=2 3:b=1 4:COMMIT"),
        ],
    ),
    "the last marker of a producer stays, for its epoch": Case(
        {0: [transactional(0, "a=1"), marker(1, "COMMIT", epoch=1), data(2, "a=2")], 100: ACTIVE},
        [(NOW, "1:COMMIT 2:a=2"), (NOW, "1:COMMIT 2:a=2"), (EXPIRY, "1:- 2:a=2"), (EXPIRY, "1:- 2:a=2")],
    ),
    "transactions between one another": Case(
        {
            0: [transactional(0, "a=1"), transactional(1, "b=2", pid=2), data(2, "c=0")],
            3: [marker(3, "ABORT", pid=2, epoch=1), transactional(4, "c=1", sequence=1), marker(5, "COMMIT", epoch=1)],
            100: ACTIVE,
        },
        [(NOW, "0:a=1 3:ABORT 4:c=1 5:COMMIT")],
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_what_is_left(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    log = FolderLog(tmp_path / "t-0", CONFIG)
    for base_offset, batches in case.segments.items():
        log.write(base_offset, *batches)
    for now_ms, expected in case.rounds:
        tail = [] if "100:z=0" in expected else ["100:z=0"]
        clean(log, now_ms=now_ms)
        assert left(log) == expected.split() + tail
        check_indexes(log)


def check_indexes(log: FolderLog) -> None:
    """Hold the indexes of a cleaned segment against its batches."""
    segment = log.segments[0]
    batches = {(header.last_offset, header.position) for header in scan_batches(segment.data)}
    timestamps = {(header.max_timestamp, header.last_offset) for header in scan_batches(segment.data)}
    offsets = OffsetIndex(segment.path.with_suffix(".index"), segment.base_offset)
    offsets.check()
    assert set(offsets.entries()) <= batches
    assert offsets.count == max(0, len(batches) - 1)
    times = TimeIndex(segment.path.with_suffix(".timeindex"), segment.base_offset)
    times.check()
    assert set(times.entries()) <= timestamps
    if timestamps:
        assert times.last_entry().timestamp == max(timestamps)[0]
    aborted = TransactionIndex(segment.path.with_suffix(".txnindex"), segment.base_offset)
    aborted.check()


def test_untouched_batches_are_copied_byte_for_byte(tmp_path: Path) -> None:
    kept = [build_batch([Record(b"%d" % n, b"x", [("h", b"1")], 7 - n)], base_offset=n, codec=n) for n in range(5)]
    log = log_of(tmp_path, kept)
    clean(log)
    assert (log.path / f"{0:020d}.log").read_bytes() == b"".join(kept)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("append_time", [False, True])
def test_a_changed_batch_keeps_its_fields(codec: Codec, append_time: bool, tmp_path: Path) -> None:
    options: dict[str, object] = {"timestamp_type": "LogAppendTime", "append_time_ms": 777} if append_time else {}
    batch = data(
        10,
        "a=1",
        "b=1",
        "c=1",
        "a=2",
        codec=codec,
        producer_id=9,
        producer_epoch=3,
        base_sequence=40,
        partition_leader_epoch=6,
        **options,
    )
    log = log_of(tmp_path, [batch, data(14, "b=2")])
    clean(log, 10)
    (old,) = scan_batches(batch)
    new = log.headers()[0]
    same = ("base_offset", "last_offset", "attributes", "producer_id", "producer_epoch", "base_sequence")
    assert [getattr(new, name) for name in same] == [getattr(old, name) for name in same]
    assert (new.partition_leader_epoch, new.records_count, new.codec) == (6, 2, codec)
    records = read_records(log.segments[0].data, new)
    expected = [(12, 777 if append_time else 1012), (13, 777 if append_time else 1013)]
    assert [(record.offset, record.timestamp) for record in records] == expected
    assert (new.base_timestamp, new.max_timestamp) == ((777, 777) if append_time else (1012, 1013))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_delete_horizon_leaves_the_timestamps_of_records(codec: Codec, tmp_path: Path) -> None:
    log = log_of(tmp_path, [data(0, "a=1", "b", "c=1", codec=codec)])
    clean(log)
    header = log.headers()[0]
    assert header.delete_horizon_ms == header.base_timestamp == EXPIRY
    records = read_records(log.segments[0].data, header)
    assert [record.timestamp for record in records] == [1000, 1001, 1002]
    assert header.max_timestamp == 1002
    # A later change keeps the horizon.
    log.write(3, data(3, "c=2"))
    clean(log, 3, now_ms=NOW + 1)
    header = log.headers()[0]
    assert header.delete_horizon_ms == EXPIRY
    assert [record.timestamp for record in read_records(log.segments[0].data, header)] == [1000, 1001]


def test_an_emptied_batch_is_a_header(tmp_path: Path) -> None:
    log = log_of(tmp_path, [idempotent(0, "a=1", "a=2", sequence=5), data(2, "a=3")])
    clean(log)
    header = log.headers()[0]
    assert (header.size_bytes, header.records_count, header.base_timestamp, header.max_timestamp) == (61, 0, -1, 1001)
    assert (header.base_offset, header.last_offset, header.base_sequence, header.last_sequence) == (0, 1, 5, 6)


def test_markers_that_stay_keep_their_place_in_the_transaction_index(tmp_path: Path) -> None:
    log = log_of(
        tmp_path,
        [transactional(0, "a=1"), data(1, "b=1")],
        [marker(2, "ABORT", epoch=1)],
        [transactional(3, "c=1", pid=2), marker(4, "ABORT", pid=2, epoch=1)],
    )
    before = [entry for segment in log.segments for entry in segment.transaction_index().transactions]
    clean(log)
    assert log.segments[0].transaction_index().transactions == before
    # Their data is gone, so a further round finds nothing that they are needed for.
    clean(log)
    assert not (log.path / f"{0:020d}.txnindex").exists()


def test_the_map_is_built_from_the_dirty_part_only(tmp_path: Path) -> None:
    log = log_of(tmp_path, [data(0, "a=1", "a=2")], [data(2, "b=1")])
    stats = clean(log, 2)
    assert left(log) == ["0:a=1", "1:a=2", "2:b=1", "100:z=0"]
    assert (stats.keys, stats.end_offset) == (1, 100)


def test_what_lies_above_the_first_uncleanable_offset_is_left_alone(tmp_path: Path) -> None:
    log = log_of(tmp_path, [data(0, "a=1")], [data(1, "a=2")], [data(2, "a=3")])
    stats = clean(log, 0, 2)
    assert left(log) == ["1:a=2", "2:a=3", "100:z=0"]
    assert [segment.base_offset for segment in log.segments] == [0, 2, 100]
    assert stats.end_offset == 2


def test_a_full_map_ends_the_round_where_it_got_to(tmp_path: Path) -> None:
    log = FolderLog(tmp_path / "t-0", CONFIG)
    for offset in range(0, 40, 4):
        log.write(offset, *(data(offset + n, f"k{(offset + n) % 20}=1", "k19=0") for n in range(0, 4, 2)))
    log.write(100, *ACTIVE)
    end, rounds = 0, 0
    while end < 100:
        stats = clean(log, end, slots=12)
        assert stats.end_offset > end
        end, rounds = stats.end_offset, rounds + 1
    assert rounds > 1
    expected = [f"{offset}:k{offset % 20}=1" for offset in range(20, 40, 2)]
    assert left(log) == [*expected, "39:k19=0", "100:z=0"]


def test_a_map_too_small_for_one_batch_is_an_error(tmp_path: Path) -> None:
    log = log_of(tmp_path, [data(0, *(f"k{n}=1" for n in range(20)))])
    with pytest.raises(LogError):
        clean(log, slots=8)
    with pytest.raises(ValueError):
        Cleaner(CleanerConfig(dedupe_buffer_size=24))


def test_damage_stops_the_round_and_changes_nothing(tmp_path: Path) -> None:
    log = log_of(tmp_path, [data(0, "a=1"), data(1, "a=2")])
    path = log.segments[0].path
    damaged = bytearray(path.read_bytes())
    damaged[-2] ^= 1
    path.write_bytes(damaged)
    log.refresh()
    before = sorted(log.path.iterdir())
    with pytest.raises(CorruptRecordError) as caught:
        clean(log)
    assert caught.value.path == str(path)
    assert caught.value.position == len(damaged) // 2
    assert sorted(log.path.iterdir()) == before
    assert path.read_bytes() == damaged


@pytest.mark.sampled
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_written_anew_as_v2(
    magic: int, codec: Codec, fixture_2_8_2: KafkaFixture, tmp_path: Path
) -> None:
    source = fixture_2_8_2.log_dir / f"v{magic}-{codec.name.lower()}-0"
    log = FolderLog(tmp_path / "t-0", CONFIG)
    for path in source.glob("*.log"):
        shutil.copyfile(path, log.path / path.name)
    log.write(1 << 20)
    log.refresh()
    newest: dict[bytes, Record] = {}
    for segment in log.segments:
        newest |= {record.key: record for record in records_of(bytes(segment.data)) if record.key is not None}
    clean(log)
    headers = log.headers()
    assert {header.magic for header in headers} == {2}
    assert codec in {header.codec for header in headers} <= {Codec.NONE, codec}
    found = [record for segment in log.segments for record in records_of(bytes(segment.data))]
    wanted = sorted(newest.values(), key=lambda record: record.offset or 0)
    assert [(r.offset, r.key, r.value, r.timestamp) for r in found] == [
        (r.offset, r.key, r.value, r.timestamp) for r in wanted
    ]
    assert found
    with_tombstone = [header for header in headers if header.delete_horizon_ms is not None]
    assert bool(with_tombstone) == any(record.value is None for record in wanted)


def test_old_tombstones_go_with_the_age_of_the_segment(tmp_path: Path) -> None:
    # A v0 message: offset, size, crc, magic 0, no attributes, key "a", null value.
    import zlib

    body = bytes([0, 0]) + b"\0\0\0\1a" + b"\xff\xff\xff\xff"
    message = (5).to_bytes(8, "big") + (len(body) + 4).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body
    log = FolderLog(tmp_path / "t-0", CONFIG)
    log.write(5, message, modified_ms=NOW - 10 * RETENTION)
    log.write(6, data(6, "b=1"), modified_ms=NOW)
    log.write(7, data(7, "c=1"))
    log.write(100, *ACTIVE)
    clean(log, 7, now_ms=NOW)
    assert left(log) == ["6:b=1", "7:c=1", "100:z=0"]


@pytest.mark.parametrize(
    ("max_bytes", "expected"),
    [(1 << 30, [[0, 1, 2]]), (200, [[0], [1], [2]]), (450, [[0, 1], [2]])],
    ids=["all in one", "one each", "two by two"],
)
def test_groups(max_bytes: int, expected: list[list[int]], tmp_path: Path) -> None:
    log = FolderLog(tmp_path / "t-0", CONFIG)
    for number in range(3):
        log.write(number, data(number, "k=" + "v" * 100))
    size = log.segments[0].size_bytes
    assert 150 < size < 200
    groups = group_segments(log.segments, max_bytes, 1 << 20, 3)
    assert [[segment.base_offset for segment in group] for group in groups] == expected


def test_groups_stay_within_31_bits_of_offsets(tmp_path: Path) -> None:
    log = FolderLog(tmp_path / "t-0", CONFIG)
    far = 1 << 31
    for offset in (0, far - 2, far - 1, far):
        log.write(offset, data(offset, "a=1"))
    # The last offset of a segment is taken to be just below the base offset of the next.
    groups = group_segments(log.segments, 1 << 30, 1 << 20, far + 10)
    assert [[segment.base_offset for segment in group] for group in groups] == [[0, far - 2, far - 1], [far]]


def test_the_new_segment_carries_the_time_of_its_last_source(tmp_path: Path) -> None:
    log = FolderLog(tmp_path / "t-0", CONFIG)
    log.write(0, data(0, "a=1"), modified_ms=1_600_000_000_123)
    log.write(1, data(1, "b=1"), modified_ms=1_600_000_111_456)
    log.write(100, *ACTIVE)
    clean(log)
    for suffix in (".log", ".index", ".timeindex"):
        assert (log.path / f"{0:020d}{suffix}").stat().st_mtime_ns == 1_600_000_111_456_000_000


def test_the_old_files_wait_as_deleted(tmp_path: Path) -> None:
    log = log_of(tmp_path, [data(0, "a=1")], [data(1, "a=2")])
    clean(log)
    assert sorted(path.name for path in log.deleted) == [f"{n:020d}.log.deleted" for n in (0, 1)]
    assert all(path.exists() for path in log.deleted)
    assert not [path for path in log.path.iterdir() if path.suffix in {".cleaned", ".swap"}]


@pytest.mark.slow
def test_a_rate_holds_the_cleaner_back(tmp_path: Path) -> None:
    log = log_of(tmp_path, [data(0, "a=" + "v" * 5000)])
    started = time.monotonic()
    Cleaner(CleanerConfig(io_max_bytes_per_second=100_000)).clean(log, CleaningRange(0, 100), NOW)
    # Read twice, written once.
    assert time.monotonic() - started >= 0.14


def test_a_round_that_is_held_back_can_be_stopped_meanwhile(tmp_path: Path) -> None:
    log = log_of(tmp_path, [data(0, "a=" + "v" * 5000)])
    checks = iter([None])
    # It would take an hour to read the segment.
    with pytest.raises(StopIteration):
        Cleaner(CleanerConfig(io_max_bytes_per_second=1), check_done=lambda: next(checks)).clean(
            log, CleaningRange(0, 100), NOW
        )


def test_idle_time_is_not_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(time, "sleep", sleep)
    throttle = Throttle(1000)
    now = 86_400.0
    throttle.wait(5000, lambda: None)
    assert now == pytest.approx(86_404)


def test_an_empty_range_is_no_work(tmp_path: Path) -> None:
    log = FolderLog(tmp_path / "t-0", CONFIG)
    log.write(0, data(0, "a=1"))
    stats = clean(log, 0, 0)
    assert (stats.end_offset, stats.bytes_read) == (0, 0)
    assert left(log) == ["0:a=1"]


def test_segments_between(tmp_path: Path) -> None:
    log = FolderLog(tmp_path / "t-0")
    for offset in (10, 20, 30):
        log.write(offset, data(offset, "a=1"))

    def bases(start: int, end: int) -> list[int]:
        return [segment.base_offset for segment in segments_between(log.segments, start, end)]

    assert bases(10, 30) == [10, 20]
    assert bases(25, 100) == [20, 30]
    assert bases(-1, 20) == [10]
    assert bases(40, 50) == [30]
    assert bases(5, 10) == []


# The last round of Kafka's own cleaner on the fixture's topics: what went in waits as `.deleted`.
ROUNDS: list[tuple[str, list[int], int, int]] = [
    ("compacted-0", [0, 1194], 1194, 1795304132014 + 1),
    ("compacted-zstd-0", [0, 338, 863, 1131, 1154], 1154, 1795304140698),
]


@pytest.mark.parametrize(("topic", "bases", "first_dirty", "horizon_ms"), ROUNDS)
def test_the_same_round_as_kafkas_own(
    topic: str, bases: list[int], first_dirty: int, horizon_ms: int, fixture_4_3_1: KafkaFixture, tmp_path: Path
) -> None:
    source = fixture_4_3_1.log_dir_unclean / topic
    log = FolderLog(tmp_path / topic, dataclasses.replace(COMPACT, internal_segment_bytes=32768))
    for base in bases:
        for suffix in (".log", ".index", ".timeindex"):
            shutil.copyfile(source / f"{base:020d}{suffix}.deleted", log.path / f"{base:020d}{suffix}")
    shutil.copyfile(source / f"{1200:020d}.log", log.path / f"{1200:020d}.log")
    log.refresh()
    clean(log, first_dirty, 1200, now_ms=horizon_ms - log.config.delete_retention_ms)
    kafka = (source / f"{0:020d}.log").read_bytes()
    ours = (log.path / f"{0:020d}.log").read_bytes()
    assert records_of(ours) == records_of(kafka)
    uncompressed = "zstd" not in topic
    if uncompressed:
        for suffix in (".log", ".index", ".timeindex"):
            assert (log.path / f"{0:020d}{suffix}").read_bytes() == (source / f"{0:020d}{suffix}").read_bytes()
    # Compressed blocks differ with the codec's version, what stands around them does not.
    drop = {"position", "size_bytes", "crc"}

    def fields(data: bytes) -> list[dict[str, int]]:
        return [
            {name: value for name, value in header._asdict().items() if name not in drop}
            for header in scan_batches(data)
        ]

    assert fields(ours) == fields(kafka)


def records_of(data: bytes) -> list[Record]:
    return [record for header in scan_batches(data) for record in read_records(data, header)]


def test_a_log_that_kafka_has_cleaned_stays_as_it_is(kafka_fixture: KafkaFixture, tmp_path: Path) -> None:
    for topic in ("compacted-0", "compacted-zstd-0"):
        log = FolderLog(tmp_path / topic, CONFIG)
        for path in (kafka_fixture.log_dir / topic).glob("*.log"):
            shutil.copyfile(path, log.path / path.name)
        log.refresh()
        before = {segment.base_offset: records_of(bytes(segment.data)) for segment in log.segments}
        clean(log, now_ms=1_700_000_000_000)
        after = {segment.base_offset: records_of(bytes(segment.data)) for segment in log.segments}
        assert after == before


@pytest.mark.slow
def test_random_logs_against_a_dictionary(tmp_path: Path) -> None:
    import random

    for seed in range(30):
        source = random.Random(seed)
        log = FolderLog(tmp_path / f"t-{seed}", CONFIG)
        newest: dict[str, tuple[int, str | None]] = {}
        offset = 0
        for _ in range(source.randint(1, 5)):
            base, batches = offset, []
            for _ in range(source.randint(1, 20)):
                pairs = []
                for _ in range(source.randint(1, 40)):
                    key, value = f"k{source.randrange(60)}", str(source.random())[: source.randint(1, 20)]
                    tombstone = source.random() < 0.1
                    pairs.append(key if tombstone else f"{key}={value}")
                    newest[key] = (offset + len(pairs) - 1, None if tombstone else value)
                batches.append(data(offset, *pairs, codec=source.choice(list(Codec))))
                offset += len(pairs)
            log.write(base, *batches)
        log.write(offset + 1000)
        end = 0
        while end < offset + 1000:
            end = clean(log, end, slots=source.choice((0, 0, 120))).end_offset
        expected = {f"{at}:{key}" + ("" if value is None else f"={value}") for key, (at, value) in newest.items()}
        assert [entry for entry in left(log) if not entry.endswith(":-")] == sorted(
            expected, key=lambda text: int(text.partition(":")[0])
        )


def test_checks_of_the_caller_can_drop_the_work(tmp_path: Path) -> None:
    log = log_of(tmp_path, [data(0, "a=1"), data(1, "a=2")])
    before = sorted(log.path.iterdir())

    for calls in range(10):
        try:
            # A check of an empty list raises.
            Cleaner(check_done=([None] * calls).pop).clean(log, CleaningRange(0, 100), NOW)
        except IndexError:
            assert sorted(log.path.iterdir()) == before
        else:
            break
    assert calls > 1
    assert left(log) == ["1:a=2", "100:z=0"]


@pytest.mark.slow
def test_a_crash_at_any_change_leaves_the_old_segments_or_the_new_one(tmp_path: Path) -> None:
    def seen(path: Path) -> list[tuple[int | None, bytes | None]]:
        with ReadOnlyLog(path) as log:
            return [(record.offset, record.value) for record in log.read()]

    old: list[tuple[int | None, bytes | None]] = [(0, b"1"), (1, b"1"), (2, b"2"), (4, b"3"), (100, b"0")]
    new: list[tuple[int | None, bytes | None]] = [(1, b"1"), (4, b"3"), (100, b"0")]
    log = FolderLog(tmp_path / "live" / "t-0", CONFIG)
    log.write(0, data(0, "a=1", "b=1"))
    log.write(2, data(2, "a=2"), transactional(3, "b=9"))
    log.write(4, data(4, "a=3"), marker(5, "ABORT", epoch=1))
    log.write(100, *ACTIVE)
    log._files = files = FaultyFileSystem(tmp_path / "live")
    Cleaner(files=files).clean(log, CleaningRange(0, 100), NOW)
    outcomes = []
    for operations, disk in files.replays():
        killed = tmp_path / str(operations)
        killed.mkdir()
        disk.kill(killed)
        outcomes.append([pair for pair in seen(killed / "t-0") if pair[0] != 3])
    # One moment decides, and there is no way back.
    turn = outcomes.index(new)
    assert outcomes == [old] * turn + [new] * (len(outcomes) - turn)
    assert 10 < turn < len(outcomes) - 5
