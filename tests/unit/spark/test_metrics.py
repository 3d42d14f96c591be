"""`/metrics` of the jobs of a file."""

from __future__ import annotations

import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

import odradek
from odradek.errors import JobError
from odradek.offsets.store import Position
from odradek.spark.pipeline import Job, Pipeline, metrics_server
from odradek.spark.pipeline.batch_report import BatchReport
from odradek.spark.pipeline.check_places import listener_problem
from odradek.spark.pipeline.job_runs import JobRuns
from odradek.spark.pipeline.metrics import JobMetrics, MetricsListener
from odradek.spark.ranges import OffsetRange
from odradek.spark.source_topics import open_topics
from odradek.storage.names import TopicPartition
from peers.broker_thread import eventually
from peers.http import FOREIGN_HEADERS, OWN_HOSTS, answered, get, metrics
from peers.process import free_port

ORDERS_0 = TopicPartition("orders", 0)
ORDERS_1 = TopicPartition("orders", 1)
OLD_MS = (time.time_ns() // 1_000_000) - 3_600_000
JOB = """
name = "orders"
source = { path = "data", subscribe = "orders" }
offsets.store = "file:offsets.json"
sink = [{ type = "console", sql = "SELECT 1" }]
"""
JOBS = """
source = { path = "data", subscribe = "orders" }
offsets = { store = "file:{name}.json", reset = "latest" }
sink = [{ type = "console" }]
trigger.interval = "5ms"
metrics.listen = "127.0.0.1:PORT"

[[job]]
name = "well"

[[job]]
name = "wrong"
source.path = "missing"
restart = { attempts = 2, backoff = "1ms" }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("orders", partitions=2)
        for value in (b"a", b"b", b"c"):
            logs["orders", 0].append([odradek.Record(value=value, timestamp=OLD_MS)])
    return tmp_path


@pytest.mark.slow
def test_one_address_serves_all_jobs_and_stays_when_one_fails(folder: Path) -> None:
    port = free_port()
    file = folder / "jobs.toml"
    file.write_text(JOBS.replace("PORT", str(port)), encoding="utf-8")
    base = f"http://127.0.0.1:{port}"
    while_waiting: list[dict[str, float]] = []
    at_end: dict[str, float] = {}
    jobs = Job.read_all(file)
    pipelines = {job.name: Pipeline(job, on_restart=lambda *_: while_waiting.append(metrics(base))) for job in jobs}
    runs = JobRuns(pipelines)

    def ended(name: str, failure: Exception | None) -> None:
        if name == "wrong":
            assert failure is not None
            while 'odradek_pipeline_lag{job="well",partition="0",topic="orders"}' not in metrics(base):
                time.sleep(0.01)
            at_end.update(metrics(base))
            runs.stop()

    runs.run(lambda *_: None, ended)
    counts = [
        (page['odradek_pipeline_failures_total{job="wrong"}'], page['odradek_pipeline_restarts_total{job="wrong"}'])
        for page in (*while_waiting, at_end)
    ]
    assert counts == [(1, 0), (2, 1), (3, 2)]
    assert [page['odradek_pipeline_up{job="wrong"}'] for page in (*while_waiting, at_end)] == [0, 0, 0]
    assert at_end['odradek_pipeline_up{job="well"}'] == 1
    assert at_end['odradek_pipeline_failures_total{job="well"}'] == 0
    assert at_end['odradek_pipeline_position{job="well",partition="0",topic="orders"}'] == 3
    assert at_end['odradek_pipeline_lag_seconds{job="well",partition="0",topic="orders"}'] == 0
    with pytest.raises(urllib.error.URLError, match="refused"):
        metrics(base)


@pytest.mark.slow
def test_a_batch_and_what_waits(folder: Path) -> None:
    begun_s = time.time()
    (folder / "state").mkdir()
    (folder / "state" / "file").write_bytes(bytes(1234))
    transform = 'transform = [{ view = "counts", sql = "SELECT count(*) FROM records" }]\nstate.path = "state"\n'
    job = Job.parse(JOB + transform, folder)
    with MetricsListener("127.0.0.1", 0) as served:
        with pytest.raises(JobError, match=r"metrics.listen: 127.0.0.1:\d+: Address already in use"):
            MetricsListener("127.0.0.1", served.port)
        told = JobMetrics(served, job)
        assert metrics(f"http://127.0.0.1:{served.port}")['odradek_pipeline_up{job="orders"}'] == 0
        told.started()
        report = BatchReport(
            1, [OffsetRange(ORDERS_0, 0, 1)], {ORDERS_0: 3}, {ORDERS_0: Position(1)}, 0.5, 1, [("console", 0.25)]
        )
        told.done(report)
        topics = open_topics(job.source_options())
        told.looked(topics, report.positions, report.end_offsets)
        found = metrics(f"http://127.0.0.1:{served.port}")
        of_job = {name: found[f'odradek_pipeline_{name}{{job="orders"}}'] for name in NUMBERS}
        assert of_job == NUMBERS
        assert found['odradek_pipeline_sink_seconds_sum{job="orders",sink="console"}'] == 0.25
        assert begun_s <= found['odradek_pipeline_last_batch_timestamp_seconds{job="orders"}'] <= time.time()
        labels = '{job="orders",partition="0",topic="orders"}'
        offsets = [found[f"odradek_pipeline_{name}{labels}"] for name in ("position", "log_end_offset", "lag")]
        assert offsets == [1, 3, 2]
        age_s = time.time() - OLD_MS / 1000
        assert begun_s - OLD_MS / 1000 <= found[f"odradek_pipeline_lag_seconds{labels}"] <= age_s
        assert (
            found[f"odradek_pipeline_lag_bytes{labels}"]
            == 2 * (folder / "data/orders-0" / f"{0:020}.log").stat().st_size / 3
        )
        told.looked(topics, {ORDERS_0: Position(3)}, {ORDERS_0: 3})
        topics.close()
        found = metrics(f"http://127.0.0.1:{served.port}")
        assert [found[f"odradek_pipeline_{name}{labels}"] for name in ("lag", "lag_seconds", "lag_bytes")] == [0, 0, 0]


NUMBERS = {
    "up": 1,
    "failures_total": 0,
    "restarts_total": 0,
    "offsets_total": 1,
    "refused_records_total": 1,
    "batch_seconds_count": 1,
    "batch_seconds_sum": 0.5,
    "state_bytes": 1234,
}


@pytest.mark.slow
@pytest.mark.parametrize("state", ["", 'state.path = "state"\n'])
def test_the_source_is_measured_before_the_first_batch(folder: Path, state: str) -> None:
    transform = 'transform = [{ view = "counts", sql = "SELECT count(*) FROM records" }]\n'
    port = free_port()
    found: dict[str, float] = {}

    def session() -> SparkSession:
        found.update(metrics(f"http://127.0.0.1:{port}"))
        raise JobError("this is enough")

    with pytest.raises(JobError, match="this is enough"):
        Pipeline(Job.parse(f'{JOB}{transform}{state}metrics.listen = "127.0.0.1:{port}"\n', folder), session).run()
    lags = [found[f'odradek_pipeline_lag{{job="orders",partition="{number}",topic="orders"}}'] for number in range(2)]
    assert lags == [3, 0]


def look(told: JobMetrics, ends: dict[TopicPartition, int]) -> None:
    told.looked(None, dict.fromkeys(ends, Position(9)), ends)  # type: ignore[arg-type]


def partitions(page: dict[str, float]) -> set[str]:
    return {name for name in page if "partition=" in name}


@pytest.fixture
def served() -> Iterator[MetricsListener]:
    with MetricsListener("127.0.0.1", 0) as served:
        yield served


def base(served: MetricsListener) -> str:
    return f"http://127.0.0.1:{served.port}"


@pytest.mark.slow
def test_a_partition_that_was_deleted_is_no_longer_served(tmp_path: Path, served: MetricsListener) -> None:
    told = JobMetrics(served, Job.parse(JOB, tmp_path))
    other = JobMetrics(served, Job.parse(JOB.replace('"orders"\n', '"others"\n', 1), tmp_path))
    for each in (told, other):
        look(each, {ORDERS_0: 9, ORDERS_1: 9})
    assert len(partitions(metrics(base(served)))) == 20
    look(told, {ORDERS_0: 9})
    found = partitions(metrics(base(served)))
    assert len(found) == 15
    assert {name for name in found if 'partition="1"' in name and 'job="orders"' in name} == set()
    look(told, {})
    assert len(partitions(metrics(base(served)))) == 10
    # One of the same name later.
    look(told, {ORDERS_1: 9})
    found_page = metrics(base(served))
    assert len(partitions(found_page)) == 15
    assert found_page['odradek_pipeline_lag_seconds{job="orders",partition="1",topic="orders"}'] == 0


@pytest.mark.slow
def test_names_that_are_hostile_break_no_page(tmp_path: Path, served: MetricsListener) -> None:
    name = 'a\\n"b"} 1\\ü'
    told = JobMetrics(served, replace(Job.parse(JOB, tmp_path), name=name))
    told.done(BatchReport(1, [], {}, {}, 1, sink_seconds=[("parquet /\udcff\n", 1.0)]))
    status, text = get(f"{base(served)}/metrics")
    assert status == 200
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    assert {each.labels["job"] for each in samples} == {name}
    assert {each.labels["sink"] for each in samples if "sink" in each.labels} == {"parquet /\\udcff\\n"}


@pytest.mark.parametrize("host", ["a..b", "x" * 70, ".", "\0", "\udc80", "é" * 80, "256.1.1.1", "8.8.8.8", "[::1]"])
def test_a_host_that_is_none_is_told_alike_by_a_check_and_a_run(host: str) -> None:
    problem = listener_problem(host, 0)
    assert problem is not None
    assert problem.isprintable()
    with pytest.raises(JobError) as caught:
        MetricsListener(host, 0)
    assert caught.value.reason == problem


@pytest.mark.slow
@pytest.mark.parametrize("host", ["", "127.0.0.1", "localhost"])
def test_a_host_that_is_one(host: str) -> None:
    assert listener_problem(host, 0) is None
    with MetricsListener(host, 0) as served:
        assert metrics(base(served)) == {}


@pytest.mark.slow
@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_version_6_of_ip() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("needs IPv6 on loopback")
    assert listener_problem("::1", 0) is None
    with MetricsListener("::1", 0) as served:
        assert metrics(f"http://[::1]:{served.port}") == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "sent", [b"", b"GET /met", b"GET /metrics HTTP/1.1\r\n\r\n", b"\x16\x03\x01\r\n\r\n", b"x" * 70_000]
)
def test_a_client_that_disconnects_writes_nothing_on_the_terminal(
    served: MetricsListener, capfd: pytest.CaptureFixture[str], sent: bytes
) -> None:
    client = socket.create_connection(("127.0.0.1", served.port))
    client.sendall(sent)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    assert metrics(base(served)) == {}
    eventually(lambda: answering() == 0)
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_a_web_page_reads_nothing(served: MetricsListener) -> None:
    served.lags.labels("orders", "orders", "0").set(1)
    for headers in FOREIGN_HEADERS:
        found = answered(served.port, *headers, request="GET /metrics HTTP/1.0")
        assert b" 403 Forbidden\r\n" in found
        assert b"odradek_" not in found
    for host in OWN_HOSTS:
        found = answered(served.port, f"Host: {host}", f"Origin: http://{host}", request="GET /metrics HTTP/1.0")
        assert b"odradek_pipeline_lag{" in found


def answering() -> int:
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


@pytest.mark.slow
def test_clients_that_hold_the_connection_take_few_threads_and_are_disconnected(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metrics_server._Handler, "timeout", 0.2)
    with MetricsListener("127.0.0.1", 0) as served, ExitStack() as held:
        for number in range(5000):
            served.lags.labels("orders", "orders", str(number)).set(1)
        most = 0
        for number in range(80):
            client = held.enter_context(socket.create_connection(("127.0.0.1", served.port)))
            with suppress(OSError):
                # One that asks and takes nothing, and one that does not ask.
                client.sendall((b"", b"GET /metrics HTTP/1.1\r\n\r\n")[number % 2])
            most = max(most, answering())
        assert len(metrics(base(served))) == 5000
        most = max(most, answering())
        assert 0 < most <= 32
        eventually(lambda: answering() == 0)
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_a_thousand_scrapers_are_answered(served: MetricsListener) -> None:
    served.lags.labels("orders", "orders", "0").set(1)
    with ThreadPoolExecutor(100) as scrapers:
        pages = list(scrapers.map(lambda _: metrics(base(served)), range(1000)))
    assert [len(page) for page in pages] == [1] * 1000
