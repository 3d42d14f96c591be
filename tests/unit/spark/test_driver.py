"""What a pipeline does before its batches: what sinks hold, whether the store can be reached, and whose it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.errors import CommitConflictError, JobError, OffsetStoreError, OffsetStoreUnavailableError, SinkError
from odradek.kafka.topics import Bounds
from odradek.offsets.file import FileOffsetStore
from odradek.offsets.store import Position, Positions
from odradek.spark.open_transactions import TransactionWatch
from odradek.spark.pipeline import claimed_store
from odradek.spark.pipeline.batch import Batch
from odradek.spark.pipeline.claimed_store import ClaimedStore, StopRequest
from odradek.spark.pipeline.driver import Pipeline, PlainRun
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.planning import BatchPlan
from odradek.spark.pipeline.sink import FencedError, Sink, check_held
from odradek.spark.pipeline.sink_specs import ConsoleSinkSpec, ParquetSinkSpec
from odradek.spark.ranges import OffsetRange
from odradek.spark.spark_session import SparkStartError, session
from odradek.storage.names import TopicPartition

NAME = TopicPartition("events", 0)
PLANNED = BatchPlan([OffsetRange(NAME, 0, 3)], {NAME: 3}, {}, {NAME: Bounds(0, 3)})


class MemorySink(Sink):
    """A sink that holds one partition up to offset 5, and can forget it."""

    def __init__(self, on_held: str, topic_id: str | None = None) -> None:
        self.description = "a sink"
        self.on_held = on_held
        self._positions = {NAME: Position(5, topic_id=topic_id)}

    def positions(self) -> Mapping[TopicPartition, Position]:
        return self._positions

    def replay(self, starts: Mapping[TopicPartition, Position]) -> None:
        for name in starts:
            del self._positions[name]

    def write(self, batch: Batch) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


def claimed(store: FileOffsetStore) -> ClaimedStore:
    found = ClaimedStore(store, StopRequest(), print)
    found.claim()
    return found


def plain_run(job: Job, store: ClaimedStore, *sinks: Sink) -> PlainRun:
    options = job.source_options()
    watch, stopping = TransactionWatch(options.isolation), StopRequest()
    # Neither the source nor Spark is asked.
    return PlainRun(job=job, store=store, topics=None, sinks=sinks, watch=watch, stopping=stopping)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [MemorySink("error"), MemorySink("skip", "another")])
def test_no_sink_forgets_anything_where_another_is_wrong(wrong: MemorySink) -> None:
    first = {NAME: Position(0, topic_id="this")}
    sinks = [MemorySink("replay"), wrong, MemorySink("replay")]
    with pytest.raises(SinkError):
        check_held(sinks, first)
    assert all(sink.held(first) for sink in sinks)
    check_held([sinks[0], sinks[2]], first)
    assert not any(sink.held(first) for sink in (sinks[0], sinks[2]))


def job_of(folder: Path) -> Job:
    """A job over the folder `data` beside its store, in which there is a topic without records."""
    with odradek.open(folder / "data") as logs:
        logs.create_topic("events")
    store = (folder / "offsets.json").as_uri()
    return Job({"path": str(folder / "data"), "subscribe": "events"}, store, (ConsoleSinkSpec("SELECT 1"),))


def test_a_sink_that_holds_more_than_there_is_passes_over_nothing(tmp_path: Path) -> None:
    store = claimed(FileOffsetStore(tmp_path / "offsets.json"))
    run = plain_run(job_of(tmp_path), store, MemorySink("skip"))
    store.commit({NAME: Position(0)})
    with pytest.raises(
        SinkError, match="a sink says that it holds events-0 up to offset 5, and the partition ends at 3"
    ):
        run._do(None, PLANNED, "batch 1", {})  # type: ignore[arg-type]


def test_an_argument_of_a_wrong_type_is_named_before_spark_starts() -> None:
    with pytest.raises(TypeError, match=r"job must be a Job, .*not None \(NoneType\)"):
        Pipeline(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"master must be a str, not 5 \(int\)"):
        session(master=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="conf must be a mapping"):
        session(conf=["x"])  # type: ignore[arg-type]


def test_spark_connect_is_refused_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(tmp_path)
    with pytest.raises(JobError, match="Spark Connect has none there") as refused:
        replace(job, spark_master="sc://127.0.0.1:15002")
    assert refused.value.key == "spark.master"
    # A session of Spark Connect is another class.
    with pytest.raises(TypeError, match=r"spark must be a SparkSession, not .* Spark Connect has none there"):
        Pipeline(job, object())  # type: ignore[arg-type]
    with pytest.raises(SparkStartError, match="Spark Connect has none there"):
        session(master="sc://127.0.0.1:15002")
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:15002")
    with pytest.raises(SparkStartError, match="Spark Connect has none there"):
        session()


def test_a_pipeline_that_follows_ends_without_news(tmp_path: Path) -> None:
    steps: list[str] = []
    job = replace(job_of(tmp_path), trigger_interval_ms=5)
    assert Pipeline(job, on_step=steps.append).run(follow_s=0.02) == 0
    # Spark was not needed.
    assert steps == []


def test_a_store_that_is_away_at_the_start_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claimed_store, "STORE_RETRY_S", 0)
    job = job_of(tmp_path)
    claim, steps = FileOffsetStore.claim, list[str]()

    def claiming(store: FileOffsetStore) -> Positions:
        if len(steps) < 3:
            raise OffsetStoreUnavailableError("it is away")
        return claim(store)

    monkeypatch.setattr(FileOffsetStore, "claim", claiming)
    assert Pipeline(job, on_step=steps.append).run() == 0
    assert steps == ["waiting for the offset store: it is away"] * 3
    monkeypatch.setattr(claimed_store, "STORE_PATIENCE_S", -1)
    steps.clear()
    with pytest.raises(OffsetStoreUnavailableError):
        Pipeline(job, on_step=steps.append).run()
    assert steps == []


def test_a_commit_waits_only_for_a_store_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopping, steps = StopRequest(), list[str]()
    monkeypatch.setattr(StopRequest, "sleep", lambda *_: None)
    commit = FileOffsetStore.commit

    def committing(store: FileOffsetStore, *given: Any, **expected: Any) -> Positions:
        if len(steps) < 2:
            raise OffsetStoreUnavailableError("it is away")
        return commit(store, *given, **expected)

    with FileOffsetStore(tmp_path / "offsets.json") as opened:
        store = ClaimedStore(opened, stopping, steps.append)
        store.claim()
        monkeypatch.setattr(FileOffsetStore, "commit", committing)
        store.commit({NAME: Position(1)})
        assert steps == ["waiting for the offset store: it is away"] * 2
        steps.clear()
        stopping.make()
        with pytest.raises(OffsetStoreUnavailableError):
            store.commit({NAME: Position(2)})
        monkeypatch.undo()
        # It can be read, and not be written.
        stopping.is_made = False
        (tmp_path / ".offsets.json.lock").unlink(missing_ok=True)
        (tmp_path / ".offsets.json.lock").mkdir()
        with pytest.raises(OffsetStoreError, match="Is a directory"):
            store.commit({NAME: Position(2)})
        assert steps == []
        assert opened.load()[NAME].offset == 1


def test_a_commit_does_not_wait_for_a_store_that_somebody_has_spoilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FileOffsetStore(tmp_path / "offsets.json") as opened:
        store = claimed(opened)
        (tmp_path / "offsets.json").write_text("spoilt", encoding="utf-8")
        asked: list[float] = []
        monkeypatch.setattr(StopRequest, "sleep", lambda _, seconds: asked.append(seconds))
        with pytest.raises(OffsetStoreError, match="this is not a file of positions"):
            store.commit({NAME: Position(1)})
        assert asked == []


def test_a_batch_in_which_others_were_in_the_way_is_repeated_by_the_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = 0
    is_taken_over = False

    def do(*_: object) -> list[tuple[str, float]]:
        nonlocal times
        times += 1
        if is_taken_over:
            with FileOffsetStore(tmp_path / "offsets.json") as other:
                other.claim()
        if times < 3:
            raise FencedError("somebody else has the transactional id")
        return [("a sink", 0.1)]

    with FileOffsetStore(tmp_path / "offsets.json") as opened:
        store = claimed(opened)
        run = plain_run(job_of(tmp_path), store)
        monkeypatch.setattr(run, "_do", do)

        def write() -> list[tuple[str, float]]:
            return run._do_as_owner(None, PLANNED, "batch 1")  # type: ignore[arg-type]

        assert write() == [("a sink", 0.1)]
        assert times == 3
        times, is_taken_over = 0, True
        with pytest.raises(CommitConflictError):
            write()
        assert times == 1
        # From now on nothing is begun.
        with pytest.raises(CommitConflictError):
            write()
        assert times == 1
        store.claim()
        times, is_taken_over = -10, False
        with pytest.raises(FencedError):
            write()
        assert times == -6


def test_a_sink_that_cannot_be_opened_is_named_by_its_key(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    sinks = (ConsoleSinkSpec("SELECT 1"), ParquetSinkSpec(tmp_path / "file" / "out", "records"))
    with pytest.raises(JobError, match=r"^sink\[1\]\.path: .*file/out/_odradek: Not a directory$"):
        Pipeline(replace(job_of(tmp_path), sinks=sinks)).run()
