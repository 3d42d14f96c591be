"""`verify` as a library: one thing that is wrong is one finding, and what a real broker wrote is clean."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import odradek
from flips.breakage import THINGS, cut, flip_bit, flip_bit_of_number
from odradek.inspection import Finding, FindingKind, UnknownPathError, verify
from odradek.records import Record, scan_batches
from odradek.records.append.validator import AppendOrigin
from odradek.records.builder import build_batch
from odradek.storage.formats.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    format_offset_checkpoint,
    read_offset_checkpoint,
)
from odradek.storage.names import TopicPartition

SmallLogDirectory = Callable[..., Path]


def the_only_finding(path: Path, *, decode: bool = False) -> Finding:
    found = list(verify(path, decode=decode))
    assert len(found) == 1, [str(finding) for finding in found]
    return found[0]


# -- what lies outside of the checksum


def batches_of(folder: Path) -> list[tuple[Path, int]]:
    return [
        (segment, header.position)
        for segment in sorted(folder.glob("*.log"))
        for header in scan_batches(segment.read_bytes())
    ]


@contextmanager
def a_flipped_bit(folder: Path, source: random.Random, start: int, size: int) -> Iterator[tuple[Path, int]]:
    """Flip a bit of a number of one of the batches; give the place of the batch, and mend it."""
    segment, position = source.choice(batches_of(folder))
    whole = segment.read_bytes()
    flip_bit_of_number(segment, position + start, size, source.randrange(8 * size))
    yield segment, position
    segment.write_bytes(whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "name"),
    [
        *[("4.3.1", name) for name in ("v2-none-0", "keyed-0", "transactional-0", "__transaction_state-0")],
        *[("2.8.2", name) for name in ("v0-none-0", "v1-none-0", "v0-gzip-0", "v1-gzip-0", "v1-lz4-0")],
    ],
)
def test_a_flipped_bit_in_an_offset_is_one_finding(small_log_dir: SmallLogDirectory, version: str, name: str) -> None:
    """It was up to a hundred: every later batch and index entry was held against the wrong offset."""
    root = small_log_dir(name, version=version)
    source = random.Random(name)
    for _ in range(10):
        with a_flipped_bit(root / name, source, 0, 8) as place:
            # What a compressed message of an old format begins with, its content tells.
            finding = the_only_finding(root / name, decode=version == "2.8.2")
        assert (finding.path, finding.position) == place
        assert version == "2.8.2" or finding.kind in {FindingKind.ORDER, FindingKind.DAMAGE}


@pytest.mark.slow
def test_in_a_compacted_log_a_flipped_bit_is_one_finding_or_between_its_neighbours(
    small_log_dir: SmallLogDirectory,
) -> None:
    root = small_log_dir("compacted-0")
    source = random.Random(1)
    none = 0
    for _ in range(30):
        with a_flipped_bit(root / "compacted-0", source, 0, 8) as place:
            found = list(verify(root / "compacted-0"))
            headers = scan_batches(place[0].read_bytes())
            offsets = [(header.base_offset, header.next_offset) for header in headers]
        if found:
            assert [(finding.path, finding.position) for finding in found] == [place]
        else:
            none += 1
            assert all(end <= start for (_, end), (start, _) in itertools.pairwise(offsets))
    assert none < 5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v2-none-0", "compacted-0"])
def test_a_flipped_bit_in_a_leader_epoch_is_one_finding(small_log_dir: SmallLogDirectory, name: str) -> None:
    root = small_log_dir(name)
    source = random.Random(name)
    for _ in range(10):
        with a_flipped_bit(root / name, source, 12, 4) as place:
            finding = the_only_finding(root / name)
        assert (finding.path, finding.position, finding.kind) == (*place, FindingKind.EPOCH)
        assert finding.reason.endswith("leader-epoch-checkpoint says 0")


@pytest.mark.slow
def test_a_flipped_bit_in_a_batch_is_one_finding(small_log_dir: SmallLogDirectory) -> None:
    """Neither the index entries for it nor the transactions that it ended are findings of their own."""
    root = small_log_dir("transactional-0")
    source = random.Random(3)
    for _ in range(25):
        with a_flipped_bit(root / "transactional-0", source, 8, 53) as (segment, _):
            assert the_only_finding(root).path == segment


def test_a_batch_that_is_missing_is_one_gap(small_log_dir: SmallLogDirectory) -> None:
    root = small_log_dir("v2-none-0")
    segment = min((root / "v2-none-0").glob("*.log"))
    data = segment.read_bytes()
    *_, missing, after = scan_batches(data)
    segment.write_bytes(data[: missing.position] + data[missing.end_position :])
    for path in segment.parent.glob(f"{segment.stem}.*index"):
        path.unlink()
    finding = the_only_finding(root)
    assert (finding.kind, finding.path, finding.position) == (FindingKind.GAP, segment, missing.position)
    assert finding.reason.startswith(f"offsets {missing.base_offset} to {after.base_offset - 1} are missing")


@pytest.mark.parametrize("files", ["*", "*.log"])
def test_a_missing_segment_in_the_middle_is_one_gap(small_log_dir: SmallLogDirectory, files: str) -> None:
    root = small_log_dir("keyed-0")
    for path in (root / "keyed-0").glob(f"{146:020d}.{files[2:] or '*'}"):
        path.unlink()
    finding = the_only_finding(root)
    assert finding.kind is FindingKind.GAP
    assert finding.path.name == f"{286:020d}.log"
    assert finding.reason == "offsets 146 to 285 are missing, and the log was never compacted"


def test_a_gap_in_a_folder_that_stands_alone_may_be_the_cleaners(
    small_log_dir: SmallLogDirectory, tmp_path: Path
) -> None:
    root = small_log_dir("keyed-0")
    for path in (root / "keyed-0").glob(f"{146:020d}.*"):
        path.unlink()
    alone = Path(shutil.copytree(root / "keyed-0", tmp_path / "alone" / "keyed-0"))
    assert list(verify(alone)) == []


@pytest.mark.sampled
@pytest.mark.parametrize("known_by", ["cleaner-offset-checkpoint", "metadata", "nothing"])
def test_the_gaps_of_a_compacted_log_are_known_by_either(small_log_dir: SmallLogDirectory, known_by: str) -> None:
    root = small_log_dir("compacted-0")
    if known_by != "metadata":
        shutil.rmtree(root / "__cluster_metadata-0")
        (root / "bootstrap.checkpoint").unlink()
    if known_by != "cleaner-offset-checkpoint":
        (root / "cleaner-offset-checkpoint").write_bytes(b"0\n0\n")
    found = list(verify(root / "compacted-0"))
    assert {finding.kind for finding in found} == ({FindingKind.GAP} if known_by == "nothing" else set())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transactional-0", "v2-zstd-0", "compacted-0"])
def test_a_segment_that_lost_its_end_is_one_finding(small_log_dir: SmallLogDirectory, name: str) -> None:
    """Its index entries, the gap before the next segment and the checkpoints all say the same."""
    root = small_log_dir(name)
    for segment in sorted((root / name).glob("*.log")):
        whole = segment.read_bytes()
        segment.write_bytes(b"")
        finding = the_only_finding(root)
        segment.write_bytes(whole)
        assert finding.path in {segment, root / RECOVERY_POINT_CHECKPOINT} or finding.kind is FindingKind.GAP


# -- other files


def write_offsets(path: Path, **offsets: int) -> None:
    names = {TopicPartition(name.replace("_", "-"), 0): offset for name, offset in offsets.items()}
    path.write_bytes(format_offset_checkpoint(names))


@pytest.mark.slow
def test_a_log_that_starts_beyond_its_end(small_log_dir: SmallLogDirectory) -> None:
    for clean in (True, False):
        root = small_log_dir("keyed-0", clean=clean)
        write_offsets(root / LOG_START_OFFSET_CHECKPOINT, keyed=1000)
        finding = the_only_finding(root)
        assert (finding.path, finding.kind) == (root / LOG_START_OFFSET_CHECKPOINT, FindingKind.CONTRADICTION)
        assert finding.reason == "keyed-0 starts at offset 1000, beyond its end at 381"
        assert list(verify(root / "keyed-0")) == [finding]
        shutil.rmtree(root)


def test_a_log_start_where_there_is_no_segment_any_more(small_log_dir: SmallLogDirectory) -> None:
    root = small_log_dir("truncated-head-0")
    write_offsets(root / LOG_START_OFFSET_CHECKPOINT, truncated_head=100)
    finding = the_only_finding(root)
    assert finding.reason == "truncated-head-0 starts at offset 100, before its first segment 702"
    # While a broker is at work retention may have gone on.
    (root / ".kafka_cleanshutdown").unlink()
    assert list(verify(root)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "crashed"),
    [(LOG_START_OFFSET_CHECKPOINT, True), (RECOVERY_POINT_CHECKPOINT, False), (REPLICATION_OFFSET_CHECKPOINT, False)],
)
def test_a_checkpoint_that_names_a_partition_that_does_not_exist(
    small_log_dir: SmallLogDirectory, name: str, crashed: bool
) -> None:
    root = small_log_dir("keyed-0")
    offsets = read_offset_checkpoint(root / name)
    (root / name).write_bytes(format_offset_checkpoint(offsets | {TopicPartition("gone", 3): 7}))
    finding = the_only_finding(root)
    assert (finding.path, finding.reason) == (root / name, "gone-3 does not exist")
    (root / ".kafka_cleanshutdown").unlink()
    assert len(list(verify(root))) == crashed
    # One that is being deleted still has its entry.
    (root / f"gone-3.{0:032x}-delete").mkdir()
    assert list(verify(root)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT])
def test_a_checkpoint_beyond_the_end_of_a_log_that_was_closed_in_order(
    small_log_dir: SmallLogDirectory, name: str
) -> None:
    root = small_log_dir("keyed-0", "v2-none-0")
    offsets = read_offset_checkpoint(root / name)
    (root / name).write_bytes(format_offset_checkpoint(offsets | {TopicPartition("keyed", 0): 400}))
    finding = the_only_finding(root)
    assert (finding.path, finding.kind) == (root / name, FindingKind.CONTRADICTION)
    assert finding.reason.startswith("keyed-0 ends at offset 381, before the ")
    # A crash may take the end of a log and leave the checkpoint.
    (root / ".kafka_cleanshutdown").unlink()
    assert list(verify(root)) == []


@pytest.mark.parametrize("seed", range(5))
def test_random_bytes_as_meta_properties(small_log_dir: SmallLogDirectory, seed: int) -> None:
    root = small_log_dir("empty-0")
    (root / "meta.properties").write_bytes(random.Random(seed).randbytes(200))
    finding = the_only_finding(root)
    assert (finding.path, finding.kind) == (root / "meta.properties", FindingKind.FILE)


@pytest.mark.parametrize(
    "text",
    [
        "node.id=1\ncluster.id=c\n",
        "version=1\nnode.id=1\ncluster.id=c\ndirectory.ie=gkm79SPRSZeHcXGd1WaD-g\n",
    ],
)
def test_meta_properties_that_say_too_little(small_log_dir: SmallLogDirectory, text: str) -> None:
    root = small_log_dir("empty-0")
    (root / "meta.properties").write_text(text)
    assert the_only_finding(root).kind is FindingKind.FILE


NOBODY = "AAAAAAAAAAAAAAAAAAAAAA"
VOTE = {"leaderId": 1, "leaderEpoch": 1, "votedId": -1, "votedDirectoryId": NOBODY, "data_version": 1}
QUORUM_STATES = {
    "nothing": "",
    "no JSON": '{"leaderId":1,',
    "no object": "[1]",
    "no version": json.dumps({name: value for name, value in VOTE.items() if name != "data_version"}),
    "version 2": json.dumps(VOTE | {"data_version": 2}),
    "a field is missing": json.dumps({name: value for name, value in VOTE.items() if name != "leaderEpoch"}),
    "a text for a number": json.dumps(VOTE | {"leaderId": "1"}),
    "a short id": json.dumps(VOTE | {"votedDirectoryId": "AAAA"}),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", QUORUM_STATES)
def test_a_broken_quorum_state(small_log_dir: SmallLogDirectory, name: str) -> None:
    root = small_log_dir()
    path = root / "__cluster_metadata-0" / "quorum-state"
    path.write_text(QUORUM_STATES[name])
    finding = the_only_finding(root)
    assert (finding.path, finding.kind) == (path, FindingKind.FILE)


def test_a_quorum_state_of_before_kip_853(small_log_dir: SmallLogDirectory) -> None:
    root = small_log_dir()
    (root / "__cluster_metadata-0" / "quorum-state").write_text(
        '{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,"currentVoters":[],'
        '"data_version":0}'
    )
    assert list(verify(root)) == []


def test_a_partition_without_segments(small_log_dir: SmallLogDirectory, tmp_path: Path) -> None:
    root = small_log_dir("keyed-0", "v2-none-0")
    for path in (root / "keyed-0").iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    finding = the_only_finding(root)
    assert (finding.path, finding.kind) == (root / "keyed-0", FindingKind.FILE)
    # One that nobody has ever written to has no more, where its topic was made by Odradek.
    with odradek.open(tmp_path / "new") as logs:
        logs.create_topic("never", 2)
    assert list(verify(tmp_path / "new")) == []
    (tmp_path / "new" / "ghost-0").mkdir()
    assert the_only_finding(tmp_path / "new").path == tmp_path / "new" / "ghost-0"


@pytest.mark.slow
def test_a_topic_id_that_is_not_the_topics(small_log_dir: SmallLogDirectory) -> None:
    root = small_log_dir("keyed-0", "v2-none-0")
    path = root / "keyed-0" / "partition.metadata"
    shutil.copy(root / "v2-none-0" / "partition.metadata", path)
    finding = the_only_finding(root)
    assert (finding.path, finding.kind) == (path, FindingKind.CONTRADICTION)
    path.unlink()
    finding = the_only_finding(root)
    assert (finding.path, finding.reason) == (path, "it is missing: Kafka takes the folder for a stray one")


@pytest.mark.parametrize("name", ["5.log", "x.index", f"{5:019d}.snapshot", f"{1 << 63}.log", "notes.timeindex"])
def test_a_name_that_is_no_offset(small_log_dir: SmallLogDirectory, name: str) -> None:
    root = small_log_dir("keyed-0")
    (root / "keyed-0" / name).write_bytes(b"")
    finding = the_only_finding(root)
    assert finding.path == root / "keyed-0" / name
    assert "Kafka does not start on it" in finding.reason


@pytest.mark.slow
@pytest.mark.parametrize("how", ["emptied", "cut", "garbage"])
def test_no_file_that_is_broken_is_more_than_one_finding(small_log_dir: SmallLogDirectory, how: str) -> None:
    root = small_log_dir("transactional-0", "empty-0")
    told = 0
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        whole = path.read_bytes()
        match how:
            case "emptied":
                path.write_bytes(b"")
            case "cut":
                path.write_bytes(whole[: len(whole) * 2 // 3])
            case _:
                path.write_bytes(random.Random(path.name).randbytes(max(100, len(whole))))
        found = list(verify(root))
        path.write_bytes(whole)
        assert len(found) <= 1, [str(finding) for finding in found]
        if how == "garbage" and path.suffix != ".deleted":
            assert [finding.path for finding in found] == [path]
        told += bool(found)
    assert told >= 15


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("thing", THINGS)
def test_what_lies_in_the_place_of_a_file_is_one_finding(small_log_dir: SmallLogDirectory, thing: str) -> None:
    root = small_log_dir("transactional-0")
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        if path.suffix == ".deleted":
            continue
        path.rename(root.parent / "aside")
        THINGS[thing](path)
        found = list(verify(root))
        path.rmdir() if thing == "a directory" else path.unlink()
        (root.parent / "aside").rename(path)
        assert [finding.path for finding in found] == [path], [str(finding) for finding in found]
        assert found[0].kind in {FindingKind.FILE, FindingKind.INDEX, FindingKind.UNREADABLE}


def test_a_file_that_may_not_be_read_is_a_finding_and_ends_nothing(
    small_log_dir: SmallLogDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = small_log_dir("keyed-0", "v2-none-0")
    segment = min((root / "keyed-0").glob("*.log"))
    other = min((root / "v2-none-0").glob("*.log"))
    flip_bit(other, 100)
    opened = os.open

    def refuse(path: str | Path, *arguments: int, **options: int) -> int:
        if Path(path) == segment:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    found = [(finding.path, finding.kind) for finding in verify(root)]
    assert found == [(segment, FindingKind.UNREADABLE), (other, FindingKind.DAMAGE)]


def test_what_is_no_log_is_refused_before_anything_is_found(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    for path in (tmp_path, tmp_path / "notes.txt", tmp_path / "absent"):
        with pytest.raises(UnknownPathError, match=str(path)):
            verify(path)


def test_a_folder_that_is_deleted_is_not_held_against_the_one_in_its_place(small_log_dir: SmallLogDirectory) -> None:
    root = small_log_dir("keyed-0", "empty-0")
    deleted = root / f"keyed-0.{0:032x}-delete"
    (root / "keyed-0").rename(deleted)
    (root / "empty-0").rename(root / "keyed-0")
    assert list(verify(deleted)) == []


def test_a_named_file_is_held_against_its_segment(small_log_dir: SmallLogDirectory) -> None:
    root = small_log_dir("keyed-0")
    index = max((root / "keyed-0").glob("*.index"), key=lambda path: path.stat().st_size)
    flip_bit(index, 8 * 3 + 5)
    for path in (index, index.with_suffix(".log"), index.with_suffix(".timeindex")):
        assert [finding.path for finding in verify(path)] == [index]


@pytest.mark.slow
def test_what_odradek_writes_is_clean_at_any_moment(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t", config={"internal.segment.bytes": "5000", "index.interval.bytes": "100"})
        log = logs["t", 0]
        for number in range(60):
            log.append([Record(b"k%d" % number, b"v" * 100, timestamp=number) for _ in range(number % 4 + 1)])
            assert list(verify(tmp_path / "data")) == []
    assert list(verify(tmp_path / "data", decode=True)) == []


def test_the_last_batch_that_is_half_written_when_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    path = folder / f"{0:020d}.log"
    batches = [build_batch([Record(None, b"v")], base_offset=number, partition_leader_epoch=0) for number in range(3)]
    path.write_bytes(b"".join(batches)[:-5])
    assert the_only_finding(folder).kind is FindingKind.DAMAGE
    findings = verify(folder)
    whole = b"".join(batches)
    size = Path.stat

    def grown(self: Path, **options: bool) -> os.stat_result:
        if self == path:
            path.write_bytes(whole)
        return size(self, **options)

    monkeypatch.setattr(Path, "stat", grown)
    assert list(findings) == []


def test_zeros_at_the_end_of_a_preallocated_segment_are_room_for_more(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t", config={"preallocate": "true", "internal.segment.bytes": "100000"})
        logs.create_topic("u")
        for topic in ("t", "u"):
            batch = build_batch([Record(None, b"value")], base_offset=0, partition_leader_epoch=0)
            logs[topic, 0].append_batches(batch, origin=AppendOrigin.REPLICATION)
        assert list(verify(tmp_path / "data")) == []
    for topic in ("t", "u"):
        with (tmp_path / "data" / f"{topic}-0" / f"{0:020d}.log").open("ab") as file:
            file.write(bytes(50_000))
    assert len(list(verify(tmp_path / "data"))) == 2, "after an orderly stop there is none"
    (tmp_path / "data" / ".kafka_cleanshutdown").unlink()
    assert the_only_finding(tmp_path / "data").path.parent.name == "u-0"


def test_a_cut_tail_is_one_finding(small_log_dir: SmallLogDirectory) -> None:
    root = small_log_dir("keyed-0")
    segment = max((root / "keyed-0").glob("*.log"))
    cut(segment, segment.stat().st_size - 1)
    finding = the_only_finding(root)
    assert (finding.path, finding.kind) == (segment, FindingKind.DAMAGE)
