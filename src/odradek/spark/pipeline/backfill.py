"""A backfill: a range of a job's past, written into the job's sinks beside the running job, or into separate ones.

    job        [position, end of the log)       it continues, and knows nothing of the backfill
    backfill   [--from, --until), at most up to that position, without what each sink holds
    store      a group of its own, beside the job's: what is claimed, and how far it is done (`backfill_claim`)

It is a job like another one: its driver asks the store before each batch, and stores the end after the sinks. Only what
sinks hold is known in another way. A position says nothing of gaps below it, so a Parquet folder is asked which ranges
its files have. Other sinks cannot be asked: the user has to say that they hold nothing of the range.
"""

from __future__ import annotations

import hashlib
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from odradek.errors import JobError
from odradek.kafka.topics import Bounds
from odradek.offsets.beside import beside
from odradek.offsets.store import OffsetStore, Position, Positions, open_store
from odradek.records.timestamps import iso_text
from odradek.spark.options import EARLIEST, OffsetSpec
from odradek.spark.pipeline.backfill_claim import Claim, Span, Start, claim, first_border, is_within, joined, read_claim
from odradek.spark.pipeline.claimed_store import ClaimedStore
from odradek.spark.pipeline.console import ConsoleSink
from odradek.spark.pipeline.driver import Pipeline, PlainRun
from odradek.spark.pipeline.folder_uri import FolderUri
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.parquet import ParquetSink
from odradek.spark.pipeline.planning import BatchPlan
from odradek.spark.pipeline.preparing import prepare
from odradek.spark.pipeline.sink import Sink
from odradek.spark.pipeline.sink_specs import ConsoleSinkSpec, ParquetSinkSpec, PythonSinkSpec, SinkSpec, TopicSinkSpec
from odradek.spark.pipeline.traces import batch_attributes
from odradek.spark.ranges import (
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

_ASKED_CHARACTERS = 1000
Bound = OffsetSpec | int
"""A time or an end of the log, an offset for each partition that is named, or one offset for all."""


@dataclass(frozen=True)
class Backfill:
    """What is asked for.

    Attributes:
        start: Where it begins.
        end: Where it ends; None for the job's position, or, with `into`, the end of the log.
        into: The name of a separate output; None for the job's own sinks.
        assumes_unheld: Whether sinks that cannot say what they hold are taken to hold nothing of the range.
    """

    start: Bound
    end: Bound | None = None
    into: str | None = None
    assumes_unheld: bool = False

    @property
    def text(self) -> str:
        """The options of the command line that ask for the same."""
        words = [f"--from {shlex.quote(word)}" for word in _words(self.start)]
        words += [f"--until {shlex.quote(word)}" for word in ([] if self.end is None else _words(self.end))]
        if self.into is not None:
            words.append(f"--into {shlex.quote(self.into)}")
        return " ".join([*words, *(["--assume-unheld"] if self.assumes_unheld else [])])


def _words(bound: Bound) -> list[str]:
    if isinstance(bound, int):
        return [str(bound)]
    if bound.timestamp is not None:
        return [iso_text(bound.timestamp)]
    if bound.offsets:
        return [f"{name}={offset}" for name, offset in sorted(bound.offsets.items())]
    return ["earliest" if bound.default == EARLIEST else "latest"]


@dataclass(frozen=True)
class ClaimedBackfill:
    """A backfill whose ranges are claimed.

    Attributes:
        job: The job that does it.
        claim: What it has claimed; None if there is nothing to do.
    """

    job: Job
    claim: Claim | None


def claim_backfill(job: Job, asked: Backfill) -> ClaimedBackfill:
    """Claim the ranges of a backfill, or find those of the same one that has not ended. No Spark is started.

    Raises:
        JobError: The job cannot have one, another one has not ended, or the range is not one.
        OdradekError: The source or the store failed.
    """
    _check_sinks(job, asked)
    suffix = ".backfill" if asked.into is None else f".backfill-{asked.into}"
    address, options = beside(job.offset_store, job.offset_store_options, suffix)
    with open_store(job.offset_store, job.offset_store_options) as own:
        positions = own.load()
    if asked.into is not None:
        job = replace(job, sinks=tuple(_into(sink, asked.into) for sink in job.sinks))
        if job.dead_letters is not None:
            job = replace(job, dead_letters=_into_topic(job.dead_letters, asked.into))
    topics = open_topics(job.source_options())
    try:
        with open_store(address, options) as store:
            sinks = hashlib.sha256(repr([_identity(job, sink) for sink in job.sinks]).encode()).hexdigest()[:16]
            found = claim(store, _as_note(asked.text), sinks, partial(_starts, job, topics, positions, asked))
    finally:
        topics.close()
    job = replace(
        job,
        offset_store=address,
        offset_store_options=options,
        trigger_interval_ms=None,
        # The running job has these.
        metrics=None,
        history=None,
    )
    return ClaimedBackfill(job if found is None else _with_ids(job, f"backfill-{found.id}"), found)


def _as_note(text: str) -> str:
    """Return what is asked for, cut if it names many partitions: a broker takes 4,096 bytes beside a position."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return text if len(text) <= _ASKED_CHARACTERS else f"{text[:_ASKED_CHARACTERS]} ... ({digest})"


def _check_sinks(job: Job, asked: Backfill) -> None:
    """Refuse what cannot be written in part, or beside the job, or elsewhere."""
    if asked.assumes_unheld and asked.end is None:
        raise JobError("--assume-unheld needs --until: what is just before the job's position, the sinks hold")
    if job.state is not None:
        raise JobError("a job with state cannot be backfilled: its rows depend on all the records before", "state")
    for number, sink in enumerate(job.sinks):
        reason = _refusal(sink, asked)
        if reason is not None:
            raise JobError(reason, f"sink[{number}]")


def _refusal(sink: SinkSpec, asked: Backfill) -> str | None:
    is_separate = asked.into is not None
    if isinstance(sink, ConsoleSinkSpec):
        return None
    if isinstance(sink, ParquetSinkSpec):
        if sink.merge is not None:
            return "running totals cannot be backfilled: each batch replaces all files"
        if isinstance(sink.path, FolderUri):
            return "a bucket has one writer at a time: run a copy of the file with another path, store and name"
        return None
    if isinstance(sink, PythonSinkSpec) and is_separate:
        return "a function cannot be told to store elsewhere: run a copy of the file without this sink"
    if isinstance(sink, PythonSinkSpec) and sink.positions is not None:
        return "the function would remember the backfill's positions as the job's: run a copy of the file without it"
    if isinstance(sink, TopicSinkSpec) and sink.topic is None and is_separate:
        return "records say their topic, which --into cannot change: run a copy of the file without this sink"
    if is_separate or asked.assumes_unheld:
        return None
    return (
        "this sink cannot say which offsets it holds: give --assume-unheld if it holds none of the range, or --into "
        "NAME for a separate output"
    )


def _identity(job: Job, sink: SinkSpec) -> tuple[object, ...]:
    """Return what a sink's output is, without settings, which may be secret or change."""
    if isinstance(sink, ParquetSinkSpec):
        return "parquet", str(sink.path)
    if isinstance(sink, TopicSinkSpec):
        return "topic", job.transactional_id(sink), sink.topic
    if isinstance(sink, PythonSinkSpec):
        return "python", str(sink.function)
    if isinstance(sink, ConsoleSinkSpec):
        return ("console",)
    return sink.format, sink.table, sink.path


def _into(sink: SinkSpec, name: str) -> SinkSpec:
    """Return a sink with an output of its own, called like the job's with a name after it."""
    if isinstance(sink, ParquetSinkSpec):
        assert isinstance(sink.path, Path)
        return replace(sink, path=sink.path.with_name(f"{sink.path.name}.{name}"))
    if isinstance(sink, TopicSinkSpec):
        return _into_topic(sink, name)
    if isinstance(sink, ConsoleSinkSpec | PythonSinkSpec):
        return sink
    if sink.table is not None:
        return replace(sink, table=f"{sink.table}_{name}")
    return replace(sink, path=f"{sink.path}.{name}")


def _into_topic(sink: TopicSinkSpec, name: str) -> TopicSinkSpec:
    letters = sink.dead_letter_topic
    return replace(
        sink, topic=f"{sink.topic}.{name}", dead_letter_topic=None if letters is None else f"{letters}.{name}"
    )


def _with_ids(job: Job, suffix: str) -> Job:
    """Return a job whose topic sinks have transactions, and positions in them, of their own."""

    def own(sink: SinkSpec) -> SinkSpec:
        if not isinstance(sink, TopicSinkSpec):
            return sink
        return replace(sink, transactional_id=f"{job.transactional_id(sink)}-{suffix}", on_held="skip")

    letters = None if job.dead_letters is None else own(job.dead_letters)
    assert letters is None or isinstance(letters, TopicSinkSpec)
    return replace(job, sinks=tuple(map(own, job.sinks)), dead_letters=letters)


def _starts(job: Job, topics: Topics, positions: Positions, asked: Backfill) -> dict[TopicPartition, Start]:
    """Return where a backfill begins and ends in each partition, without those in which there is nothing to do."""
    options = job.source_options()
    bounds = topics.bounds(find_partitions(topics, options, positions))
    starts = _offsets(asked.start, "--from", topics, bounds)
    bounds = {name: bounds[name] for name in starts}
    ends = {} if asked.end is None else _offsets(asked.end, "--until", topics, bounds)
    places = {name: positions[name] for name in bounds if name in positions}
    check_places(topics, bounds, places, fail_on_data_loss=options.fail_on_data_loss)
    ranges = []
    for name, start in sorted(starts.items()):
        if asked.into is None and name not in positions:
            raise JobError(f"the job has no position in {name}, so all of it is still to be read: run the job first")
        # What is at the position and after it, the job itself writes.
        last = bounds[name].end_offset if asked.into is not None else positions[name].offset
        end = ends.get(name, last)
        if start > end and name in ends:
            raise JobError(f"{name}: --from leads to offset {start}, which is after --until, offset {end}")
        if start < min(end, last):
            ranges.append(OffsetRange(name, start, min(end, last)))
    kept = within(ranges, bounds, fail_on_data_loss=options.fail_on_data_loss)
    return {name: Start(Position(start, topic_id=bounds[name].topic_id), end) for name, start, end in kept}


def _offsets(
    bound: Bound, option: str, topics: Topics, bounds: Mapping[TopicPartition, Bounds]
) -> dict[TopicPartition, int]:
    """Return the offsets that an option leads to."""
    if isinstance(bound, int):
        return dict.fromkeys(bounds, bound)
    unknown = sorted(set(bound.offsets) - set(bounds))
    if unknown:
        known = ", ".join(map(str, sorted(bounds)))
        raise JobError(f"{option}: {unknown[0]} is none of the partitions here, which are {known}")
    if bound.offsets:
        return dict(bound.offsets)
    return resolve(bound, option, topics, bounds, end_for_later_times=True)


class BackfillPipeline(Pipeline):
    """A backfill that runs.

    Args:
        job: The job that `claim_backfill` has returned.
        spark: As for `Pipeline`.
        claim: What it has claimed.
        of_pipeline: The other arguments of `Pipeline`.
    """

    def __init__(
        self,
        job: Job,
        spark: SparkSession | Callable[[], SparkSession] | None = None,
        *,
        claim: Claim,
        **of_pipeline: Any,
    ) -> None:
        super().__init__(job, spark, **of_pipeline)
        self._claim = claim

    def _claimed(self, opened: OffsetStore) -> ClaimedStore:
        return _BackfillStore(opened, self._stopping, self._report_step)

    def _kind(self) -> Callable[..., PlainRun]:
        return partial(BackfillRun, claim=self._claim)

    def _open_sink(self, spec: SinkSpec, key: str) -> Sink:
        return (
            ParquetSink(spec, for_backfill=True) if isinstance(spec, ParquetSinkSpec) else super()._open_sink(spec, key)
        )


class _BackfillStore(ClaimedStore):
    """The positions of a backfill, whose notes are its claim."""

    def done(
        self, ends: Mapping[TopicPartition, Position], offsets: int, seconds: float, refused: int
    ) -> dict[TopicPartition, Position]:
        """Return the positions with the claim."""
        return {name: replace(place, note=self.positions[name].note) for name, place in ends.items()}

    def note_error(self, error: Exception) -> None:
        """Do nothing: `odradek pipeline status` shows the job."""


@dataclass(kw_only=True)
class BackfillRun(PlainRun):
    """One run of a backfill.

    Attributes:
        claim: What it writes.
    """

    claim: Claim

    def run(self, session: Callable[[], SparkSession], follow_s: float | None) -> None:
        """Do batches until the claimed ranges are done."""
        current = read_claim(self.store.address, self.store.positions)
        if current is None or current.id != self.claim.id:
            if current is None and all(name in self.store.positions for name in self.claim.ranges):
                return
            raise JobError("another backfill of this job has begun since")
        self._held = [self._held_by(sink) for sink in self.sinks]
        # A console, which holds nothing, shows what others write.
        writers = [held for sink, held in zip(self.sinks, self._held, strict=True) if not isinstance(sink, ConsoleSink)]
        self._held_by_writers = writers or self._held
        spark: SparkSession | None = None
        is_first = True
        while not self.stopping.is_made:
            started = time.monotonic()
            if not is_first:
                self.topics.refresh()
            is_first = False
            self._skip_held()
            left = self._pieces()
            if not left:
                return
            planned = self._plan(left)
            if not planned.ranges:
                continue
            if spark is None:
                spark = session()
                started = time.monotonic()
                prepare(spark, self.job)
            with self.span("batch", attributes=batch_attributes(self.job, planned.ranges)):
                self._batch(spark, planned, started)

    def _held_by(self, sink: Sink) -> dict[TopicPartition, list[Span]]:
        """Return what a sink holds, joined."""
        ranges = [] if isinstance(sink, ConsoleSink) else sink.held_ranges()
        if ranges is None:
            return {name: list(spans) for name, spans in self.claim.done.items()}
        found: dict[TopicPartition, list[Span]] = {}
        for name, start, end in ranges:
            found.setdefault(name, []).append((start, end))
        return {name: joined(spans) for name, spans in found.items()}

    def _pieces(self) -> list[OffsetRange]:
        """Return, for each partition that is not done, the next offsets of which each sink holds all or none."""
        pieces = []
        for name, (_, end) in sorted(self.claim.ranges.items()):
            start = self.store.positions[name].offset
            if start < end:
                spans = [span for held in self._held_by_writers for span in held.get(name, ())]
                pieces.append(OffsetRange(name, start, first_border((start, end), spans)))
        return pieces

    def _skip_held(self) -> None:
        """Move the positions past what every sink holds."""
        while True:
            ends = {
                name: replace(self.store.positions[name], offset=end, leader_epoch=None)
                for name, start, end in self._pieces()
                if all(is_within((start, end), held.get(name, ())) for held in self._held_by_writers)
            }
            if not ends:
                return
            self.store.commit(ends)

    def _plan(self, pieces: Sequence[OffsetRange]) -> BatchPlan:
        """Plan a batch of pieces; what was lost of them is skipped, if the job allows it."""
        fails = self.job.source_options().fail_on_data_loss
        positions = {name: self.store.positions[name] for name, _, _ in pieces}
        bounds = self.topics.bounds(list(positions))
        check_places(self.topics, bounds, positions, fail_on_data_loss=fails)
        kept = within(pieces, bounds, fail_on_data_loss=fails)
        ends = {name: end for name, (_, end) in self.claim.ranges.items() if name in positions}
        there = {name for name, _, _ in kept}
        lost = {name: end for name, _, end in pieces if name not in there}
        if lost:
            self.store.commit({name: replace(positions[name], offset=end) for name, end in lost.items()})
        return BatchPlan(limited(kept, self.job.max_offsets_per_batch), ends, {}, bounds)

    def _stored_offsets(self, planned: BatchPlan) -> dict[TopicPartition, int]:
        # A sink may have skipped what it held, so its own position may be below that of the store.
        return {name: 0 for name, _, _ in planned.ranges}

    def _left(self, number: int, planned: BatchPlan, stored: Mapping[TopicPartition, int]) -> list[OffsetRange]:
        held = self._held[number]
        return [part for part in planned.ranges if not is_within(part[1:], held.get(part.topic_partition, ()))]

    def _note_written(self, number: int, ranges: Sequence[OffsetRange]) -> None:
        """Take note of what a sink has written: if another sink fails, the batch is repeated."""
        held = self._held[number]
        for name, start, end in ranges:
            held[name] = joined([*held.get(name, ()), (start, end)])
