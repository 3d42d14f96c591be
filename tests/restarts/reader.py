"""A program that looks up, reads and scans a log directory that others write, until its standard input is closed.

    python reader.py FOLDER TOLD SEED TOPIC:PARTITIONS...       -> a line of JSON: how often it did what

A topic without partitions is one that is deleted and made again.

It keeps hold of Arrow batches that point into the mapped segments, and looks at them again much later. What is wrong
ends it with a traceback.
"""

from __future__ import annotations

import faulthandler
import json
import random
import select
import sys
import zlib
from collections import Counter, deque
from pathlib import Path

import pyarrow as pa

import odradek
from odradek.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from odradek.records.isolation import Isolation
from odradek.storage.log.log import Log
from odradek.storage.names import TopicPartition
from restarts.told import FIRST_TIMESTAMP, Told, is_numbered, number_of
from restarts.writer import PASSING

HELD = 60
RANGE = 60
LOOK_UPS = 50
WITH_DELETED_HEAD = {"short"}


def digest(batch: pa.RecordBatch) -> int:
    """Return a checksum of what a batch holds."""
    return zlib.crc32(repr(batch.to_pylist()).encode())


class Reader:
    """Reads at random.

    Attributes:
        counts: How often it did what.
    """

    def __init__(self, folder: Path, told: Path, seed: int, topics: dict[str, int]) -> None:
        self.counts: Counter[str] = Counter()
        self._folder = folder
        self._told = Told(told)
        self._rng = random.Random(seed)
        self._places = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
        self._has_passing = PASSING in topics
        self._held: deque[tuple[pa.RecordBatch, int]] = deque(maxlen=HELD)
        self._logs = odradek.LogDirectory(folder)

    def step(self) -> None:
        """Do one thing."""
        rng = self._rng
        if rng.random() < 0.01:
            self._logs.close()
            self._logs = odradek.LogDirectory(self._folder)
        self._told.read_on()
        actions = {
            self.look_up: 40,
            self.look_up_time: 20,
            self.read: 10,
            self.scan: 6,
            self.look_again: 12,
            self.read_passing: 4 if self._has_passing else 0,
        }
        action = rng.choices(list(actions), list(actions.values()))[0]
        self.counts[action.__name__] += 1
        place = rng.choice(self._places)
        try:
            action(place)
        except OffsetOutOfRangeError:
            if place.topic not in WITH_DELETED_HEAD:
                raise
            self.counts["out of range"] += 1

    def _log(self, place: TopicPartition) -> Log:
        """Return a log as it is by now: with everything that was told before."""
        log, least = self._logs[place], self._told.end(place)
        if self._rng.random() < 0.5:
            log.refresh()
            end = log.log_end_offset
            assert end >= least, f"{place} ends at {end}, below {least} which was acknowledged"
        return log

    def _some(self, place: TopicPartition) -> int | None:
        """Return an offset that was acknowledged, of the last ones mostly."""
        offsets = self._told.offsets[place]
        if not offsets:
            return None
        first = max(0, len(offsets) - 3000) if self._rng.random() < 0.8 else 0
        return offsets[self._rng.randrange(first, len(offsets))]

    def _check(self, place: TopicPartition, record: odradek.Record) -> None:
        number = self._told.numbers[place].get(record.offset or 0)
        wanted = number_of(record) if number is None else number
        assert is_numbered(record, wanted), f"{place} holds {record}, not number {wanted}"

    def look_up(self, place: TopicPartition) -> None:
        log, offset = self._log(place), self._some(place)
        if offset is None or not log.log_start_offset <= offset < log.log_end_offset:
            return
        for _ in range(LOOK_UPS):
            record = next(log.read(offset))
            assert record.offset == offset, f"{place}: reading from {offset} gives {record}"
            self._check(place, record)
            offset = max(log.log_start_offset, offset - self._rng.randrange(200))
            if offset not in self._told.numbers[place]:
                break

    def look_up_time(self, place: TopicPartition) -> None:
        log, offset = self._log(place), self._some(place)
        if offset is None or not log.log_start_offset <= offset < log.log_end_offset:
            return
        time_ms = FIRST_TIMESTAMP + self._told.numbers[place][offset]
        found = log.offset_for_time(time_ms)
        assert found is not None, f"{place} has nothing from {time_ms} on, the time of offset {offset}"
        assert found <= offset, f"{place}: the first at {time_ms} is at {found}, not at {offset}"
        known = self._told.numbers[place].get(found, time_ms)
        assert FIRST_TIMESTAMP + known >= time_ms, (
            f"{place}: offset {found} was found for {time_ms}, the time of {known}"
        )

    def read(self, place: TopicPartition) -> None:
        log, offset = self._log(place), self._some(place)
        if offset is None or not log.log_start_offset <= offset < log.log_end_offset:
            return
        isolation: Isolation = "read_committed" if self._rng.random() < 0.3 else "read_uncommitted"
        last = offset - 1
        for record in log.read(offset, min(offset + RANGE, log.log_end_offset), isolation=isolation):
            is_next = record.offset == last + 1 if place.topic != "transactions" else (record.offset or 0) > last
            assert is_next, f"{place}: {record.offset} follows {last}"
            last = record.offset or 0
            self._check(place, record)

    def scan(self, place: TopicPartition) -> None:
        start = max(0, self._told.end(place) - 500)
        if self._rng.random() < 0.3:
            start = self._rng.randint(0, start)
        known = self._told.numbers[place]
        batches = odradek.scan(
            self._folder,
            place.topic,
            partitions=place.partition,
            start_offset=start,
            end_offset=start + 500,
            columns=["offset", "value"],
            views=True,
        )
        for batch in batches:
            for offset, value in zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True):
                number = int(value.split(b" ", 1)[0])
                assert known.get(offset, number) == number, (
                    f"{place}: offset {offset} holds {number}, not {known[offset]}"
                )
            self._held.append((batch, digest(batch)))

    def look_again(self, _: TopicPartition) -> None:
        if self._held:
            batch, before = self._rng.choice(self._held)
            assert digest(batch) == before, "a batch that was handed out has changed"

    def read_passing(self, _: TopicPartition) -> None:
        """Read a topic that is deleted and made again."""
        try:
            log = self._logs[PASSING, 0]
            log.refresh()
            for number, record in enumerate(log.read()):
                assert is_numbered(record, number), f"{PASSING} holds {record}, not number {number}"
        except (UnknownTopicOrPartitionError, OffsetOutOfRangeError):
            self.counts["another topic"] += 1
            self._logs.refresh()


def main() -> None:
    faulthandler.enable()
    folder, told, seed, *topics = sys.argv[1:]
    partitions = {topic: int(number) for topic, _, number in (name.partition(":") for name in topics)}
    reader = Reader(Path(folder), Path(told), int(seed), partitions)
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        reader.step()
    print(json.dumps(reader.counts))


if __name__ == "__main__":
    main()
