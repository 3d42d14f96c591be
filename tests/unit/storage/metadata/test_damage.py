"""Damaged metadata are an error that names file and position. What is cut is what a crash left, and it is told."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import odradek
from odradek.errors import FormatError, LogError, PolicyViolationError
from odradek.messages.metadata.control_records import (
    LeaderChange,
    LeaderVoter,
    SnapshotFooter,
    SnapshotHeader,
    encode_control_record,
)
from odradek.messages.metadata.metadata_records import (
    FeatureLevelRecord,
    NoOpRecord,
    TopicRecord,
    encode_metadata_record,
)
from odradek.messages.uuids import random_uuid
from odradek.records import Record, scan_batches
from odradek.records.builder import build_batch
from odradek.storage.formats.metadata_snapshot import format_snapshot, read_snapshot, write_snapshot
from odradek.storage.log.recovery_report import RecoveryKind
from odradek.storage.metadata.cluster import ClusterMetadata
from odradek.storage.metadata.formatting import format_log_directory, new_meta_properties
from odradek.storage.metadata.metadata_log import METADATA_DIRECTORY, append_metadata, load_metadata
from odradek.storage.names import CLEAN_SHUTDOWN_MARKER

SEGMENT = f"{METADATA_DIRECTORY}/{0:020d}.log"
NO_OP = encode_metadata_record(NoOpRecord())


def batches(path: Path) -> list[tuple[int, int]]:
    """Where each batch of a file starts and ends."""
    return [(header.position, header.end_position) for header in scan_batches(path.read_bytes())]


def flip(path: Path, position: int, bit: int = 0) -> bytes:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)
    return bytes(data)


def batch(offset: int, *values: bytes, epoch: int = 1) -> bytes:
    records = [Record(None, value, timestamp=5) for value in values or (NO_OP,)]
    return build_batch(records, base_offset=offset, partition_leader_epoch=epoch)


def empty(path: Path) -> Path:
    (path / METADATA_DIRECTORY).mkdir(parents=True)
    new_meta_properties().write(path / "meta.properties")
    return path


def log_of(path: Path, **segments: bytes) -> Path:
    """Write a metadata log: `at_0=..., at_7=...` are its segments."""
    empty(path)
    for name, data in segments.items():
        (path / METADATA_DIRECTORY / f"{int(name[3:]):020d}.log").write_bytes(data)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("is_clean", [True, False])
def test_one_flipped_bit_in_the_midst_is_an_error_and_nothing_is_cut(kafka_metadata: Path, is_clean: bool) -> None:
    path = kafka_metadata / SEGMENT
    if not is_clean:
        (kafka_metadata / CLEAN_SHUTDOWN_MARKER).unlink()
    places = batches(path)
    rng = random.Random(1)
    whole = path.read_bytes()
    for start, end in places[:-1:7]:
        # Base offset and epoch, which no checksum covers; the size; the records.
        for position in (start + 7, start + 15, start + 9, rng.randrange(start + 17, end)):
            data = flip(path, position, rng.randrange(8))

            with pytest.raises(FormatError) as caught:
                odradek.open(kafka_metadata)

            assert caught.value.path == str(path)
            # A raised epoch is seen by the list of epochs; where that were gone, by the next batch.
            assert caught.value.position == start
            assert path.read_bytes() == data
            assert (kafka_metadata / CLEAN_SHUTDOWN_MARKER).exists() == is_clean
            assert not (kafka_metadata / ".lock").exists()
            path.write_bytes(whole)
    with odradek.open(kafka_metadata) as logs:
        assert len(logs.topics()) == 14


def test_the_last_batch_is_cut_only_where_a_crash_may_have_torn_it(kafka_metadata: Path) -> None:
    path = kafka_metadata / SEGMENT
    start, end = batches(path)[-1]
    whole = path.read_bytes()
    for position in (start + 61, end - 1):
        data = flip(path, position)
        with pytest.raises(FormatError, match=r"closed in order: without \.kafka_cleanshutdown") as caught:
            odradek.open(kafka_metadata)
        assert (caught.value.path, caught.value.position) == (str(path), start)
        assert path.read_bytes() == data
        (kafka_metadata / CLEAN_SHUTDOWN_MARKER).unlink()

        with odradek.open(kafka_metadata) as logs:
            (action,) = [action for action in logs.report.actions if action.path == path]
            assert (action.kind, action.position, action.size_bytes) == (RecoveryKind.TRUNCATED, start, end - start)
            assert "checksum mismatch" in action.reason
            assert path.stat().st_size == start, "cut when it is opened, not by some later change"
            assert len(logs.topics()) == 14
        with odradek.open(kafka_metadata) as logs:
            assert not logs.report
        path.write_bytes(whole)


@pytest.mark.parametrize("tail", [b"\0" * 5000, b"torn", bytes(range(256)) * 40])
def test_what_a_crash_leaves_after_the_last_batch_is_cut_and_told(kafka_metadata: Path, tail: bytes) -> None:
    path = kafka_metadata / SEGMENT
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    with pytest.raises(FormatError, match="closed in order"):
        ClusterMetadata(kafka_metadata)

    metadata = ClusterMetadata(kafka_metadata, is_clean=False)

    assert path.read_bytes() == whole
    (action,) = metadata.report.actions
    assert (action.path, action.position, action.size_bytes) == (path, len(whole), len(tail))
    metadata.create_topic("goes-on")
    assert "goes-on" in ClusterMetadata(kafka_metadata).image.topics


def test_a_base_offset_that_did_not_reach_the_disk_is_torn_and_another_one_is_not(tmp_path: Path) -> None:
    log = log_of(tmp_path, at_0=b"".join(batch(offset) for offset in range(300)))
    path = log / SEGMENT
    start, end = batches(path)[-1]
    data = flip(path, start + 7)
    with pytest.raises(FormatError, match="offset 298 follows 298") as caught:
        ClusterMetadata(log, is_clean=False)
    assert caught.value.position == start
    assert path.read_bytes() == data
    for zeros in (7, 8):
        path.write_bytes(data[:start] + bytes(zeros) + batch(299)[zeros:])
        metadata = ClusterMetadata(log, is_clean=False)
        assert [(action.position, action.size_bytes) for action in metadata.report.actions] == [(start, end - start)]


@pytest.mark.parametrize(
    ("segments", "name", "position", "reason"),
    [
        ({"at_0": batch(0) + batch(2)}, 0, len(batch(0)), "offset 2 follows 0"),
        ({"at_0": batch(0) + batch(1) + batch(1)}, 0, 2 * len(batch(0)), "offset 1 follows 1"),
        ({"at_0": batch(0, epoch=3) + batch(1, epoch=2)}, 0, len(batch(0)), "epoch 2 follows epoch 3"),
        ({"at_0": batch(0, epoch=3), "at_1": batch(1, epoch=2)}, 1, 0, "epoch 2 follows epoch 3"),
        ({"at_0": batch(0), "at_2": batch(2)}, 2, 0, "it begins at offset 2, the previous segment ends at 1"),
        ({"at_0": batch(0), "at_1": batch(2)}, 1, 0, "offset 2 follows 0"),
        ({"at_0": batch(0)[:-1], "at_1": batch(1)}, 0, 0, "more segments follow"),
        ({"at_0": batch(0) + b"x", "at_1": b""}, 0, len(batch(0)), "more segments follow"),
        ({"at_7": batch(7)}, 7, 0, "the records below offset 7 are missing"),
        ({"at_0": batch(0)[:-1] + b"?" + batch(1)}, 0, 0, "a whole batch follows at position"),
        ({"at_0": batch(0) + b"?" * 70_000 + batch(1)}, 0, len(batch(0)), "a whole batch follows at position 70072"),
        ({"at_0": batch(0, b"\1\2\0\4odr")}, 0, 0, "a field claims 16 bytes"),
    ],
)
def test_a_log_with_something_amiss(
    tmp_path: Path, segments: dict[str, bytes], name: int, position: int, reason: str
) -> None:
    log = log_of(tmp_path, **segments)
    before = {path.name: path.read_bytes() for path in (log / METADATA_DIRECTORY).iterdir()}
    for is_clean in (True, False):
        with pytest.raises(FormatError, match=reason) as caught:
            ClusterMetadata(log, is_clean=is_clean)
        assert caught.value.path == str(log / METADATA_DIRECTORY / f"{name:020d}.log")
        assert caught.value.position == position
    assert {path.name: path.read_bytes() for path in (log / METADATA_DIRECTORY).iterdir()} == before


@pytest.mark.slow
def test_batches_that_cross_the_parts_in_which_a_file_is_read(tmp_path: Path) -> None:
    name = "x" * 200
    values = [encode_metadata_record(TopicRecord(f"{name}-{number}", random_uuid())) for number in range(8_000)]
    data = batch(0, encode_metadata_record(FeatureLevelRecord("metadata.version", 30)))
    data += batch(1, *values[:6_000]) + b"".join(batch(6_001 + n, value) for n, value in enumerate(values[6_000:]))
    log = log_of(tmp_path, at_0=data)
    assert len(load_metadata(log).image.topics) == 8_000
    data = data[:-1]
    (log / SEGMENT).write_bytes(data)
    tail = load_metadata(log).tail
    assert tail is not None
    assert (tail.next_offset, len(data) - tail.position) == (8_000, len(batch(8_000, values[-1])) - 1)


@pytest.mark.slow
def test_a_great_hole_is_passed_over(tmp_path: Path) -> None:
    log = log_of(tmp_path, at_0=batch(0))
    with (log / SEGMENT).open("r+b") as file:
        file.truncate(40 << 20)

    metadata = ClusterMetadata(log, is_clean=False)

    assert (log / SEGMENT).stat().st_size == len(batch(0))
    assert "zeros where a batch should start" in metadata.report.actions[0].reason


def test_a_damaged_list_of_epochs_is_an_error(kafka_metadata: Path) -> None:
    path = kafka_metadata / METADATA_DIRECTORY / "leader-epoch-checkpoint"
    for text, reason in (
        ("0\n1\n3 0\n", "epoch 1 is not in leader-epoch-checkpoint"),
        ("0\n2\n1 0\n1 5\n", "epoch 1 from 5 on follows"),
    ):
        path.write_text(text)
        with pytest.raises(FormatError, match=reason):
            ClusterMetadata(kafka_metadata)
    path.unlink()
    assert len(ClusterMetadata(kafka_metadata).image.topics) == 14


@pytest.mark.parametrize("change", ["emptied", "removed"])
def test_a_log_that_lost_its_records_is_an_error_while_its_partitions_are_there(
    kafka_metadata: Path, change: str
) -> None:
    path = kafka_metadata / SEGMENT
    if change == "emptied":
        path.write_bytes(b"")
    else:
        path.unlink()
    (kafka_metadata / "keyed-0").mkdir()
    with pytest.raises(FormatError, match="it knows nothing of 1 partitions that are here, keyed-0 among them"):
        odradek.open(kafka_metadata)
    # As after a crash in the first second of a new cluster.
    (kafka_metadata / "keyed-0").rmdir()
    with odradek.open(kafka_metadata) as logs:
        assert logs.topics() == []


def test_the_records_after_a_snapshot_are_missed(tmp_path: Path) -> None:
    log = log_of(tmp_path, at_0=batch(0) + batch(1))
    folder = log / METADATA_DIRECTORY
    write_snapshot(folder / f"{3:020d}-{1:010d}.checkpoint", [])
    with pytest.raises(FormatError, match="the log ends with offset 2, before the snapshot at 3"):
        load_metadata(log)
    (log / SEGMENT).unlink()
    with pytest.raises(FormatError, match="the records from offset 3 on are missing"):
        load_metadata(log)


def test_the_voters_of_an_election_before_the_snapshot_count_where_it_names_none(tmp_path: Path) -> None:
    voters = (LeaderVoter(1), LeaderVoter(2), LeaderVoter(3))
    key, value = encode_control_record(LeaderChange(leader_id=1, voters=voters))
    elected = build_batch([Record(key, value)], base_offset=0, partition_leader_epoch=1, is_control=True)
    log = log_of(tmp_path, at_0=elected + batch(1) + batch(2))
    version = encode_metadata_record(FeatureLevelRecord("metadata.version", 30))
    write_snapshot(log / METADATA_DIRECTORY / f"{2:020d}-{1:010d}.checkpoint", [version])
    tail = load_metadata(log).tail
    assert tail is not None
    with pytest.raises(LogError, match="3 controllers"):
        append_metadata(tail, [NO_OP])


def test_a_change_goes_on_in_the_epoch_that_has_begun(tmp_path: Path) -> None:
    version = encode_metadata_record(FeatureLevelRecord("metadata.version", 30))
    log = log_of(tmp_path, at_0=batch(0, version, epoch=4))
    checkpoint = log / METADATA_DIRECTORY / "leader-epoch-checkpoint"
    for text, epoch in (("0\n2\n4 0\n5 1\n", 5), ("0\n2\n4 0\n5 2\n", 4)):
        checkpoint.write_text(text)
        tail = load_metadata(log).tail
        assert tail is not None
        assert tail.epoch == epoch


def snapshot_of(*parts: tuple[list[Record], bool], epoch: int = 0) -> bytes:
    data, offset = b"", 0
    for records, is_control in parts:
        data += build_batch(records, base_offset=offset, partition_leader_epoch=epoch, is_control=is_control)
        offset += len(records)
    return data


HEADER = Record(*encode_control_record(SnapshotHeader()))
FOOTER = Record(*encode_control_record(SnapshotFooter()))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "begins with a header"),
        (snapshot_of(([FOOTER], True)), "begins with a header"),
        (snapshot_of(([Record(None, NO_OP)], False), ([HEADER], True), ([FOOTER], True)), "begins with a header"),
        (snapshot_of(([HEADER], True), ([Record(None, NO_OP)], False)), "ends with a footer"),
        (snapshot_of(([HEADER], True), ([FOOTER], True), ([Record(None, NO_OP)], False)), "ends with its footer"),
        (snapshot_of(([HEADER, FOOTER, HEADER], True)), "ends with a footer"),
        (format_snapshot([NO_OP]) + b"\0", "too few for a batch"),
        (format_snapshot([NO_OP])[:-1], "are left"),
        (snapshot_of(([HEADER], True))[:7] + b"\1" + snapshot_of(([HEADER], True))[8:], "the first offset is 1, not 0"),
        (snapshot_of(([HEADER], True)) + snapshot_of(([HEADER], True)), "offset 0 follows 0"),
        (snapshot_of(([Record(HEADER.key, b"\0")], True)), "cut short"),
    ],
)
def test_a_snapshot_that_is_not_whole(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "bootstrap.checkpoint"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=reason) as caught:
        read_snapshot(path)
    assert caught.value.path == str(path)
    assert caught.value.position is not None


def test_every_bit_of_a_snapshot_counts(tmp_path: Path) -> None:
    path = tmp_path / "bootstrap.checkpoint"
    data = format_snapshot([NO_OP])
    for position in range(len(data)):
        path.write_bytes(data)
        flip(path, position, position % 8)
        with pytest.raises(FormatError):
            read_snapshot(path)


def test_a_snapshot_of_long_values_has_batches_that_kafka_can_write(tmp_path: Path) -> None:
    values: list[bytes | None] = [bytes([number]) * (3 << 20) for number in range(4)]
    path = tmp_path / "bootstrap.checkpoint"
    path.write_bytes(format_snapshot(values))
    assert read_snapshot(path).values == tuple(values)


@pytest.mark.parametrize("name", ["../x", "..", "a/b", "", "x" * 250, "a b", "__cluster_metadata"])
@pytest.mark.parametrize("where", ["bootstrap", "log"])
def test_a_name_out_of_the_metadata_is_checked_before_a_folder_is_made_of_it(
    tmp_path: Path, where: str, name: str
) -> None:
    path = tmp_path / "log-dir"
    values = [
        encode_metadata_record(FeatureLevelRecord("metadata.version", 30)),
        encode_metadata_record(TopicRecord(name, random_uuid())),
    ]
    if where == "log":
        log_of(path, at_0=batch(0, values[0]) + batch(1, values[1]))
        file, position = path / SEGMENT, len(batch(0, values[0]))
    else:
        format_log_directory(path, new_meta_properties())
        file = path / "bootstrap.checkpoint"
        write_snapshot(file, values)
        position = batches(file)[1][0]

    with pytest.raises(FormatError, match="topic") as caught:
        odradek.open(path)

    assert (caught.value.path, caught.value.position) == (str(file), position)
    assert [entry.name for entry in tmp_path.iterdir()] == ["log-dir"]


def test_what_bootstrap_says_is_read_again_when_somebody_has_written_it(tmp_path: Path) -> None:
    format_log_directory(tmp_path, new_meta_properties())
    ours, theirs = ClusterMetadata(tmp_path), ClusterMetadata(tmp_path)
    theirs.create_topic("theirs")
    ours.create_topic("ours")
    theirs.refresh()
    assert set(ours.image.topics) == set(theirs.image.topics) == {"theirs", "ours"}


@pytest.mark.sampled
@pytest.mark.parametrize("where", ["bootstrap", "log"])
def test_more_partitions_than_kafka_creates_at_a_time(tmp_path: Path, kafka_metadata: Path, where: str) -> None:
    path = kafka_metadata if where == "log" else tmp_path / "new"
    with odradek.open(path) as logs:
        for refused in (10_001, 10**9):
            with pytest.raises(PolicyViolationError, match="more than 10000"):
                logs.create_topic("many", partitions=refused)
        logs.create_topic("one")
        with pytest.raises(PolicyViolationError):
            logs.create_partitions("one", 10_002)
        assert "many" not in logs.topics()
    metadata = ClusterMetadata(path)
    for change in (
        partial(metadata.create_topic, "many", 10_001),
        partial(metadata.create_partitions, {"one": 10_002}),
    ):
        with pytest.raises(PolicyViolationError):
            change()
    if where == "log":
        before = len(batches(path / SEGMENT))
        metadata.create_topic("most", 10_000)
        assert len(batches(path / SEGMENT)) == before + 1, "half of a change would be one in two batches"
        assert len(ClusterMetadata(path).image.topics["most"].partitions) == 10_000


def test_the_metadata_of_others_are_not_cut_when_they_are_written_meanwhile(kafka_metadata: Path) -> None:
    metadata = ClusterMetadata(kafka_metadata, is_clean=False)
    path = kafka_metadata / SEGMENT
    torn = path.read_bytes() + batch(254)[:-1]
    path.write_bytes(torn)
    with pytest.raises(FormatError):
        metadata.create_topic("t")
    assert path.read_bytes() == torn
    path.write_bytes(torn + batch(254)[-1:])
    metadata.create_topic("t")
    assert "t" in ClusterMetadata(kafka_metadata).image.topics


def test_what_is_no_folder_cannot_hold_the_metadata(kafka_metadata: Path) -> None:
    folder = kafka_metadata / METADATA_DIRECTORY
    makers: list[Callable[[], object]] = [folder.touch, lambda: folder.symlink_to(folder)]
    for make in makers:
        if folder.is_dir():
            shutil.rmtree(folder)
        else:
            folder.unlink()
        make()
        with pytest.raises(FormatError, match="not a folder") as caught:
            ClusterMetadata(kafka_metadata)
        assert caught.value.path == str(folder)
