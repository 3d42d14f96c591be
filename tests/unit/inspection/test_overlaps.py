"""Segments that hold offsets of each other: each record with a valid checksum comes out once, whoever reads."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import odradek
from odradek import Record
from odradek.errors import LogError
from odradek.inspection import salvage, verify
from odradek.inspection.salvaging.rewriting import rest_of
from odradek.places.opening import open_place
from odradek.records import read_records, scan_batches
from odradek.records.builder import build_batch, build_empty_batch
from odradek.records.compression import Codec
from odradek.records.header import V2_HEADER_BYTES
from odradek.sources.arrow import record_batches
from odradek.storage.log.read_only_log import ReadOnlyLog
from odradek.storage.names import TopicPartition
from odradek.testing import Broker
from odradek.testing.message_builder import build_message_set
from peers.batches import records_of
from peers.command import rows, run

Batch = tuple[int, int]
"""The first offset and the number of records."""


def record(offset: int) -> Record:
    return Record(b"k", b"v%d" % offset, (), 1_700_000_000_000 + offset, offset=offset)


def batch(start: int, count: int, **options: Any) -> bytes:
    return build_batch([record(start + number) for number in range(count)], base_offset=start, **options)


def write(root: Path, segments: Mapping[int, Sequence[Batch]]) -> Path:
    folder = root / "t-0"
    folder.mkdir(parents=True)
    for base_offset, batches in segments.items():
        (folder / f"{base_offset:020d}.log").write_bytes(b"".join(batch(*one) for one in batches))
    return folder


def write_topic(root: Path, segments: Mapping[int, bytes], policy: str = "delete") -> None:
    """Write the segments of a topic whose settings are known; records are missing only where compaction removes any."""
    with odradek.open(root) as logs:
        logs.create_topic("t", config={"cleanup.policy": policy})
    for path in (root / "t-0").glob(f"{0:020d}.*"):
        path.unlink()
    for base_offset, data in segments.items():
        (root / "t-0" / f"{base_offset:020d}.log").write_bytes(data)


def read_all(folder: Path) -> list[tuple[int | None, bytes | None]]:
    with ReadOnlyLog(folder) as log:
        return [(record.offset, record.value) for record in log.read()]


def whole(offsets: Sequence[int]) -> list[tuple[int, bytes]]:
    return [(offset, b"v%d" % offset) for offset in offsets]


@pytest.mark.parametrize(
    "segments",
    [
        {0: [(0, 5), (5, 5)], 5: [(5, 5), (10, 2)]},
        {0: [(0, 5), (5, 5), (10, 1)], 5: [(5, 5), (10, 1), (11, 1)]},
        # Of three segments, and a segment of copies alone.
        {0: [(0, 5), (5, 5), (10, 5)], 5: [(5, 5), (10, 5)], 10: [(10, 5), (15, 1)]},
    ],
)
def test_whole_copies(tmp_path: Path, segments: Mapping[int, Sequence[Batch]]) -> None:
    folder = write(tmp_path / "data", segments)
    end = max(start + count for batches in segments.values() for start, count in batches)
    expected = whole(range(end))
    assert read_all(folder) == expected
    with ReadOnlyLog(folder) as log:
        for start in range(end):
            assert [record.offset for record in log.read(start)] == list(range(start, end))
            assert log.get(start) is not None
            for stop in range(start, end):
                assert [record.offset for record in log.read(start, stop)] == list(range(start, stop))
    source = tmp_path / "data"
    assert [offset for batch in odradek.scan(source, "t") for offset in batch["offset"].to_pylist()] == list(range(end))
    assert [row["offset"] for row in rows("grep", "v", source)] == list(range(end))
    assert [row["offset"] for row in rows("tail", "-n", "100", source)] == list(range(end))
    assert {statistics["records"] for statistics in rows("stat", source)} == {end}
    run("export", source, "--to", tmp_path / "files")
    (file,) = (tmp_path / "files").rglob("*.parquet")
    assert pq.read_table(file)["offset"].to_pylist() == list(range(end))
    run("replay", source, "--to", tmp_path / "other")
    assert read_all(tmp_path / "other" / "t-0") == expected
    report = salvage(source, tmp_path / "out")
    assert report.is_clean
    assert read_all(tmp_path / "out" / "t-0") == expected
    assert list(verify(tmp_path / "out", decode=True)) == []


def test_what_only_the_second_copy_has(tmp_path: Path) -> None:
    """One copy of a batch is damaged in the first segment, one of the next batch in the second one."""
    folder = write(tmp_path / "data", {0: [(0, 5), (5, 5), (10, 5)], 5: [(5, 5), (10, 5), (15, 1)]})
    for base_offset, before in ((0, 1), (5, 1)):
        path = folder / f"{base_offset:020d}.log"
        data = bytearray(path.read_bytes())
        data[list(scan_batches(data))[before].position + V2_HEADER_BYTES + 3] ^= 1
        path.write_bytes(data)
    report = salvage(tmp_path / "data", tmp_path / "out")
    assert read_all(tmp_path / "out" / "t-0") == whole(range(16))
    assert report.is_clean


def test_batches_that_begin_before_the_end_of_others(tmp_path: Path) -> None:
    write(tmp_path / "data", {0: [(0, 5), (5, 5)], 7: [(7, 5)]})
    assert salvage(tmp_path / "data", tmp_path / "out").is_clean
    assert read_all(tmp_path / "out" / "t-0") == whole(range(12))
    assert sorted(path.name for path in (tmp_path / "out" / "t-0").glob("*.log")) == [
        "00000000000000000000.log",
        "00000000000000000010.log",
    ]
    rows_given = rows("tail", "-n", "100", tmp_path / "data", code=1)
    assert [row["offset"] for row in rows_given] == list(range(12))


def test_other_records_at_the_same_offsets_are_told(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", {0: [(0, 5), (5, 5)], 5: [(10, 2)]})
    others = build_batch([Record(b"k", b"other")] * 5, base_offset=5)
    path = folder / "00000000000000000005.log"
    path.write_bytes(others + path.read_bytes())
    (loss,) = salvage(tmp_path / "data", tmp_path / "out").losses
    assert (loss.path, loss.position, loss.start_offset, loss.end_offset) == (path, 0, 5, 10)
    assert loss.reason == "offsets 5 to 9 again, with other records"
    assert read_all(tmp_path / "out" / "t-0") == whole(range(12))


@pytest.mark.slow
@pytest.mark.parametrize(
    "batches",
    [
        [(0, 5), (0, 5), (5, 2)],
        [(0, 5), (5, 2), (0, 5), (5, 2), (7, 1)],
        [(0, 5), (5, 1), (6, 1), (5, 1), (0, 5), (7, 1)],
    ],
)
def test_batches_that_come_again_in_one_file_are_passed_over(tmp_path: Path, batches: list[Batch]) -> None:
    folder = write(tmp_path / "data", {0: batches})
    end = max(start + count for start, count in batches)
    assert read_all(folder) == whole(range(end))
    source = tmp_path / "data"
    assert [row["offset"] for row in rows("tail", "-n", "100", source)] == list(range(end))
    dataset = odradek.dataset(source, "t")
    assert dataset.count_rows() == end
    assert sorted(dataset.to_table()["offset"].to_pylist()) == list(range(end))
    # It is named all the same.
    assert list(verify(source))
    odradek.open(source, adopt=True).close()
    with Broker(source) as broker:
        address = f"kafka://{broker.bootstrap_servers}"
        assert [row["offset"] for row in rows("dump", address)] == list(range(end))
        with open_place(address) as place:
            tables = record_batches(place, TopicPartition("t", 0))
            assert [offset for table in tables for offset in table["offset"].to_pylist()] == list(range(end))


@pytest.mark.parametrize(
    "batches",
    [
        [(0, 2), (4, 2), (2, 2), (6, 1)],
        [(0, 2), (4, 2), (2, 2)],
        [(0, 2), (6, 2), (4, 2), (2, 2), (8, 1)],
        [(3, 2), (0, 2), (2, 1), (3, 2), (5, 1)],
        [(2, 2), (0, 2), (4, 1)],
        [(0, 2), (6, 2), (2, 2), (4, 2), (8, 1)],
        [(4, 2), (2, 2), (0, 2)],
        [(3, 1), (2, 1), (0, 2), (4, 1)],
        [(0, 1), (5, 2), (3, 2), (1, 2), (7, 1)],
        [(number * 7 % 12, 1) for number in range(12)],
    ],
)
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_batches_in_another_order_are_put_into_that_of_their_offsets(
    tmp_path: Path, batches: list[Batch], policy: str
) -> None:
    """No damage: each has a valid checksum, and offsets that no other one has."""
    write_topic(tmp_path / "data", {0: b"".join(batch(*one) for one in batches)}, policy)
    report = salvage(tmp_path / "data", tmp_path / "out")
    assert read_all(tmp_path / "out" / "t-0") == whole(range(max(start + count for start, count in batches)))
    assert not report.logs[0].losses
    assert "ORDER" in {finding.kind.name for finding in verify(tmp_path / "data")}
    assert list(verify(tmp_path / "out", decode=True)) == []


@pytest.mark.parametrize("bit", [0, 1, 3, 4, 20, 62, 63])
def test_a_flipped_bit_beside_a_late_batch_is_put_right(tmp_path: Path, bit: int) -> None:
    flipped = (5 ^ (1 << bit)).to_bytes(8, "big") + batch(5, 4)[8:]
    write_topic(tmp_path / "data", {0: batch(0, 2) + batch(2, 3) + batch(9, 2) + flipped + batch(11, 2)})
    report = salvage(tmp_path / "data", tmp_path / "out")
    assert read_all(tmp_path / "out" / "t-0") == whole(range(13))
    assert [finding.reason.split(": ")[-1] for finding in report.logs[0].mended] == ["the base offset should be 5"]
    assert not report.losses


@pytest.mark.parametrize(
    ("batches", "number"),
    [
        ([(0, 4), (4, 4), (8, 3)], 0),
        ([(0, 4), (4, 4), (8, 3), (11, 2)], 2),
        ([(0, 1), (1, 1), (2, 1), (3, 1)], 0),
        ([(0, 1), (1, 1), (2, 1), (3, 1)], 2),
    ],
)
def test_of_two_batches_with_the_same_offsets_the_flipped_one_gives_way(
    tmp_path: Path, batches: Sequence[Batch], number: int
) -> None:
    parts = [batch(*one) for one in batches]
    parts[number] = (batches[number][0] ^ 1).to_bytes(8, "big") + parts[number][8:]
    write_topic(tmp_path / "data", {0: b"".join(parts)})
    report = salvage(tmp_path / "data", tmp_path / "out")
    assert read_all(tmp_path / "out" / "t-0") == whole(range(batches[-1][0] + batches[-1][1]))
    assert not report.losses


def test_a_batch_that_a_flipped_bit_makes_the_copy_of_another_is_put_right(tmp_path: Path) -> None:
    same = [build_batch([Record(b"k", b"v", (), 1_700_000_000_000)], base_offset=number) for number in range(20)]
    write_topic(tmp_path / "data", {0: b"".join([*same[:2], same[18], *same[3:10]]), 10: b"".join(same[10:])})
    assert not salvage(tmp_path / "data", tmp_path / "out").losses
    assert read_all(tmp_path / "out" / "t-0") == [(number, b"v") for number in range(20)]


def test_other_records_that_only_a_part_of_a_batch_has_are_told(tmp_path: Path) -> None:
    mixed = build_batch([Record(b"k", b"other"), record(3)], base_offset=2)
    write_topic(tmp_path / "data", {0: batch(0, 3) + mixed + batch(4, 1)})
    report = salvage(tmp_path / "data", tmp_path / "out")
    assert read_all(tmp_path / "out" / "t-0") == whole(range(5))
    assert [(loss.start_offset, loss.end_offset) for loss in report.losses] == [(2, 3)]
    again = build_batch([record(2), record(3)], base_offset=2)
    write_topic(tmp_path / "same", {0: batch(0, 3) + again + batch(4, 1)})
    assert not salvage(tmp_path / "same", tmp_path / "right").losses


@pytest.mark.parametrize("flipped", [batch(11, 3), build_empty_batch(11, 13)])
def test_in_a_compacted_log_a_flipped_batch_takes_no_offsets_of_others(tmp_path: Path, flipped: bytes) -> None:
    wrong = (9).to_bytes(8, "big") + flipped[8:]
    write_topic(tmp_path / "data", {0: batch(0, 4) + batch(10, 1) + wrong + batch(22, 3)}, "compact")
    report = salvage(tmp_path / "data", tmp_path / "out")
    assert read_all(tmp_path / "out" / "t-0") == whole([0, 1, 2, 3, 10, 22, 23, 24])
    assert [(loss.start_offset, loss.end_offset) for loss in report.losses] == [(9, 12)]


def test_an_early_batch_that_has_no_room_where_it_lies_is_kept(tmp_path: Path) -> None:
    batches = ((20, 3), (41, 4), (24, 2), (26, 3), (33, 4))
    write_topic(tmp_path / "data", {20: b"".join(batch(*one) for one in batches)}, "compact")
    assert not salvage(tmp_path / "data", tmp_path / "out").losses
    offsets = sorted(offset for start, count in batches for offset in range(start, start + count))
    assert read_all(tmp_path / "out" / "t-0") == whole(offsets)


def test_one_late_batch_of_a_compacted_log_keeps_the_first_offset_of_its_segment(tmp_path: Path) -> None:
    # One flipped bit would put it between the others, at 1016.
    batches = batch(1002, 1) + batch(1006, 4) + batch(1000, 2) + batch(1018, 3)
    write_topic(tmp_path / "data", {1000: batches}, "compact")
    assert not salvage(tmp_path / "data", tmp_path / "out").logs[0].mended
    assert read_all(tmp_path / "out" / "t-0") == whole([1000, 1001, 1002, *range(1006, 1010), 1018, 1019, 1020])


@pytest.mark.parametrize(
    "segments",
    [
        {0: [(5, 1), (0, 2), (2, 2)], 4: [(4, 1), (6, 1)]},
        {0: [(0, 2), (6, 1), (2, 2)], 4: [(4, 1), (5, 1), (7, 1)]},
        {0: [(6, 1), (0, 2), (2, 2)], 4: [(4, 1), (5, 1), (6, 1)]},
        # In a later one, and two segments whose files were exchanged.
        {0: [(0, 2), (2, 2)], 8: [(8, 2), (4, 4), (10, 2)], 12: [(12, 1)]},
        {0: [(4, 2), (6, 1), (7, 1), (8, 1)], 4: [(0, 4)], 9: [(9, 2)]},
    ],
)
def test_a_batch_in_the_segment_beside_its_own_is_put_there(
    tmp_path: Path, segments: Mapping[int, Sequence[Batch]]
) -> None:
    write_topic(tmp_path / "data", {base: b"".join(batch(*one) for one in own) for base, own in segments.items()})
    report = salvage(tmp_path / "data", tmp_path / "out")
    end = max(start + count for batches in segments.values() for start, count in batches)
    assert read_all(tmp_path / "out" / "t-0") == whole(range(end))
    assert not report.losses


def test_beside_batches_out_of_order_damage_may_have_had_what_no_other_batch_has(tmp_path: Path) -> None:
    write_topic(tmp_path / "data", {0: batch(3, 2) + batch(0, 3) + damaged(8, 3) + batch(5, 3)})
    report = salvage(tmp_path / "data", tmp_path / "out")
    assert read_all(tmp_path / "out" / "t-0") == whole(range(8))
    assert [(loss.start_offset, loss.end_offset) for loss in report.losses] == [(8, None)]


def test_behind_damage_a_batch_keeps_its_offset_where_one_comes_late(tmp_path: Path) -> None:
    # One flipped bit would put 7 to 8 directly behind 5.
    write_topic(tmp_path / "data", {0: batch(0, 5) + damaged(6, 1) + batch(7, 2) + batch(5, 1)})
    salvage(tmp_path / "data", tmp_path / "out")
    assert read_all(tmp_path / "out" / "t-0") == whole([0, 1, 2, 3, 4, 5, 7, 8])


def test_what_compaction_has_emptied_gives_way_to_what_it_has_not(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", {0: [(0, 2)]})
    emptied = build_empty_batch(2, 4)
    with (folder / f"{0:020d}.log").open("ab") as file:
        file.write(emptied + batch(5, 2) + batch(2, 3))
    assert not salvage(tmp_path / "data", tmp_path / "out").logs[0].losses
    assert read_all(tmp_path / "out" / "t-0") == whole(range(7))


@pytest.mark.parametrize("position", [3, V2_HEADER_BYTES + 3])
def test_a_damaged_segment_that_is_to_replace_another_takes_nothing_from_it(tmp_path: Path, position: int) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t")
        logs["t", 0].append([record(number) for number in range(5)])
    segment = tmp_path / "data" / "t-0" / f"{0:020d}.log"
    damaged = bytearray(batch(0, 2) + batch(4, 1))
    damaged[position + (0 if position > V2_HEADER_BYTES else V2_HEADER_BYTES)] ^= 1
    segment.with_suffix(".log.swap").write_bytes(damaged)
    before = {path: path.read_bytes() for path in segment.parent.glob("*.log*")}
    assert any(finding.kind.name == "DAMAGE" for finding in verify(tmp_path / "data"))
    salvage(tmp_path / "data", tmp_path / "out")
    assert read_all(tmp_path / "out" / "t-0") == whole(range(5))
    with odradek.open(tmp_path / "data", strict=True) as logs:
        with pytest.raises(LogError, match=r"log.swap is damaged; 5 sound records, offsets 0 to 4, among them"):
            logs["t", 0].read()
        assert {path: path.read_bytes() for path in before} == before


def test_what_a_damaged_segment_is_to_replace_has_all_records(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", {0: [(0, 3)], 3: [(3, 3)], 6: [(6, 3)]})
    compacted = [build_batch([record(start)], base_offset=start, last_offset=start + 2) for start in (0, 3, 6)]
    damaged = bytearray(b"".join(compacted))
    damaged[V2_HEADER_BYTES + 3] ^= 1
    (folder / f"{0:020d}.log.swap").write_bytes(damaged)
    salvage(tmp_path / "data", tmp_path / "out")
    assert read_all(tmp_path / "out" / "t-0") == whole(range(9))


@pytest.mark.parametrize("bit", [0, 1, 4, 40])
def test_a_compacted_segment_replaces_no_more_than_it_holds(tmp_path: Path, bit: int) -> None:
    folder = write(tmp_path / "data", {0: [(0, 3)], 3: [(3, 3)], 6: [(6, 3)]})
    last = build_batch([record(3)], base_offset=3, last_offset=5)
    wrong = (3 ^ (1 << bit)).to_bytes(8, "big") + last[8:]
    swap = folder / f"{0:020d}.log.swap"
    swap.write_bytes(build_batch([record(0)], base_offset=0, last_offset=2) + wrong)
    salvage(tmp_path / "data", tmp_path / "out")
    assert read_all(tmp_path / "out" / "t-0") == whole(range(9))
    swap.write_bytes(swap.read_bytes()[: -len(last)] + last)
    salvage(tmp_path / "data", tmp_path / "sound")
    assert read_all(tmp_path / "sound" / "t-0") == whole([0, 3, 6, 7, 8])


def test_a_tail_goes_on_behind_what_contradicts_the_batches_before_it(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", {0: [(0, 5)]})
    path = folder / "00000000000000000000.log"
    path.write_bytes(path.read_bytes() + build_batch([Record(b"k", b"other")] * 5, base_offset=0) + batch(5, 2))
    assert [row["offset"] for row in rows("tail", "-n", "100", tmp_path / "data", code=1)] == list(range(7))


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_the_rest_of_a_batch_keeps_what_its_header_says(codec: int) -> None:
    data = batch(
        2**31,
        10,
        codec=codec,
        producer_id=7,
        producer_epoch=3,
        base_sequence=2**31 - 3,
        is_transactional=True,
        partition_leader_epoch=5,
    )
    (header,) = scan_batches(data)
    rest = rest_of(data, header, 2**31 + 4)
    (left,) = scan_batches(rest)
    assert (left.base_offset, left.last_offset) == (2**31 + 4, header.last_offset)
    assert (left.producer_id, left.producer_epoch, left.base_sequence) == (7, 3, 1)
    assert left.last_sequence == header.last_sequence
    assert (left.attributes, left.partition_leader_epoch) == (header.attributes, 5)
    assert read_records(rest, left) == read_records(data, header)[4:]


def random_segments(chance: random.Random, *, same_batches: bool) -> dict[int, list[Batch]]:
    """Windows of one log that overlap; with its batches, or with each segment's own."""
    end = chance.randrange(20, 60)

    def cut(start: int) -> list[Batch]:
        found = []
        while start < end:
            count = min(chance.randrange(1, 8), end - start)
            found.append((start, count))
            start += count
        return found

    batches = cut(0)
    segments: dict[int, list[Batch]] = {}
    start = 0
    for _ in range(chance.randrange(2, 5)):
        own = [one for one in batches if one[0] >= start] if same_batches else cut(start)
        stop = chance.randrange(1, len(own) + 1)
        segments[start] = own[:stop]
        reached = own[stop - 1][0] + own[stop - 1][1]
        choices = [offset for offset, _ in batches if start < offset <= reached] if same_batches else []
        start = chance.choice(choices) if choices else chance.randrange(start + 1, reached + 1)
        if start >= end or (same_batches and not choices):
            break
    return segments


@pytest.mark.slow
@pytest.mark.parametrize("same_batches", [True, False])
def test_random_overlaps(tmp_path: Path, same_batches: bool) -> None:
    """Of each offset that is in a sound batch somewhere, the record is in the target, once."""
    overlapping = 0
    for seed in range(60):
        chance = random.Random(seed)
        segments = random_segments(chance, same_batches=same_batches)
        folder = write(tmp_path / f"{seed}", segments)
        ends = [max(start + count for start, count in batches) for batches in segments.values()]
        overlapping += any(end > base for end, base in zip(ends, list(segments)[1:], strict=False))
        # A log that ends before the end of an earlier segment contradicts itself.
        if same_batches and ends == sorted(ends):
            assert read_all(folder) == whole(range(max(ends))), seed
        salvage(folder.parent, tmp_path / f"out{seed}")
        assert read_all(tmp_path / f"out{seed}" / "t-0") == whole(range(max(ends))), seed
        assert list(verify(tmp_path / f"out{seed}", decode=True)) == [], seed
    assert overlapping > 30


@pytest.mark.slow
def test_random_overlaps_with_damage(tmp_path: Path) -> None:
    for seed in range(60):
        chance = random.Random(seed)
        segments = random_segments(chance, same_batches=True)
        folder = write(tmp_path / f"{seed}", segments)
        sound: set[int] = set()
        for base_offset, batches in segments.items():
            path = folder / f"{base_offset:020d}.log"
            data = bytearray(path.read_bytes())
            headers = list(scan_batches(data))
            for header, (start, count) in zip(headers, batches, strict=True):
                if chance.random() < 0.2:
                    data[header.position + V2_HEADER_BYTES + 3] ^= 1
                else:
                    sound.update(range(start, start + count))
            path.write_bytes(data)
        report = salvage(folder.parent, tmp_path / f"out{seed}")
        with ReadOnlyLog(tmp_path / f"out{seed}" / "t-0") as log:
            given = [
                record.offset
                for segment in log.segments
                for header in segment.scan(0)
                for record in segment.read(header)
            ]
        assert given == sorted(sound), seed
        lost = set(range(max(sound, default=0) + 1)) - sound
        told = {offset for loss in report.losses for offset in range(loss.start_offset, loss.end_offset or 1000)}
        assert lost <= told, seed


def damaged(start: int, count: int) -> bytes:
    data = bytearray(batch(start, count))
    data[-2] ^= 1
    return bytes(data)


@pytest.mark.parametrize(
    ("segments", "written", "lost"),
    [
        # Two copies behind damage are none of what was damaged.
        ({0: [damaged(0, 4), batch(4, 4), batch(4, 4)]}, range(4, 8), [(0, 4)]),
        ({0: [batch(0, 4), damaged(4, 5), batch(9, 1), batch(9, 1), batch(10, 2)]}, [*range(4), 9, 10, 11], [(4, 9)]),
        # Copies do not say where the damage at the end of a segment ends.
        ({0: [batch(0, 4), batch(4, 3), batch(0, 4), damaged(7, 1)], 8: [batch(8, 1)]}, [*range(7), 8], [(7, 8)]),
        # What was damaged comes again.
        ({0: [batch(0, 5), damaged(5, 2), batch(7, 1), batch(5, 2), batch(7, 1)]}, range(8), []),
        ({0: [batch(0, 5), damaged(5, 2), batch(7, 1), batch(5, 2), batch(8, 3)]}, range(11), []),
    ],
)
def test_damage_beside_copies(
    tmp_path: Path, segments: dict[int, list[bytes]], written: Sequence[int], lost: list[tuple[int, int]]
) -> None:
    folder = tmp_path / "data" / "t-0"
    folder.mkdir(parents=True)
    for base_offset, batches in segments.items():
        (folder / f"{base_offset:020d}.log").write_bytes(b"".join(batches))
    report = salvage(folder, tmp_path / "out")
    found = [
        record for path in sorted((tmp_path / "out" / "t-0").glob("*.log")) for record in records_of(path.read_bytes())
    ]
    assert [(record.offset, record.value) for record in found] == whole(written)
    assert {(loss.start_offset, loss.end_offset) for loss in report.losses} == set(lost)
    assert not any(log.mended for log in report.logs)


def test_copies_of_wrappers_keep_their_offsets(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "t-0"
    folder.mkdir(parents=True)
    wrappers = [
        build_message_set([record(start + at) for at in range(5)], magic=1, codec=Codec.GZIP, base_offset=start)
        for start in (0, 5, 5)
    ]
    (folder / f"{0:020d}.log").write_bytes(b"".join(wrappers))
    (folder / f"{10:020d}.log").write_bytes(batch(10, 2))
    report = salvage(folder, tmp_path / "out")
    found = [
        record for path in sorted((tmp_path / "out" / "t-0").glob("*.log")) for record in records_of(path.read_bytes())
    ]
    assert [(record.offset, record.value) for record in found] == whole(range(12))
    assert report.is_clean


def test_wrappers_that_overlap_give_no_record_twice(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "t-0"
    folder.mkdir(parents=True)
    plain = build_message_set([record(3)], magic=1, base_offset=3)
    wrapper = build_message_set([record(at) for at in range(5)], magic=1, codec=Codec.GZIP, base_offset=0)
    (folder / f"{0:020d}.log").write_bytes(plain + wrapper + batch(5, 1))
    salvage(folder, tmp_path / "out")
    assert read_all(tmp_path / "out" / "t-0") == whole(range(6))
