"""Several jobs in one process and one Spark.

    none has an interval    one after another, in the order of the file: each finds what those before it have written
    one has an interval     all at the same time, each in a thread of its own

Each job has a session of its own in that Spark, so views and functions of the same name are not mistaken for each
other. A job that fails does not end the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

from pyspark.sql import SparkSession

from odradek.errors import JobError
from odradek.spark.pipeline.batch_report import BatchReport
from odradek.spark.pipeline.driver import Pipeline
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.metrics import JobMetrics, MetricsListener
from odradek.spark.pipeline.restarts import FAILURES
from odradek.spark.pipeline.session import explained, open_session
from odradek.spark.spark_session import activated, has_ended


class SharedSpark:
    """The Spark of several jobs, which the first one that has something to read starts, also after it has ended.

    Args:
        job: One of them; their settings of Spark are the same.
        name: What they are called together in Spark.
    """

    def __init__(self, job: Job, name: str) -> None:
        self._job = replace(job, name=name)
        self._lock = threading.Lock()
        self._session: SparkSession | None = None

    def session(self) -> SparkSession:
        """Return a session whose views and functions no other job has: the first one, then new ones.

        Raises:
            JobError: Spark does not start.
            SparkStartError: Java is missing, or the workers of the running session do not have Odradek.
        """
        with self._lock:
            if self._session is None or has_ended():
                self._session = open_session(self._job)
                return self._session
            with explained():
                return activated(self._session.newSession())


class JobRuns:
    """The runs of several jobs.

    Args:
        pipelines: The jobs, by name, in the order of the file.
    """

    def __init__(self, pipelines: Mapping[str, Pipeline]) -> None:
        self._pipelines = pipelines
        self._stopping = False

    def stop(self) -> None:
        """Make `run` return after the current batches. May be called from a signal handler or another thread."""
        self._stopping = True
        for pipeline in self._pipelines.values():
            pipeline.stop()

    def run(
        self,
        on_batch: Callable[[str, BatchReport], None],
        on_end: Callable[[str, Exception | None], None],
        *,
        follow_s: float | None = None,
    ) -> None:
        """Run all jobs until each has ended, or `stop`.

        Args:
            on_batch: Called after each batch that was not empty, with the job's name, by the job's thread.
            on_end: Called when a job has ended, by the job's thread, with what it failed with.
            follow_s: As for `Pipeline.run`.
        """
        with self._metrics():
            self._run_all(on_batch, on_end, follow_s)

    @contextmanager
    def _metrics(self) -> Iterator[None]:
        """Serve the metrics of all jobs while one of them runs, those with the same address together."""
        listeners: dict[tuple[str, int], MetricsListener] = {}
        with ExitStack() as open_ones:
            for pipeline in self._pipelines.values():
                address = pipeline.job.metrics
                # A job whose address is taken says so itself.
                with suppress(JobError):
                    if address is not None and address not in listeners:
                        listeners[address] = open_ones.enter_context(MetricsListener(*address))
                if address in listeners:
                    pipeline.metrics = JobMetrics(listeners[address], pipeline.job)
            yield

    def _run_all(
        self,
        on_batch: Callable[[str, BatchReport], None],
        on_end: Callable[[str, Exception | None], None],
        follow_s: float | None,
    ) -> None:
        follows = any(pipeline.job.trigger_interval_ms is not None for pipeline in self._pipelines.values())
        if not follows or len(self._pipelines) == 1:
            for name in self._pipelines:
                if not self._stopping:
                    self._run(name, on_batch, on_end, follow_s)
            return
        broken: list[BaseException] = []

        def run(name: str) -> None:
            try:
                self._run(name, on_batch, on_end, follow_s)
            except BaseException as error:
                # For example, the reader of our output was closed: that ends everything.
                broken.append(error)
                self.stop()

        # A second signal ends the process without waiting for them.
        threads = [threading.Thread(target=run, args=(name,), name=name, daemon=True) for name in self._pipelines]
        _start_and_join(threads, self.stop)
        if broken:
            raise broken[0]

    def _run(
        self,
        name: str,
        on_batch: Callable[[str, BatchReport], None],
        on_end: Callable[[str, Exception | None], None],
        follow_s: float | None,
    ) -> None:
        failure: Exception | None = None
        try:
            self._pipelines[name].run(lambda batch: on_batch(name, batch), follow_s=follow_s)
        except BrokenPipeError:
            raise
        except FAILURES as error:
            failure = error
        on_end(name, failure)


def _start_and_join(threads: Sequence[threading.Thread], stop: Callable[[], None]) -> None:
    """Run threads to their end; an exception of a signal handler lets them finish first."""
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        stop()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        raise
