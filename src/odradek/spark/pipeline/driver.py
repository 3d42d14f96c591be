"""The driver of a pipeline: every sink writes a batch before the offset store takes the batch's end.

    positions <- store                                     claimed, so that a driver thought dead cannot commit
    for each batch:
        ranges  = [position, log end) of each partition
        sinks   write the ranges, except what they hold already
        store   <- ends of the ranges                      last, so that it is never ahead of a sink

After a crash at any moment the store is level with the sinks or before them, and the next run skips what they hold
already. There is no Spark checkpoint: the store alone says how far the job is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console

from odradek.arguments import given_text
from odradek.errors import CommitConflictError, JobError, OffsetStoreError, SinkError
from odradek.offsets.store import OffsetStore, Position, Positions, open_store
from odradek.spark.options import EARLIEST, LATEST, OffsetSpec
from odradek.spark.pipeline.batch import Batch, cut, token
from odradek.spark.pipeline.console import ConsoleSink
from odradek.spark.pipeline.job import Job, ParquetSinkSpec, SinkSpec, TopicSinkSpec
from odradek.spark.pipeline.parquet import ParquetSink
from odradek.spark.pipeline.session import explain, open_session
from odradek.spark.pipeline.sink import Sink, check_same_topic
from odradek.spark.ranges import (
    Bounds,
    LossCause,
    OffsetRange,
    Topics,
    find_loss,
    find_partitions,
    limited,
    resolve,
    within,
)
from odradek.spark.source_topics import open_topics
from odradek.storage.names import TopicPartition

STORE_PATIENCE_S = 60.0
STORE_RETRY_S = 0.5


@dataclass(frozen=True)
class BatchReport:
    """What a batch did.

    Attributes:
        number: Its number in this run, from 1.
        ranges: What it read.
        end_offsets: The ends of the partitions when it was planned.
        positions: The positions of the partitions after it.
        seconds: How long it took.
    """

    number: int
    ranges: Sequence[OffsetRange]
    end_offsets: Mapping[TopicPartition, int]
    positions: Mapping[TopicPartition, Position]
    seconds: float

    @property
    def offsets(self) -> int:
        """How many offsets it spanned."""
        return sum(part.end_offset - part.start_offset for part in self.ranges)

    @property
    def lag(self) -> int:
        """How many offsets were left after it, up to `end_offsets`."""
        return sum(max(0, end - self.positions[name].offset) for name, end in self.end_offsets.items())


class Pipeline:
    """A job that runs; a context manager.

    Args:
        job: What to do.
        spark: A session to use; by default one is started from the job's settings.
        on_step: Called with a few words before each step, such as starting Spark or writing a batch.
        console: Where console sinks print; by default stdout.
    """

    def __init__(
        self,
        job: Job,
        spark: SparkSession | None = None,
        *,
        on_step: Callable[[str], None] | None = None,
        console: Console | None = None,
    ) -> None:
        if not isinstance(job, Job):
            raise TypeError(f"job must be a Job, as Job.read returns it, not {given_text(job)}")
        self.job = job
        self._on_step = on_step
        self._console = console
        self._options = job.source_options()
        self._given = spark
        self._stopping = False
        # A signal handler may always put into a SimpleQueue; an Event could deadlock with the interrupted thread.
        self._stops: SimpleQueue[None] = SimpleQueue()
        self.positions = Positions()

    def stop(self) -> None:
        """Make `run` return after the current batch. May be called from a signal handler or another thread."""
        self._stopping = True
        self._stops.put(None)

    def run(self, on_batch: Callable[[BatchReport], None] | None = None) -> int:
        """Run batches until nothing is left, or, with a trigger interval, until `stop`.

        Args:
            on_batch: Called after each batch that was not empty.

        Returns:
            How many batches were not empty.

        Raises:
            OdradekError: The job, the source, a sink or the store cannot go on.
        """
        sinks: list[Sink] = []
        topics: Topics | None = None
        store = open_store(self.job.offset_store, self.job.offset_store_options)
        try:
            # Open the sinks first: if another pipeline holds one, this one must not claim that pipeline's store.
            sinks.extend(_open_sink(spec, self.job, self._console) for spec in self.job.sinks)
            self.positions = store.claim()
            spark: SparkSession | None = self._given
            target: dict[TopicPartition, int] | None = None
            number = 0
            while not self._stopping:
                started = time.monotonic()
                if topics is None:
                    topics = open_topics(self._options)
                else:
                    topics.refresh()
                planned = self._plan(topics, target)
                if self.job.trigger_interval_ms is None and target is None:
                    # Stop at what is there now: a source that keeps growing would never be done.
                    target = planned.end_offsets
                if planned.first:
                    _check_held(sinks, planned.first)
                    self._commit(store, planned.first)
                if planned.ranges:
                    if spark is None:
                        self._tell("starting Spark ...")
                        spark = open_session(self.job)
                        # The time of a batch is without Spark's start.
                        started = time.monotonic()
                    offsets = sum(part.end_offset - part.start_offset for part in planned.ranges)
                    self._tell(f"batch {number + 1}: {offsets:,} offsets ...")
                    try:
                        self._do(spark, sinks, planned)
                    except (Py4JError, PySparkException, ConnectionError) as error:
                        raise explain(error) from error
                    batch = token(planned.ranges)
                    done = {
                        name: Position(end, topic_id=planned.topic_ids[name], batch=batch)
                        for name, _, end in planned.ranges
                    }
                    self._commit(store, done)
                    number += 1
                    if on_batch is not None:
                        seconds = time.monotonic() - started
                        on_batch(BatchReport(number, planned.ranges, planned.end_offsets, self.positions, seconds))
                elif self.job.trigger_interval_ms is None:
                    break
                if self.job.trigger_interval_ms is not None:
                    self._sleep(max(0.0, started + self.job.trigger_interval_ms / 1000 - time.monotonic()))
            return number
        finally:
            for sink in sinks:
                sink.close()
            if topics is not None:
                topics.close()
            store.close()

    def _tell(self, step: str) -> None:
        if self._on_step is not None:
            self._on_step(step)

    def _sleep(self, seconds: float) -> None:
        with suppress(Empty):
            self._stops.get(timeout=seconds)

    def _commit(self, store: OffsetStore, positions: Mapping[TopicPartition, Position]) -> None:
        """Store positions; retry while the store cannot be reached.

        A commit may have happened although its answer was lost: then the store holds exactly these positions.
        """
        deadline = time.monotonic() + STORE_PATIENCE_S
        while True:
            try:
                self.positions = store.commit(positions, expected=self.positions)
                return
            except OffsetStoreError as error:
                try:
                    loaded = store.load()
                except OffsetStoreError:
                    loaded = None
                if loaded is not None and all(loaded.get(name) == place for name, place in positions.items()):
                    self.positions = loaded
                    return
                if isinstance(error, CommitConflictError) or time.monotonic() > deadline:
                    raise
            self._sleep(STORE_RETRY_S)

    def _plan(self, topics: Topics, target: Mapping[TopicPartition, int] | None) -> _Plan:
        asked_for = find_partitions(topics, self._options, self.positions)
        bounds = topics.bounds(asked_for)
        for name in asked_for:
            stored = self.positions.get(name)
            if stored is not None:
                loss = find_loss(OffsetRange(name, stored.offset, stored.offset), bounds.get(name), stored.topic_id)
                # Never continue with a topic created again: the sinks know offsets, and these are of other records.
                if loss is not None and (self._options.fail_on_data_loss or loss.cause is LossCause.NEW_TOPIC):
                    raise loss
        if target is not None:
            bounds = {name: held for name, held in bounds.items() if name in target}
        first = self._first_positions(topics, bounds)
        starts = {name: first[name].offset if name in first else self.positions[name].offset for name in bounds}
        ends = {
            name: held.end_offset if target is None else min(held.end_offset, target[name])
            for name, held in bounds.items()
        }
        asked = [OffsetRange(name, starts[name], max(ends[name], starts[name])) for name in sorted(bounds)]
        kept = within(asked, bounds, fail_on_data_loss=self._options.fail_on_data_loss)
        ids = {name: held.topic_id for name, held in bounds.items()}
        return _Plan(limited(kept, self.job.max_offsets_per_batch), ends, first, ids)

    def _first_positions(
        self, topics: Topics, bounds: Mapping[TopicPartition, Bounds]
    ) -> dict[TopicPartition, Position]:
        """Return the starting positions of partitions without a position."""
        new = {name: held for name, held in bounds.items() if name not in self.positions}
        if not new:
            return {}
        if len(self.positions):
            # The group has begun: a new partition, or topic, is read from its start.
            return {name: Position(held.start_offset, topic_id=held.topic_id) for name, held in new.items()}
        reset = self.job.reset
        if reset == "none":
            raise JobError(f"the group has no positions for {', '.join(map(str, new))}, and offsets.reset is none")
        if isinstance(reset, int):
            spec = OffsetSpec(timestamp=reset)
        else:
            spec = OffsetSpec(EARLIEST if reset == "earliest" else LATEST)
        offsets = resolve(spec, "offsets.reset", topics, new, end_for_later_times=True)
        return {name: Position(offset, topic_id=new[name].topic_id) for name, offset in offsets.items()}

    def _do(self, spark: SparkSession, sinks: Sequence[Sink], planned: _Plan) -> None:
        ranges, topic_ids = planned.ranges, planned.topic_ids
        stored = {name: self.positions[name].offset for name, _, _ in ranges}
        defined: Batch | None = None
        # One plan for all sinks: planning takes longer than reading a small batch.
        whole_partitions = any(sink.wants_whole_partitions for sink in sinks)
        for sink in sinks:
            held = sink.positions()
            for name, _, _ in ranges:
                place = held.get(name)
                if place is None:
                    continue
                check_same_topic(sink.description, name, place, topic_ids[name])
                # Records between the stored position and the range were lost, and failOnDataLoss=false skips them.
                if place.offset < stored[name]:
                    raise SinkError(
                        f"{sink.description} ends at offset {place.offset} of {name}, and the offset store says that "
                        f"everything below {stored[name]} is done: set the store back to {place.offset}, or remove "
                        "the sink's files and start over"
                    )
            left = cut(ranges, {name: place.offset for name, place in held.items()})
            # A sink that holds the whole batch already still defines views, over the ranges that the others write.
            batch = Batch(self.job, spark, left or ranges, whole_partitions, topic_ids, stored)
            if batch != defined:
                batch.define_views()
                defined = batch
            if left:
                sink.write(batch)
            sink.define_views(spark)


@dataclass(frozen=True)
class _Plan:
    """A planned batch: its ranges, the ends they were cut from, positions to store before it, and the topics' ids."""

    ranges: list[OffsetRange]
    end_offsets: dict[TopicPartition, int]
    first: dict[TopicPartition, Position]
    topic_ids: dict[TopicPartition, str | None]


def _check_held(sinks: Sequence[Sink], first: Mapping[TopicPartition, Position]) -> None:
    """Apply `on_held` if a sink holds records of partitions for which the offset store has no position.

    This is not the case after a crash: the store then has the positions from which the batch started.

    All sinks are checked before one of them replays, so that an error leaves every sink as it is.
    """
    replays: list[tuple[Sink, dict[TopicPartition, Position]]] = []
    for sink in sinks:
        held = sink.held(first)
        if not held:
            continue
        if sink.on_held == "replay":
            replays.append((sink, {name: first[name] for name in held}))
            continue
        for name, place in sorted(held.items()):
            check_same_topic(sink.description, name, place, first[name].topic_id)
            if sink.on_held == "error":
                raise SinkError(
                    f"{sink.description} holds {name} up to offset {place.offset} already, and the offset store has no "
                    'position of it: say whether to pass over what is held (on_held = "skip") or not (another path, or '
                    'on_held = "replay" where a topic is the target), or set the store to where the sink is'
                )
    for sink, starts in replays:
        sink.replay(starts)


def _open_sink(spec: SinkSpec, job: Job, console: Console | None) -> Sink:
    if isinstance(spec, ParquetSinkSpec):
        return ParquetSink(spec)
    if isinstance(spec, TopicSinkSpec):
        from odradek.spark.pipeline.topic import TopicSink

        return TopicSink(spec, job.transactional_id(spec))
    return ConsoleSink(spec, console)
