"""What is listed and then deleted or compacted, before it is read, is found where it is now, and is no damage."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import odradek
from odradek import Record
from odradek.cli.dump import Dump
from odradek.inspection import log_files, salvage, verify
from odradek.inspection.explaining import explanation
from odradek.inspection.live_segments import LiveSegment, live_segments
from odradek.inspection.log_files import LogDirectoryFolder, LogFile, expand, locate
from odradek.inspection.moved_records import MovedRecords
from odradek.inspection.partitions import TopicListing
from odradek.inspection.record_lines import RecordLines
from odradek.inspection.searching.file_search import FileSearch
from odradek.inspection.searching.part_search import SearchOptions
from odradek.inspection.searching.pattern import RecordPattern
from odradek.inspection.selection import DumpSelection
from odradek.inspection.statistics.run import FolderStatistics, logs_of
from odradek.inspection.verification.run import Verification
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.names import TopicPartition
from peers.command import run

DUMPED = pytest.mark.parametrize("read", ["dump", "grep"])


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[WritableLogDirectory]:
    """`gone` loses its head by retention, `compacted` becomes one segment, when `maintain` is called."""
    settings = {"internal.segment.bytes": "1100", "file.delete.delay.ms": "0"}
    with odradek.open(tmp_path / "data", sync="off") as made:
        made.create_topic("gone", config=settings)
        made.create_topic(
            "compacted", config=settings | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        )
        for topic in ("gone", "compacted"):
            for number in range(20):
                made[topic, 0].append([Record(b"k%d" % (number % 7), b"%d-" % number + bytes(400)) for _ in range(2)])
        yield made


def shrink(logs: WritableLogDirectory) -> None:
    logs["gone", 0].delete_records(20)
    # So that compaction merges them.
    logs.alter_topic_config("compacted", {"internal.segment.bytes": "100000"})
    logs.maintain()


def offsets(logs: WritableLogDirectory, topic: str) -> list[int]:
    return [record.offset for record in logs[topic, 0].read() if record.offset is not None]


def reader(read: str) -> Callable[[list[LogFile]], list[int]]:
    """Return what reads listed files as a command does, and gives the offsets of their records."""

    def dump(files: list[LogFile]) -> list[int]:
        one = Dump(DumpSelection(), form="csv")
        lines = b"".join(map(bytes, one.files(files, one.file))).splitlines()
        assert one.code == 0
        return [int(line.split(b",")[2]) for line in lines]

    def grep(files: list[LogFile]) -> list[int]:
        failures: list[object] = []
        pattern = RecordPattern("-", fixed=True)
        search = FileSearch(
            SearchOptions(pattern, DumpSelection()),
            read_committed=False,
            threads=2,
            damaged=failures.append,
            failed=failures.append,
        )
        lines = RecordLines("csv", TopicPartition("any", 0))
        blocks: list[bytes] = []
        for _, found in search.run(files):
            blocks += map(bytes, found.lines(lines))
            blocks.append(bytes(lines.rest()))
        assert not failures
        return [int(line.split(b",")[2]) for line in b"".join(blocks).splitlines()]

    return dump if read == "dump" else grep


def listed(logs: WritableLogDirectory, topic: str) -> list[LogFile]:
    files = [file for file in expand([str(logs.path / f"{topic}-0")]) if isinstance(file, LogFile) and file.is_segment]
    assert len(files) > 10
    return files


@pytest.mark.sampled
@DUMPED
@pytest.mark.parametrize("topic", ["gone", "compacted"])
def test_what_is_left_is_read(logs: WritableLogDirectory, topic: str, read: str) -> None:
    files = listed(logs, topic)
    shrink(logs)
    assert reader(read)(files) == offsets(logs, topic)


@pytest.mark.slow
@DUMPED
@pytest.mark.parametrize("count", [1, 3, 10])
def test_what_was_read_does_not_come_again(logs: WritableLogDirectory, read: str, count: int) -> None:
    files = listed(logs, "compacted")
    before = offsets(logs, "compacted")

    def growing() -> Iterator[LogFile]:
        yield from files[:count]
        shrink(logs)
        yield from files[count:]

    found = reader(read)(growing())  # type: ignore[arg-type]
    assert found == sorted(set(found))
    # Whatever was read before, and all that is still there of the rest.
    bound = files[count].base_offset
    if read == "dump":
        assert found == [*(o for o in before if o < bound), *(o for o in offsets(logs, "compacted") if o >= bound)]
    # The threads of a search are ahead of what it hands out.
    assert set(found) >= set(offsets(logs, "compacted"))


@pytest.mark.slow
def test_a_file_that_was_named_or_is_a_link_to_nowhere_is_missed(logs: WritableLogDirectory) -> None:
    path = logs.path
    logs.close()
    first = min(path.glob("gone-0/*.log"))
    first.unlink()
    assert run("dump", first).exit_code == 3
    first.symlink_to("nowhere")
    for command in ("dump", "grep -F x", "verify", "stat"):
        ended = run(*command.split(), path)
        assert ended.exit_code in (1, 3)
        assert f"{first}: " in ended.stderr + ended.stdout


@pytest.mark.slow
def test_a_range_that_never_stays_is_an_error(logs: WritableLogDirectory) -> None:
    (file, *_) = listed(logs, "gone")

    def never(file: LogFile, selection: DumpSelection) -> Iterator[int]:
        raise FileNotFoundError(2, os.strerror(2), str(file.path))
        yield 1

    with pytest.raises(FileNotFoundError):
        list(MovedRecords().read(file, DumpSelection(), never))


@pytest.mark.slow
def test_what_kafkas_tool_would_print_leaves_out_what_was_deleted(
    logs: WritableLogDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    files_of = log_files._files_of

    def shrinking(folder: log_files.PartitionFolder) -> Iterator[object]:
        shrink(logs)
        yield from files_of(folder)

    monkeypatch.setattr(log_files, "_files_of", shrinking)
    ended = run("dump", "--kafka-compat", logs.path / "gone-0")
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert f"Log starting offset: {logs['gone', 0].log_start_offset}\n" in ended.stdout


@pytest.mark.slow
def test_whole_partitions_are_looked_at_again(logs: WritableLogDirectory, tmp_path: Path) -> None:
    located = locate(logs.path)
    assert isinstance(located, LogDirectoryFolder)
    statistics = FolderStatistics(logs_of(logs.path), reads_records=True)
    shrink(logs)
    verification = Verification()
    assert list(verification.findings(located)) == []
    again = Verification()
    assert list(again.findings(locate(logs.path))) == []
    assert verification.batches == again.batches
    assert {found.topic: (found.records, found.findings) for found in statistics.run()} == {
        topic: (len(offsets(logs, topic)), []) for topic in ("gone", "compacted")
    }
    for summary in TopicListing(located).partitions():
        assert (summary.problems, summary.log_end_offset) == ([], 40)


@pytest.mark.slow
def test_a_salvage_of_what_changes_begins_again(logs: WritableLogDirectory, tmp_path: Path) -> None:
    watched: list[object] = []

    def watch(log: object) -> None:
        watched.append(log)
        if len(watched) == 1:
            shrink(logs)

    report = salvage(logs.path, tmp_path / "rescued", watch=watch)
    assert len(watched) == 4
    assert (report.losses, report.left_out) == ([], [])
    assert list(verify(tmp_path / "rescued")) == []
    with odradek.open(tmp_path / "rescued", "r") as rescued:
        for topic in ("gone", "compacted"):
            found = [record.offset for record in rescued[topic, 0].read()]
            assert found == offsets(logs, topic)


@pytest.mark.slow
def test_what_a_condition_found_may_be_deleted(logs: WritableLogDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    get = LogDirectory.__getitem__

    def shrinking(directory: LogDirectory, name: tuple[str, int]) -> object:
        shrink(logs)
        directory.refresh()
        return get(directory, name)

    monkeypatch.setattr(LogDirectory, "__getitem__", shrinking)
    where = ["grep", "--sql", "key = 'k1'", str(logs.path), "--topic", "gone", "--format", "jsonl"]
    ended = run(*where)
    assert (ended.exit_code, ended.stderr) == (0, "")
    found = [json.loads(line)["offset"] for line in ended.stdout.splitlines()]
    assert found == [record.offset for record in logs["gone", 0].read() if record.key == b"k1"]


def test_an_explanation_of_what_changes_begins_again(
    logs: WritableLogDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed_then: list[object] = []

    def shrinking(folder: log_files.PartitionFolder) -> list[LiveSegment]:
        segments = live_segments(folder)
        listed_then.append(segments)
        shrink(logs)
        return segments

    monkeypatch.setattr(explanation, "live_segments", shrinking)
    # What compaction leaves, in another segment.
    found = explanation.explain(logs.path / "compacted-0", 25)
    assert (found.record is not None, 25 in offsets(logs, "compacted")) == (True, True)
    assert len(listed_then) >= 2
    assert explanation.explain(logs.path / "gone-0", 3).read_uncommitted.reason == "below the log start offset"
