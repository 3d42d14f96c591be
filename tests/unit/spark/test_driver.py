"""What a pipeline does before its batches: what sinks hold, whether the store can be reached, and whose it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import odradek
from odradek.errors import CommitConflictError, JobError, OffsetStoreUnavailableError, SinkError
from odradek.offsets.file import FileOffsetStore
from odradek.offsets.store import Position, Positions
from odradek.spark.pipeline import claimed_store
from odradek.spark.pipeline.batch import Batch
from odradek.spark.pipeline.claimed_store import ClaimedStore, StopRequest
from odradek.spark.pipeline.driver import Pipeline
from odradek.spark.pipeline.job import ConsoleSinkSpec, Job, ParquetSinkSpec
from odradek.spark.pipeline.planning import BatchPlan
from odradek.spark.pipeline.sink import FencedError, Sink, check_held
from odradek.spark.ranges import Bounds, OffsetRange
from odradek.spark.spark_session import session
from odradek.storage.names import TopicPartition

NAME = TopicPartition("events", 0)


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


@pytest.mark.parametrize("wrong", [MemorySink("error"), MemorySink("skip", "another")])
def test_no_sink_forgets_anything_where_another_is_wrong(wrong: MemorySink) -> None:
    first = {NAME: Position(0, topic_id="this")}
    sinks = [MemorySink("replay"), wrong, MemorySink("replay")]
    with pytest.raises(SinkError):
        check_held(sinks, first)
    assert all(sink.held(first) for sink in sinks)
    check_held([sinks[0], sinks[2]], first)
    assert not any(sink.held(first) for sink in (sinks[0], sinks[2]))


def test_a_sink_that_holds_more_than_there_is_passes_over_nothing(tmp_path: Path) -> None:
    job = Job({"path": str(tmp_path), "subscribe": "events"}, "file:///offsets.json", (ConsoleSinkSpec("SELECT 1"),))
    pipeline = Pipeline(job)
    store = claimed(FileOffsetStore(tmp_path / "offsets.json"))
    store.commit({NAME: Position(0)})
    planned = BatchPlan([OffsetRange(NAME, 0, 3)], {NAME: 3}, {}, {NAME: Bounds(0, 3)})
    with pytest.raises(
        SinkError, match="a sink says that it holds events-0 up to offset 5, and the partition ends at 3"
    ):
        pipeline._do(store, None, None, [MemorySink("skip")], planned, "batch 1")  # type: ignore[arg-type]


def test_an_argument_of_a_wrong_type_is_named_before_spark_starts() -> None:
    with pytest.raises(TypeError, match=r"job must be a Job, .*not None \(NoneType\)"):
        Pipeline(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"master must be a str, not 5 \(int\)"):
        session(master=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="conf must be a mapping"):
        session(conf=["x"])  # type: ignore[arg-type]


def test_a_pipeline_that_follows_ends_without_news(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events")
    store = (tmp_path / "offsets.json").as_uri()
    job = Job({"path": str(tmp_path / "data"), "subscribe": "events"}, store, (ConsoleSinkSpec("SELECT 1"),))
    steps: list[str] = []
    assert Pipeline(replace(job, trigger_interval_ms=5), on_step=steps.append).run(follow_s=0.02) == 0
    # Spark was not needed.
    assert steps == []


def test_a_store_that_is_away_at_the_start_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claimed_store, "STORE_RETRY_S", 0)
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events")
    store = (tmp_path / "offsets.json").as_uri()
    job = Job({"path": str(tmp_path / "data"), "subscribe": "events"}, store, (ConsoleSinkSpec("SELECT 1"),))
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


def test_a_batch_in_which_others_were_in_the_way_is_repeated_by_the_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = (tmp_path / "offsets.json").as_uri()
    pipeline = Pipeline(Job({"path": str(tmp_path), "subscribe": "events"}, address, (ConsoleSinkSpec("SELECT 1"),)))
    planned = BatchPlan([OffsetRange(NAME, 0, 3)], {NAME: 3}, {}, {NAME: Bounds(0, 3)})
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

    monkeypatch.setattr(pipeline, "_do", do)
    with FileOffsetStore(tmp_path / "offsets.json") as opened:
        store = claimed(opened)

        def write() -> list[tuple[str, float]]:
            return pipeline._do_as_owner(store, None, None, [], planned, "batch 1")  # type: ignore[arg-type]

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
    job = Job({"path": str(tmp_path / "data"), "subscribe": "events"}, (tmp_path / "offsets.json").as_uri(), sinks)
    with pytest.raises(JobError, match=r"^sink\[1\]\.path: .*file/out/_odradek: Not a directory$"):
        Pipeline(job).run()
