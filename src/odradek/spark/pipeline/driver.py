"""The driver of a pipeline: every sink writes a batch before the offset store takes the batch's end.

    positions <- store                                     claimed, so that a driver thought dead cannot commit
    for each batch:
        ranges  = [position, log end) of each partition
        store   still ours?                            else another driver is at work, and nothing is written
        sinks   write the ranges, except what they hold already
        store   <- ends of the ranges                      last, so that it is never ahead of a sink

After a crash at any moment the store is level with the sinks or before them, and the next run skips what they hold
already. There is no Spark checkpoint: the store alone says how far the job is.

A driver that was stopped and comes back, after another one has taken over, finds the store another's before its next
batch. If it is in the middle of one, the sinks refuse what is left of it; the driver to which the store belongs then
repeats a batch in which the other one was in its way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from math import inf
from queue import Empty, SimpleQueue

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console

from odradek.arguments import given_text
from odradek.errors import (
    CommitConflictError,
    JobError,
    OdradekError,
    OffsetStoreError,
    OffsetStoreUnavailableError,
    SinkError,
)
from odradek.offsets.store import OffsetStore, Position, Positions, open_store
from odradek.spark.open_transactions import TransactionWatch
from odradek.spark.options import EARLIEST, LATEST, OffsetSpec
from odradek.spark.pipeline.batch import Batch, cut, token
from odradek.spark.pipeline.console import ConsoleSink
from odradek.spark.pipeline.folder_topic import FolderTopicSink
from odradek.spark.pipeline.job import Job, ParquetSinkSpec, SinkSpec, TopicSinkSpec
from odradek.spark.pipeline.metrics import PipelineMetrics
from odradek.spark.pipeline.needed_columns import needed_columns
from odradek.spark.pipeline.parquet import ParquetSink
from odradek.spark.pipeline.python_sink import PythonSink
from odradek.spark.pipeline.run_note import LastBatch, LastError, RunNote, newest_note
from odradek.spark.pipeline.session import explain, open_session, register_udfs
from odradek.spark.pipeline.sink import FencedError, Sink, check_same_topic
from odradek.spark.pipeline.sink_specs import PythonSinkSpec, SparkSinkSpec
from odradek.spark.pipeline.spark_sink import SparkSink
from odradek.spark.ranges import (
    Bounds,
    OffsetRange,
    Topics,
    check_places,
    find_partitions,
    limited,
    resolve,
    within,
)
from odradek.spark.source_topics import open_topics
from odradek.storage.names import TopicPartition

STORE_PATIENCE_S = 60.0
STORE_RETRY_S = 0.5
_MOST_ATTEMPTS = 4
"""How often a batch is begun, as Spark does with tasks, if others take over what the sinks write."""


@dataclass(frozen=True)
class BatchReport:
    """What a batch did.

    Attributes:
        number: Its number in this run, from 1.
        ranges: What it read.
        end_offsets: The ends of the partitions when it was planned.
        positions: The positions of the partitions after it.
        seconds: How long it took.
        refused: How many records the sinks' targets did not take, and that were passed over or put aside.
        sink_seconds: How long each sink took, in their order, with its description.
    """

    number: int
    ranges: Sequence[OffsetRange]
    end_offsets: Mapping[TopicPartition, int]
    positions: Mapping[TopicPartition, Position]
    seconds: float
    refused: int = 0
    sink_seconds: Sequence[tuple[str, float]] = ()

    @property
    def offsets(self) -> int:
        """How many offsets it spanned."""
        return sum(part.end_offset - part.start_offset for part in self.ranges)

    @property
    def lags(self) -> dict[TopicPartition, int]:
        """How many offsets of each partition were left after it, up to `end_offsets`."""
        return {name: max(0, end - self.positions[name].offset) for name, end in self.end_offsets.items()}

    @property
    def lag(self) -> int:
        """How many offsets were left after it in all partitions."""
        return sum(self.lags.values())


class Pipeline:
    """A job that runs; a context manager.

    Args:
        job: What to do.
        spark: A session to use, or what gives one, called when there is something to read; by default one is started
            from the job's settings.
        on_step: Called with a few words before each step, such as starting Spark or writing a batch.
        console: Where console sinks print; by default stdout.
    """

    def __init__(
        self,
        job: Job,
        spark: SparkSession | Callable[[], SparkSession] | None = None,
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
        self._spark = spark
        self._stopping = False
        # A signal handler may always put into a SimpleQueue; an Event could deadlock with the interrupted thread.
        self._stops: SimpleQueue[None] = SimpleQueue()
        self._watch = TransactionWatch(self._options.isolation)
        self._note = RunNote()
        self._columns: frozenset[str] | None = None
        self.positions = Positions()

    def stop(self) -> None:
        """Make `run` return after the current batch. May be called from a signal handler or another thread."""
        self._stopping = True
        self._stops.put(None)

    def run(self, on_batch: Callable[[BatchReport], None] | None = None, *, follow_s: float | None = None) -> int:
        """Run batches until nothing is left, or, with a trigger interval, until `stop`.

        Args:
            on_batch: Called after each batch that was not empty.
            follow_s: With a trigger interval: end this many seconds after the first look at the source, and the batch
                that it may have led to.

        Returns:
            How many batches were not empty.

        Raises:
            OdradekError: The job, the source, a sink or the store cannot go on.
        """
        sinks: list[Sink] = []
        topics: Topics | None = None
        metrics: PipelineMetrics | None = None
        store = open_store(self.job.offset_store, self.job.offset_store_options)
        try:
            # Open the sinks first: if another pipeline holds one, this one must not claim that pipeline's store.
            for place, spec in enumerate(self.job.sinks):
                try:
                    sinks.append(_open_sink(spec, f"sink[{place}]", self.job, self._console))
                except OSError as error:
                    told = f"{error.filename}: {error.strerror}" if error.filename else str(error)
                    raise JobError(told, f"sink[{place}].path") from error
            if self.job.metrics is not None:
                metrics = PipelineMetrics(*self.job.metrics)
            self.positions = self._claim(store)
            for sink in sinks:
                sink.start(self.positions)
            self._note = newest_note(self.positions.values())
            spark = None if callable(self._spark) else self._spark
            target: dict[TopicPartition, int] | None = None
            number = 0
            last_start = inf
            while not self._stopping and time.monotonic() < last_start:
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
                ends_now = self.job.trigger_interval_ms is None and not planned.ranges
                at_end = [
                    name for name, held in planned.bounds.items() if self.positions[name].offset == held.end_offset
                ]
                self._watch.look(topics, at_end, at_once=ends_now)
                if metrics is not None:
                    metrics.measured(self.positions, planned.end_offsets)
                if planned.ranges:
                    if spark is None:
                        self._tell("starting Spark ...")
                        spark = self._spark() if callable(self._spark) else open_session(self.job)
                        # The time of a batch is without Spark's start.
                        started = time.monotonic()
                    if not number:
                        register_udfs(spark, self.job)
                        self._columns = None
                    offsets = sum(part.end_offset - part.start_offset for part in planned.ranges)
                    what = f"batch {number + 1}: {offsets:,} offsets"
                    self._tell(f"{what} ...")
                    refused = sum(sink.refused_records for sink in sinks)
                    sink_seconds = self._do_as_owner(store, spark, topics, sinks, planned, what)
                    refused = sum(sink.refused_records for sink in sinks) - refused
                    self._tell(f"{what}, storing its end ...")
                    self._commit(store, self._done(planned, offsets, time.monotonic() - started, refused))
                    number += 1
                    seconds = time.monotonic() - started
                    report = BatchReport(
                        number,
                        planned.ranges,
                        planned.end_offsets,
                        self.positions,
                        seconds,
                        refused,
                        sink_seconds,
                    )
                    if metrics is not None:
                        metrics.done(report)
                        metrics.measured(self.positions, planned.end_offsets)
                    if on_batch is not None:
                        on_batch(report)
                elif ends_now:
                    break
                if follow_s is not None and last_start == inf:
                    last_start = time.monotonic() + follow_s
                if self.job.trigger_interval_ms is not None:
                    next_start = min(started + self.job.trigger_interval_ms / 1000, last_start)
                    self._sleep(max(0.0, next_start - time.monotonic()))
            return number
        except (OdradekError, OSError) as error:
            self._store_error(store, error)
            raise
        finally:
            if metrics is not None:
                metrics.close()
            for sink in sinks:
                sink.close()
            if topics is not None:
                topics.close()
            store.close()

    def _done(self, planned: _Plan, offsets: int, seconds: float, refused: int) -> dict[TopicPartition, Position]:
        """Return the positions after a batch, with a note of it beside the first one."""
        last = LastBatch(_now_ms(), offsets, round(seconds, 3), refused)
        self._note = RunNote(last, self._note.error)
        batch = token(planned.ranges)
        done = {name: replace(planned.bounds[name].position(end), batch=batch) for name, _, end in planned.ranges}
        first = min(done)
        done[first] = replace(done[first], note=self._note.text())
        return done

    def _store_error(self, store: OffsetStore, error: Exception) -> None:
        """Let the store say how the run ended, for `odradek pipeline status`."""
        if not self.positions or isinstance(error, OffsetStoreError):
            return
        first = min(self.positions)
        note = RunNote(self._note.batch, LastError(_now_ms(), str(error)))
        # What ends the run is the error; that it cannot be stored adds nothing.
        with suppress(OffsetStoreError):
            store.commit({first: replace(self.positions[first], note=note.text())}, expected=self.positions)

    def _tell(self, step: str) -> None:
        if self._on_step is not None:
            self._on_step(step)

    def _sleep(self, seconds: float) -> None:
        with suppress(Empty):
            self._stops.get(timeout=seconds)

    def _claim(self, store: OffsetStore) -> Positions:
        """Claim the group."""
        return self._while_away(store.claim)

    def _check_owner(self, store: OffsetStore, found: Positions) -> None:
        """Check that the store was found as this driver left it: no other one has claimed the group since.

        Raises:
            CommitConflictError: One has.
        """
        if found.version != self.positions.version:
            raise CommitConflictError(store.address, self.positions.version, found.version)

    def _while_away(self, ask: Callable[[], Positions]) -> Positions:
        """Ask the store; retry while it cannot be reached."""
        deadline = time.monotonic() + STORE_PATIENCE_S
        while True:
            try:
                return ask()
            except OffsetStoreUnavailableError as error:
                if self._stopping or time.monotonic() > deadline:
                    raise
                self._tell(f"waiting for the offset store: {error}")
            self._sleep(STORE_RETRY_S)

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
        stored = {name: self.positions[name] for name in asked_for if name in self.positions}
        check_places(topics, bounds, stored, fail_on_data_loss=self._options.fail_on_data_loss)
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
        return _Plan(limited(kept, self.job.max_offsets_per_batch), ends, first, bounds)

    def _first_positions(
        self, topics: Topics, bounds: Mapping[TopicPartition, Bounds]
    ) -> dict[TopicPartition, Position]:
        """Return the starting positions of partitions without a position."""
        new = {name: held for name, held in bounds.items() if name not in self.positions}
        if not new:
            return {}
        if len(self.positions):
            # The group has begun: a new partition, or topic, is read from its start.
            return {name: held.position(held.start_offset) for name, held in new.items()}
        reset = self.job.reset
        if reset == "none":
            raise JobError(f"the group has no positions for {', '.join(map(str, new))}, and offsets.reset is none")
        if isinstance(reset, int):
            spec = OffsetSpec(timestamp=reset)
        else:
            spec = OffsetSpec(EARLIEST if reset == "earliest" else LATEST)
        offsets = resolve(spec, "offsets.reset", topics, new, end_for_later_times=True)
        return {name: new[name].position(offset) for name, offset in offsets.items()}

    def _do_as_owner(
        self,
        store: OffsetStore,
        spark: SparkSession,
        topics: Topics,
        sinks: Sequence[Sink],
        planned: _Plan,
        what: str,
    ) -> list[tuple[str, float]]:
        """Let the sinks write a batch, unless another driver has taken over; return how long each took."""
        for attempt in range(_MOST_ATTEMPTS):
            self._check_owner(store, self._while_away(store.load))
            try:
                return self._do(spark, topics, sinks, planned, what)
            except (OdradekError, Py4JError, PySparkException, ConnectionError) as error:
                # What another driver did may look like any error.
                try:
                    found = store.load()
                except OffsetStoreError:
                    found = self.positions
                self._check_owner(store, found)
                if not isinstance(error, OdradekError):
                    raise explain(error) from error
                if not isinstance(error, FencedError) or attempt + 1 == _MOST_ATTEMPTS:
                    raise
        raise AssertionError

    def _do(
        self, spark: SparkSession, topics: Topics, sinks: Sequence[Sink], planned: _Plan, what: str
    ) -> list[tuple[str, float]]:
        """Let the sinks write a batch; return how long each took."""
        sink_seconds: list[tuple[str, float]] = []
        ranges = planned.ranges
        topic_ids = {name: held.topic_id for name, held in planned.bounds.items()}
        stored = {name: self.positions[name].offset for name, _, _ in ranges}
        defined: Batch | None = None
        # One plan for all sinks: planning takes longer than reading a small batch.
        whole_partitions = any(sink.wants_whole_partitions for sink in sinks)
        with ExitStack() as views:
            for number, sink in enumerate(sinks):
                self._tell(f"{what}, {sink.description} ...")
                started = time.monotonic()
                held = sink.positions()
                for name, _, _ in ranges:
                    place = held.get(name)
                    if place is None:
                        continue
                    check_same_topic(sink.description, name, place, topic_ids[name])
                    if place.offset > (end := planned.bounds[name].end_offset):
                        # Passed over, the next records would be lost.
                        raise SinkError(
                            f"{sink.description} says that it holds {name} up to offset {place.offset}, and the "
                            f"partition ends at {end}: it holds records of another log of that name, or of one that "
                            "was cut"
                        )
                    # Records between the stored position and the range were lost, and failOnDataLoss=false skips them.
                    if place.offset < stored[name]:
                        raise SinkError(
                            f"{sink.description} ends at offset {place.offset} of {name}, and the offset store says "
                            f"that everything below {stored[name]} is done: set the store back to {place.offset}, or "
                            "remove the sink's files and start over"
                        )
                left = cut(ranges, {name: place.offset for name, place in held.items()})
                # A sink that holds the whole batch already still defines views, over the ranges that the others write.
                if self._columns is None:
                    # Once a run: in each batch the views are the same.
                    self._columns = needed_columns(spark, self.job, sinks)
                batch = Batch(
                    self.job, spark, left or ranges, topics, whole_partitions, topic_ids, stored, self._columns
                )
                if batch != defined:
                    views.close()
                    views.enter_context(batch.views())
                    defined = batch
                try:
                    if left:
                        sink.write(batch)
                    sink.define_views(spark)
                except (Py4JError, PySparkException) as error:
                    raise explain(error, f"sink[{number}]") from error
                sink_seconds.append((sink.description, time.monotonic() - started))
        return sink_seconds


@dataclass(frozen=True)
class _Plan:
    """A planned batch: its ranges, the ends they were cut from, positions to store before it, and what there is."""

    ranges: list[OffsetRange]
    end_offsets: dict[TopicPartition, int]
    first: dict[TopicPartition, Position]
    bounds: dict[TopicPartition, Bounds]


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


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _open_sink(spec: SinkSpec, key: str, job: Job, console: Console | None) -> Sink:
    if isinstance(spec, ParquetSinkSpec):
        return ParquetSink(spec)
    if isinstance(spec, PythonSinkSpec):
        return PythonSink(spec, key)
    if isinstance(spec, SparkSinkSpec):
        return SparkSink(spec, key)
    if isinstance(spec, TopicSinkSpec) and spec.path is not None:
        return FolderTopicSink(spec, job.owner(spec))
    if isinstance(spec, TopicSinkSpec):
        from odradek.spark.pipeline.topic import TopicSink

        return TopicSink(spec, job.owner(spec))
    return ConsoleSink(spec, console)
