"""Runs a job whose views keep state from batch to batch: Spark's own streaming state, beside the offset store.

    offsets/N     Spark plans batch N of the streaming query          see `state_folder`
    state         the rows of the state's view are computed           once: they are kept until the batch is done
    store         still ours, and at the start of batch N?            else nothing is written
    sinks         write the rows
    store         <- the end of batch N
    commits/N     Spark says that batch N is done

A crash before the last step leaves a batch that Spark repeats, with the same offsets, watermark and state. If the store
has its end, the sinks are passed over; if a sink has it, that sink is. So as long as the queries give the same rows
again, nothing is lost, and nothing is there twice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import inf
from typing import Any

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from odradek.errors import JobError, OdradekError, SinkError
from odradek.offsets.store import Position, Positions
from odradek.spark.open_transactions import TransactionWatch
from odradek.spark.pipeline.batch import Batch, transformed
from odradek.spark.pipeline.batch_report import BatchReport
from odradek.spark.pipeline.claimed_store import ClaimedStore, StopRequest
from odradek.spark.pipeline.job import RECORDS_VIEW, Job
from odradek.spark.pipeline.lineage import items, kind_of
from odradek.spark.pipeline.planning import plan
from odradek.spark.pipeline.session import explain, register_udfs
from odradek.spark.pipeline.shared_views import shared_views
from odradek.spark.pipeline.sink import Sink, check_held, check_same_topic
from odradek.spark.pipeline.state_folder import StateFolder
from odradek.spark.pipeline.values import with_values
from odradek.spark.ranges import OffsetRange, Topics
from odradek.spark.stream import FIRST_OFFSETS
from odradek.storage.names import TopicPartition

_LOOK_S = 0.2
_COMMIT_PATIENCE_S = 30.0
_CALLBACK_LOG = logging.getLogger("py4j.clientserver")
_PARTITIONS = "spark.sql.shuffle.partitions"
_QUERY_LOG = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"


class _EndError(Exception):
    """Ends a query from within its batch."""


def _is_unknown(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], _EndError))


# The run itself says why it has ended.
_CALLBACK_LOG.addFilter(_is_unknown)


class StatefulRun:
    """One run of a job with state.

    Args:
        job: The job.
        state: The folder of its state.
        store: Its positions.
        topics: Its source.
        sinks: Its sinks.
        stopping: Ends the run after the current batch.
        on_step: Called with a few words before each step.
        on_look: Called with the positions, and where the partitions end, before the first batch.
        on_batch: Called after each batch that read something.
    """

    def __init__(
        self,
        job: Job,
        state: StateFolder,
        store: ClaimedStore,
        topics: Topics,
        sinks: Sequence[Sink],
        stopping: StopRequest,
        on_step: Callable[[str], None],
        on_look: Callable[[Positions, Mapping[TopicPartition, int]], None],
        on_batch: Callable[[BatchReport], None],
    ) -> None:
        assert job.state is not None
        self._job = job
        self._spec = job.state
        self._options = job.source_options()
        self._state = state
        self._store = store
        self._topics = topics
        self._sinks = sinks
        self._stopping = stopping
        self._tell = on_step
        self._on_look = on_look
        self._on_batch = on_batch
        self._number = 0
        self._streaming, self._later = job.stateful_transforms()
        # Held during a batch, which a thread of Spark's does.
        self._at_work = threading.Lock()
        self._is_ending = False
        self._has_refused = False
        self._last_batch = -1
        self._failure: BaseException | None = None

    def run(self, session: Callable[[], SparkSession], follow_s: float | None) -> int:
        """Run until nothing is left, or, with a trigger interval, until there is a request to stop.

        Args:
            session: Returns the Spark session; called if there is something to do.
            follow_s: With a trigger interval: end this many seconds after the first look at the source.

        Returns:
            How many batches have read something.
        """
        has_work = self._has_work()
        if self._stopping.is_made:
            return 0
        if not has_work and self._job.trigger_interval_ms is None:
            self._tell_open_transactions()
            return 0
        spark = session()
        self._tell("starting the query ...")
        try:
            query = self._start(spark)
        except (Py4JError, PySparkException, ConnectionError) as error:
            raise explain(error, "state") from error
        try:
            self._wait(query, follow_s)
        except (Py4JError, PySparkException, ConnectionError) as error:
            if self._failure is None and not self._has_refused:
                raise explain(error) from error
        finally:
            self._end(query)
        if self._failure is not None:
            raise self._failure
        if self._job.trigger_interval_ms is None and not self._stopping.is_made:
            self._topics.refresh()
            self._tell_open_transactions()
        return self._number

    def _tell_open_transactions(self) -> None:
        """Tell of the transactions that hold back a job that ends; while it runs, the source does."""
        positions = self._store.positions
        bounds = self._topics.bounds([name for name in positions if self._options.wants(name.topic)])
        at_end = [name for name, held in bounds.items() if positions[name].offset == held.end_offset]
        TransactionWatch(self._options.isolation).look(self._topics, at_end, at_once=True)

    def _has_work(self) -> bool:
        """Bind the state to the store; return whether there is something to read, or a batch to finish."""
        planned = plan(self._job, self._topics, self._store.positions, None)
        if self._state.is_new:
            if planned.first:
                check_held(self._sinks, planned.first)
                self._store.commit(planned.first)
            self._state.begin({name: self._store.positions[name] for name in planned.bounds})
        else:
            known = {*planned.bounds, *self._state.ends(self._state.last_done)}
            self._state.check({name: place for name, place in self._store.positions.items() if name in known})
            self._check_subscription(known - planned.bounds.keys())
        positions = self._store.positions
        self._on_look(positions, {name: end for name, end in planned.end_offsets.items() if name in positions})
        stored = dict(positions)
        done = last = self._state.last_done
        if self._state.last_planned > done and self._state.is_done(self._state.last_planned, positions):
            # Only Spark does not know it yet.
            last = self._state.last_planned
        if last >= 0:
            name, _, end = self._state.batch_range(last)
            stored[name] = Position(end)
        for sink in self._sinks:
            sink.start(stored)
        return bool(planned.ranges) or self._state.last_planned > done

    def _check_subscription(self, gone: Collection[TopicPartition]) -> None:
        """Check that the source still asks for partitions of the state that it does not find; Spark calls them lost."""
        options = self._options
        for name in sorted(gone) if options.fail_on_data_loss else ():
            if not options.wants(name.topic) or (options.partitions is not None and name not in options.partitions):
                raise JobError(
                    f"{self._state.path} is the state of {name} too, and the source does not ask for it any more: ask "
                    "for it, or remove the folder to begin with an empty state (failOnDataLoss=false goes on with the "
                    "state as it is)",
                    "state.path",
                )

    def _start(self, spark: SparkSession) -> StreamingQuery:
        register_udfs(spark, self._job)
        _silence_queries(spark)
        reader = spark.readStream.format("odradek").options(**self._job.source)
        reader = reader.option(FIRST_OFFSETS, self._state.first_offsets())
        if self._job.max_offsets_per_batch is not None:
            reader = reader.option("maxOffsetsPerTrigger", self._job.max_offsets_per_batch)
        records = reader.load()
        frame = self._watermarked(
            RECORDS_VIEW, records if self._job.value is None else with_values(records, self._job.value)
        )
        frame.createOrReplaceTempView(RECORDS_VIEW)
        for number, transform in enumerate(self._streaming):
            frame = self._watermarked(transform.view, transformed(spark, transform, f"transform[{number}]"))
            frame.createOrReplaceTempView(transform.view)
        if not frame.isStreaming:
            raise JobError(f"the view {self._streaming[-1].view} does not read the stream of records", "state.view")
        if (readings := _readings(frame)) > 1:
            raise JobError(
                f"the view {self._streaming[-1].view} joins the stream of records with itself. Spark would read it "
                f"{readings} times, and while the log grows each reading ends a batch at other offsets: group the "
                "records instead, or join them with a static table",
                "state.view",
            )
        interval_ms = self._job.trigger_interval_ms
        writer = frame.writeStream.outputMode(self._spec.output_mode).foreachBatch(self._batch)
        writer = writer.option("checkpointLocation", str(self._state.path))
        if interval_ms is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{interval_ms} milliseconds")
        with _partitions(spark, self._spec.partitions):
            return writer.start()

    def _watermarked(self, view: str, frame: DataFrame) -> DataFrame:
        watermark = self._spec.watermark
        if watermark is None or watermark.view != view:
            return frame
        return frame.withWatermark(watermark.column, watermark.delay)

    def _wait(self, query: StreamingQuery, follow_s: float | None) -> None:
        """Wait until the query ends, or is to end."""
        deadline = inf
        while not query.awaitTermination(_LOOK_S):  # type: ignore[arg-type]
            if follow_s is not None and deadline == inf and self._has_looked(query):
                deadline = time.monotonic() + follow_s
            if self._stopping.is_made or time.monotonic() > deadline:
                return

    def _has_looked(self, query: StreamingQuery) -> bool:
        return self._last_batch >= 0 or str(query.status["message"]).startswith("Waiting")

    def _end(self, query: StreamingQuery) -> None:
        """End the query, after the batch that it is in the middle of."""
        self._is_ending = True
        # If Spark has ended, so has the query.
        with suppress(Py4JError, PySparkException, ConnectionError):
            with self._at_work:
                pass
            # Without Spark's own commit, the next run would compute the batch again.
            deadline = time.monotonic() + _COMMIT_PATIENCE_S
            while self._state.last_done < self._last_batch and time.monotonic() < deadline and query.isActive:
                time.sleep(0.01)
            query.stop()

    def _batch(self, frame: DataFrame, number: int) -> None:
        """Do a batch: Spark calls this, in a thread of its own."""
        with self._at_work:
            if self._is_ending or self._stopping.is_made or self._failure is not None:
                self._has_refused = True
                raise _EndError
            try:
                self._do(frame, number)
                self._last_batch = number
            except BaseException as error:
                # Spark would keep only its text.
                self._failure = error
                raise _EndError from error

    def _do(self, frame: DataFrame, number: int) -> None:
        started = time.monotonic()
        spark = frame.sparkSession
        is_done = self._state.is_done(number, self._store.positions)
        before, after = self._state.ends(number - 1), self._state.ends(number)
        # A partition that is new in this batch is read from 0.
        starts = {name: before[name].offset if name in before else 0 for name in after}
        ranges = [
            OffsetRange(name, starts[name], place.offset)
            for name, place in sorted(after.items())
            if starts[name] < place.offset
        ]
        offsets = sum(part.end_offset - part.start_offset for part in ranges)
        what = f"batch {self._number + 1}: {offsets:,} offsets" if ranges else "windows that are over"
        self._tell(f"{what} ...")
        kept: list[DataFrame] = []
        try:
            kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
            # The state changes as rows are computed: all of them, now and once, whatever the sinks read.
            frame.count()
            if is_done:
                self._check_done(ranges, number)
                return
            self._store.check_owner()
            self._define_views(spark, frame, kept)
            batch = Batch(
                self._job,
                spark,
                [*ranges, self._state.batch_range(number)],
                self._topics,
                topic_ids={name: place.topic_id for name, place in after.items()},
                stored_offsets={name: place.offset for name, place in before.items()},
            )
            sink_seconds = [self._write(place, sink, batch, what) for place, sink in enumerate(self._sinks)]
        except (Py4JError, PySparkException, ConnectionError) as error:
            self._store.check_owner(patiently=False)
            raise explain(error) from error
        except OdradekError:
            self._store.check_owner(patiently=False)
            raise
        finally:
            with suppress(Py4JError, ConnectionError):
                for each in kept:
                    each.unpersist()
        self._tell(f"{what}, storing its end ...")
        self._commit(number, after, offsets, time.monotonic() - started)
        if not ranges:
            return
        self._number += 1
        seconds = time.monotonic() - started
        self._topics.refresh()
        ends = {name: held.end_offset for name, held in self._topics.bounds(after).items()}
        positions = self._store.positions
        self._on_batch(BatchReport(self._number, ranges, ends, positions, seconds, 0, sink_seconds))

    def _check_done(self, ranges: Sequence[OffsetRange], number: int) -> None:
        """Check that the sinks hold a batch of which the store has the end."""
        for sink in self._sinks:
            held = sink.positions()
            for name, _, end in (*ranges, self._state.batch_range(number)):
                if name in held and held[name].offset < end:
                    raise SinkError(
                        f"{sink.description} ends at offset {held[name].offset} of {name}, and the offset store says "
                        f"that everything below {end} is done: remove the sink's files and the state's folder, and set "
                        "the store back, to start over"
                    )

    def _define_views(self, spark: SparkSession, frame: DataFrame, kept: list[DataFrame]) -> None:
        """Define the views that the sinks may read: that of the state, and those after it."""
        shared = shared_views(self._job)
        frame.createOrReplaceTempView(self._streaming[-1].view)
        for number, transform in enumerate(self._later, len(self._streaming)):
            later = transformed(spark, transform, f"transform[{number}]")
            if transform.view in shared:
                kept.append(later.persist(StorageLevel.MEMORY_AND_DISK))
            later.createOrReplaceTempView(transform.view)

    def _write(self, place: int, sink: Sink, batch: Batch, what: str) -> tuple[str, float]:
        """Let a sink write a batch, unless it holds it; return how long it took."""
        self._tell(f"{what}, {sink.description} ...")
        started = time.monotonic()
        try:
            if not _holds(sink, batch):
                sink.write(batch)
                _check_written(sink, batch)
            sink.define_views(batch.spark)
        except (Py4JError, PySparkException) as error:
            raise explain(error, f"sink[{place}]") from error
        return sink.description, time.monotonic() - started

    def _commit(self, number: int, after: Mapping[TopicPartition, Position], offsets: int, seconds: float) -> None:
        """Store the end of a batch, with its token, also if no offset has changed."""
        token = self._state.token(number)
        ends = {name: replace(place, batch=token) for name, place in after.items()}
        if ends:
            self._store.commit(self._store.done(ends, offsets, seconds, 0))


def _readings(frame: DataFrame) -> int:
    """Return how many times a streaming query reads the records; Spark reads equal relations, as of a union, once."""
    sources: list[Any] = []
    for leaf in items(frame._jdf.queryExecution().analyzed().collectLeaves()):
        is_ours = kind_of(leaf) == "StreamingRelationV2" and leaf.extraOptions().containsKey(FIRST_OFFSETS)
        if is_ours and not any(leaf.equals(source) for source in sources):
            sources.append(leaf)
    return len(sources)


def _holds(sink: Sink, batch: Batch) -> bool:
    """Return whether a sink holds a batch already.

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
        if place.offset != wanted:
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
