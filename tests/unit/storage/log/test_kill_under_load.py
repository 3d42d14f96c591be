"""A process that appends under load, compacts and deletes is killed again and again: what it was told is there."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import odradek
from odradek.records import Record
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.log.log import Log
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.names import TopicPartition
from peers import load_writer
from peers.load_writer import TOPICS, numbered
from peers.process import wait_for
from placed import offset_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

KILLS_A_FOLDER = 10
LONGEST_START_S = 0.03
LONGEST_LIFE_BYTES = 2400
# Of each of the four threads one append may be written and not yet told.
MOST_UNTOLD = 4 * 12


class Writers:
    """Starts and kills the processes."""

    def __init__(self, folder: Path) -> None:
        self._errors = folder / "writers.err"
        with self._errors.open("wb") as errors:
            self._host = subprocess.Popen(
                [sys.executable, str(Path(load_writer.__file__))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={"PYTHONPATH": ":".join(str(Path(path).absolute()) for path in sys.path if path)},
                text=True,
                bufsize=1,
            )

    def _line(self) -> int:
        assert self._host.stdout is not None
        readable, _, _ = select.select([self._host.stdout], [], [], 60)
        assert readable, "the writers' host says nothing"
        return int(self._host.stdout.readline() or self._host.wait())

    def run(self, folder: Path, acknowledgements: Path, seed: int, is_time_up: Callable[[], bool]) -> None:
        """Let one write until its time is up, and kill it."""
        assert self._host.stdin is not None
        self._host.stdin.write(f"{folder} {acknowledgements} {seed}\n")
        pid = self._line()
        wait_for(is_time_up, 60, "the writer to be told of something", interval_s=0.0005)
        os.kill(pid, signal.SIGKILL)
        assert self._line() == -signal.SIGKILL, self._errors.read_text()

    def close(self) -> None:
        self._host.kill()
        self._host.wait()
        for stream in (self._host.stdin, self._host.stdout):
            if stream is not None:
                stream.close()


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[Writers]:
    writers = Writers(tmp_path)
    yield writers
    writers.close()


def random_moment(source: random.Random, acknowledgements: Path) -> Callable[[], bool]:
    """Return what is true from a random moment on: while it starts, or when so and so much was acknowledged."""
    if source.random() < 0.15:
        end = time.monotonic() + source.random() * LONGEST_START_S
        return lambda: time.monotonic() >= end
    size = acknowledgements.stat().st_size + source.randrange(LONGEST_LIFE_BYTES)
    return lambda: acknowledgements.stat().st_size > size


class Told:
    """What the writers of one folder were told, from the file that they noted it in."""

    def __init__(self, path: Path) -> None:
        self.records: dict[TopicPartition, dict[int, int]] = defaultdict(dict)
        self.transactions: dict[int, list[int]] = defaultdict(list)
        self.ends: dict[int, str] = {}
        self._path = path
        self._position = 0

    def read_on(self) -> None:
        with self._path.open("rb") as file:
            file.seek(self._position)
            lines = file.readlines()
        for line in lines:
            assert line.endswith(b"\n")
            self._position += len(line)
            kind, *words = line.decode().split()
            if kind == "end":
                self.ends[int(words[0])] = words[1]
                continue
            topic, partition, offset, number, count, transaction = words
            place = TopicPartition(topic, int(partition))
            for index in range(int(count)):
                assert int(offset) + index not in self.records[place], f"an offset of {place} was given twice"
                self.records[place][int(offset) + index] = int(number) + index
                self.transactions[int(transaction)].append(int(offset) + index)


def check(log: Log, place: TopicPartition, told: Told, source: random.Random) -> set[int]:
    """Compare one log with what was told of it; return the offsets of what is in it."""
    expected = told.records[place]
    found = {offset_of(record): record for record in log.read()}
    # A kill may tear a write where it passes from one page to the next.
    torn = [] if isinstance(log, WritableLog) else [str(segment.path) for segment in log.segments[-1:]]
    assert [damage.path for damage in log.damage if damage.path not in torn] == []
    start = log.log_start_offset
    if place.topic != "short":
        assert start == 0
    for offset, record in found.items():
        # Nothing is invented: also what nobody was told of is what was being written.
        number = int((record.value or b"").split()[0])
        assert expected.get(offset, number) == number
        assert record == with_offset(numbered(number), offset)
    if place.topic == "keyed":
        newest = {number % load_writer.KEYS: offset for offset, number in sorted(expected.items())}
        kept = {int((record.key or b"")[1:]): offset for offset, record in found.items()}
        assert all(kept[key] >= offset for key, offset in newest.items())
    else:
        missing = [offset for offset in expected if offset >= start and offset not in found]
        assert missing == [], f"{place}: acknowledged and lost"
    for offset in source.sample(sorted(found), min(5, len(found))):
        assert next(log.read(offset)).offset == offset
        timestamp = found[offset].timestamp or 0
        first = min(at for at, record in found.items() if (record.timestamp or 0) >= timestamp)
        assert log.offset_for_time(timestamp) == first or place.topic == "transactions"
    if place.topic == "transactions":
        check_transactions(log, told)
    return set(found)


def check_transactions(log: Log, told: Told) -> None:
    committed = {record.offset for record in log.read(isolation="read_committed")}
    stable = log.last_stable_offset
    for transaction, offsets in told.transactions.items():
        if transaction < 0:
            continue
        seen = committed.issuperset(offset for offset in offsets if offset < stable)
        end = told.ends.get(transaction)
        if end is not None:
            assert seen == (end == "commit"), f"transaction {transaction} was told to {end}"
        else:
            # Killed before it was told: as a whole or not at all.
            assert seen or committed.isdisjoint(offsets)


def with_offset(record: Record, offset: int | None) -> Record:
    return Record(record.key, record.value, record.headers, record.timestamp, offset, "CreateTime")


def check_indexes(logs: WritableLogDirectory) -> None:
    for log in logs:
        for segment in log.segments:
            segment.offset_index.check()
            segment.time_index.check()
            for entry in segment.offset_index.entries():
                header = segment.batch_at(entry.position)
                assert header is not None
                assert header.last_offset == entry.offset


@pytest.mark.laboratory
@pytest.mark.parametrize(("kills", "least_of_each"), [(60, 1), (200, 20)])
def test_nothing_acknowledged_is_lost_by_a_kill(
    writers: Writers, tmp_path: Path, kills: int, least_of_each: int
) -> None:
    source = random.Random(5)
    total = repaired = compacted = deleted = 0
    for folder_number in range(kills // KILLS_A_FOLDER):
        folder, path = tmp_path / f"log-dir-{folder_number}", tmp_path / f"told-{folder_number}"
        path.touch()
        told = Told(path)
        untold: set[tuple[TopicPartition, int]] = set()
        with odradek.open(folder) as logs:
            for topic, (partitions, config) in TOPICS.items():
                logs.create_topic(topic, partitions, config)
            places = logs.topic_partitions()
        for number in range(KILLS_A_FOLDER):
            seed = folder_number * KILLS_A_FOLDER + number + 1
            writers.run(folder, path, seed, random_moment(source, path))
            told.read_on()
            known = len(untold)
            # By turns it is we who recover, or the next writer.
            with odradek.open(folder) if number % 3 else LogDirectory(folder) as logs:
                for place in places:
                    found = check(logs[place], place, told, source)
                    untold |= {(place, offset) for offset in found if offset not in told.records[place]}
                    compacted += place.topic == "keyed" and len(found) < len(told.records[place])
                    deleted += place.topic == "short" and logs[place].log_start_offset > 0
                if isinstance(logs, WritableLogDirectory):
                    repaired += bool(logs.report)
                    check_indexes(logs)
            assert len(untold) - known <= MOST_UNTOLD
            if number % 6 == 1:
                # Without the marker all is recovered once more, and found in order.
                (folder / ".kafka_cleanshutdown").unlink()
                with odradek.open(folder) as logs:
                    assert logs.report.actions == []
        total += sum(len(records) for records in told.records.values())
    print(f"{kills} kills, {total} records acknowledged; in {repaired} folders something was repaired")
    assert min(compacted, deleted, repaired) >= least_of_each
    assert total > 50 * kills
