"""A reader of a log that somebody else appends to, shortens or deletes meanwhile."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.errors import UnknownTopicOrPartitionError
from odradek.records import Record
from peers.batches import transactional


def rows(count: int) -> list[Record]:
    return [Record(b"k", b"%d" % number) for number in range(count)]


def test_a_preallocated_segment_is_followed(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t", config={"preallocate": "true", "segment.bytes": "1048576"})
        log = logs["t", 0]
        log.append(rows(1))
        reader = odradek.open(tmp_path, mode="r")["t", 0]
        assert reader.log_end_offset == 1
        size = reader.size_bytes
        log.append(rows(2))
        reader.refresh()
        assert reader.size_bytes == size
        assert reader.log_end_offset == 3
        assert [record.offset for record in reader.read()] == [0, 1, 2]


def test_records_that_were_deleted_at_the_border_of_two_terms(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        log = logs["t", 0]
        log.append(rows(5))
        log.leader_epoch += 1
        log.append(rows(5))
        reader = odradek.open(tmp_path, mode="r")["t", 0]
        assert reader.log_start_offset == 0
        log.delete_records(5)
        reader.refresh()
        assert reader.log_start_offset == 5


def test_the_last_stable_offset_is_never_below_the_log_start_offset(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        log = logs["t", 0]
        log.append_batches(transactional([Record(b"k", b"open", (), 1_600_000_000_000)] * 3, 7))
        log.append(rows(3))
        assert log.last_stable_offset == 0
        log.delete_records(4)
        reader = odradek.open(tmp_path, mode="r")["t", 0]
        assert (reader.log_start_offset, reader.end_offset("read_committed")) == (4, 4)
        assert log.end_offset("read_committed") == 4


def test_the_greatest_timestamp_is_not_that_of_a_deleted_record(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t", config={"retention.ms": "-1"})
        log = logs["t", 0]
        log.append([Record(b"k", b"", (), 9000)])
        log.append([Record(b"k", b"", (), timestamp) for timestamp in (8000, 1000, 3000, 2000)])
        log.append([Record(b"k", b"", (), 2500)])
        reader = odradek.open(tmp_path, mode="r")["t", 0]
        for start_offset, expected in enumerate(
            [(9000, 0), (8000, 1), (3000, 3), (3000, 3), (2500, 5), (2500, 5), None]
        ):
            log.delete_records(start_offset)
            reader.refresh()
            for one in (log, reader):
                found = one.find_max_timestamp()
                assert (found if found is None else found[:2]) == expected


@pytest.mark.parametrize("rolls", [False, True])
def test_a_log_whose_topic_was_deleted_is_gone(rolls: bool, tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        log = logs["t", 0]
        log.append(rows(2))
        if rolls:
            log.roll()
            log.append(rows(1))
        reader = odradek.open(tmp_path, mode="r")["t", 0]
        under_way = reader.read()
        assert next(under_way).offset == 0
        logs.delete_topic("t")
        with pytest.raises(UnknownTopicOrPartitionError):
            list(log.read())
        with pytest.raises(UnknownTopicOrPartitionError):
            log.offset_for_time(0)
        assert next(under_way).offset == 1
        with pytest.raises(UnknownTopicOrPartitionError):
            reader.refresh()


def test_a_segment_that_goes_while_the_folder_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        log = logs["t", 0]
        for _ in range(3):
            log.append(rows(1))
            log.roll()
    reader = odradek.open(tmp_path, mode="r")["t", 0]
    assert len(list(reader.read())) == 3
    oldest = reader.segments[0].path
    scandir = os.scandir

    def last_look(path: Any) -> Any:
        entries = scandir(path)
        listed = list(entries)
        entries.close()
        oldest.unlink(missing_ok=True)
        return Listing(listed)

    # Else the folder may look as it did, and need not be listed.
    os.utime(reader.path)
    monkeypatch.setattr(os, "scandir", last_look)
    reader.refresh()
    assert len(reader.segments) == 4
    # What is seen late is seen the next time.
    reader.refresh()
    assert [segment.base_offset for segment in reader.segments] == [1, 2, 3]
    assert reader.log_start_offset == 1


class Listing(list[os.DirEntry[str]]):
    """What `os.scandir` gave, as it gave it."""

    def __enter__(self) -> Listing:
        return self

    def __exit__(self, *_: object) -> None:
        return None
