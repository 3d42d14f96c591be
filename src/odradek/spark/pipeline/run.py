"""What a run of a job works with, whether or not the job has state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from odradek.offsets.store import Position, Positions
from odradek.spark.open_transactions import TransactionWatch
from odradek.spark.pipeline.batch_report import BatchReport
from odradek.spark.pipeline.claimed_store import ClaimedStore, StopRequest
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.observer import Span, no_span
from odradek.spark.pipeline.restarts import WORKER_ATTEMPTS
from odradek.spark.pipeline.sink import Sink
from odradek.spark.ranges import Topics
from odradek.storage.names import TopicPartition


def _nothing(*_: object) -> None:
    pass


@dataclass(kw_only=True)
class Run:
    """One run of a job, until nothing is left or it is stopped.

    Attributes:
        job: The job.
        store: Its positions.
        topics: Its source.
        sinks: Its sinks.
        letters: The sink of records for which a view fails, or None.
        watch: Logs open transactions that hold the job back.
        stopping: Ends the run after the current batch.
        on_step: Called with a few words before each step.
        on_look: Called with the positions, and where the partitions end.
        on_batch: Called after each batch that read something.
        span: Measures the steps of a batch.
        lost_workers: How many runs in a row before this one have ended with a lost worker.
        number: How many batches are done.
    """

    job: Job
    store: ClaimedStore
    topics: Topics
    sinks: Sequence[Sink]
    letters: Sink | None = None
    watch: TransactionWatch
    stopping: StopRequest
    on_step: Callable[[str], None] = _nothing
    on_look: Callable[[Positions, Mapping[TopicPartition, int]], None] = _nothing
    on_batch: Callable[[BatchReport], None] = _nothing
    span: Span = no_span
    lost_workers: int = 0
    number: int = field(default=0, init=False)

    @property
    def may_end_worker(self) -> bool:
        """Whether it may be a record that has ended the Python worker, as it has ended so often."""
        return self.lost_workers >= WORKER_ATTEMPTS

    @property
    def all_sinks(self) -> tuple[Sink, ...]:
        """The sinks, and that of the dead letters."""
        return (*self.sinks, *([self.letters] if self.letters is not None else []))

    def tell_loss(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> str:
        """Let the next note in the store say that logs were cut; return what to log.

        Args:
            spans: The ends of the logs, and up to where records of them had been read.
        """
        lost = ", ".join(f"{name}: offsets [{start}, {end})" for name, (start, end) in sorted(spans.items()))
        self.store.note_loss(lost)
        return f"{lost}: lost, as the log was cut; it is read on from its end"

    def set_back(self, ends: Mapping[TopicPartition, Position], sinks: Sequence[Sink]) -> None:
        """Let sinks forget what they hold beyond the ends of logs that were cut."""
        for sink in sinks:
            beyond = {name: ends[name] for name, held in sink.held(ends).items() if held.offset > ends[name].offset}
            if beyond:
                sink.replay(beyond)
