"""When a job that failed starts again."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.errors import CommitConflictError, JobError, OffsetStoreUnavailableError
from odradek.spark.pipeline.driver import Pipeline
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.restarts import Restart, WorkerLostError
from odradek.spark.pipeline.sink_specs import ConsoleSinkSpec


@pytest.mark.parametrize(
    ("restart", "failure", "waits"),
    [
        (Restart(), JobError("sql"), []),
        (Restart(3, 100), JobError("sql"), [0.1, 0.2, 0.4]),
        (Restart(2, 500_000), OffsetStoreUnavailableError("away"), [500.0, 600.0]),
        (Restart(), WorkerLostError("killed"), [0.0, 0.0, 0.0]),
        (Restart(5, 100), WorkerLostError("killed"), [0.0, 0.0, 0.0, 0.8, 1.6]),
        (Restart(5), CommitConflictError("store", "1", "2"), []),
        (Restart(5), BrokenPipeError(), []),
    ],
)
def test_waits(restart: Restart, failure: Exception, waits: list[float]) -> None:
    found = [restart.wait_s(failure, number) for number in range(1, len(waits) + 2)]
    assert found == [*waits, None]


def cannot_run(path: Path, restart: Restart) -> Job:
    source = {"path": str(path / "missing"), "subscribe": "t"}
    return Job(source, f"file:{path}/offsets.json", (ConsoleSinkSpec("SELECT 1"),), restart=restart)


def test_a_job_that_cannot_run_is_tried_as_often_as_it_says(tmp_path: Path) -> None:
    told: list[tuple[str, float]] = []
    pipeline = Pipeline(
        cannot_run(tmp_path, Restart(3, 1)), on_restart=lambda error, wait_s: told.append((str(error), wait_s))
    )
    with pytest.raises(Exception, match="missing") as caught:
        pipeline.run()
    assert told == [(str(caught.value), wait_s) for wait_s in (0.001, 0.002, 0.004)]


def test_a_request_to_stop_ends_the_wait(tmp_path: Path) -> None:
    pipeline = Pipeline(cannot_run(tmp_path, Restart(3, 600_000)), on_restart=lambda error, wait_s: pipeline.stop())
    # What has failed is not done: the exit code and the last line of JSON say so.
    with pytest.raises(Exception, match="missing"):
        pipeline.run()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("attempts = 5\nbackoff = '1m'", Restart(5, 60_000)),
        ("", Restart()),
        ("attempts = -1", "restart.attempts: a number that is not negative, not -1"),
        ("backoff = 'soon'", "restart.backoff: a time such as 500ms, 5s or 1m, not 'soon'"),
        ("attempt = 1", r"restart.attempt: unknown key; did you mean attempts\?"),
    ],
)
def test_the_table_of_a_file(tmp_path: Path, text: str, told: Restart | str) -> None:
    whole = f"""
    [source]
    path = "data"
    subscribe = "t"
    [offsets]
    store = "file:offsets.json"
    [restart]
    {text}
    [[sink]]
    type = "console"
    """
    if isinstance(told, Restart):
        assert Job.parse(whole, tmp_path).restart == told
    else:
        with pytest.raises(JobError, match=told):
            Job.parse(whole, tmp_path)
