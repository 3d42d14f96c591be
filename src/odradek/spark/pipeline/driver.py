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
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from math import inf

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console

from odradek.arguments import given_text
from odradek.errors import JobError, OdradekError, SinkError
from odradek.offsets.store import Positions, open_store
from odradek.spark.open_transactions import TransactionWatch
from odradek.spark.pipeline.batch import Batch, cut, token
from odradek.spark.pipeline.batch_report import BatchReport
from odradek.spark.pipeline.claimed_store import ClaimedStore, StopRequest
from odradek.spark.pipeline.console import ConsoleSink
from odradek.spark.pipeline.folder_topic import FolderTopicSink
from odradek.spark.pipeline.job import Job, ParquetSinkSpec, SinkSpec, TopicSinkSpec
from odradek.spark.pipeline.metrics import PipelineMetrics
from odradek.spark.pipeline.needed_columns import needed_columns
from odradek.spark.pipeline.parquet import ParquetSink
from odradek.spark.pipeline.planning import BatchPlan, plan
from odradek.spark.pipeline.python_sink import PythonSink
from odradek.spark.pipeline.session import explain, open_session, register_udfs
from odradek.spark.pipeline.sink import FencedError, Sink, check_held, check_same_topic
from odradek.spark.pipeline.sink_specs import PythonSinkSpec, SparkSinkSpec
from odradek.spark.pipeline.spark_sink import SparkSink
from odradek.spark.pipeline.state_folder import StateFolder
from odradek.spark.pipeline.stateful import StatefulRun
from odradek.spark.ranges import Topics
from odradek.spark.source_topics import open_topics
from odradek.storage.names import TopicPartition

_MOST_ATTEMPTS = 4
"""How often a batch is begun, as Spark does with tasks, if others take over what the sinks write."""


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
        self._stopping = StopRequest()
        self._watch = TransactionWatch(self._options.isolation)
        self._columns: frozenset[str] | None = None
        self._store: ClaimedStore | None = None

    @property
    def positions(self) -> Positions:
        """The positions that it has stored, or found when it started; none before."""
        return Positions() if self._store is None else self._store.positions

    def stop(self) -> None:
        """Make `run` return after the current batch. May be called from a signal handler or another thread."""
        self._stopping.make()

    def run(self, on_batch: Callable[[BatchReport], None] | None = None, *, follow_s: float | None = None) -> int:
        """Run batches until nothing is left, or, with a trigger interval, until `stop`.

        Args:
            on_batch: Called after each batch that was not empty. What it finds in the job's views is no part of the
                interface: columns that no sink needs are null there.
            follow_s: With a trigger interval: end this many seconds after the first look at the source, and the batch
                that it may have led to.

        Returns:
            How many batches were not empty.

        Raises:
            OdradekError: The job, the source, a sink or the store cannot go on.
        """
        sinks: list[Sink] = []
        metrics: PipelineMetrics | None = None
        state: StateFolder | None = None
        topics: Topics | None = None
        opened = open_store(self.job.offset_store, self.job.offset_store_options)
        store = self._store = ClaimedStore(opened, self._stopping, self._tell)
        try:
            # Open the sinks first: if another pipeline holds one, this one must not claim that pipeline's store.
            for place, spec in enumerate(self.job.sinks):
                try:
                    sinks.append(_open_sink(spec, f"sink[{place}]", self.job, self._console))
                except OSError as error:
                    told = f"{error.filename}: {error.strerror}" if error.filename else str(error)
                    raise JobError(told, f"sink[{place}].path") from error
            if self.job.state is not None:
                state = StateFolder(self.job.state.path)
            if self.job.metrics is not None:
                metrics = PipelineMetrics(*self.job.metrics)
            store.claim()
            topics = open_topics(self._options)

            def report(batch: BatchReport) -> None:
                if metrics is not None:
                    metrics.done(batch)
                    metrics.measured(batch.positions, batch.end_offsets)
                if on_batch is not None:
                    on_batch(batch)

            if state is None:
                for sink in sinks:
                    sink.start(store.positions)
                return self._run_batches(store, topics, sinks, metrics, report, follow_s)
            run = StatefulRun(
                self.job,
                state,
                store,
                topics,
                sinks,
                self._stopping,
                on_step=self._tell,
                on_look=(lambda *measured: None) if metrics is None else metrics.measured,
                on_batch=report,
            )
            return run.run(self._session, follow_s)
        except (OdradekError, OSError) as error:
            store.note_error(error)
            raise
        finally:
            if metrics is not None:
                metrics.close()
            for sink in sinks:
                sink.close()
            if state is not None:
                state.close()
            if topics is not None:
                topics.close()
            store.close()

    def _run_batches(
        self,
        store: ClaimedStore,
        topics: Topics,
        sinks: Sequence[Sink],
        metrics: PipelineMetrics | None,
        report: Callable[[BatchReport], None],
        follow_s: float | None,
    ) -> int:
        """Plan and do batches; return how many were not empty."""
        spark = None if callable(self._spark) else self._spark
        target: dict[TopicPartition, int] | None = None
        number = 0
        last_start = inf
        is_first_look = True
        while not self._stopping.is_made and time.monotonic() < last_start:
            started = time.monotonic()
            if not is_first_look:
                topics.refresh()
            is_first_look = False
            planned = plan(self.job, topics, store.positions, target)
            if self.job.trigger_interval_ms is None and target is None:
                # Stop at what is there now: a source that keeps growing would never be done.
                target = planned.end_offsets
            if planned.first:
                check_held(sinks, planned.first)
                store.commit(planned.first)
            ends_now = self.job.trigger_interval_ms is None and not planned.ranges
            at_end = [name for name, held in planned.bounds.items() if store.positions[name].offset == held.end_offset]
            self._watch.look(topics, at_end, at_once=ends_now)
            if metrics is not None:
                metrics.measured(store.positions, planned.end_offsets)
            if planned.ranges:
                if spark is None:
                    spark = self._session()
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
                batch = token(planned.ranges)
                ends = {
                    name: replace(planned.bounds[name].position(end), batch=batch) for name, _, end in planned.ranges
                }
                store.commit(store.done(ends, offsets, time.monotonic() - started, refused))
                number += 1
                seconds = time.monotonic() - started
                report(
                    BatchReport(
                        number, planned.ranges, planned.end_offsets, store.positions, seconds, refused, sink_seconds
                    )
                )
            elif ends_now:
                break
            if follow_s is not None and last_start == inf:
                last_start = time.monotonic() + follow_s
            if self.job.trigger_interval_ms is not None:
                next_start = min(started + self.job.trigger_interval_ms / 1000, last_start)
                self._stopping.sleep(max(0.0, next_start - time.monotonic()))
        return number

    def _session(self) -> SparkSession:
        """Return the session, which may have to be started."""
        if self._spark is not None and not callable(self._spark):
            return self._spark
        self._tell("starting Spark ...")
        return open_session(self.job) if self._spark is None else self._spark()

    def _tell(self, step: str) -> None:
        if self._on_step is not None:
            self._on_step(step)

    def _do_as_owner(
        self,
        store: ClaimedStore,
        spark: SparkSession,
        topics: Topics,
        sinks: Sequence[Sink],
        planned: BatchPlan,
        what: str,
    ) -> list[tuple[str, float]]:
        """Let the sinks write a batch, unless another driver has taken over; return how long each took."""
        for attempt in range(_MOST_ATTEMPTS):
            store.check_owner()
            try:
                return self._do(store, spark, topics, sinks, planned, what)
            except (OdradekError, Py4JError, PySparkException, ConnectionError) as error:
                # What another driver did may look like any error.
                store.check_owner(patiently=False)
                if not isinstance(error, OdradekError):
                    raise explain(error) from error
                if not isinstance(error, FencedError) or attempt + 1 == _MOST_ATTEMPTS:
                    raise
        raise AssertionError

    def _do(
        self,
        store: ClaimedStore,
        spark: SparkSession,
        topics: Topics,
        sinks: Sequence[Sink],
        planned: BatchPlan,
        what: str,
    ) -> list[tuple[str, float]]:
        """Let the sinks write a batch; return how long each took."""
        sink_seconds: list[tuple[str, float]] = []
        ranges = planned.ranges
        topic_ids = {name: held.topic_id for name, held in planned.bounds.items()}
        stored = {name: store.positions[name].offset for name, _, _ in ranges}
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
