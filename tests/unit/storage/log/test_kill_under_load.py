"""A process that appends under load, compacts and deletes is killed again and again: what it was told is there."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import odradek
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.log.log import Log
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.names import TopicPartition
from peers.placed import offset_of
from restarts.processes import Writers
from restarts.told import KEYS, Told, has_grown, is_numbered, number_of
from restarts.writer import MOST_AT_ONCE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

KILLS_A_FOLDER = 10
LONGEST_START_S = 0.03
LONGEST_LIFE_BYTES = 12_000
# Of each of the four threads one append may be written and not yet told.
MOST_UNTOLD = 4 * MOST_AT_ONCE


SMALL = {"internal.segment.bytes": "8192", "index.interval.bytes": "256", "file.delete.delay.ms": "5"}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "events": (2, SMALL),
    "keyed": (1, {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}),
    "short": (1, {**SMALL, "retention.bytes": "30000"}),
    "transactions": (1, SMALL),
}


def random_moment(source: random.Random, acknowledgements: Path) -> Callable[[], bool]:
    """Return what is true from a random moment on: while it starts, or when so and so much was acknowledged."""
    if source.random() < 0.15:
        end = time.monotonic() + source.random() * LONGEST_START_S
        return lambda: time.monotonic() >= end
    return has_grown(acknowledgements, source.randrange(LONGEST_LIFE_BYTES))


def check(log: Log, place: TopicPartition, told: Told, source: random.Random) -> set[int]:
    """Compare one log with what was told of it; return the offsets of what is in it."""
    expected = told.numbers[place]
    found = {offset_of(record): record for record in log.read()}
    # A kill may tear a write where it passes from one page to the next.
    torn = [] if isinstance(log, WritableLog) else [str(segment.path) for segment in log.segments[-1:]]
    assert [damage.path for damage in log.damage if damage.path not in torn] == []
    start = log.log_start_offset
    if place.topic != "short":
        assert start == 0
    for offset, record in found.items():
        # Nothing is invented: also what nobody was told of is what was being written.
        assert is_numbered(record, expected.get(offset, number_of(record)))
    if place.topic == "keyed":
        newest = {number % KEYS: offset for offset, number in sorted(expected.items())}
        kept = {int((record.key or b"")[1:]): offset for offset, record in found.items()}
        assert all(kept[key] >= offset for key, offset in newest.items())
    else:
        missing = [offset for offset in expected if offset >= start and offset not in found]
        assert missing == [], f"{place}: acknowledged and lost"
        assert place.topic == "transactions" or list(found) == list(range(start, log.log_end_offset))
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
        seen = committed.issuperset(offset for offset in offsets if offset < stable)
        end = told.ends.get(transaction)
        if end is not None:
            assert seen == (end == "commit"), f"transaction {transaction} was told to {end}"
        else:
            # Killed before it was told: as a whole or not at all.
            assert seen or committed.isdisjoint(offsets)


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
def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path: Path, kills: int, least_of_each: int) -> None:
    with Writers(tmp_path) as writers:
        kill_again_and_again(writers, tmp_path, kills, least_of_each)


def kill_again_and_again(writers: Writers, tmp_path: Path, kills: int, least_of_each: int) -> None:
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
                    untold |= {(place, offset) for offset in found if offset not in told.numbers[place]}
                    compacted += place.topic == "keyed" and len(found) < len(told.numbers[place])
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
        total += sum(len(records) for records in told.numbers.values())
    print(f"{kills} kills, {total} records acknowledged; in {repaired} folders something was repaired")
    assert min(compacted, deleted, repaired) >= least_of_each
    assert total > 50 * kills
