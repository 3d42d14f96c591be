"""A consumer of a log directory or of a broker, with its place kept in an offset store.

It follows Kafka's consumer (`KafkaConsumer`, `auto.commit.interval.ms`, `auto.offset.reset`) with one difference: a
group has one consumer, which reads all partitions. The consumer that starts last owns the group; a commit of an earlier
one is a conflict. A group of a broker may be shared instead (KIP-848): then each consumer reads what it is assigned.

A child process (`fork`) may read on from where its parent was, but commits nothing: `commit` raises there, and neither
the interval nor `close` touches the store.

A record is done when the application asks for the next one, or polls again. Automatic commits cover only records that
are done. So after a crash, or when the body of the loop fails, records may come twice but none is lost.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from odradek.arguments import checked_int
from odradek.consumer.commits import Commits
from odradek.consumer.consumed_topics import ConsumedTopics
from odradek.consumer.fetched import Fetched
from odradek.consumer.partition_reader import ConvertedPolicy, PartitionReader
from odradek.errors import LogError, OffsetStoreError, UnknownTopicOrPartitionError
from odradek.offsets.store import OffsetStore, Position
from odradek.storage.directory.choice import choose
from odradek.storage.directory.consumed_record import ConsumedRecord
from odradek.storage.names import TopicPartition, checked_topic_partition
from odradek.storage.process import WritingProcess
from odradek.storage.uncopied import Uncopied

if TYPE_CHECKING:
    from odradek.offsets.member import MemberOffsetStore

DEFAULT_MAX_POLL_RECORDS = 500
_MOST_AGE_S = 1.0
"""How old what is known of a broker's partitions may be, while there are records to read."""


class Consumer(Uncopied):
    """An iterator of records in the order of each partition; a context manager. Made by `consume`.

    Only one thread may use it at a time.
    """

    def __init__(
        self,
        source: ConsumedTopics,
        topics: Sequence[str | re.Pattern[str]],
        store: OffsetStore | None,
        *,
        auto_commit_interval_ms: int | None,
        auto_offset_reset: ConvertedPolicy,
        follow: bool,
        metadata_max_age_ms: int,
        close_store: bool,
        membership: MemberOffsetStore | None = None,
    ) -> None:
        self._source = source
        self._topics = topics
        self._process = WritingProcess(source.path)
        self._reset = auto_offset_reset
        self._follow = follow
        self._metadata_max_age_s = metadata_max_age_ms / 1000
        self._closed = False
        self._readers: dict[TopicPartition, PartitionReader] = {}
        self._turn = 0
        self._fetched = Fetched([], 0, 0, {})
        self._commits = Commits(
            store, membership, self._process, interval_ms=auto_commit_interval_ms, close_store=close_store
        )
        self._membership = membership
        self._life = 0
        if membership is None:
            self._start(self._subscribed(), appeared=False)
        else:
            membership.wait()
            self._follow_group()
        self._next_listing = time.monotonic() + self._metadata_max_age_s
        self._commits.begin_interval()

    def __repr__(self) -> str:
        state = "closed" if self._closed else ", ".join(f"{name} at {place}" for name, place in self._places())
        return f"<Consumer of {self._source.path}: {state}>"

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
        """Return the next record, which must be in memory (`has_next`); the one before it is done. Commits nothing."""
        self._check_open()
        records, _, handed_out, positions = self._fetched
        consumed = records[handed_out]
        # Nothing comes between this and the return: the caller gets the record.
        self._fetched = Fetched(records, handed_out, handed_out + 1, positions)
        return consumed

    @property
    def has_next(self) -> bool:
        """Whether the next record is in memory."""
        return self._fetched.ahead > 0

    @property
    def is_ready(self) -> bool:
        """Whether the next record is in memory, and no commit is due before it."""
        if self._closed:
            return True
        return self._fetched.ahead > 0 and not self._commits.is_due and not self._is_assigned_anew()

    @property
    def follows(self) -> bool:
        """Whether iteration waits for more records at the end."""
        return self._follow

    def pauses(self) -> Iterator[float]:
        """Give the times in seconds to wait for records before looking again."""
        return self._source.pauses()

    def prepare(self, timeout_s: float | None) -> None:
        """Prepare the next record: commit if a commit is due, and read ahead.

        The records handed out before are done. No record is handed out here, so this can be repeated after an error.

        Args:
            timeout_s: How long to wait for a record; for ever if None.
        """
        self._check_open()
        self._finish()
        self._follow_group()
        if not self._fetched.ahead:
            self._fetch(DEFAULT_MAX_POLL_RECORDS, timeout_s)
        self._commit_if_due()

    def poll(self, timeout_ms: int = 0, max_records: int = DEFAULT_MAX_POLL_RECORDS) -> list[ConsumedRecord]:
        """Return the next records, at most `max_records`, waiting up to `timeout_ms` for the first.

        The records that earlier calls returned are done, and may be committed.

        Raises:
            OptionError: `max_records` is below 1, or `timeout_ms` is negative.
            TypeError: One of them is no int.
            LogError: The consumer is closed.
            FormatError: The next batch of a partition is corrupt.
            OffsetStoreError: A commit that was due failed; CommitConflictError if another consumer has the group.
        """
        self._check_open()
        limit, timeout_s = checked_int("max_records", max_records, 1), checked_int("timeout_ms", timeout_ms, 0) / 1000
        self._finish()
        self._follow_group()
        self._commit_if_due()
        if not self._fetched.ahead:
            self._fetch(limit, timeout_s)
        return self._hand_out(limit)

    def _hand_out(self, count: int) -> list[ConsumedRecord]:
        records, done, handed_out, positions = self._fetched
        given = records[handed_out : handed_out + count]
        # As in `take`: nothing comes between this and the return.
        self._fetched = Fetched(records, done, handed_out + len(given), positions)
        return given

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return sorted(self._readers)

    @property
    def committed(self) -> Mapping[TopicPartition, Position]:
        """The positions in the store, as far as this consumer knows."""
        return self._commits.committed

    def position(self, topic_partition: TopicPartition) -> int:
        """Return the offset of the next record to be handed out, or the offset at which the search for it starts."""
        return self._fetched.position(self._reader(topic_partition).log.topic_partition)

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """Continue at an offset. If the log does not hold it, the reset policy applies.

        Raises:
            UnknownTopicOrPartitionError: This consumer does not read the partition.
            LogError: The offset is negative, or the consumer is closed.
            TypeError: The partition is no pair of a topic and a number, or the offset no int.
        """
        reader, place = self._reader(topic_partition), checked_int("offset", offset)
        if place < 0:
            raise LogError(f"{reader.log.topic_partition}: the offset {place} is negative")
        self._go_to(reader, place)

    def seek_to_beginning(self, *topic_partitions: TopicPartition) -> None:
        """Continue at the log start offset, in all partitions if none is named; raise as `seek` does."""
        for reader in self._looked_at(topic_partitions):
            self._go_to(reader, reader.log.log_start_offset)

    def seek_to_end(self, *topic_partitions: TopicPartition) -> None:
        """Continue at the current end, in all partitions if none is named; raise as `seek` does."""
        for reader in self._looked_at(topic_partitions):
            self._go_to(reader, reader.log.end_offset(self._source.isolation))

    def pause(self, *topic_partitions: TopicPartition) -> None:
        """Stop reading partitions, all if none is named, until `resume`; raise as `seek` does."""
        for reader in self._chosen(topic_partitions):
            self._fetched = self._fetched.without_ahead(reader.log.topic_partition)
            reader.paused = True

    def resume(self, *topic_partitions: TopicPartition) -> None:
        """Continue with paused partitions, all if none is named; raise as `seek` does."""
        for reader in self._chosen(topic_partitions):
            reader.paused = False

    def commit(self) -> None:
        """Store the positions after the records handed out.

        Raises:
            CommitConflictError: Another consumer has the group.
            OffsetStoreError: The store cannot be reached; the next commit stores these positions.
            LogError: The consumer has no group, or this is a fork of the process that opened it.
        """
        self._check_open()
        self._process.check()
        self._commits.check_group()
        self._finish()
        self._commit()

    def close(self) -> None:
        """Commit the records handed out, if commits are automatic, and close everything. May be called twice."""
        if not self._closed:
            self._finish()
            self._close()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        elif not self._closed:
            # The current record is not done. And the error being raised says more than one of the store.
            with suppress(OffsetStoreError):
                self._close()

    def _close(self) -> None:
        self._closed = True
        try:
            self._commit_itself()
        finally:
            self._source.close()
            self._commits.close()

    def _check_open(self) -> None:
        if self._closed:
            raise LogError("the consumer is closed")

    def _reader(self, topic_partition: TopicPartition) -> PartitionReader:
        self._check_open()
        name = checked_topic_partition(topic_partition)
        reader = self._readers.get(name)
        if reader is None:
            raise UnknownTopicOrPartitionError(*name, path=self._source.path)
        return reader

    def _chosen(self, topic_partitions: tuple[TopicPartition, ...]) -> list[PartitionReader]:
        self._check_open()
        return [self._reader(name) for name in topic_partitions] or list(self._readers.values())

    def _looked_at(self, topic_partitions: tuple[TopicPartition, ...]) -> list[PartitionReader]:
        """Return the readers of partitions, which know what these hold now."""
        chosen = self._chosen(topic_partitions)
        self._source.refresh([reader.log.topic_partition for reader in chosen])
        return chosen

    def _subscribed(self) -> list[TopicPartition]:
        return choose(self._source.listed(), self._topics, None, path=self._source.path)

    def _start(self, topic_partitions: Collection[TopicPartition], *, appeared: bool) -> None:
        for reader in self._source.readers(topic_partitions, self._reset):
            name = reader.log.topic_partition
            stored = self._commits.committed.get(name)
            if stored is None and appeared:
                # The partition is new: none of its records may be skipped.
                reader.seek(reader.log.log_start_offset)
            else:
                reader.start(stored)
            self._note_done()
            self._fetched = self._fetched.moved(name, reader.position)
            # A commit needs the reader of what is done, also after an exception that comes in between.
            self._readers[name] = reader
            self._commits.done[name] = reader.position

    # -- a group that is shared

    def _is_assigned_anew(self) -> bool:
        """Whether the partitions that this member is to read are others than those that it reads."""
        if self._membership is None or not self._process.is_this:
            return False
        life, partitions = self._membership.assignment
        return life != self._life or partitions != self._readers.keys()

    def _follow_group(self) -> None:
        """Give up partitions, after a commit of what is done, and take on others. The records handed out are done."""
        if self._membership is None or not self._is_assigned_anew():
            return
        life, partitions = self._membership.assignment
        is_lost = life != self._life
        revoked = [name for name in self._readers if is_lost or name not in (partitions or ())]
        if revoked and not is_lost:
            self._commit_itself()
        self._fetched = self._fetched.without(revoked)
        for name in revoked:
            self._commits.done.pop(name, None)
            del self._readers[name]
        self._life = life
        added = (partitions or frozenset()) - self._readers.keys()
        if added:
            self._commits.committed = self._membership.load()
            self._start(sorted(added), appeared=False)
        self._membership.acknowledge(self._readers.keys(), life)

    def _list_if_due(self) -> None:
        now = time.monotonic()
        if now < self._next_listing:
            return
        self._next_listing = now + self._metadata_max_age_s
        if self._membership is not None:
            # The broker itself looks for the topics of a `SubscriptionPattern`.
            if self._topics:
                with suppress(UnknownTopicOrPartitionError):
                    self._membership.subscribe({name.topic for name in self._subscribed()})
            return
        with suppress(UnknownTopicOrPartitionError):
            self._start([name for name in self._subscribed() if name not in self._readers], appeared=True)

    def _fetch(self, max_records: int, timeout_s: float | None) -> None:
        """Fill the buffer from the partitions in turn; wait up to `timeout_s` for a record, for ever if None."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        pauses = self.pauses()
        while True:
            # A signal's handler may have closed it meanwhile.
            self._check_open()
            self._list_if_due()
            self._fill(max_records)
            if self._fetched.ahead:
                return
            if self._fetched.done == self._fetched.handed_out:
                self._finish()
                self._follow_group()
            self._commit_if_due()
            pause_s = next(pauses)
            left_s = pause_s if deadline is None else deadline - time.monotonic()
            if left_s <= 0:
                return
            time.sleep(min(pause_s, left_s))

    def _fill(self, max_records: int) -> None:
        readers = [reader for reader in self._readers.values() if not reader.paused]
        names = [reader.log.topic_partition for reader in readers]
        self._source.look(names, _MOST_AGE_S)
        self._take_turns(readers, max_records)
        if not self._fetched.ahead and self._source.look(names, 0.0):
            self._take_turns(readers, max_records)

    def _take_turns(self, readers: Sequence[PartitionReader], max_records: int) -> None:
        # Keep what one reader has read before the next one reads: it must not be lost if that partition is corrupt.
        for _ in range(len(readers)):
            self._turn += 1
            reader = readers[self._turn % len(readers)]
            name, fetched = reader.log.topic_partition, self._fetched
            if reader.position != fetched.positions[name]:
                # An exception came before these records were kept: read them again.
                reader.seek(fetched.positions[name])
            records = reader.take(max_records - fetched.ahead)
            if records or reader.position != fetched.positions[name]:
                self._fetched = fetched.extended(name, records, reader.position)
            if self._fetched.ahead >= max_records:
                break

    def _finish(self) -> None:
        """Note that the records handed out are done."""
        records, _, handed_out, positions = self._fetched
        self._fetched = Fetched(records, handed_out, handed_out, positions)
        self._note_done()
        if handed_out == len(records):
            # Nothing is read ahead: what the readers skipped, such as transaction markers, is done too.
            self._commits.done.update(positions)

    def _note_done(self) -> None:
        """Drop the records that are done, and remember the positions after them."""
        records, done, handed_out, positions = self._fetched
        if done:
            for consumed in records[:done]:
                self._commits.done[consumed.topic_partition] = consumed.offset + 1
            self._fetched = Fetched(records[done:], 0, handed_out - done, positions)

    def _go_to(self, reader: PartitionReader, offset: int) -> None:
        name = reader.log.topic_partition
        self._note_done()
        self._fetched = self._fetched.moved(name, offset)
        self._commits.done[name] = offset

    def _commit_if_due(self) -> None:
        if self._commits.is_due:
            self._note_done()
            self._commits.commit_due(self._readers)

    def _commit_itself(self) -> None:
        self._note_done()
        self._commits.commit_automatically(self._readers)

    def _commit(self) -> None:
        self._note_done()
        self._commits.commit(self._readers)
