"""The driver of a pipeline: every sink writes a batch before the offset store takes the batch's end.

    positions <- store                                     claimed, so that a driver thought dead cannot commit
    for each batch:
        ranges  = [position, log end) of each partition
        store   still ours?                            else another driver is at work, and nothing is written
        sinks   write the ranges, except what they hold already
        store   <- ends of the ranges                      last, so that it is never ahead of a sink

After a crash at any moment the store is level with the sinks or before them, and the next run skips what they hold
already. There is no Spark checkpoint: the store alone says how far the job is.

A driver that was paused, and continues after another driver has taken over, notices that before its next batch: the
store is not its own any more. If it is in the middle of a batch, the sinks refuse the rest of it; the driver that owns
the store repeats a batch that the paused driver disturbed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from math import inf

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console

from odradek.arguments import given_text
from odradek.errors import JobError, OdradekError, SinkError
from odradek.offsets.known_beside import OTHER_PROGRAM
from odradek.offsets.store import OffsetStore, Position, Positions, is_same_topic, open_store
from odradek.printable import logger
from odradek.spark.connect import NOT_BY_CONNECT
from odradek.spark.open_transactions import TransactionWatch
from odradek.spark.pipeline.batch import Batch, cut, token
from odradek.spark.pipeline.batch_report import BatchReport
from odradek.spark.pipeline.claimed_store import ClaimedStore, StopRequest
from odradek.spark.pipeline.console import ConsoleSink
from odradek.spark.pipeline.folder_topic import FolderTopicSink
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.metrics import JobMetrics
from odradek.spark.pipeline.needed_columns import needed_columns
from odradek.spark.pipeline.observer import Observers
from odradek.spark.pipeline.observers import observed
from odradek.spark.pipeline.parquet import ParquetSink
from odradek.spark.pipeline.planning import BatchPlan, plan
from odradek.spark.pipeline.poison import by_partition, may_be_of_a_record, put_aside
from odradek.spark.pipeline.preparing import prepare
from odradek.spark.pipeline.python_sink import PythonSink
from odradek.spark.pipeline.restarts import FAILURES, WorkerEndedError
from odradek.spark.pipeline.run import Run
from odradek.spark.pipeline.session import explain, explained, open_session
from odradek.spark.pipeline.sink import FencedError, Sink, check_held, check_same_topic
from odradek.spark.pipeline.sink_specs import ParquetSinkSpec, PythonSinkSpec, SinkSpec, SparkSinkSpec, TopicSinkSpec
from odradek.spark.pipeline.spark_sink import SparkSink
from odradek.spark.pipeline.state_folder import StateFolder
from odradek.spark.pipeline.stateful import StatefulRun
from odradek.spark.pipeline.traces import batch_attributes
from odradek.spark.ranges import OffsetRange, cut_places, position_at
from odradek.spark.source_topics import open_topics
from odradek.storage.names import TopicPartition

_LOG = logger(__name__)

_CUT = "cut at "
"""What the batch of a position begins with until the sinks are set back to the offset that follows."""

_MOST_ATTEMPTS = 4
"""How often a batch is tried, as Spark tries tasks, if another driver takes over what the sinks write."""


class Pipeline:
    """A job that runs; a context manager.

    Args:
        job: What to do.
        spark: A session to use, or what gives one, called when there is something to read; by default one is started
            from the job's settings.
        on_step: Called with a few words before each step, such as starting Spark or writing a batch.
        console: Where console sinks print; by default stdout.
        on_restart: Called before a job that failed is started again, with the error and the seconds until then.

    Attributes:
        metrics: The job's metrics, if it shares the address of `[metrics]` with other jobs; by default `run` opens it.
    """

    def __init__(
        self,
        job: Job,
        spark: SparkSession | Callable[[], SparkSession] | None = None,
        *,
        on_step: Callable[[str], None] | None = None,
        console: Console | None = None,
        on_restart: Callable[[Exception, float], None] | None = None,
    ) -> None:
        if not isinstance(job, Job):
            raise TypeError(f"job must be a Job, as Job.read returns it, not {given_text(job)}")
        if spark is not None and not callable(spark) and not isinstance(spark, SparkSession):
            raise TypeError(f"spark must be a SparkSession, not {given_text(spark)}: {NOT_BY_CONNECT}")
        self.job = job
        self.metrics: JobMetrics | None = None
        self._on_step = on_step
        self._on_restart = on_restart
        self._console = console
        self._options = job.source_options()
        self._spark = spark
        self._stopping = StopRequest()
        self._watch = TransactionWatch(self._options.isolation)
        self._store: ClaimedStore | None = None
        self._lost_workers = 0

    @property
    def positions(self) -> Positions:
        """The positions that it has stored, or found when it started; none before."""
        return Positions() if self._store is None else self._store.positions

    def stop(self) -> None:
        """Make `run` return after the current batch. May be called from a signal handler or another thread."""
        self._stopping.make()

    def run(self, on_batch: Callable[[BatchReport], None] | None = None, *, follow_s: float | None = None) -> int:
        """Run batches until nothing is left, or, with a trigger interval, until `stop`; see `restarts` for failures.

        Args:
            on_batch: Called after each batch that was not empty. What it finds in the job's views is no part of the
                interface: columns that no sink needs are null there.
            follow_s: With a trigger interval: end this many seconds after the first look at the source, and the batch
                that it may have led to.

        Returns:
            How many batches were not empty.

        Raises:
            OdradekError: The job, the source, a sink or the store failed.
        """
        done = failures = 0

        def report(batch: BatchReport) -> None:
            nonlocal done, failures
            done, failures, self._lost_workers = done + 1, 0, 0
            if on_batch is not None:
                on_batch(replace(batch, number=done))

        with observed(self.job, self.metrics) as observers:
            while True:
                try:
                    with observers.run():
                        self._run(report, follow_s, observers)
                except FAILURES as error:
                    failures += 1
                    self._lost_workers = self._lost_workers + 1 if isinstance(error, WorkerEndedError) else 0
                    wait_s = self.job.restart.wait_s(error, failures)
                    if wait_s is None or self._stopping.is_made:
                        raise
                    if self._on_restart is not None:
                        self._on_restart(error, wait_s)
                    self._report_step("waiting to start again ...")
                    self._stopping.sleep(wait_s)
                    if self._stopping.is_made:
                        # The job is not done, and has not recovered since.
                        raise
                else:
                    return done

    def _run(self, on_batch: Callable[[BatchReport], None], follow_s: float | None, observers: Observers) -> None:
        opened = open_store(self.job.offset_store, self.job.offset_store_options)
        store = self._store = self._claimed(opened)
        with ExitStack() as open_ones:
            open_ones.callback(store.close)
            try:
                run = self._open(store, on_batch, open_ones, observers)
                run.run(self._session, follow_s)
            except (OdradekError, OSError) as error:
                store.note_error(error)
                raise

    def _claimed(self, opened: OffsetStore) -> ClaimedStore:
        return ClaimedStore(opened, self._stopping, self._report_step)

    def _kind(self) -> Callable[..., PlainRun | StatefulRun]:
        """Return what makes a run of a job without state."""
        return PlainRun

    def _open_sink(self, spec: SinkSpec, key: str) -> Sink:
        return open_sink(spec, key, self.job, self._console)

    def _open(
        self, store: ClaimedStore, on_batch: Callable[[BatchReport], None], open_ones: ExitStack, observers: Observers
    ) -> PlainRun | StatefulRun:
        """Open what a run needs, and claim the store."""
        job = self.job
        sinks: list[Sink] = []
        letters: Sink | None = None
        kind = self._kind()
        # Open the sinks first: if another pipeline holds one, this one must not claim that pipeline's store.
        for place, spec in enumerate(job.sinks):
            try:
                sinks.append(self._open_sink(spec, f"sink[{place}]"))
            except OSError as error:
                told = f"{error.filename}: {error.strerror}" if error.filename else str(error)
                raise JobError(told, f"sink[{place}].path") from error
            open_ones.callback(sinks[-1].close)
        if job.dead_letters is not None:
            letters = self._open_sink(job.dead_letters, "dead_letters")
            open_ones.callback(letters.close)
        if job.state is not None:
            state = StateFolder(job.state.path)
            open_ones.callback(state.close)
            kind = partial(StatefulRun, state=state)
        store.claim()
        if store.may_be_elsewhere:
            _LOG.warning("%s has no positions: the job begins at offsets.reset, %s", store.address, job.reset)
        topics = open_topics(self._options)
        open_ones.callback(topics.close)

        def report(batch: BatchReport) -> None:
            observers.done(batch)
            observers.looked(topics, batch.positions, batch.end_offsets)
            on_batch(batch)

        return kind(
            job=job,
            store=store,
            topics=topics,
            sinks=sinks,
            letters=letters,
            watch=self._watch,
            stopping=self._stopping,
            on_step=self._report_step,
            on_look=partial(observers.looked, topics),
            on_batch=report,
            span=observers.span,
            lost_workers=self._lost_workers,
        )

    def _session(self) -> SparkSession:
        """Return the session, which may have to be started."""
        if self._spark is not None and not callable(self._spark):
            return self._spark
        self._report_step("starting Spark ...")
        return open_session(self.job) if self._spark is None else self._spark()

    def _report_step(self, step: str) -> None:
        if self._on_step is not None:
            self._on_step(step)


class PlainRun(Run):
    """One run of a job without state: batch after batch, each with views and sinks of its own."""

    _columns: frozenset[str] | None = None
    _put_aside_records = 0

    def run(self, session: Callable[[], SparkSession], follow_s: float | None) -> None:
        """Plan and do batches.

        Args:
            session: Returns the Spark session; called if there is something to read.
            follow_s: With a trigger interval: end this many seconds after the first look at the source.
        """
        for sink in self.sinks:
            sink.start(self.store.positions)
        self._set_sinks_back()
        spark: SparkSession | None = None
        target: dict[TopicPartition, int] | None = None
        interval_ms = self.job.trigger_interval_ms
        last_start = inf
        is_first_look = True
        while not self.stopping.is_made and time.monotonic() < last_start:
            started = time.monotonic()
            if not is_first_look:
                self.topics.refresh()
            planned = plan(self.job, self.topics, self.store.positions, target)
            # Only one that was killed leaves sinks ahead of the store.
            below, reached = self._cut_below_sinks(planned) if is_first_look else ({}, {})
            cut = {**planned.cut, **below}
            is_first_look = False
            if interval_ms is None and target is None:
                # Stop at what is there now: a source that keeps growing would never be done.
                target = planned.end_offsets
            if planned.first:
                check_held(self.sinks, planned.first)
                self.store.commit(planned.first)
            if cut:
                self._go_on_after_cuts(cut, reached)
            ends_now = interval_ms is None and not planned.ranges
            positions = self.store.positions
            at_end = [name for name, held in planned.bounds.items() if positions[name].offset == held.end_offset]
            self.watch.look(self.topics.open_transactions, at_end, at_once=ends_now)
            self.on_look(positions, planned.end_offsets)
            if planned.ranges:
                if spark is None:
                    spark = session()
                    # The time of a batch is without Spark's start.
                    started = time.monotonic()
                    prepare(spark, self.job)
                with self.span("batch", attributes=batch_attributes(self.job, planned.ranges)):
                    self._batch(spark, planned, started)
            elif ends_now:
                break
            if follow_s is not None and last_start == inf:
                last_start = time.monotonic() + follow_s
            if interval_ms is not None:
                next_start = min(started + interval_ms / 1000, last_start)
                self.stopping.sleep(max(0.0, next_start - time.monotonic()))

    def _cut_below_sinks(self, planned: BatchPlan) -> tuple[dict[TopicPartition, Position], dict[TopicPartition, int]]:
        """Return the ends of logs that end before what a sink holds, if that is no error, and up to where it does."""
        ends: dict[TopicPartition, Position] = {}
        reached: dict[TopicPartition, int] = {}
        for sink in () if self.job.source_options().fail_on_data_loss else self.all_sinks:
            held = sink.held(planned.bounds)
            own = {name: at for name, at in held.items() if is_same_topic(at.topic_id, planned.topic_ids[name])}
            for name, end in cut_places(self.topics, planned.bounds, own).items():
                ends[name] = end
                reached[name] = max(own[name].offset, reached.get(name, 0))
        return ends, reached

    def _go_on_after_cuts(self, ends: Mapping[TopicPartition, Position], reached: Mapping[TopicPartition, int]) -> None:
        """Go on at the ends of logs that were cut, in the store and in the sinks.

        Sinks would take new records for those they hold. The store says first where the ends are: who is killed on the
        way finds them there, however the logs have grown since.

        Args:
            ends: The ends.
            reached: Up to where sinks that are ahead of the store hold records.
        """
        before = {name: self.store.positions[name] for name in ends}
        places = {
            name: replace(min(end, before[name], key=lambda place: place.offset), batch=f"{_CUT}{end.offset}")
            for name, end in ends.items()
        }
        spans = {name: (end.offset, max(before[name].offset, reached.get(name, 0))) for name, end in ends.items()}
        what = self.tell_loss(spans)
        self.store.commit(self.store.noted(places))
        _LOG.warning(what)
        self._set_sinks_back()

    def _set_sinks_back(self) -> None:
        """Set sinks back to where the store says that logs were cut."""
        places = {name: at for name, at in self.store.positions.items() if at.batch and at.batch.startswith(_CUT)}
        if not places:
            return
        self.set_back(
            {
                name: replace(at, offset=int(str(at.batch).removeprefix(_CUT)), batch=None)
                for name, at in places.items()
            },
            self.all_sinks,
        )
        self.store.commit({name: replace(at, batch=None) for name, at in places.items()})

    def _batch(self, spark: SparkSession, planned: BatchPlan, started: float) -> None:
        """Do a batch, and store its end."""
        offsets = sum(part.end_offset - part.start_offset for part in planned.ranges)
        what = f"batch {self.number + 1}: {offsets:,} offsets"
        self.on_step(f"{what} ...")
        refused = self._refused_records()
        sink_seconds = self._do_as_owner(spark, planned, what)
        refused = self._refused_records() - refused
        self.on_step(f"{what}, storing its end ...")
        batch = token(planned.ranges)
        ends = {name: replace(position_at(planned.bounds[name], end), batch=batch) for name, _, end in planned.ranges}
        with self.span("commit"):
            self.store.commit(self.store.done(ends, offsets, time.monotonic() - started, refused))
        self.number += 1
        seconds, positions = time.monotonic() - started, self.store.positions
        self.on_batch(
            BatchReport(self.number, planned.ranges, planned.end_offsets, positions, seconds, refused, sink_seconds)
        )

    def _refused_records(self) -> int:
        return self._put_aside_records + sum(sink.refused_records for sink in self.sinks)

    def _do_as_owner(self, spark: SparkSession, planned: BatchPlan, what: str) -> list[tuple[str, float]]:
        """Let the sinks write a batch, unless another driver has taken over; return how long each took."""
        excluded: Mapping[TopicPartition, frozenset[int]] = {}
        for attempt in range(_MOST_ATTEMPTS):
            self.store.check_owner()
            try:
                return self._do(spark, planned, what, excluded)
            except (OdradekError, Py4JError, PySparkException, ConnectionError) as error:
                # The acts of another driver may look like any error.
                self.store.check_owner(patiently=False)
                if not isinstance(error, OdradekError):
                    raise explain(error) from error
                if not excluded and may_be_of_a_record(error, ends_worker=self.may_end_worker):
                    excluded = self._put_aside(error, spark, planned, what)
                elif not isinstance(error, FencedError) or attempt + 1 == _MOST_ATTEMPTS:
                    raise
        raise AssertionError

    def _put_aside(
        self, error: OdradekError, spark: SparkSession, planned: BatchPlan, what: str
    ) -> Mapping[TopicPartition, frozenset[int]]:
        """Return the offsets of the records for which the views fail, after they went to the dead letters."""
        batch = Batch(self.job, spark, planned.ranges, self.topics, topic_ids=planned.topic_ids, columns=self._columns)
        found = put_aside(
            error, batch, self.letters, lambda step: self.on_step(f"{what}, {step}"), ends_worker=self.may_end_worker
        )
        self._put_aside_records += len(found)
        return by_partition(found)

    def _do(
        self,
        spark: SparkSession,
        planned: BatchPlan,
        what: str,
        excluded: Mapping[TopicPartition, frozenset[int]],
    ) -> list[tuple[str, float]]:
        """Let the sinks write a batch without some records; return how long each took."""
        sink_seconds: list[tuple[str, float]] = []
        ranges = planned.ranges
        stored = self._stored_offsets(planned)
        defined: Batch | None = None
        # One plan for all sinks: planning takes longer than reading a small batch.
        whole_partitions = any(sink.wants_whole_partitions for sink in self.sinks)
        with ExitStack() as views:
            for number, sink in enumerate(self.sinks):
                self.on_step(f"{what}, {sink.description} ...")
                started = time.monotonic()
                left = self._left(number, planned, stored)
                # A sink that holds the whole batch already still defines views, over the ranges that the others write.
                if self._columns is None:
                    # Once a run: in each batch the views are the same.
                    self._columns = needed_columns(spark, self.job, self.sinks)
                batch = Batch(
                    self.job,
                    spark,
                    left or ranges,
                    self.topics,
                    whole_partitions,
                    planned.topic_ids,
                    stored,
                    self._columns,
                    excluded,
                    self.span,
                )
                if batch != defined:
                    views.close()
                    views.enter_context(batch.views())
                    defined = batch
                with explained(f"sink[{number}]"), self.span(f"sink {sink.description}"):
                    if left:
                        sink.write(batch)
                        self._note_written(number, left)
                    sink.define_views(spark)
                sink_seconds.append((sink.description, time.monotonic() - started))
        return sink_seconds

    def _stored_offsets(self, planned: BatchPlan) -> dict[TopicPartition, int]:
        """Return up to where the store says that the sinks hold everything."""
        places = {name: self.store.positions[name] for name, _, _ in planned.ranges}
        # What is below a position that another program has set, that program has done: no sink of ours holds it.
        return {name: 0 if place.batch == OTHER_PROGRAM else place.offset for name, place in places.items()}

    def _left(self, number: int, planned: BatchPlan, stored: Mapping[TopicPartition, int]) -> list[OffsetRange]:
        """Return what a sink, by its number, does not hold of a batch."""
        held = _checked(self.sinks[number], planned, stored)
        return cut(planned.ranges, {name: place.offset for name, place in held.items()})

    def _note_written(self, number: int, ranges: Sequence[OffsetRange]) -> None:
        """Take note of what a sink, by its number, has written: nothing, as it says so itself."""


def _checked(sink: Sink, planned: BatchPlan, stored: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Position]:
    """Return what a sink holds, after a check that it fits what is planned and stored."""
    held = sink.positions()
    for name, _, _ in planned.ranges:
        place = held.get(name)
        if place is None:
            continue
        check_same_topic(sink.description, name, place, planned.topic_ids[name])
        if place.offset > (end := planned.bounds[name].end_offset):
            # Skipping them would lose the records after them.
            raise SinkError(
                f"{sink.description} says that it holds {name} up to offset {place.offset}, and the partition ends at "
                f"{end}: it holds records of another log of that name, or of one that was cut"
            )
        # Records between the stored position and the range were lost, and failOnDataLoss=false skips them.
        if place.offset < stored[name]:
            raise SinkError(
                f"{sink.description} ends at offset {place.offset} of {name}, and the offset store says that "
                f"everything below {stored[name]} is done: set the store back to {place.offset}, or remove the sink's "
                "files and start over"
            )
    return held


def open_sink(spec: SinkSpec, key: str, job: Job, console: Console | None = None) -> Sink:
    """Open a sink of a job; `key` is where the job's file has it."""
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
