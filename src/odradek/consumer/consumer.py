"""A consumer of the embedded log: in this process, with its place kept in an offset store.

    with odradek.consume("data", "events", group="file:///var/lib/job/offsets.json") as consumer:
        for topic, partition, record in consumer:
            ...

It follows Kafka's consumer (`KafkaConsumer`, `auto.commit.interval.ms`, `auto.offset.reset`) with one difference: a
group has one reader, which has all partitions. Whoever starts last has the group; the commit of an earlier one is a
conflict.

A record is done when the next one, or the next poll, is asked for; only what is done is committed by itself. So after a
crash, or when the body of the loop fails, records may come twice but none is left out.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from odradek.consumer.fetched import Fetched
from odradek.consumer.partition_reader import PartitionReader, ResetPolicy
from odradek.errors import CommitConflictError, LogError, OffsetStoreError, OptionError, UnknownTopicOrPartitionError
from odradek.offsets.store import OffsetStore, Position, Positions, open_store
from odradek.records.isolation import Isolation, check_isolation
from odradek.records.timestamps import timestamp_ms
from odradek.storage.directory.consumed_record import ConsumedRecord
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.names import TopicPartition

DEFAULT_AUTO_COMMIT_INTERVAL_MS = 5_000
DEFAULT_MAX_POLL_RECORDS = 500
DEFAULT_METADATA_MAX_AGE_MS = 5_000

_FIRST_WAIT_S = 0.005
_LONGEST_WAIT_S = 0.1

Topics = str | Iterable[str] | re.Pattern[str]


def consume(
    path: str | os.PathLike[str],
    topics: Topics,
    *,
    group: str | OffsetStore | None = None,
    auto_commit: bool = True,
    auto_commit_interval_ms: int = DEFAULT_AUTO_COMMIT_INTERVAL_MS,
    auto_offset_reset: ResetPolicy | None = None,
    isolation: Isolation = "read_uncommitted",
    follow: bool = True,
    metadata_max_age_ms: int = DEFAULT_METADATA_MAX_AGE_MS,
) -> Consumer:
    """Read topics of a log directory as a group whose place is kept in an offset store.

    Args:
        path: The log directory; whoever writes it may be running.
        topics: A topic, several, or a pattern that their whole names match.
        group: The address of an offset store (`open_store`), or a store, which is left open; None keeps no place.
        auto_commit: Whether what is done is committed at an interval and on close.
        auto_commit_interval_ms: That interval.
        auto_offset_reset: Where to start in a partition without a valid position: `earliest`, `latest`, the first
            record at a time (`odradek.Time`), or `none`, an error. With a group it is `latest` where not given, as in
            Kafka; without one it has to be given, since every position is missing then.
        isolation: `read_committed` leaves out what is aborted or undecided.
        follow: Whether an iteration waits for more at the end; if not, it ends there.
        metadata_max_age_ms: How often new topics and partitions are looked for. Partitions that appear are read from
            their start.

    Raises:
        UnknownTopicOrPartitionError: A topic given by name is not in the directory.
        OffsetStoreError: The store cannot be reached.
        NoOffsetForPartitionError: A partition has no valid position, and the policy is `none`.
        OptionError: Nothing says where to start; or a policy, an isolation level or a time is none.
    """
    check_isolation(isolation)
    reset = _reset_policy(auto_offset_reset, has_group=group is not None)
    store = open_store(group) if isinstance(group, str) else group
    directory = LogDirectory(path)
    try:
        return Consumer(
            directory,
            topics,
            store,
            auto_commit_interval_ms=auto_commit_interval_ms if auto_commit and store is not None else None,
            auto_offset_reset=reset,
            isolation=isolation,
            follow=follow,
            metadata_max_age_ms=metadata_max_age_ms,
            close_store=isinstance(group, str),
        )
    except BaseException:
        directory.close()
        if store is not None and isinstance(group, str):
            store.close()
        raise


def _reset_policy(reset: ResetPolicy | None, *, has_group: bool) -> ResetPolicy:
    if reset is None:
        if not has_group:
            raise OptionError(
                "consume: nothing says where to start: give auto_offset_reset='earliest' for all that is there, "
                "'latest' for what comes from now on, or a time; or a group, which keeps its place"
            )
        return "latest"
    if reset in ("earliest", "latest", "none"):
        return reset
    try:
        return timestamp_ms(reset)
    except (OptionError, TypeError) as error:
        raise OptionError(f"auto_offset_reset is earliest, latest, none or a time, not {reset!r}: {error}") from error


class Consumer:
    """An iterator of records in the order of each partition; a context manager. Made by `consume`.

    Of one thread at a time.
    """

    def __init__(
        self,
        directory: LogDirectory,
        topics: Topics,
        store: OffsetStore | None,
        *,
        auto_commit_interval_ms: int | None,
        auto_offset_reset: ResetPolicy,
        isolation: Isolation,
        follow: bool,
        metadata_max_age_ms: int,
        close_store: bool,
    ) -> None:
        self._directory = directory
        self._topics = topics if isinstance(topics, re.Pattern) else _names(topics)
        self._store = store
        self._close_store = close_store
        self._auto_commit_interval_s = None if auto_commit_interval_ms is None else auto_commit_interval_ms / 1000
        self._reset = auto_offset_reset
        self._isolation = isolation
        self._follow = follow
        self._metadata_max_age_s = metadata_max_age_ms / 1000
        self._closed = False
        self._name = secrets.token_hex(4)
        self._commits = 0
        self._readers: dict[TopicPartition, PartitionReader] = {}
        self._turn = 0
        self._fetched = Fetched([], 0, 0, {})
        self._done: dict[TopicPartition, int] = {}
        self._committed = Positions() if store is None else store.claim()
        self._unanswered: list[Mapping[TopicPartition, Position]] = []
        self._start(self._subscribed(directory), appeared=False)
        now = time.monotonic()
        self._next_listing = now + self._metadata_max_age_s
        self._next_commit = now + (self._auto_commit_interval_s or 0)

    def __repr__(self) -> str:
        state = "closed" if self._closed else ", ".join(f"{name} at {place}" for name, place in self._places())
        return f"<Consumer of {self._directory.path}: {state}>"

    def _places(self) -> list[tuple[TopicPartition, int]]:
        return [(name, self._fetched.position(name)) for name in sorted(self._readers)]

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumedRecord:
        self._check_open()
        if not self.is_ready:
            self.prepare(None if self.follows else 0.0)
        if not self._fetched.ahead:
            raise StopIteration
        return self.take()

    def take(self) -> ConsumedRecord:
        """Hand out the next record, which is there (`has_next`); the one before it is done. Nothing is committed."""
        self._check_open()
        records, _, handed_out, positions = self._fetched
        consumed = records[handed_out]
        # From here on nothing comes in between: the caller gets it.
        self._fetched = Fetched(records, handed_out, handed_out + 1, positions)
        return consumed

    @property
    def has_next(self) -> bool:
        """Whether the next record is there."""
        return self._fetched.ahead > 0

    @property
    def is_ready(self) -> bool:
        """Whether the next record is there, and nothing is to be committed before it is handed out."""
        return self._closed or (self._fetched.ahead > 0 and not self._is_commit_due())

    @property
    def follows(self) -> bool:
        """Whether an iteration waits for more at the end."""
        return self._follow

    def prepare(self, timeout_s: float | None) -> None:
        """Do what has to be done before the next record can be handed out: commit, and read ahead.

        What was handed out is done. Nothing is handed out here, so this can be repeated where it ended early.

        Args:
            timeout_s: How long to wait for a record; for ever if None.
        """
        self._check_open()
        self._finish()
        if not self._fetched.ahead:
            self._fetch(DEFAULT_MAX_POLL_RECORDS, timeout_s)
        self._commit_if_due()

    def poll(self, timeout_ms: int = 0, max_records: int = DEFAULT_MAX_POLL_RECORDS) -> list[ConsumedRecord]:
        """Return the next records, at most `max_records`, waiting up to `timeout_ms` for the first.

        What earlier calls returned is done, and may be committed.

        Raises:
            FormatError: The next batch of a partition is corrupt.
            OffsetStoreError: A commit that was due failed; CommitConflictError if another consumer has the group.
        """
        self._check_open()
        self._finish()
        self._commit_if_due()
        if not self._fetched.ahead:
            self._fetch(max_records, timeout_ms / 1000)
        return self._hand_out(max_records)

    def _hand_out(self, count: int) -> list[ConsumedRecord]:
        records, done, handed_out, positions = self._fetched
        given = records[handed_out : handed_out + count]
        # As in `__next__`: from here on nothing comes in between.
        self._fetched = Fetched(records, done, handed_out + len(given), positions)
        return given

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return sorted(self._readers)

    @property
    def committed(self) -> Mapping[TopicPartition, Position]:
        """What the store holds, as far as this consumer knows."""
        return self._committed

    def position(self, topic_partition: TopicPartition) -> int:
        """Return the offset of the next record that will be handed out, or of the place where it is looked for."""
        self._reader(topic_partition)
        return self._fetched.position(topic_partition)

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """Go on at an offset. An offset that the log does not hold is for the reset policy."""
        if offset < 0:
            raise LogError(f"an offset is not negative, unlike {offset}")
        self._go_to(self._reader(topic_partition), offset)

    def seek_to_beginning(self, *topic_partitions: TopicPartition) -> None:
        """Go on at the log start offset, of all partitions if none is named."""
        for reader in self._chosen(topic_partitions):
            reader.log.refresh()
            self._go_to(reader, reader.log.log_start_offset)

    def seek_to_end(self, *topic_partitions: TopicPartition) -> None:
        """Go on at the end as it is now, of all partitions if none is named."""
        for reader in self._chosen(topic_partitions):
            reader.log.refresh()
            self._go_to(reader, reader.log.end_offset(self._isolation))

    def pause(self, *topic_partitions: TopicPartition) -> None:
        """Leave partitions out, all if none is named, until `resume`."""
        for reader in self._chosen(topic_partitions):
            self._fetched = self._fetched.without_ahead(reader.log.topic_partition)
            reader.paused = True

    def resume(self, *topic_partitions: TopicPartition) -> None:
        """Go on with paused partitions, all if none is named."""
        for reader in self._chosen(topic_partitions):
            reader.paused = False

    def commit(self) -> None:
        """Store the place after everything that was handed out.

        Raises:
            CommitConflictError: Another consumer has the group.
            OffsetStoreError: The store cannot be reached; what is done stays to be committed.
            LogError: The consumer keeps no place.
        """
        self._check_open()
        if self._store is None:
            raise LogError("this consumer has no group to commit for")
        self._finish()
        self._commit()

    def close(self) -> None:
        """Commit what was handed out, if commits are automatic, and let go of everything. May be called twice."""
        if not self._closed:
            self._finish()
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        elif not self._closed:
            # The record at hand is not done. And the error on its way says more than one of the store.
            with suppress(OffsetStoreError):
                self._close()

    def _close(self) -> None:
        self._closed = True
        try:
            if self._auto_commit_interval_s is not None:
                self._commit()
        finally:
            self._directory.close()
            if self._store is not None and self._close_store:
                self._store.close()

    def _check_open(self) -> None:
        if self._closed:
            raise LogError("the consumer is closed")

    def _reader(self, topic_partition: TopicPartition) -> PartitionReader:
        self._check_open()
        reader = self._readers.get(topic_partition)
        if reader is None:
            raise UnknownTopicOrPartitionError(*topic_partition, path=self._directory.path)
        return reader

    def _chosen(self, topic_partitions: tuple[TopicPartition, ...]) -> list[PartitionReader]:
        self._check_open()
        return [self._reader(name) for name in topic_partitions] or list(self._readers.values())

    def _subscribed(self, directory: LogDirectory) -> list[TopicPartition]:
        if isinstance(self._topics, re.Pattern):
            pattern = self._topics
            return [name for name in directory.topic_partitions() if pattern.fullmatch(name.topic)]
        return [name for topic in self._topics for name in directory.topic_partitions(topic)]

    def _start(self, topic_partitions: Iterable[TopicPartition], *, appeared: bool) -> None:
        for name in topic_partitions:
            reader = PartitionReader(self._directory[name], isolation=self._isolation, reset=self._reset)
            stored = self._committed.get(name)
            if stored is None and appeared:
                # It was not there a moment ago: nothing of it may be passed over.
                reader.seek(reader.log.log_start_offset)
            else:
                reader.start(stored)
            self._note_done()
            self._done[name] = reader.position
            self._fetched = self._fetched.moved(name, reader.position)
            self._readers[name] = reader

    def _list_if_due(self) -> None:
        now = time.monotonic()
        if now < self._next_listing:
            return
        self._next_listing = now + self._metadata_max_age_s
        with LogDirectory(self._directory.path) as directory, suppress(UnknownTopicOrPartitionError):
            self._start([name for name in self._subscribed(directory) if name not in self._readers], appeared=True)

    def _fetch(self, max_records: int, timeout_s: float | None) -> None:
        """Fill the buffer from the partitions in turn; wait for something until the time is over, for ever if None."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        wait_s = _FIRST_WAIT_S
        while True:
            self._list_if_due()
            self._fill(max_records)
            if self._fetched.ahead:
                return
            if self._fetched.done == self._fetched.handed_out:
                self._finish()
            self._commit_if_due()
            left_s = wait_s if deadline is None else deadline - time.monotonic()
            if left_s <= 0:
                return
            time.sleep(min(wait_s, left_s))
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _fill(self, max_records: int) -> None:
        # What a reader has read is kept before the next one reads: it must not get lost when that one's is corrupt.
        readers = [reader for reader in self._readers.values() if not reader.paused]
        for _ in range(len(readers)):
            self._turn += 1
            reader = readers[self._turn % len(readers)]
            name, fetched = reader.log.topic_partition, self._fetched
            if reader.position != fetched.positions[name]:
                # An exception came before what it had read was kept.
                reader.seek(fetched.positions[name])
            records = reader.take(max_records - fetched.ahead)
            if records or reader.position != fetched.positions[name]:
                self._fetched = fetched.extended(name, records, reader.position)
            if self._fetched.ahead >= max_records:
                break

    def _finish(self) -> None:
        """Take note that what was handed out is done."""
        records, _, handed_out, positions = self._fetched
        self._fetched = Fetched(records, handed_out, handed_out, positions)
        self._note_done()
        if handed_out == len(records):
            # Nothing is on its way: also what the readers passed over, such as transaction markers, is done.
            self._done.update(positions)

    def _note_done(self) -> None:
        """Let go of the records that are done, and remember up to where that is."""
        records, done, handed_out, positions = self._fetched
        if done:
            for consumed in records[:done]:
                self._done[consumed.topic_partition] = consumed.offset + 1
            self._fetched = Fetched(records[done:], 0, handed_out - done, positions)

    def _go_to(self, reader: PartitionReader, offset: int) -> None:
        name = reader.log.topic_partition
        self._note_done()
        self._fetched = self._fetched.moved(name, offset)
        self._done[name] = offset

    def _is_commit_due(self) -> bool:
        return self._auto_commit_interval_s is not None and time.monotonic() >= self._next_commit

    def _commit_if_due(self) -> None:
        if self._auto_commit_interval_s is None or not self._is_commit_due():
            return
        try:
            self._commit()
        finally:
            # After it, or a store that takes longer than the interval would be given a commit for each record.
            self._next_commit = time.monotonic() + self._auto_commit_interval_s

    def _commit(self) -> None:
        if self._store is None:
            return
        self._note_done()
        changed = {name: offset for name, offset in self._done.items() if offset != self._committed.offset(name)}
        if not changed:
            return
        self._commits += 1
        batch = f"{self._name}/{self._commits}"
        positions = {name: self._readers[name].stored_form(offset, batch) for name, offset in changed.items()}
        # Whatever ends this early, a lost connection or Ctrl-C: the commit may have happened.
        self._unanswered.append(positions)
        self._committed = self._commit_over_own(self._store, positions)
        self._unanswered.clear()

    def _commit_over_own(self, store: OffsetStore, positions: Mapping[TopicPartition, Position]) -> Positions:
        """Commit, also if an earlier commit of ours has happened though it was not answered."""
        try:
            return store.commit(positions, expected=self._committed)
        except CommitConflictError:
            loaded = store.load()
            if not any(own.items() <= loaded.items() for own in self._unanswered):
                raise
            return store.commit(positions, expected=loaded)


def _names(topics: str | Iterable[str]) -> list[str]:
    return [topics] if isinstance(topics, str) else list(dict.fromkeys(topics))
