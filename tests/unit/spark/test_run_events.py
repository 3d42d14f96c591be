"""OpenLineage's events of a job's runs, by OpenLineage's own client."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.errors import JobError
from odradek.spark.pipeline import Job, Pipeline, run_events
from odradek.spark.pipeline.observer import OnceAMinute
from odradek.spark.pipeline.run_events import RunEvents
from peers.http import Collector

JOB = """
name = "orders"
source = { path = "data", SOURCE }
offsets.store = "file:offsets.json"
sink = [{ type = "parquet", path = "paid" }, { type = "topic", topic = "copies", path = "target" }]
openlineage.namespace = "shop"
openlineage.transport = """


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("data", "target"):
        with odradek.open(tmp_path / name) as logs:
            logs.create_topic("orders" if name == "data" else "copies")
    return tmp_path


def job(folder: Path, transport: str, source: str = 'subscribe = "orders"') -> Job:
    return Job.parse(JOB.replace("SOURCE", source) + transport, folder)


def names(datasets: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(dataset["namespace"], dataset["name"]) for dataset in datasets]


@pytest.mark.slow
def test_a_run_starts_and_is_complete_or_has_failed(folder: Path) -> None:
    found = job(
        folder, f'{{ type = "file", log_file_path = "{folder}/events", append = true }}', 'subscribePattern = ".*"'
    )
    assert Pipeline(found).run() == 0
    (folder / "data").rename(folder / "elsewhere")
    with pytest.raises(odradek.OdradekError) as caught:
        Pipeline(found).run()
    events = [json.loads(line) for line in (folder / "events").read_text().splitlines()]
    assert [event["eventType"] for event in events] == ["START", "COMPLETE", "START", "FAIL"]
    first, other = events[0]["run"]["runId"], events[2]["run"]["runId"]
    assert [event["run"]["runId"] for event in events] == [first, first, other, other]
    assert first != other
    assert {(event["job"]["namespace"], event["job"]["name"]) for event in events} == {("shop", "orders")}
    kind = events[0]["job"]["facets"]["jobType"]
    assert (kind["processingType"], kind["integration"]) == ("BATCH", "ODRADEK")
    # What a pattern finds is known once the source was asked.
    topics = [("file", f"{folder}/data/orders")]
    assert [names(event["inputs"]) for event in events] == [[], topics, [], []]
    outputs = [("file", f"{folder}/paid"), ("file", f"{folder}/target/copies")]
    assert all(names(event["outputs"]) == outputs for event in events)
    assert events[3]["run"]["facets"]["errorMessage"]["message"] == str(caught.value)
    assert events[0]["eventTime"] <= events[1]["eventTime"]


BROKER = 'source = { kafka.bootstrap.servers = "one:9092, two:9092", subscribe = "b,a" }\n'
SINKS = [
    ('{ type = "parquet", path = "s3://key:secret@bucket/paid/2026?region=x" }', ("s3://bucket", "paid/2026")),
    ('{ type = "parquet", path = "hdfs://node:8020/paid" }', ("hdfs://node:8020", "/paid")),
    ('{ type = "topic", topic = "c", kafka.bootstrap.servers = "three:9092" }', ("kafka://three:9092", "c")),
    ('{ type = "delta", path = "paid" }', ("file", "FOLDER/paid")),
    ('{ type = "delta", path = "a?b#c\\n%20" }', ("file", "FOLDER/a?b#c\n%20")),
    ('{ type = "delta", path = "file:///paid" }', ("file", "/paid")),
    ('{ type = "delta", path = "s3a://bucket/paid" }', ("s3a://bucket", "paid")),
    ('{ type = "delta", path = "s3a://key:secret@bucket/paid" }', ("s3a://bucket", "paid")),
    ('{ type = "delta", path = "abfss://box@host/paid" }', ("abfss://box@host", "paid")),
    (
        '{ type = "jdbc", url = "jdbc:sqlserver://host:1433;user=me;password=secret", table = "sales" }',
        ("sqlserver://host:1433", "sales"),
    ),
    (
        '{ type = "jdbc", url = "jdbc:postgresql://me:secret@host:5432/shop?x=1", table = "public.sales" }',
        ("postgres://host:5432", "shop.public.sales"),
    ),
    ('{ type = "iceberg", table = "shop.sales" }', None),
    ('{ type = "console" }', None),
    ('{ type = "python", function = "json:dumps" }', None),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("sink", "output"), SINKS)
def test_datasets_have_the_names_of_the_specification(
    tmp_path: Path, sink: str, output: tuple[str, str] | None
) -> None:
    found = Job.parse(f'name = "n"\n{BROKER}offsets.store = "file:o"\nsink = [{sink}]\n', tmp_path)
    with Collector() as collector, RunEvents(found, {"transport": {"type": "http", "url": collector.url}}) as events:
        events.started()
        events.close()
        (body,) = collector.bodies
    event = json.loads(body)
    assert names(event["inputs"]) == [("kafka://one:9092", "a"), ("kafka://one:9092", "b")]
    expected = [] if output is None else [(output[0], output[1].replace("FOLDER", str(tmp_path)))]
    assert names(event["outputs"]) == expected
    assert event["job"]["namespace"] == "default"
    assert b"secret" not in body


@pytest.mark.slow
def test_an_event_that_was_not_taken_is_sent_again_and_no_password_is_logged(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run_events, "_WAITS_S", (0.0, 0.01, 0.01, 0.01))
    (once,) = (each for each in run_events._logger.filters if isinstance(each, OnceAMinute))
    monkeypatch.setattr(once, "_next", 0)
    with Collector(401, 503, 429) as collector:
        url = collector.url.replace("//", "//me:secret@")
        found = job(folder, f'{{ type = "http", url = "{url}" }}')
        with RunEvents(found, found.openlineage or {}) as events:
            events.started()
            deadline = time.monotonic() + 30
            while not collector.bodies and time.monotonic() < deadline:
                time.sleep(0.01)
    assert [json.loads(body)["eventType"] for body in collector.bodies] == ["START"]
    assert "has not taken an event: HTTPError 401" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("is_refused", [True, False])
def test_a_collector_that_is_away_delays_no_job_and_is_told_once_a_minute(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_refused: bool
) -> None:
    monkeypatch.setattr(run_events, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(run_events, "_MOST_EVENTS", 5)
    (once,) = (each for each in run_events._logger.filters if isinstance(each, OnceAMinute))
    monkeypatch.setattr(once, "_next", 0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        # It takes the connection, and never answers.
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        if is_refused:
            server.close()
        found = job(folder, f'{{ type = "http", url = "{url}", timeout = 60.0 }}')
        Pipeline(found).run()
        with caplog.at_level(logging.WARNING), RunEvents(found, found.openlineage or {}) as events:
            for _ in range(100):
                events.started()
                events.ended(None)
        # One attempt for each event would take an hour and a half.
        assert len(caplog.records) == 1
        assert caplog.records[0].name == "odradek.spark.pipeline.run_events"


@pytest.mark.parametrize("status", [200, 500])
def test_an_answer_without_an_end_is_not_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    monkeypatch.setattr(run_events, "_WAITS_S", (0.0,))
    (once,) = (each for each in run_events._logger.filters if isinstance(each, OnceAMinute))
    monkeypatch.setattr(once, "_next", 0)
    sent: list[int] = []

    def answer(server: socket.socket) -> None:
        for _ in range(3):
            client, _ = server.accept()
            sent.append(0)
            with client, suppress(OSError):
                client.recv(1 << 20)
                client.sendall(b"HTTP/1.1 %d so\r\nContent-Length: 1000000000\r\n\r\n" % status)
                while sent[-1] < 1000:
                    client.sendall(bytes(1 << 20))
                    sent[-1] += 1

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer, args=(server,), daemon=True)
        thread.start()
        found = job(folder, f'{{ type = "http", url = "http://127.0.0.1:{server.getsockname()[1]}" }}')
        with RunEvents(found, found.openlineage or {}) as events:
            for _ in range(3):
                events.started()
        thread.join(30)
    assert len(sent) == 3
    assert max(sent) < 100
    assert ("HTTPError 500" in caplog.text) == (status == 500)


@pytest.mark.slow
def test_a_full_queue_keeps_no_thread_alive_after_the_job(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_events, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(run_events, "_MOST_EVENTS", 2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        found = job(folder, f'{{ type = "http", url = "{url}", timeout = 0.5 }}')
        with RunEvents(found, found.openlineage or {}) as events:
            for _ in range(10):
                events.started()
        events._thread.join(30)
        assert not events._thread.is_alive()


@pytest.mark.parametrize(
    ("transport", "told"),
    [
        ('{ type = "htp", url = "http://127.0.0.1:1" }', "openlineage.transport: this is no transport of OpenLineage"),
        ('{ type = "http" }', "openlineage.transport: this is no transport of OpenLineage's client: .*url"),
        ("5", "openlineage.transport: expected a table, not 5"),
    ],
)
def test_a_wrong_transport_is_told_before_a_run(folder: Path, transport: str, told: str) -> None:
    with pytest.raises(JobError, match=told):
        Pipeline(job(folder, transport)).run()
