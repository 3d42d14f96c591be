"""A trace for each batch, by OpenTelemetry's SDK.

    batch                      messaging.destination.name, odradek.job, odradek.partitions, odradek.offsets
      read                     what each task reads is planned
      transform                the views are defined
      sink parquet /paid       Spark reads, computes and writes the rows
      commit                   the positions are stored

Spans are sent by a thread of the SDK; what a collector that is away does not take is dropped.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from odradek.errors import JobError
from odradek.extras import missing_package
from odradek.printable import printable
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.observer import OnceAMinute, Span, no_span
from odradek.spark.ranges import OffsetRange

_TIMEOUT_S = 5.0
_EXPORTER_LOGS = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk._shared_internal")
_ONCE_A_MINUTE = OnceAMinute()


def open_traces(job: Job, open_ones: ExitStack) -> Span:
    """Return what measures the steps of a job's batches.

    Args:
        job: The job.
        open_ones: Closes it.

    Raises:
        JobError: The packages are not installed, or an environment variable of theirs is wrong.
    """
    if job.traces is None:
        return no_span
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise JobError(missing_package(error), "opentelemetry") from error
    try:
        provider: Any = trace.get_tracer_provider()
        if not isinstance(provider, TracerProvider):
            for name in _EXPORTER_LOGS:
                logging.getLogger(name).addFilter(_ONCE_A_MINUTE)
            provider = TracerProvider(resource=Resource.create({"service.name": job.name}), shutdown_on_exit=False)
            exporter = OTLPSpanExporter(endpoint=job.traces or None, timeout=_TIMEOUT_S)
            provider.add_span_processor(BatchSpanProcessor(exporter))
            open_ones.callback(_shut_down, provider)
    except Exception as error:
        # What it raises depends on the variable: ValueError, RuntimeError, StopIteration ...
        told = f"OpenTelemetry's SDK does not start, see the environment variables OTEL_*: {error!r}"
        raise JobError(told, "opentelemetry") from error
    tracer = provider.get_tracer("odradek")
    # A sink's path may hold what is no text, and one such name loses all spans that are sent with it.
    return lambda name, **options: tracer.start_as_current_span(printable(name), **options)


def batch_attributes(job: Job, ranges: Sequence[OffsetRange]) -> dict[str, Any]:
    """Return what a span says of a batch."""
    return {
        "odradek.job": job.name,
        "messaging.system": "kafka",
        "messaging.destination.name": ",".join(sorted({part.topic_partition.topic for part in ranges})),
        "odradek.partitions": len(ranges),
        "odradek.offsets": sum(part.end_offset - part.start_offset for part in ranges),
    }


def _shut_down(provider: Any) -> None:
    """Send the remaining spans, but do not wait long: the SDK waits for half a minute."""
    thread = threading.Thread(target=provider.shutdown, name="odradek-traces", daemon=True)
    thread.start()
    thread.join(_TIMEOUT_S)
