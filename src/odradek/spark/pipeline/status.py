"""How far a job is, seen from outside: from its offset store and its source, without Spark.

    store     the positions, and what the job last did
    source    where the partitions end now

Neither is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from odradek.coordination.lag import total_lag
from odradek.errors import OdradekError
from odradek.kafka.topics import Bounds
from odradek.minutes import Minute
from odradek.offsets.store import Positions, open_store
from odradek.spark.open_transactions import OpenTransaction
from odradek.spark.pipeline.history import history_path, read_history
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.run_note import RunNote, newest_note
from odradek.spark.ranges import DataLossError, OffsetRange, Topics, check_places, find_loss, find_partitions, within
from odradek.spark.source_topics import open_topics
from odradek.storage.names import TopicPartition


@dataclass(frozen=True)
class PartitionStatus:
    """How far a job is in one partition.

    Attributes:
        topic_partition: The partition.
        offset: The next offset to read; None if the store has no position.
        end_offset: The partition's end, for the job's isolation level; None if it was deleted, or the source
            does not answer.
        lag: How many offsets are left; None if that is not known.
        problem: Why the next batch will fail, or would without `failOnDataLoss = false`; None if it will not.
        transaction: The open transaction that hides what comes after `end_offset`, its last stable offset; None if
            there is none.
    """

    topic_partition: TopicPartition
    offset: int | None
    end_offset: int | None
    lag: int | None
    problem: str | None
    transaction: OpenTransaction | None = None


@dataclass(frozen=True)
class JobStatus:
    """How far a job is.

    Attributes:
        name: The job's name.
        store: The address of its offset store, without secrets.
        partitions: The partitions that it reads, in order; those that have a position if the source does not answer.
        note: Its last batch and its last error.
        source_error: Why the source could not be asked; None if it answered.
        history: The minutes of the last day, as far as they are known on this machine.
    """

    name: str
    store: str
    partitions: tuple[PartitionStatus, ...]
    note: RunNote
    source_error: str | None
    history: Sequence[Minute] = ()

    @property
    def lag(self) -> int | None:
        """How many offsets are left in all partitions; None if that is not known."""
        lags = [partition.lag for partition in self.partitions if partition.lag is not None]
        return total_lag(lags) if len(lags) == len(self.partitions) else None

    @property
    def held_back(self) -> int:
        """How many offsets are behind open transactions."""
        found = [part.transaction for part in self.partitions if part.transaction is not None]
        return sum(transaction.end_offset - transaction.offset for transaction in found)

    @property
    def is_well(self) -> bool:
        """Whether the source answers, the last run did not end with an error, and the next one can continue."""
        problems = any(partition.problem for partition in self.partitions)
        return self.source_error is None and not self.note.has_failed and not problems


def job_status(job: Job) -> JobStatus:
    """Return how far a job is, running or not.

    Raises:
        OffsetStoreError: The store does not answer.
    """
    with open_store(job.offset_store, job.offset_store_options) as store:
        positions = store.load()
        address = store.address
    options = job.source_options()
    source_error = None
    try:
        topics = open_topics(options)
        try:
            asked = find_partitions(topics, options, positions)
            bounds = topics.bounds(asked)
            waits = topics.open_transactions(bounds) if options.isolation == "read_committed" else []
            ids = topics.place.transactional_ids({each.producer_id for each in waits})
            named = {each.topic_partition: each._replace(transactional_id=ids.get(each.producer_id)) for each in waits}
            partitions = [
                replace(_partition(topics, name, positions, bounds.get(name)), transaction=named.get(name))
                for name in asked
            ]
        finally:
            topics.close()
    except OdradekError as error:
        source_error = str(error)
        partitions = [
            PartitionStatus(name, place.offset, None, None, None) for name, place in sorted(positions.items())
        ]
    path = history_path(job)
    history = () if path is None else read_history(path)
    return JobStatus(job.name, address, tuple(partitions), newest_note(positions.values()), source_error, history)


def _partition(topics: Topics, name: TopicPartition, positions: Positions, held: Bounds | None) -> PartitionStatus:
    position = positions.get(name)
    if held is None:
        gone = OffsetRange(name, 0, 0) if position is None else OffsetRange(name, position.offset, position.offset)
        return PartitionStatus(
            name, None if position is None else position.offset, None, None, str(find_loss(gone, held))
        )
    if position is None:
        # If the group has positions, a new partition is read from its start.
        lag = held.end_offset - held.start_offset if positions else None
        return PartitionStatus(name, None, held.end_offset, lag, None)
    problem = None
    try:
        check_places(topics, {name: held}, {name: position}, fail_on_data_loss=True)
        # What the next batch reads.
        wanted = OffsetRange(name, position.offset, max(position.offset, held.end_offset))
        within([wanted], {name: held}, fail_on_data_loss=True)
    except DataLossError as error:
        problem = str(error)
    lag = held.end_offset - max(position.offset, held.start_offset)
    return PartitionStatus(name, position.offset, held.end_offset, lag, problem)
