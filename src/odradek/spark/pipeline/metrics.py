"""`/metrics` of the jobs of a file, for Prometheus, by HTTP.

    odradek_pipeline_up{job="orders"} 1        odradek_pipeline_lag{job="orders",topic="orders",partition="0"} 345

They are served until all jobs have ended: also those of a job that has failed, has ended or has not started yet.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from math import inf, nan
from pathlib import Path
from typing import NamedTuple

from odradek.closing import Closing
from odradek.errors import JobError, OdradekError
from odradek.extras import missing_package
from odradek.offsets.store import Position
from odradek.printable import printable
from odradek.records.header import NO_TIMESTAMP
from odradek.spark.pipeline.batch_report import BatchReport
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.metrics_server import open_server
from odradek.spark.pipeline.observer import Observer
from odradek.spark.ranges import Topics
from odradek.storage.names import TopicPartition

_POLL_S = 0.1
_LEAST_LOOK_S = 0.01
_LOOK_SHARE = 0.02
"""How much of its time a job may look at records that wait."""


class MetricsListener(Closing):
    """An address that serves the metrics of jobs.

    Args:
        host: Where to listen; all addresses of this machine if empty.
        port: The port; 0 for any.

    Attributes:
        port: The port.

    Raises:
        JobError: The package prometheus_client is not installed, or the address cannot be listened on.
    """

    def __init__(self, host: str, port: int) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, Summary, make_wsgi_app
        except ModuleNotFoundError as error:
            raise JobError(missing_package(error), "metrics.listen") from error
        registry = CollectorRegistry()
        of_job, of_partition = ["job"], ["job", "topic", "partition"]

        def gauge(name: str, what: str, labels: list[str] = of_partition) -> Gauge:
            return Gauge(f"odradek_pipeline_{name}", what, labels, registry=registry)

        def counter(name: str, what: str) -> Counter:
            return Counter(f"odradek_pipeline_{name}", what, of_job, registry=registry)

        def summary(name: str, what: str, labels: list[str] = of_job) -> Summary:
            return Summary(f"odradek_pipeline_{name}", what, labels, registry=registry)

        self.up = gauge("up", "1 while the job runs, 0 before, after a failure and at the end.", of_job)
        self.failures = counter("failures", "Runs that an error has ended.")
        self.restarts = counter("restarts", "Runs that were started after a failure.")
        self.offsets = counter("offsets", "Offsets read.")
        self.refused = counter("refused_records", "Records that targets refused.")
        self.batches = summary("batch_seconds", "How long batches took.")
        self.sinks = summary("sink_seconds", "How long sinks took.", [*of_job, "sink"])
        self.last = gauge("last_batch_timestamp_seconds", "When the last batch ended.", of_job)
        self.positions = gauge("position", "The next offset to read.")
        self.ends = gauge("log_end_offset", "The end of the partition.")
        self.lags = gauge("lag", "Offsets left to read.")
        self.lag_bytes = gauge("lag_bytes", "About how many bytes are left to read.")
        self.lag_seconds = gauge("lag_seconds", "How old the first batch is that is left to read.")
        self.of_partitions = (self.positions, self.ends, self.lags, self.lag_bytes, self.lag_seconds)
        self.state_bytes = gauge("state_bytes", "The size of the job's state.", of_job)
        self._server = open_server(host, port)
        self._server.set_app(make_wsgi_app(registry))
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_POLL_S,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Waiting(NamedTuple):
    """The first batch that waits in a partition.

    Attributes:
        offset: The position at which it was looked for.
        since_s: Its timestamp; infinite if nothing waits.
        offset_bytes: About how many bytes an offset takes.
    """

    offset: int
    since_s: float
    offset_bytes: float


_NOTHING = _Waiting(-1, inf, 0.0)
_UNKNOWN = _Waiting(-1, nan, nan)


class JobMetrics(Observer):
    """The metrics of one job.

    Args:
        served: The address that serves them.
        job: The job.
    """

    def __init__(self, served: MetricsListener, job: Job) -> None:
        self._served = served
        self._name = job.name
        self._up = served.up.labels(job.name)
        self._has_started = False
        self._looked_s = time.monotonic()
        self._waiting: dict[TopicPartition, _Waiting] = {}
        # Prometheus counts nothing where there is no 0 before.
        for family in (served.failures, served.restarts, served.offsets, served.refused, served.batches):
            family.labels(job.name)
        if job.state is not None:
            served.state_bytes.labels(job.name).set_function(partial(_size_bytes, job.state.path))

    def started(self) -> None:
        """Count the run if it is not the first one."""
        if self._has_started:
            self._served.restarts.labels(self._name).inc()
        self._has_started = True
        self._up.set(1)

    def looked(
        self, topics: Topics, positions: Mapping[TopicPartition, Position], end_offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Take over the positions and the ends; look at what waits, the largest lag first, as long as there is time."""
        now = time.monotonic()
        deadline = now + max(_LEAST_LOOK_S, _LOOK_SHARE * (now - self._looked_s))
        self._looked_s = now
        for gone in self._waiting.keys() - end_offsets.keys():
            del self._waiting[gone]
            for family in self._served.of_partitions:
                family.remove(self._name, gone.topic, str(gone.partition))
        lags = {name: end - positions[name].offset for name, end in end_offsets.items()}
        for name in sorted(lags, key=lags.__getitem__, reverse=True):
            lag, offset = lags[name], positions[name].offset
            labels = (self._name, name.topic, str(name.partition))
            self._served.positions.labels(*labels).set(offset)
            self._served.ends.labels(*labels).set(end_offsets[name])
            self._served.lags.labels(*labels).set(lag)
            if name not in self._waiting:
                self._served.lag_seconds.labels(*labels).set_function(partial(self._age_s, name))
            waiting = self._waiting.get(name, _UNKNOWN) if lag > 0 else _NOTHING
            if lag > 0 and waiting.offset != offset:
                waiting = _first_waiting(topics, name, offset) if time.monotonic() < deadline else _UNKNOWN
            self._waiting[name] = waiting
            self._served.lag_bytes.labels(*labels).set(max(0, lag) * waiting.offset_bytes)

    def done(self, batch: BatchReport) -> None:
        """Count a batch."""
        self._served.offsets.labels(self._name).inc(batch.offsets)
        self._served.refused.labels(self._name).inc(batch.refused)
        self._served.batches.labels(self._name).observe(batch.seconds)
        for sink, seconds in batch.sink_seconds:
            # A path may hold what is no text.
            self._served.sinks.labels(self._name, printable(sink)).observe(seconds)
        self._served.last.labels(self._name).set(time.time())

    def ended(self, error: BaseException | None) -> None:
        """Count the run if it has failed."""
        self._up.set(0)
        if error is not None:
            self._served.failures.labels(self._name).inc()

    def _age_s(self, name: TopicPartition) -> float:
        # If nothing waits, this is 0; if it is not known since when, it is not a number.
        return max(time.time() - self._waiting.get(name, _UNKNOWN).since_s, 0.0)


def _first_waiting(topics: Topics, name: TopicPartition, offset: int) -> _Waiting:
    with suppress(OdradekError, OSError):
        header = topics.first_header(name, offset)
        if header is not None:
            since_s = nan if header.max_timestamp == NO_TIMESTAMP else header.max_timestamp / 1000
            return _Waiting(offset, since_s, header.size_bytes / (header.last_offset_delta + 1))
    return _UNKNOWN


def _size_bytes(folder: Path) -> int:
    """Return how many bytes the files of a folder have; files may come and go meanwhile."""
    size_bytes = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                size_bytes += os.stat(os.path.join(path, name)).st_size  # noqa: PTH116, PTH118 - there may be thousands
    return size_bytes
