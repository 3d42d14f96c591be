"""Traces that are sent by OpenTelemetry's SDK."""

from __future__ import annotations

import logging
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from odradek.errors import JobError
from odradek.spark.pipeline import Job, traces
from odradek.spark.pipeline.traces import open_traces
from peers.http import Collector

JOB = """
name = "orders"
source = { path = "data", subscribe = "orders" }
offsets.store = "file:offsets.json"
sink = [{ type = "console" }]
"""


def send(job: Job) -> None:
    """Sends three spans, the last of which fails."""

    def batch() -> None:
        with ExitStack() as open_ones:
            span = open_traces(job, open_ones)
            with span("batch", attributes={"odradek.job": "orders"}):
                with span("read"):
                    pass
                with span("commit"):
                    raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        batch()


@pytest.mark.slow
def test_spans_are_sent_before_the_job_ends(tmp_path: Path) -> None:
    with Collector() as collector:
        send(Job.parse(f'{JOB}opentelemetry.endpoint = "{collector.url}/v1/traces"\n', tmp_path))
        (body,) = collector.bodies
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    name = next(pair.value.string_value for pair in resource.resource.attributes if pair.key == "service.name")
    assert name == "orders"
    spans = {span.name: span for span in resource.scope_spans[0].spans}
    assert set(spans) == {"batch", "read", "commit"}
    assert {spans[name].parent_span_id for name in ("read", "commit")} == {spans["batch"].span_id}
    assert [spans[name].status.code for name in ("read", "commit", "batch")] == [0, 2, 2]
    assert [pair.key for pair in spans["batch"].attributes] == ["odradek.job"]


def test_without_an_address_nothing_is_measured(tmp_path: Path) -> None:
    send(Job.parse(JOB, tmp_path))
    assert Job.parse(JOB, tmp_path).traces is None


@pytest.mark.slow
@pytest.mark.parametrize("is_refused", [True, False])
def test_a_collector_that_is_away_delays_no_job_and_is_told_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_refused: bool
) -> None:
    monkeypatch.setattr(traces, "_TIMEOUT_S", 0.1)
    monkeypatch.setattr(traces._ONCE_A_MINUTE, "_next", 0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1/traces"
        if is_refused:
            server.close()
        job = Job.parse(f'{JOB}opentelemetry.endpoint = "{url}"\n', tmp_path)
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                send(job)
        assert len([record for record in caplog.records if record.name.startswith("opentelemetry")]) <= 1


def test_a_name_that_is_no_text_loses_no_spans(tmp_path: Path) -> None:
    with Collector() as collector:
        with ExitStack() as open_ones:
            job = Job.parse(f'{JOB}opentelemetry.endpoint = "{collector.url}/v1/traces"\n', tmp_path)
            span = open_traces(job, open_ones)
            with span("batch"), span("sink parquet /\udcff\n"):
                pass
        (body,) = collector.bodies
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    assert [span.name for span in resource.scope_spans[0].spans] == ["sink parquet /\\udcff\\n", "batch"]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
        ("OTEL_BSP_SCHEDULE_DELAY", "-5"),
        ("OTEL_SPAN_EVENT_COUNT_LIMIT", "many"),
        ("OTEL_PYTHON_TRACER_PROVIDER", "nope"),
        ("OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER", "nope"),
    ],
)
def test_a_wrong_variable_of_the_environment_is_told_before_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with ExitStack() as open_ones, pytest.raises(JobError, match=r"opentelemetry: .* environment variables OTEL_\*"):
        open_traces(Job.parse(f"{JOB}opentelemetry = {{}}\n", tmp_path), open_ones)
