"""The state of a job and its offset store: which positions belong to which batch. Spark's files are made here."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import odradek
from odradek.errors import JobError
from odradek.offsets.store import Position, open_store
from odradek.spark.pipeline.driver import Pipeline
from odradek.spark.pipeline.functions import Transform
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.sink_specs import ConsoleSinkSpec
from odradek.spark.pipeline.state_folder import StateFolder
from odradek.spark.pipeline.state_spec import StateSpec
from odradek.storage.names import TopicPartition

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def at(*offsets: int, batch: str | None = None) -> dict[TopicPartition, Position]:
    return {TopicPartition("t", number): Position(offset, batch=batch) for number, offset in enumerate(offsets)}


def plan(folder: Path, number: int, *offsets: int, done: bool = False) -> None:
    """Write what Spark writes of a batch."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(exist_ok=True)
    ends = json.dumps({"t": {str(number): offset for number, offset in enumerate(offsets)}})
    (folder / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{ends}')
    if done:
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    """A state that began at 3 and 0, whose batch 0 is done, and whose batch 1 is not; in it, partition 1 is new."""
    folder = StateFolder(tmp_path / "state")
    assert folder.is_new
    folder.begin(at(3))
    plan(folder.path, 0, 10, done=True)
    plan(folder.path, 1, 15, 4)
    folder.close()
    return StateFolder(tmp_path / "state")


def test_what_a_state_remembers(state: StateFolder) -> None:
    assert not state.is_new
    assert (state.last_planned, state.last_done) == (1, 0)
    assert {name: place.offset for name, place in state.ends(-1).items()} == {FIRST: 3}
    assert {name: place.offset for name, place in state.ends(1).items()} == {FIRST: 15, SECOND: 4}
    (name, _), start, end = state.batch_range(1)
    assert (start, end) == (1, 2)
    assert state.token(1).endswith(f"{name.rpartition('.')[2]}-1")
    # Another state has another name, so what a sink holds of one is not taken for the other.
    state.begin(at(3))
    assert state.batch_range(1).topic_partition.topic != name


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "state")
    (folder.path / "odradek.json.tmp").mkdir()
    with pytest.raises(JobError, match=r"state\.path: .*state/odradek\.json: Is a directory"):
        folder.begin(at(3))
    folder.close()


@pytest.mark.parametrize("stored", [at(10), at(15, 4)])
def test_the_store_is_before_the_unfinished_batch_or_after_it(
    state: StateFolder, stored: Mapping[TopicPartition, Position]
) -> None:
    state.check(stored)
    assert state.is_done(1, stored) is (len(stored) == 2)


@pytest.mark.parametrize("stored", [{}, at(9), at(15), at(15, 3), at(10, 0), at(16, 4), at(3)])
def test_any_other_position_belongs_to_another_state(
    state: StateFolder, stored: Mapping[TopicPartition, Position]
) -> None:
    with pytest.raises(JobError, match="the two belong together"):
        state.check(stored)
    with pytest.raises(JobError, match=r"state\.path: .* is the state after .*, and the offset store has "):
        state.is_done(1, stored)


def test_a_partition_that_is_gone_is_not_in_the_batch_and_still_in_the_store(state: StateFolder) -> None:
    plan(state.path, 1, 15, 4, done=True)
    plan(state.path, 2, 17)
    assert not state.is_done(2, at(15, 4))
    assert state.is_done(2, at(17, 4))
    with pytest.raises(JobError, match="after offset 4 of t-1, and the offset store has offset 5"):
        state.is_done(2, at(15, 5))


def test_a_batch_that_reads_nothing_is_known_by_its_token(state: StateFolder) -> None:
    plan(state.path, 1, 15, 4, done=True)
    plan(state.path, 2, 15, 4)
    state.check(at(15, 4))
    assert not state.is_done(2, at(15, 4))
    assert not state.is_done(2, at(15, 4, batch=state.token(1)))
    assert state.is_done(2, at(15, 4, batch=state.token(2)))
    with pytest.raises(JobError, match="after offset 15 of t-0, and the offset store has offset 10"):
        state.check(at(10))


def test_a_folder_that_is_not_the_state_of_a_pipeline(tmp_path: Path, state: StateFolder) -> None:
    with pytest.raises(JobError, match="another pipeline uses this state"):
        StateFolder(state.path)
    state.close()
    file = state.path / "odradek.json"
    text = file.read_text()
    for wrong in ("", "[]", "{}", '{"id": "x"}', '{"id": "x", "start": 5}', "\udcff", "[" * 100_000):
        file.write_text(wrong, errors="surrogateescape")
        with pytest.raises(JobError, match=r"odradek\.json: not what a pipeline has written"):
            StateFolder(state.path)
    file.unlink()
    with pytest.raises(JobError, match="the checkpoint of another stream"):
        StateFolder(state.path)
    # What failed has not kept the lock.
    file.write_text(text)
    again = StateFolder(state.path)
    (state.path / "offsets" / "1").write_text("v2\n{}")
    with pytest.raises(JobError, match="unknown format 'v2'"):
        again.ends(1)
    again.close()
    shutil.rmtree(state.path / "offsets")
    with pytest.raises(JobError, match=r"offsets: no batch, and .*commits says that batches are done"):
        StateFolder(state.path)
    with pytest.raises(JobError, match=r"state\.path: .*odradek\.json.*: Not a directory"):
        StateFolder(file / "below")


@pytest.mark.parametrize("asked", [{"subscribe": "other"}, {"assign": '{"t": [1]}'}])
def test_a_source_that_asks_for_less_is_told_before_spark_calls_it_lost(tmp_path: Path, asked: dict[str, str]) -> None:
    with odradek.open(tmp_path / "data") as logs:
        for topic in ("t", "other"):
            logs.create_topic(topic, partitions=2)
    job = Job(
        {"path": str(tmp_path / "data"), **asked},
        (tmp_path / "offsets.json").as_uri(),
        (ConsoleSinkSpec("SELECT 1"),),
        transforms=(Transform("counts", "SELECT count(*) FROM records"),),
        state=StateSpec(tmp_path / "state"),
    )
    with open_store(job.offset_store) as store:
        store.commit(at(0, 0), expected=store.load())
    state = StateFolder(tmp_path / "state")
    state.begin(at(0, 0))
    plan(state.path, 0, 0, 0, done=True)
    state.close()
    with pytest.raises(
        JobError, match=r"state\.path: .* is the state of t-0 too, and the source does not ask for it any"
    ):
        Pipeline(job).run()
    assert Pipeline(replace(job, source={"path": str(tmp_path / "data"), "subscribe": "t,other"})).run() == 0
