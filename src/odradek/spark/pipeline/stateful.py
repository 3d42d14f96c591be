"""Runs a job whose views keep state from batch to batch: Spark's own streaming state, beside the offset store.

    offsets/N     Spark plans batch N of the streaming query          see `state_folder`
    state         the rows of the state's view are computed           once: they are kept until the batch is done
    store         still ours, and at the start of batch N?            else nothing is written
    sinks         write the rows
    store         <- the end of batch N
    commits/N     Spark says that batch N is done

A crash before the last step leaves a batch that Spark repeats, with the same offsets, watermark and state. If the store
has its end, the sinks are skipped; if a sink has it, that sink is. So as long as the queries give the same rows again,
nothing is lost, and nothing is written twice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from odradek.errors import JobError, OdradekError, SinkError
from odradek.offsets.store import Position
from odradek.printable import logger
from odradek.spark.pipeline.batch import Batch, is_one_of, transformed
from odradek.spark.pipeline.batch_report import BatchReport
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.lineage import items, kind_of
from odradek.spark.pipeline.planning import plan
from odradek.spark.pipeline.poison import PoisonRecord, by_partition, may_be_of_a_record, put_aside
from odradek.spark.pipeline.preparing import prepare
from odradek.spark.pipeline.run import Run
from odradek.spark.pipeline.session import SPARK_FAILURES, explain, explained
from odradek.spark.pipeline.shared_views import shared_views
from odradek.spark.pipeline.sink import Sink, check_held, check_same_topic
from odradek.spark.pipeline.state_folder import StateFolder
from odradek.spark.pipeline.traces import batch_attributes
from odradek.spark.pipeline.value_format import RECORDS_VIEW
from odradek.spark.pipeline.values import with_values
from odradek.spark.ranges import OffsetRange
from odradek.spark.stream import FIRST_OFFSETS
from odradek.storage.names import TopicPartition

_LOG = logger(__name__)
_LOOK_S = 0.2
_COMMIT_PATIENCE_S = 30.0
_CALLBACK_LOG = logging.getLogger("py4j.clientserver")
_PARTITIONS = "spark.sql.shuffle.partitions"
_QUERY_LOG = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"


class _EndError(Exception):
    """Ends a query from within its batch."""


class _RowsError(Exception):
    """Ends a query whose batch may have records that fail."""

    def __init__(self, error: JobError, number: int, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(str(error))
        self.error = error
        self.number = number
        self.ranges = ranges


def _is_unknown(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], _EndError))


# The run itself says why it has ended.
_CALLBACK_LOG.addFilter(_is_unknown)


@dataclass(kw_only=True)
class StatefulRun(Run):
    """One run of a job with state.

    Attributes:
        state: The folder of its state.
    """

    state: StateFolder

    def __post_init__(self) -> None:
        self._options = self.job.source_options()
        self._streaming, self._later = self.job.stateful_transforms()
        # Held during a batch, which a thread of Spark's does.
        self._at_work = threading.Lock()
        self._is_ending = False
        self._has_refused = False
        self._last_batch = -1
        self._deadline = inf
        self._failure: BaseException | None = None
        # Left out of the batch of this number, which Spark repeats.
        self._put_aside: list[PoisonRecord] = []
        self._reduced_batch = -1

    def run(self, session: Callable[[], SparkSession], follow_s: float | None) -> None:
        """Run until nothing is left, or, with a trigger interval, until there is a request to stop.

        Args:
            session: Returns the Spark session; called if there is something to do.
            follow_s: With a trigger interval: end this many seconds after the first look at the source.
        """
        has_work = self._has_work()
        if self.stopping.is_made:
            return
        if not has_work and self.job.trigger_interval_ms is None:
            self._tell_open_transactions()
            return
        spark = session()
        while True:
            self._run_query(spark, follow_s)
            failure, self._failure, self._is_ending = self._failure, None, False
            if not isinstance(failure, _RowsError):
                break
            self._reduce(spark, failure)
        if failure is not None:
            raise failure
        if self.job.trigger_interval_ms is None and not self.stopping.is_made:
            self.topics.refresh()
            self._tell_open_transactions()

    def _run_query(self, spark: SparkSession, follow_s: float | None) -> None:
        """Run the streaming query to its end."""
        self.on_step("starting the query ...")
        with explained("state"):
            query = self._start(spark)
        try:
            self._wait(query, follow_s)
        except SPARK_FAILURES as error:
            if self._failure is None and not self._has_refused:
                raise explain(error) from error
        finally:
            self._end(query)

    def _tell_open_transactions(self) -> None:
        """Log the transactions that hold back a job that ends; while it runs, the source does that."""
        positions = self.store.positions
        bounds = self.topics.bounds([name for name in positions if self._options.wants(name.topic)])
        at_end = [name for name, held in bounds.items() if positions[name].offset == held.end_offset]
        self.watch.look(self.topics.open_transactions, at_end, at_once=True)

    def _has_work(self) -> bool:
        """Bind the state to the store; return whether there is something to read, or a batch to finish."""
        planned = plan(self.job, self.topics, self.store.positions, None)
        if self.state.is_new:
            if planned.first:
                check_held(self.sinks, planned.first)
                self.store.commit(planned.first)
            self.state.begin({name: self.store.positions[name] for name in planned.bounds})
        else:
            known = {*planned.bounds, *self.state.ends(self.state.last_done)}
            self.state.check({name: place for name, place in self.store.positions.items() if name in known})
            self._check_subscription(known - planned.bounds.keys())
        positions = self.store.positions
        self.on_look(positions, {name: end for name, end in planned.end_offsets.items() if name in positions})
        stored = dict(positions)
        done = last = self.state.last_done
        if self.state.last_planned > done and self.state.is_done(self.state.last_planned, positions):
            # Only Spark does not know yet that it is done.
            last = self.state.last_planned
        if last >= 0:
            name, _, end = self.state.batch_range(last)
            stored[name] = Position(end)
        for sink in self.sinks:
            sink.start(stored)
        return bool(planned.ranges or planned.cut) or self.state.last_planned > done

    def _check_subscription(self, gone: Collection[TopicPartition]) -> None:
        """Check that the source still asks for partitions of the state that it does not find; Spark calls them lost."""
        options = self._options
        for name in sorted(gone) if options.fail_on_data_loss else ():
            if not options.wants(name.topic) or (options.partitions is not None and name not in options.partitions):
                raise JobError(
                    f"{self.state.path} is the state of {name} too, and the source does not ask for it any more: ask "
                    "for it, or remove the folder to begin with an empty state (failOnDataLoss=false continues with "
                    "the state as it is)",
                    "state.path",
                )

    def _start(self, spark: SparkSession) -> StreamingQuery:
        spec = self.job.state
        assert spec is not None
        prepare(spark, self.job)
        _silence_queries(spark)
        reader = spark.readStream.format("odradek").options(**self.job.source)
        reader = reader.option(FIRST_OFFSETS, self.state.first_offsets())
        if self.job.max_offsets_per_batch is not None:
            reader = reader.option("maxOffsetsPerTrigger", self.job.max_offsets_per_batch)
        records = reader.load()
        if self._put_aside:
            records = records.where(~is_one_of(by_partition(self._put_aside)))
        frame = streaming_frame(self.job, records)
        interval_ms = self.job.trigger_interval_ms
        writer = frame.writeStream.outputMode(spec.output_mode).foreachBatch(self._batch)
        writer = writer.option("checkpointLocation", str(self.state.path))
        if interval_ms is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{interval_ms} milliseconds")
        with _partitions(spark, spec.partitions):
            return writer.start()

    def _wait(self, query: StreamingQuery, follow_s: float | None) -> None:
        """Wait until the query ends, or is to end."""
        while not query.awaitTermination(_LOOK_S):  # type: ignore[arg-type]
            if follow_s is not None and self._deadline == inf and self._has_looked(query):
                self._deadline = time.monotonic() + follow_s
            if self.stopping.is_made or time.monotonic() > self._deadline:
                return

    def _has_looked(self, query: StreamingQuery) -> bool:
        return self._last_batch >= 0 or str(query.status["message"]).startswith("Waiting")

    def _end(self, query: StreamingQuery) -> None:
        """End the query, after the batch that it is in the middle of."""
        self._is_ending = True
        # If Spark has ended, so has the query.
        with suppress(*SPARK_FAILURES):
            with self._at_work:
                pass
            # Without Spark's own commit, the next run would compute the batch again.
            deadline = time.monotonic() + _COMMIT_PATIENCE_S
            while self.state.last_done < self._last_batch and time.monotonic() < deadline and query.isActive:
                time.sleep(0.01)
            query.stop()

    def _batch(self, frame: DataFrame, number: int) -> None:
        """Do a batch: Spark calls this, in a thread of its own."""
        with self._at_work:
            if self._is_ending or self.stopping.is_made or self._failure is not None:
                self._has_refused = True
                raise _EndError
            try:
                ranges = self._ranges(number)
                with self.span("batch", attributes=batch_attributes(self.job, ranges)):
                    self._do(frame, number, ranges)
                self._last_batch = number
            except BaseException as error:
                # Spark would keep only its text.
                self._failure = error
                raise _EndError from error

    def _ranges(self, number: int) -> list[OffsetRange]:
        """Return what a batch reads."""
        before, after = self.state.ends(number - 1), self.state.ends(number)
        # A partition that is new in this batch is read from 0.
        starts = {name: before[name].offset if name in before else 0 for name in after}
        return [
            OffsetRange(name, starts[name], place.offset)
            for name, place in sorted(after.items())
            if starts[name] < place.offset
        ]

    def _do(self, frame: DataFrame, number: int, ranges: Sequence[OffsetRange]) -> None:
        started = time.monotonic()
        spark = frame.sparkSession
        is_done = self.state.is_done(number, self.store.positions)
        before, after = self.state.ends(number - 1), self.state.ends(number)
        offsets = sum(part.end_offset - part.start_offset for part in ranges)
        what = f"batch {self.number + 1}: {offsets:,} offsets" if ranges else "windows that are over"
        self.on_step(f"{what} ...")
        kept: list[DataFrame] = []
        try:
            kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
            with self.span("transform"):
                self._compute(frame, number, ranges)
            if is_done:
                self._check_done(ranges, number)
                return
            self.store.check_owner()
            self._after_cuts(before, after)
            self._define_views(spark, frame, kept)
            batch = Batch(
                self.job,
                spark,
                [*ranges, self.state.batch_range(number)],
                self.topics,
                topic_ids={name: place.topic_id for name, place in after.items()},
                stored_offsets={name: place.offset for name, place in before.items()},
            )
            sink_seconds = [self._write(place, sink, batch, what) for place, sink in enumerate(self.sinks)]
        except (OdradekError, *SPARK_FAILURES) as error:
            self.store.check_owner(patiently=False)
            if isinstance(error, OdradekError):
                raise
            raise explain(error) from error
        finally:
            with suppress(Py4JError, ConnectionError):
                for each in kept:
                    each.unpersist()
        self.on_step(f"{what}, storing its end ...")
        refused = len(self._put_aside) if number == self._reduced_batch else 0
        with self.span("commit"):
            self._commit(number, after, offsets, time.monotonic() - started, refused)
        if not ranges:
            return
        self.number += 1
        seconds = time.monotonic() - started
        self.topics.refresh()
        ends = {name: held.end_offset for name, held in self.topics.bounds(after).items()}
        positions = self.store.positions
        self.on_batch(BatchReport(self.number, ranges, ends, positions, seconds, refused, sink_seconds))

    def _after_cuts(self, before: Mapping[TopicPartition, Position], after: Mapping[TopicPartition, Position]) -> None:
        """Tell of logs that end before their positions: Spark goes on at their ends, and letters are set back there."""
        cut = {name: place for name, place in after.items() if name in before and place.offset < before[name].offset}
        if cut:
            _LOG.warning(self.tell_loss({name: (place.offset, before[name].offset) for name, place in cut.items()}))
            self.set_back(cut, [] if self.letters is None else [self.letters])

    def _compute(self, frame: DataFrame, number: int, ranges: Sequence[OffsetRange]) -> None:
        """Compute the rows of a batch; the state changes as they are: all of them, now and once, whatever sinks read.

        Raises:
            _RowsError: That fails, and may be of records.
        """
        try:
            frame.count()
        except (Py4JError, PySparkException) as error:
            told = explain(error)
            told.__cause__ = error
            is_of_a_record = may_be_of_a_record(told, ends_worker=self.may_end_worker)
            if number == self._reduced_batch or not ranges or not is_of_a_record:
                raise
            raise _RowsError(told, number, ranges) from error

    def _reduce(self, spark: SparkSession, failed: _RowsError) -> None:
        """Put aside the records for which a batch fails, so that it is repeated without them."""
        self.store.check_owner()
        topic_ids = {name: place.topic_id for name, place in self.state.ends(failed.number).items()}
        batch = Batch(self.job, spark, failed.ranges, self.topics, topic_ids=topic_ids)
        self._put_aside = put_aside(failed.error, batch, self.letters, self.on_step, ends_worker=self.may_end_worker)
        self._reduced_batch = failed.number

    def _check_done(self, ranges: Sequence[OffsetRange], number: int) -> None:
        """Check that the sinks hold a batch of which the store has the end."""
        for sink in self.sinks:
            held = sink.positions()
            for name, _, end in (*ranges, self.state.batch_range(number)):
                if name in held and held[name].offset < end:
                    raise SinkError(
                        f"{sink.description} ends at offset {held[name].offset} of {name}, and the offset store says "
                        f"that everything below {end} is done: remove the sink's files and the state's folder, and set "
                        "the store back, to start over"
                    )

    def _define_views(self, spark: SparkSession, frame: DataFrame, kept: list[DataFrame]) -> None:
        """Define the views that the sinks may read: that of the state, and those after it."""
        shared = shared_views(self.job)
        frame.createOrReplaceTempView(self._streaming[-1].view)
        for number, transform in enumerate(self._later, len(self._streaming)):
            later = transformed(spark, transform, f"transform[{number}]")
            if transform.view in shared:
                kept.append(later.persist(StorageLevel.MEMORY_AND_DISK))
            later.createOrReplaceTempView(transform.view)

    def _write(self, place: int, sink: Sink, batch: Batch, what: str) -> tuple[str, float]:
        """Let a sink write a batch, unless it holds it; return how long it took."""
        self.on_step(f"{what}, {sink.description} ...")
        started = time.monotonic()
        with explained(f"sink[{place}]"), self.span(f"sink {sink.description}"):
            if not _holds(sink, batch, may_be_cut=not self._options.fail_on_data_loss):
                sink.write(batch)
                _check_written(sink, batch)
            sink.define_views(batch.spark)
        return sink.description, time.monotonic() - started

    def _commit(
        self, number: int, after: Mapping[TopicPartition, Position], offsets: int, seconds: float, refused: int
    ) -> None:
        """Store the end of a batch, with its token, also if no offset has changed."""
        token = self.state.token(number)
        ends = {name: replace(place, batch=token) for name, place in after.items()}
        if ends:
            self.store.commit(self.store.done(ends, offsets, seconds, refused))


def streaming_frame(job: Job, records: DataFrame) -> DataFrame:
    """Define the views up to the one that Spark keeps state for; return that one's rows.

    Args:
        job: The job.
        records: The stream of records, with the source's columns.

    Raises:
        JobError: A view cannot be made, or the last one is no stream, or reads the stream twice.
    """
    frame = _watermarked(job, RECORDS_VIEW, records if job.value is None else with_values(records, job.value))
    frame.createOrReplaceTempView(RECORDS_VIEW)
    streaming, _ = job.stateful_transforms()
    for number, transform in enumerate(streaming):
        made = transformed(records.sparkSession, transform, f"transform[{number}]")
        frame = _watermarked(job, transform.view, made)
        frame.createOrReplaceTempView(transform.view)
    if not frame.isStreaming:
        raise JobError(f"the view {streaming[-1].view} does not read the stream of records", "state.view")
    if (readings := _readings(frame)) > 1:
        raise JobError(
            f"the view {streaming[-1].view} joins the stream of records with itself. Spark would read it "
            f"{readings} times, and while the log grows each reading ends a batch at other offsets: group the "
            "records instead, or join them with a static table",
            "state.view",
        )
    return frame


def _watermarked(job: Job, view: str, frame: DataFrame) -> DataFrame:
    watermark = job.state and job.state.watermark
    if not watermark or watermark.view != view:
        return frame
    return frame.withWatermark(watermark.column, watermark.delay)


def _readings(frame: DataFrame) -> int:
    """Return how many times a streaming query reads the records; Spark reads equal relations, as of a union, once."""
    sources: list[Any] = []
    for leaf in items(frame._jdf.queryExecution().analyzed().collectLeaves()):
        is_ours = kind_of(leaf) == "StreamingRelationV2" and leaf.extraOptions().containsKey(FIRST_OFFSETS)
        if is_ours and not any(leaf.equals(source) for source in sources):
            sources.append(leaf)
    return len(sources)


def _holds(sink: Sink, batch: Batch, *, may_be_cut: bool) -> bool:
    """Return whether a sink holds a batch already.

    Args:
        sink: The sink.
        batch: The batch.
        may_be_cut: Whether a log may begin again below what the sink has of it; the number of the batch tells enough.

    Raises:
        SinkError: It holds neither the batch nor what comes before it.
    """
    held = sink.positions()
    *ranges, (batches, number, next_number) = batch.ranges
    at = held.get(batches)
    if at is not None and at.offset not in (number, next_number):
        raise SinkError(
            f"{sink.description} holds the rows of the state up to batch {at.offset - 1}, and the next one is {number}"
        )
    is_held = at is not None and at.offset == next_number
    for name, start, end in ranges:
        place = held.get(name)
        if place is None:
            continue
        check_same_topic(sink.description, name, place, batch.topic_ids.get(name))
        wanted = end if is_held else start
        is_cut = may_be_cut and at is not None and place.offset > wanted
        if place.offset != wanted and not is_cut:
            raise SinkError(
                f"{sink.description} holds {name} up to offset {place.offset}, and the state is at {wanted}: a batch "
                "with state cannot be cut. Give the sink another place, or set the store to where the sink is and "
                "remove the state's folder"
            )
    return is_held


def _check_written(sink: Sink, batch: Batch) -> None:
    """Check that a sink that says what it holds says so of a batch that it has written."""
    held = sink.positions()
    batches, _, next_number = batch.ranges[-1]
    if held and (batches not in held or held[batches].offset != next_number):
        raise SinkError(
            f"{sink.description} has written a batch, and does not say that it holds {batches} up to {next_number}: "
            "all of the batch's ranges are to be stored, also the one that numbers the batches of the state"
        )


@contextmanager
def _partitions(spark: SparkSession, partitions: int | None) -> Iterator[None]:
    """Let a query that starts have this many partitions; it takes a copy of the session's settings."""
    before = str(spark.conf.get(_PARTITIONS))
    if partitions is not None:
        spark.conf.set(_PARTITIONS, partitions)
    try:
        yield
    finally:
        spark.conf.set(_PARTITIONS, before)


def _silence_queries(spark: SparkSession) -> None:
    """Keep Spark from printing the trace of a query that fails: that ends the job, which says why in one line."""
    jvm: Any = spark._jvm
    log4j = jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel(_QUERY_LOG, log4j.Level.OFF)
