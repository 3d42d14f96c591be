"""`/metrics` of a running pipeline, for Prometheus, by HTTP.

    odradek_pipeline_batches_total 12          odradek_pipeline_lag{topic="orders",partition="0"} 345

It is served from the driver, as long as the job runs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.errors import JobError
from odradek.offsets.store import Position
from odradek.storage.names import TopicPartition

if TYPE_CHECKING:
    from odradek.spark.pipeline.batch_report import BatchReport


class PipelineMetrics:
    """The numbers of one run, and the listener that serves them.

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
            from prometheus_client import CollectorRegistry, Counter, Gauge, Summary, start_http_server
        except ImportError as error:
            raise JobError(
                'this needs the package prometheus_client, which is not installed: pip install "odradek[broker]"',
                "metrics.listen",
            ) from error
        registry = CollectorRegistry()
        labels = ["topic", "partition"]
        prefix = "odradek_pipeline_"
        self._offsets = Counter(f"{prefix}offsets", "Offsets read.", registry=registry)
        self._refused = Counter(f"{prefix}refused_records", "Records that targets refused.", registry=registry)
        self._batches = Summary(f"{prefix}batch_seconds", "How long batches took.", registry=registry)
        self._sinks = Summary(f"{prefix}sink_seconds", "How long sinks took.", ["sink"], registry=registry)
        self._last = Gauge(f"{prefix}last_batch_timestamp_seconds", "When the last batch ended.", registry=registry)
        self._positions = Gauge(f"{prefix}position", "The next offset to read.", labels, registry=registry)
        self._ends = Gauge(f"{prefix}log_end_offset", "The end of the partition.", labels, registry=registry)
        self._lags = Gauge(f"{prefix}lag", "Offsets left to read.", labels, registry=registry)
        try:
            self._server, self._thread = start_http_server(port, host or "0.0.0.0", registry)  # noqa: S104
        except OSError as error:
            raise JobError(f"{host}:{port}: {error.strerror or error}", "metrics.listen") from error
        self.port = int(self._server.server_address[1])

    def done(self, report: BatchReport) -> None:
        """Count a batch."""
        self._offsets.inc(report.offsets)
        self._refused.inc(report.refused)
        self._batches.observe(report.seconds)
        for sink, seconds in report.sink_seconds:
            self._sinks.labels(sink).observe(seconds)
        self._last.set(time.time())

    def measured(self, positions: Mapping[TopicPartition, Position], end_offsets: Mapping[TopicPartition, int]) -> None:
        """Take over the positions, and where the partitions end now."""
        for name, end in end_offsets.items():
            labels = (name.topic, str(name.partition))
            offset = positions[name].offset
            self._positions.labels(*labels).set(offset)
            self._ends.labels(*labels).set(end)
            self._lags.labels(*labels).set(max(0, end - offset))

    def close(self) -> None:
        """Stop to serve."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
