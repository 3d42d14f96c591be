"""What no checksum covers: offsets that are damaged, and segments that are gone."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import odradek
from odradek.errors import FormatError, MissingRecordsError
from odradek.inspection import FindingKind, verify
from odradek.messages.metadata.metadata_records import ConfigRecord, encode_metadata_record
from odradek.records import Record
from odradek.records.scan import scan_batches
from odradek.storage.directory.gaps import may_have_gaps
from odradek.storage.formats.metadata_snapshot import read_snapshot, write_snapshot
from odradek.storage.metadata.metadata_image import BROKER_RESOURCE, EVERY_BROKER
from odradek.storage.names import TopicPartition

Read = Callable[[Path], list[int]]


def by_read(path: Path) -> list[int]:
    with odradek.open(path, mode="r") as logs:
        return [record.offset for record in logs["t", 0].read() if record.offset is not None]


def by_scan(path: Path) -> list[int]:
    table = odradek.scan(path, topics="t", columns=["offset"]).read_all()
    found: list[int] = table["offset"].to_pylist()
    return found


def by_consume(path: Path) -> list[int]:
    with odradek.consume(path, "t", auto_offset_reset="earliest", follow=False) as consumer:
        return [consumed.record.offset for consumed in consumer if consumed.record.offset is not None]


def by_writer(path: Path) -> list[int]:
    with odradek.open(path) as logs:
        return [record.offset for record in logs["t", 0].read() if record.offset is not None]


ways = pytest.mark.parametrize("read", [by_read, by_scan, by_consume, by_writer])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log of 95 batches in some segments."""
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t", config={"internal.segment.bytes": "3000", "index.interval.bytes": "400"})
        for number in range(95):
            logs["t", 0].append([Record(b"k", b"%0100d" % number)])
    return tmp_path / "data"


@pytest.mark.slow
@ways
def test_one_flipped_bit_of_an_offset_is_never_silence(folder: Path, read: Read) -> None:
    paths = sorted((folder / "t-0").glob("*.log"))
    path = paths[1]
    whole = path.read_bytes()
    headers = list(scan_batches(whole))
    for header in (headers[0], headers[7], headers[-1]):
        for bit in range(64) if read is by_read else (0, 3, 33, 62, 63):
            data = bytearray(whole)
            data[header.position + 7 - bit // 8] ^= 1 << bit % 8
            path.write_bytes(data)
            with pytest.raises(FormatError) as raised:
                read(folder)
            if read is not by_writer:
                assert raised.value.path == str(path) or raised.value.path == str(paths[2])
    path.write_bytes(whole)
    assert read(folder) == list(range(95))


@ways
def test_a_segment_that_is_gone_is_missed(folder: Path, read: Read) -> None:
    paths = sorted((folder / "t-0").glob("*.log"))
    for suffix in (".log", ".index", ".timeindex"):
        paths[1].with_suffix(suffix).unlink()
    with pytest.raises(MissingRecordsError) as raised:
        read(folder)
    start, end = int(paths[1].stem), int(paths[2].stem)
    assert (raised.value.start_offset, raised.value.end_offset) == (start, end)
    assert str(raised.value) == (
        f"{paths[2]}, position 0: offsets {start} to {end - 1} are missing, and the log was never compacted"
    )
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.end_offset) == (str(raised.value), end)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_end_that_is_missing_is_told_of_the_same_file_by_all(folder: Path, threads: int) -> None:
    first, gone, _ = (path.with_suffix("") for path in sorted((folder / "t-0").glob("*.log"))[:3])
    gone.with_suffix(".log").unlink()
    missing, end = int(gone.stem), int(gone.stem) + 3
    for start, path in ((0, first.with_suffix(".log")), (missing + 1, None)):
        told = []
        with odradek.open(folder, mode="r") as logs:
            with pytest.raises(MissingRecordsError) as raised:
                list(logs["t", 0].read(start, end))
            told.append(raised.value)
        with pytest.raises(MissingRecordsError) as raised:
            odradek.scan(folder, topics="t", start_offset=start, end_offset=end, threads=threads).read_all()
        told.append(raised.value)
        assert [str(error) for error in told] == [str(told[0])] * 2
        if path is not None:
            assert told[0].path == str(path)


def test_reading_goes_on_after_what_is_missing(folder: Path) -> None:
    paths = sorted((folder / "t-0").glob("*.log"))
    paths[1].unlink()
    found: list[int | None] = []
    with odradek.open(folder, mode="r") as logs:
        log = logs["t", 0]
        with pytest.raises(MissingRecordsError) as raised:
            found.extend(record.offset for record in log.read())
        found.extend(record.offset for record in log.read(raised.value.end_offset))
    assert found == [*range(int(paths[1].stem)), *range(int(paths[2].stem), 95)]


@ways
def test_a_log_that_was_compacted_may_leave_offsets_out(folder: Path, read: Read) -> None:
    (folder / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 40\n")
    paths = sorted((folder / "t-0").glob("*.log"))
    for suffix in (".log", ".index", ".timeindex"):
        paths[1].with_suffix(suffix).unlink()
    assert read(folder) == [*range(int(paths[1].stem)), *range(int(paths[2].stem), 95)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("garbage", [b"\0" * 100, b"garbage" * 20, b"\xff" * 5])
@pytest.mark.parametrize("read", [by_read, by_scan, by_consume])
def test_bytes_after_a_sealed_segment_that_leave_no_offset_out_are_told_and_no_more(
    folder: Path, read: Read, garbage: bytes
) -> None:
    path = sorted((folder / "t-0").glob("*.log"))[1]
    path.write_bytes(path.read_bytes() + garbage)
    assert read(folder) == list(range(95))
    with odradek.open(folder, mode="r") as logs:
        assert [damage.path for damage in logs["t", 0].damage] == [str(path)]


@ways
def test_a_last_batch_that_is_corrupt_is_raised_though_a_segment_follows(folder: Path, read: Read) -> None:
    path = sorted((folder / "t-0").glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"checksum|missing"):
        read(folder)


@ways
def test_the_brokers_default_may_say_that_a_log_is_compacted(folder: Path, read: Read) -> None:
    sorted((folder / "t-0").glob("*.log"))[1].unlink()
    bootstrap = folder / "bootstrap.checkpoint"
    default = ConfigRecord(BROKER_RESOURCE, EVERY_BROKER, "log.cleanup.policy", "compact")
    write_snapshot(bootstrap, [*read_snapshot(bootstrap).values, encode_metadata_record(default)])
    assert 60 < len(read(folder)) < 95
    assert not [finding for finding in verify(folder) if finding.kind is FindingKind.GAP]


def test_the_metadata_log_has_no_gaps(tmp_path: Path) -> None:
    assert not may_have_gaps(tmp_path, TopicPartition("__cluster_metadata", 0))
    assert may_have_gaps(tmp_path, TopicPartition("__consumer_offsets", 0))
