"""The page of pipelines: jobs as `odradek pipeline status` knows them, without Spark, and what --redact leaves out."""

from __future__ import annotations

import html
import subprocess
from functools import partial
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import odradek
from odradek.cli.ui import _jobs
from odradek.console.app import create_app
from odradek.console.options import ConsoleOptions
from odradek.offsets.store import Position, open_store
from odradek.records import Record
from odradek.spark.pipeline.batch_report import BatchReport
from odradek.spark.pipeline.history import History
from odradek.spark.pipeline.run_note import LastBatch, LastError, RunNote
from odradek.spark.ranges import OffsetRange
from odradek.storage.names import TopicPartition

NAME = TopicPartition("orders", 0)
JOB = """
on_invalid = "dead-letter"
name = "<b>orders"
source = { path = "data", subscribe = "orders" }
offsets.store = "file:offsets.json"
sink = [{ type = "console" }]
dead_letters = { path = "data", topic = "letters" }
"""


def page(folder: Path, *files: Path, **options: object) -> str:
    looks = tuple(partial(_jobs, file) for file in files)
    app = create_app(ConsoleOptions(str(folder), pipelines=looks, **options))  # type: ignore[arg-type]
    with TestClient(app, base_url="http://localhost") as client:
        answer = client.get("/pipelines")
        assert answer.status_code == (200 if files else 404)
        assert ('href="/pipelines"' in client.get("/").text) is bool(files)
    return html.unescape(answer.text)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    with odradek.open(tmp_path / "data") as logs:
        for topic in ("orders", "letters"):
            logs.create_topic(topic)
        logs["orders", 0].append([Record(None, b"v")] * 100)
        logs["letters", 0].append([Record(None, b"v")] * 3)
    (tmp_path / "job.toml").write_text(JOB, encoding="utf-8")
    note = RunNote(LastBatch(1_790_000_000_000, 58, 2.0, 3), LastError(1_790_000_005_000, "cannot cast 'secret'"))
    with open_store((tmp_path / "offsets.json").as_uri()) as store:
        store.commit({NAME: Position(58, note=note.text())}, expected=store.load())
    kept = History(tmp_path / "offsets.json.history")
    kept.done(BatchReport(1, [OffsetRange(NAME, 0, 58)], {NAME: 100}, {NAME: Position(58)}, 2.0))
    return tmp_path / "job.toml"


@pytest.mark.slow
def test_a_job_is_shown_with_what_it_did_and_what_it_refused(
    tmp_path: Path, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Neither Java nor any other program is started.
    monkeypatch.setattr(subprocess, "Popen", None)
    text = page(tmp_path / "data", job)
    assert "<b>orders" in text
    for shown in ("<dd>42</dd>", "58 in 2.0 s", "<dt>Records refused in it</dt><dd>3</dd>", "needs help", "'secret'"):
        assert shown in text
    assert '<a href="/topics/letters/records">3 in letters</a>' in text
    assert 'aria-label="Lag"' in text
    assert "The last minutes with batches" in text
    assert "As they were at 20" in text


@pytest.mark.slow
def test_what_is_left_out_of_records_is_left_out_of_errors(tmp_path: Path, job: Path) -> None:
    text = page(tmp_path / "data", job, redact=("value",))
    assert ("'secret'" in text, "[redacted]" in text) == (False, True)


@pytest.mark.slow
def test_a_job_that_cannot_be_looked_at_hides_no_other_one(tmp_path: Path, job: Path) -> None:
    (tmp_path / "broken.toml").write_text("name = ", encoding="utf-8")
    (tmp_path / "lost.toml").write_text(JOB.replace('"data"', '"gone"').replace("<b>", "lost-"), encoding="utf-8")
    text = page(tmp_path / "data", tmp_path / "broken.toml", tmp_path / "lost.toml", job)
    assert "broken.toml" in text
    assert "The source does not answer" in text
    assert "58 in 2.0 s" in text
    page(tmp_path / "data")
