"""What receives the events of a job's run: its metrics, its history, its lineage. None may slow or end the job.

    started()                  a run begins, the first one or one after a failure
    looked(topics, ...)        where the positions and the ends of the partitions are
    done(batch)                a batch is done
    ended(error)               the run is over

An error of an observer is logged, at most one a minute.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import inf

from odradek.offsets.store import Position
from odradek.printable import logger
from odradek.spark.pipeline.batch_report import BatchReport
from odradek.spark.ranges import Topics
from odradek.storage.names import TopicPartition

_MINUTE_S = 60.0


Span = Callable[..., AbstractContextManager[object]]
"""Takes the name of a step, and maybe `attributes`; returns what measures the `with` block."""


def no_span(name: str, **_: object) -> AbstractContextManager[object]:
    """Measure nothing."""
    return nullcontext()


class OnceAMinute(logging.Filter):
    """Lets one line a minute of a logger through."""

    _next = -inf

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the minute of the last line is over."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + _MINUTE_S
        return True


_logger = logger(__name__)
_logger.addFilter(OnceAMinute())


class Observer:
    """Is told how a job runs, by the job's thread, or by one of Spark's for a job with state."""

    def started(self) -> None:
        """A run begins."""

    def looked(
        self, topics: Topics, positions: Mapping[TopicPartition, Position], end_offsets: Mapping[TopicPartition, int]
    ) -> None:
        """The job knows its positions, and where the partitions end now; it looks before and after each batch."""

    def done(self, batch: BatchReport) -> None:
        """A batch is done."""

    def ended(self, error: BaseException | None) -> None:
        """The run is over, by an error or without one."""


class Observers(Observer):
    """Tells several observers, whose errors end nothing.

    Args:
        observers: What receives the events.
        span: Measures the steps of a batch.

    Attributes:
        span: The same.
    """

    def __init__(self, observers: Iterable[Observer], span: Span = no_span) -> None:
        self._observers = tuple(observers)
        self.span = span

    @contextmanager
    def run(self) -> Iterator[None]:
        """Tell that a run begins, and how it has ended."""
        self.started()
        try:
            yield
        except BaseException as error:
            self.ended(error)
            raise
        self.ended(None)

    def started(self) -> None:
        """Tell that a run begins."""
        self._tell(lambda each: each.started())

    def looked(
        self, topics: Topics, positions: Mapping[TopicPartition, Position], end_offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Tell the positions and the ends."""
        self._tell(lambda each: each.looked(topics, positions, end_offsets))

    def done(self, batch: BatchReport) -> None:
        """Tell of a batch."""
        self._tell(lambda each: each.done(batch))

    def ended(self, error: BaseException | None) -> None:
        """Tell that the run is over."""
        self._tell(lambda each: each.ended(error))

    def _tell(self, event: Callable[[Observer], None]) -> None:
        for each in self._observers:
            try:
                event(each)
            except Exception as error:
                _logger.warning("%s: %r; the job continues without it", type(each).__name__, error)
