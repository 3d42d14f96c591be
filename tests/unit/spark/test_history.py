"""The lag and the rate of the last day: what is kept, and how `status` shows it."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import odradek
from odradek.cli.app import main
from odradek.cli.pipeline_report import plot, plot_columns
from odradek.errors import JobError
from odradek.minutes import MINUTES, Minute
from odradek.offsets.store import Position
from odradek.spark.pipeline import Job, Pipeline, history, observer
from odradek.spark.pipeline.batch_report import BatchReport
from odradek.spark.pipeline.history import History, history_path, read_history
from odradek.spark.ranges import OffsetRange
from odradek.storage.names import TopicPartition

NAME = TopicPartition("orders", 0)
NOW = 30_000_000
JOB = """
name = "orders"
source = { path = "data", subscribe = "orders" }
offsets.store = "file:offsets.json"
sink = [{ type = "console" }]
"""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    minutes = [NOW]
    monkeypatch.setattr(history, "this_minute", lambda: minutes[0])
    return minutes


def look(kept: History, lag: int) -> None:
    kept.looked(None, {NAME: Position(100)}, {NAME: 100 + lag})  # type: ignore[arg-type]


def batch(kept: History, offsets: int, lag: int) -> None:
    kept.done(BatchReport(1, [OffsetRange(NAME, 0, offsets)], {NAME: offsets + lag}, {NAME: Position(offsets)}, 0.1))


def test_a_minute_has_the_highest_lag_and_all_offsets_also_after_a_restart(tmp_path: Path, clock: list[int]) -> None:
    path = tmp_path / "history"
    kept = History(path)
    look(kept, 7)
    batch(kept, 5, 2)
    clock[0] += 1
    batch(kept, 2, 0)
    batch(History(path), 3, 1)
    assert read_history(path) == [(NOW, 7, 5), (NOW + 1, 1, 5)]


@pytest.mark.slow
def test_it_stays_small_and_forgets_what_is_older_than_a_day(tmp_path: Path, clock: list[int]) -> None:
    path = tmp_path / "history"
    kept = History(path)
    for _ in range(2 * MINUTES):
        look(kept, clock[0])
        clock[0] += 1
    clock[0] -= 1
    assert path.stat().st_size == MINUTES * 28
    assert read_history(path) == [(number, number, 0) for number in range(NOW + MINUTES, NOW + 2 * MINUTES)]
    # A day in which nothing was noted.
    clock[0] += MINUTES - 1
    assert read_history(path) == [(NOW + 2 * MINUTES - 1,) * 2 + (0,)]


def test_nothing_is_written_while_nothing_changes(tmp_path: Path, clock: list[int]) -> None:
    path = tmp_path / "history"
    kept = History(path)
    look(kept, 3)
    path.unlink()
    look(kept, 3)
    look(kept, 2)
    assert not path.exists()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("cut", range(28))
def test_a_slot_that_a_crash_has_torn_counts_for_nothing(tmp_path: Path, clock: list[int], cut: int) -> None:
    path = tmp_path / "history"
    look(History(path), 7)
    clock[0] += 1
    look(History(path), 8)
    whole = path.read_bytes()
    start = (NOW + 1) % MINUTES * 28
    for torn in (whole[: start + cut], whole[: start + cut] + bytes(28 - cut) + whole[start + 28 :]):
        path.write_bytes(torn)
        assert read_history(path) == [(NOW, 7, 0)]
    path.write_bytes(bytes(range(256)) * 200)
    assert read_history(path) == []


@pytest.mark.parametrize("content", [b"the password of the safe: 1234", bytes(range(256)) * 200])
def test_a_file_that_holds_something_else_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "precious.txt"
    path.write_bytes(content)
    with pytest.raises(JobError, match=r"precious\.txt is no history of a job"):
        History(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("times", [1, 2])
def test_a_full_disk_ends_no_job_and_is_told_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, times: int
) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("orders")
    monkeypatch.setattr(observer, "_MINUTE_S", 60 if times == 1 else 0)
    (once,) = (each for each in observer._logger.filters if isinstance(each, observer.OnceAMinute))
    monkeypatch.setattr(once, "_next", 0)
    job = Job.parse(JOB + 'metrics.history = "/dev/full"\n', tmp_path)
    with caplog.at_level(logging.WARNING):
        assert [Pipeline(job).run(), Pipeline(job).run()] == [0, 0]
    assert [record.getMessage() for record in caplog.records] == [
        "History: OSError(28, 'No space left on device'); the job continues without it"
    ] * times


def test_where_it_is(tmp_path: Path) -> None:
    state = 'transform = [{ view = "counts", sql = "SELECT count(*) FROM records" }]\nstate.path = "state"\n'
    remote = JOB.replace("file:offsets.json", "redis://127.0.0.1:1/0?group=orders")
    for text, place in (
        (JOB, "offsets.json.history"),
        (JOB + state, "state/odradek.history"),
        (JOB + state + 'metrics.history = "day"', "day"),
        (remote, None),
        (remote + 'metrics.history = "day"', "day"),
    ):
        assert history_path(Job.parse(text, tmp_path)) == (place and tmp_path / place)


def test_status_shows_it(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("orders")
    (tmp_path / "job.toml").write_text(JOB, encoding="utf-8")
    assert "offsets/s" not in CliRunner().invoke(main, ["pipeline", "status", str(tmp_path / "job.toml")]).output
    batch(History(tmp_path / "offsets.json.history"), 120, 1200)
    lines = CliRunner().invoke(main, ["pipeline", "status", str(tmp_path / "job.toml")]).output.splitlines()
    assert lines[1:3] == ["lag       |█| at most 1,200 in the last 1 min", "offsets/s |█| at most 2.0"]
    told = json.loads(
        CliRunner().invoke(main, ["pipeline", "status", str(tmp_path / "job.toml"), "--format", "jsonl"]).output
    )
    (minute,) = told["history"]
    assert minute.pop("time_ms") % 60_000 == 0
    assert minute == {"lag": 1200, "offsets": 120}


@pytest.mark.parametrize(
    ("minutes", "told"),
    [
        ([], []),
        ([Minute(NOW - 360, 5, 5)], []),
        ([Minute(NOW - 2, 0, 0), Minute(NOW, 0, 0)], ["|▁ ▁| at most 0 in the last 3 min", "|▁ ▁| at most 0.0"]),
        (
            [Minute(NOW - 3, 700, 0), Minute(NOW - 2, 350, 600), Minute(NOW, 0, 60)],
            ["|█▅ ▁| at most 700 in the last 4 min", "|▁█ ▂| at most 10.0"],
        ),
        # Six minutes a column.
        (
            [Minute(NOW - 359, 70, 360), Minute(NOW - 1, 20, 720), Minute(NOW, 10, 1440)],
            [f"|█{' ' * 58}▃| at most 70 in the last 6.0 h", f"|▂{' ' * 58}█| at most 6.0"],
        ),
    ],
)
def test_the_plot(minutes: list[Minute], told: list[str]) -> None:
    assert [line.partition("|")[1] + line.partition("|")[2] for line in plot(minutes, NOW)] == told


def test_a_clock_that_is_set_back_loses_no_minute(tmp_path: Path, clock: list[int]) -> None:
    path = tmp_path / "history"
    kept = History(path)
    for offsets in (1, 2, 4):
        batch(kept, offsets, 9)
        clock[0] += 1
    clock[0] = NOW + 1
    batch(kept, 16, 3)
    # A job that starts now knows the minutes to come, too.
    kept = History(path)
    batch(kept, 32, 3)
    clock[0] += 1
    batch(kept, 64, 3)
    assert read_history(path) == [(NOW, 9, 1), (NOW + 1, 9, 2 + 16 + 32), (NOW + 2, 9, 4 + 64)]


def test_a_clock_that_was_a_day_ahead_leaves_nothing(tmp_path: Path, clock: list[int]) -> None:
    path = tmp_path / "history"
    clock[0] = NOW + 3 * MINUTES
    batch(History(path), 1, 1)
    clock[0] = NOW
    kept = History(path)
    batch(kept, 2, 2)
    clock[0] += 1
    batch(kept, 4, 4)
    assert read_history(path) == [(NOW, 2, 2), (NOW + 1, 4, 4)]


@pytest.mark.parametrize(("width", "columns"), [(20, 8), (80, 29), (300, 60)])
def test_a_terminal_does_not_wrap_the_bars(monkeypatch: pytest.MonkeyPatch, width: int, columns: int) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    assert plot_columns() == columns
    lines = plot([Minute(NOW - age, 9_999_999_999, 60) for age in range(359, -1, -1)], NOW, columns)
    assert all(line.rindex("|") < max(width, 20) for line in lines)
    assert width == 20 or all(len(line) <= width for line in lines)


def test_a_pipe_gets_the_whole_plot() -> None:
    assert plot_columns() == 60
