"""Opens the observers of a job's run, as the job's file says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from odradek.spark.pipeline.history import History, history_path
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.metrics import JobMetrics, MetricsListener
from odradek.spark.pipeline.observer import Observer, Observers
from odradek.spark.pipeline.run_events import RunEvents
from odradek.spark.pipeline.traces import open_traces


@contextmanager
def observed(job: Job, metrics: JobMetrics | None) -> Iterator[Observers]:
    """Yield the observers of a job's run.

    Args:
        job: The job.
        metrics: Its metrics, if several jobs share an address that is open already.

    Raises:
        JobError: A package is not installed, or the address of the metrics is taken.
    """
    with ExitStack() as open_ones:
        found: list[Observer] = []
        if metrics is None and job.metrics is not None:
            metrics = JobMetrics(open_ones.enter_context(MetricsListener(*job.metrics)), job)
        if metrics is not None:
            found.append(metrics)
        if (path := history_path(job)) is not None:
            found.append(History(path))
        if job.openlineage is not None:
            found.append(open_ones.enter_context(RunEvents(job, job.openlineage)))
        yield Observers(found, open_traces(job, open_ones))
