"""Replays the records of a source into a folder or a broker. It can be ended at any moment; the next run continues it.

    source partition  | rows | rows |g rows | ...       g: a group's position, at which a transaction ends
    target partition  | rows + position | rows + position | ...

The position in the source is kept with the records: in the transaction that brings them to a broker, or as the end of a
folder's log, which keeps the offsets of the source.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from odradek.columnar.header_names import EXACT_SCHEMA
from odradek.errors import FormatError, LogError, OffsetOutOfRangeError, OptionError
from odradek.kafka.committed_offset import CommittedOffset
from odradek.kafka.stopping import StoppedError, stopped_by
from odradek.places.place import Place
from odradek.records.isolation import Isolation
from odradek.sources.arrow import record_batches
from odradek.storage.names import TopicPartition, invalid_topic_name_reason
from odradek.transfer.pacing import Pace
from odradek.transfer.target import PartitionWriter, Target
from odradek.transfer.threads import in_threads

COMMIT_BYTES = 16 << 20
"""About how many bytes a transaction has. After an interruption at most so much of a partition is sent again."""

COMMIT_S = 1.0
"""The longest time of a transaction if there is a pace, so that readers see the records soon."""

_MOST_THREADS = 8
_WAIT_S = 0.2


class Lost(NamedTuple):
    """Offsets that were deleted in the source before they were replayed."""

    topic_partition: TopicPartition
    start_offset: int
    end_offset: int


class LeftPosition(NamedTuple):
    """A position of a group that was not set in the target."""

    group: str
    topic_partition: TopicPartition
    reason: str


@dataclass
class ReplayReport:
    """What a replay did.

    Attributes:
        records: How many records it wrote.
        size_bytes: How many bytes they have, as Arrow rows.
        positions: How many positions of groups it set.
        lost: What was deleted before it was replayed.
        left: The positions that it could not set.
        damaged: What could not be read: the partition is replayed up to there.
    """

    records: int = 0
    size_bytes: int = 0
    positions: int = 0
    lost: list[Lost] = field(default_factory=list)
    left: list[LeftPosition] = field(default_factory=list)
    damaged: list[FormatError] = field(default_factory=list)


_NO_ROWS = pa.RecordBatch.from_pylist([], schema=EXACT_SCHEMA)


def names_there(partitions: Iterable[TopicPartition], names: Mapping[str, str]) -> dict[str, str]:
    """Return what the topics of partitions are called in the target.

    Args:
        partitions: What is replayed.
        names: The new names of the topics that are renamed.

    Raises:
        OptionError: There is no such topic, a new name is not valid, or two topics would become one.
    """
    found = {topic: names.get(topic, topic) for topic in sorted({partition.topic for partition in partitions})}
    for old, new in names.items():
        if old not in found:
            raise OptionError(f"there is no topic {old} to be replayed as {new}")
        reason = invalid_topic_name_reason(new)
        if reason is not None:
            raise OptionError(reason)
    if len(set(found.values())) < len(found):
        raise OptionError("two topics would become one: give each another name")
    return found


class Replay:
    """A replay of partitions of a source.

    Args:
        source: The source.
        target: Where the records go.
        partitions: The partitions of the source.
        names: The new names of topics; the others keep theirs.
        isolation: `read_committed` leaves out the records of aborted and undecided transactions.
        groups: Whether the positions of groups go with the records.
        pace: How fast they go.
        name: The name of this replay, under which it continues an earlier run: part of transactional ids.

    Attributes:
        report: What was done so far; read by any thread.

    Raises:
        OptionError: A new name is not valid, or two topics would become one.
    """

    def __init__(
        self,
        source: Place,
        target: Target,
        partitions: Iterable[TopicPartition],
        *,
        names: Mapping[str, str] | None = None,
        isolation: Isolation = "read_committed",
        groups: bool = True,
        pace: Pace | None = None,
        name: str | None = None,
    ) -> None:
        self.report = ReplayReport()
        self._source = source
        self._target = target
        self._partitions = list(partitions)
        self._isolation: Isolation = isolation
        self._moves_groups = groups
        self._pace = pace or Pace()
        self._name = name or default_name(source.address)
        self._stop = threading.Event()
        self.lock = threading.Lock()
        self._names = names_there(self._partitions, names or {})
        # A folder may be named by a link. The address of a broker equals no other.
        is_same = os.path.realpath(self._source.address) == os.path.realpath(self._target.address)
        if is_same and any(old == new for old, new in self._names.items()):
            raise OptionError("a topic cannot be replayed into itself: give it another name")

    def total_offsets(self) -> int:
        """Return about how many offsets there are."""
        bounds = self._source.all_bounds(self._partitions, self._isolation)
        return sum(held.end_offset - held.start_offset for held in bounds.values())

    def run(self) -> ReplayReport:
        """Write what is not there yet.

        Raises:
            LogError: The target holds other records, or the source ends before what was replayed.
            BrokerUnavailableError: A broker did not answer in time.
            StoppedError: `stop` was called.
        """
        with stopped_by(self._stop):
            return self._run()

    def _run(self) -> ReplayReport:
        described = self._source.topics()
        for old, new in self._names.items():
            self._target.ensure_topic(new, max(described[old].partitions) + 1, self._source.topic_config(old))
        committed: dict[TopicPartition, dict[str, CommittedOffset]] = {}
        known: set[tuple[str, TopicPartition]] = set()
        if self._moves_groups:
            known = self._target.known_positions()
            for group, offsets in self._source.group_offsets().items():
                for partition, offset in offsets.items():
                    committed.setdefault(partition, {})[group] = offset
        is_timed = self._pace.speed is not None
        threads = len(self._partitions) if is_timed else min(len(self._partitions), _MOST_THREADS)
        begin = threading.Barrier(max(1, threads))
        firsts: list[int] = []
        bounds = self._source.all_bounds(self._partitions, self._isolation)

        def replay(partition: TopicPartition) -> None:
            move = _PartitionReplay(self, partition, bounds[partition].end_offset, committed.get(partition, {}))
            try:
                move.open()
                if is_timed:
                    first = move.first_ms()
                    if first is not None:
                        firsts.append(first)
                    if begin.wait() == 0:
                        self._pace.begin(min(firsts, default=None))
                    begin.wait()
                move.run(known)
            finally:
                move.close()

        if self._partitions:
            in_threads(replay, self._partitions, threads, name="odradek-replay", stop=self._stop, halt=begin.abort)
        return self.report

    def stop(self) -> None:
        """End the run that is under way in another thread; it raises."""
        self._stop.set()


def default_name(address: str) -> str:
    """Return the name of the replays of a source."""
    known_as = address if "://" in address else os.path.realpath(address)
    return f"odradek-replay-{hashlib.sha256(os.fsencode(known_as)).hexdigest()[:12]}"


class _PartitionReplay:
    """The replay of one partition."""

    def __init__(
        self, replay: Replay, partition: TopicPartition, end_offset: int, groups: Mapping[str, CommittedOffset]
    ) -> None:
        self._replay = replay
        self._source, self._target, self._report = replay._source, replay._target, replay.report
        self._isolation: Isolation = replay._isolation
        self._pace, self._stop = replay._pace, replay._stop
        self._partition = partition
        new_name = replay._names[partition.topic]
        self._into = TopicPartition(new_name, partition.partition)
        self._stream = replay._name if new_name == partition.topic else f"{replay._name}-{partition.topic}"
        self._end_offset = end_offset
        self._groups = groups
        self._writer: PartitionWriter | None = None
        self._next = 0
        self._is_damaged = False
        self._pending_bytes = 0
        self._committed_s = 0.0

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def open(self) -> None:
        """Find out where to continue."""
        writer = self._writer = self._target.writer(self._into, self._stream)
        start = self._source.bounds(self._partition).start_offset
        position = writer.position()
        self._is_begun = position is not None
        if position is None:
            writer.begin(start)
        else:
            # An earlier run with `--uncommitted` may have come further than the last stable offset.
            if position > max(self._end_offset, self._source.bounds(self._partition).end_offset):
                raise LogError(
                    f"{self._partition} of {self._source.address} ends at {self._end_offset}, but it was replayed up "
                    f"to {position}: it is another log, or it was cut"
                )
            self._check_last(writer)
            if position < start:
                with self._replay.lock:
                    self._report.lost.append(Lost(self._partition, position, start))
        self._next = start if position is None else max(position, start)

    def _check_last(self, writer: PartitionWriter) -> None:
        """Check that what is there came from this source."""
        last = writer.last_record()
        if last is None or last.offset is None or last.offset < self._source.bounds(self._partition).start_offset:
            return
        try:
            rows = next(iter(self._rows(last.offset, last.offset + 1, "read_uncommitted")), None)
        except OffsetOutOfRangeError:
            # Retention has just deleted it.
            return
        there = None if rows is None or not rows.num_rows else rows.slice(0, 1).to_pylist()[0]
        if there is not None and (there["key"], there["value"]) == (last.key, last.value):
            return
        if there is None and self._source.bounds(self._partition).end_offset > last.offset:
            # Compaction has removed it since.
            return
        raise LogError(f"{self._into} of {self._target.address} holds other records than {self._partition}")

    def _rows(self, start: int, end: int, isolation: Isolation) -> Iterable[pa.RecordBatch]:
        return record_batches(self._source, self._partition, start, end, schema=EXACT_SCHEMA, isolation=isolation)

    def first_ms(self) -> int | None:
        """Return the timestamp of the record that comes next, or None."""
        while True:
            try:
                for rows in self._rows(self._next, self._end_offset, self._isolation):
                    if rows.num_rows:
                        first = rows.column("timestamp").cast(pa.int64())[0].as_py()
                        return None if first is None else int(first)
            except OffsetOutOfRangeError as error:
                self._pass_deleted(error)
            else:
                return None

    def run(self, known: Collection[tuple[str, TopicPartition]]) -> None:
        """Write everything up to the end.

        Args:
            known: The groups and partitions that have a position in the target.
        """
        writer = self._writer
        assert writer is not None
        ahead = dict(self._groups)
        if self._is_begun:
            # An earlier run has set the positions before this one.
            ahead = {group: at for group, at in ahead.items() if at.offset >= self._next}
            unset = [group for group in self._groups if group not in ahead and (group, self._into) not in known]
            self._leave(dict.fromkeys(unset, "the records after it were replayed without it"))
        by_stop: dict[int, dict[str, CommittedOffset]] = {self._end_offset: {}}
        for group, at in ahead.items():
            by_stop.setdefault(max(self._next, min(at.offset, self._end_offset)), {})[group] = at
        self._committed_s = time.monotonic()
        for stop in sorted(by_stop):
            self._write_up_to(stop, writer)
            if self._next < stop:
                self._leave(dict.fromkeys(by_stop[stop], "it is after damage"))
            elif by_stop[stop]:
                refused = self._target.place_groups(self._into, by_stop[stop])
                self._leave(refused)
                with self._replay.lock:
                    self._report.positions += len(by_stop[stop]) - len(refused)

    def _leave(self, groups: Mapping[str, str]) -> None:
        with self._replay.lock:
            self._report.left += [LeftPosition(group, self._partition, reason) for group, reason in groups.items()]

    def _write_up_to(self, stop: int, writer: PartitionWriter) -> None:
        """Write the records below an offset, and commit them."""
        if self._next >= stop or self._is_damaged:
            return
        while self._next < stop:
            try:
                for rows in self._rows(self._next, stop, self._isolation):
                    self._write(rows, writer)
            except OffsetOutOfRangeError as error:
                self._pass_deleted(error)
            except FormatError as error:
                # The records before the damage are right.
                self._is_damaged = True
                with self._replay.lock:
                    self._report.damaged.append(error)
                break
            else:
                self._next = stop
        # The offsets after the last record, those of markers and of skipped records, are done too.
        writer.write(_NO_ROWS, self._next)
        self._commit(writer)

    def _write(self, rows: pa.RecordBatch, writer: PartitionWriter) -> None:
        for part, at_s in self._pace.parts(rows):
            self._wait_until(at_s, writer)
            writer.write(part)
            if part.num_rows:
                self._next = part.column("offset")[-1].as_py() + 1
            self._pending_bytes += part.nbytes
            with self._replay.lock:
                self._report.records += part.num_rows
                self._report.size_bytes += part.nbytes
            if self._pending_bytes >= COMMIT_BYTES:
                self._commit(writer)

    def _pass_deleted(self, error: OffsetOutOfRangeError) -> None:
        """Continue after what was deleted in the source meanwhile; raise the error if nothing was."""
        start = self._source.bounds(self._partition).start_offset
        if start <= self._next:
            raise error
        # Offsets after the end of this run are for the next one to report.
        start = min(start, self._end_offset)
        with self._replay.lock:
            self._report.lost.append(Lost(self._partition, self._next, start))
        self._next = start

    def _wait_until(self, at_s: float, writer: PartitionWriter) -> None:
        """Wait for the time of the next records; what was written is committed in time."""
        while (left_s := at_s - time.monotonic()) > 0 or self._stop.is_set():
            if self._stop.is_set():
                raise StoppedError
            if self._pending_bytes and (left_s > COMMIT_S or time.monotonic() > self._committed_s + COMMIT_S):
                self._commit(writer)
            self._stop.wait(min(left_s, _WAIT_S))
        if self._pending_bytes and time.monotonic() > self._committed_s + COMMIT_S:
            self._commit(writer)

    def _commit(self, writer: PartitionWriter) -> None:
        writer.commit()
        self._pending_bytes = 0
        self._committed_s = time.monotonic()
