"""Backfills: what is claimed, what remains to be written, what is refused, and what kills leave."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import odradek
from chaos.backfill_driver import (
    OPERATIONS,
    PARTITIONS,
    TOPIC,
    append,
    child,
    in_parquet,
    in_topic,
    job_of,
    make,
    run_backfill,
    without_spark,
)
from odradek.cli.app import main
from odradek.errors import CommitConflictError, JobError, OdradekError, OffsetStoreError, SinkError
from odradek.offsets.beside import beside
from odradek.offsets.file import FileOffsetStore
from odradek.offsets.store import Position
from odradek.spark.options import EARLIEST, OffsetSpec
from odradek.spark.pipeline.backfill import Backfill, BackfillPipeline, claim_backfill
from odradek.spark.pipeline.backfill_claim import Start, claim, first_border, is_within, joined
from odradek.spark.pipeline.batch import Batch
from odradek.spark.pipeline.console import ConsoleSink
from odradek.spark.pipeline.driver import Pipeline
from odradek.spark.pipeline.functions import FunctionName, Transform
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.merging import compact
from odradek.spark.pipeline.sink_specs import ConsoleSinkSpec, ParquetSinkSpec, PythonSinkSpec
from odradek.spark.pipeline.state_spec import StateSpec
from odradek.storage.names import TopicPartition

NAME, OTHER = (TopicPartition(TOPIC, partition) for partition in range(PARTITIONS))
OLD, NEW = 40, 30
ALL = Backfill(OffsetSpec(EARLIEST), OLD, assumes_unheld=True)


def each_once(start: int, end: int) -> Counter[tuple[int, int]]:
    return Counter((partition, offset) for partition in range(PARTITIONS) for offset in range(start, end))


def only_parquet(folder: Path) -> Job:
    return job_of(folder, forwards=False)


def run_twice(folder: Path, job: Job) -> Path:
    """Run a job when there are `OLD` records in each partition, which it skips, and again for `NEW` more."""
    make(folder, OLD)
    Pipeline(job).run()
    append(folder, NEW)
    Pipeline(job).run()
    assert in_parquet(folder / "out") == each_once(OLD, OLD + NEW)
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a job with a Parquet folder has left."""
    without_spark(monkeypatch.setattr)
    return run_twice(tmp_path, only_parquet(tmp_path))


@pytest.fixture
def two_sinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a job has left that also forwards to a topic."""
    without_spark(monkeypatch.setattr)
    run_twice(tmp_path, job_of(tmp_path))
    assert in_topic(tmp_path) == each_once(OLD, OLD + NEW)
    return tmp_path


def test_spans_are_joined_and_cut() -> None:
    assert joined([(5, 7), (0, 2), (2, 3), (6, 9), (4, 4)]) == [(0, 3), (5, 9)]
    assert is_within((5, 9), [(0, 3), (5, 9)])
    assert not is_within((2, 6), [(0, 3), (5, 9)])
    assert first_border((0, 10), [(0, 3), (5, 9)]) == 3
    assert first_border((3, 5), [(0, 3), (5, 9)]) == 5


@pytest.mark.parametrize(
    ("address", "options", "expected"),
    [
        ("file:///a/offsets.json", {}, ("file:///a/offsets.json.x", {})),
        ("kafka://h:1/g?timeout_ms=5", {"a": "b"}, ("kafka://h:1/g.x?timeout_ms=5", {"a": "b"})),
        ("zookeeper://h/chroot/g", {}, ("zookeeper://h/chroot/g.x", {})),
        ("redis://h/0?group=g", {}, ("redis://h/0?group=g", {"group": "g.x"})),
        ("redis://h/0?group=g", {"group": "f"}, ("redis://h/0?group=g", {"group": "f.x"})),
        ("folder:///data?group=g", {}, ("folder:///data?group=g", {"group": "g.x"})),
    ],
)
def test_each_store_has_a_place_beside_a_group(
    address: str, options: dict[str, str], expected: tuple[str, dict[str, str]]
) -> None:
    assert beside(address, options, ".x") == expected


@pytest.mark.parametrize(
    "address", ["redis://h/0?list=KEY", "redis://h/0?hash=KEY&topic=t", "zookeeper://h/x?node=/a&topic=t"]
)
def test_a_store_of_an_older_program_has_none(address: str) -> None:
    with pytest.raises(OffsetStoreError, match="give it a group"):
        beside(address, {}, ".x")


def test_a_claim_is_found_again_and_excludes_others(tmp_path: Path) -> None:
    with FileOffsetStore(tmp_path / "claims") as store:
        starts = {NAME: Start(Position(3), 9)}
        first = claim(store, "--from 3", "s", lambda: starts)
        assert first is not None

        def unasked() -> dict[TopicPartition, Start]:
            raise AssertionError("it is claimed already")

        assert claim(store, "--from 3", "s", unasked) == first
        with pytest.raises(JobError, match=r"has not ended: run it again, by `--from 3`"):
            claim(store, "--from 5", "s", unasked)
        store.commit({NAME: first.at(NAME, Position(7))}, expected=store.load())
        # Another sink begins where the claim does.
        again = claim(store, "--from 3", "other", unasked)
        assert again is not None
        assert (again.id, store.load()[NAME].offset) == (first.id, 3)
        store.commit({NAME: again.at(NAME, Position(9))}, expected=store.load())
        second = claim(store, "--from 0", "s", lambda: {NAME: Start(Position(0), 3)})
        assert second is not None
        assert second.id != first.id
        assert second.done == {NAME: [(3, 9)]}


def test_a_place_that_another_program_has_set_is_no_claim(tmp_path: Path) -> None:
    with FileOffsetStore(tmp_path / "claims") as store:
        store.commit({NAME: Position(5)}, expected=store.load())
        with pytest.raises(OffsetStoreError, match="another program has set the position of t-0"):
            claim(store, "--from 3", "s", dict)


@pytest.mark.slow
def test_the_past_is_written_once_and_the_job_goes_on(two_sinks: Path) -> None:
    before = (two_sinks / "offsets.json").read_bytes()
    assert run_backfill(two_sinks, ALL) > 1
    assert (two_sinks / "offsets.json").read_bytes() == before
    append(two_sinks, 5)
    Pipeline(job_of(two_sinks)).run()
    assert in_parquet(two_sinks / "out") == in_topic(two_sinks) == each_once(0, OLD + NEW + 5)


@pytest.mark.slow
def test_what_a_parquet_folder_holds_is_not_written_again(folder: Path) -> None:
    job = only_parquet(folder)
    assert run_backfill(folder, Backfill(10, 20), job) == 2
    # Its files go together: those of a batch that are left say that they hold all of its range.
    for file in (folder / "out").glob(f"t-0-{0:018d}*.parquet"):
        if int(file.stem[4:24]) < 20:
            file.unlink()
    run_backfill(folder, Backfill(5, 30), job)
    assert in_parquet(folder / "out") == each_once(5, 30) + each_once(OLD, OLD + NEW)
    # Nothing is left: no batch is done.
    assert run_backfill(folder, Backfill(6, 29), job) == 0


@pytest.mark.slow
def test_a_topic_gets_no_range_twice_by_backfills(two_sinks: Path) -> None:
    for asked in (Backfill(20, 30, assumes_unheld=True), Backfill(10, 25, assumes_unheld=True), ALL):
        run_backfill(two_sinks, asked)
    assert in_parquet(two_sinks / "out") == in_topic(two_sinks) == each_once(0, OLD + NEW)


@pytest.mark.slow
def test_a_separate_output_holds_nothing_of_the_job(two_sinks: Path) -> None:
    with odradek.open(two_sinks / "copies") as logs:
        logs.create_topic("copy.again", partitions=PARTITIONS)
    asked = Backfill(30, into="again")
    run_backfill(two_sinks, asked)
    run_backfill(two_sinks, asked)
    assert in_parquet(two_sinks / "out.again") == in_topic(two_sinks, "copy.again") == each_once(30, OLD + NEW)
    assert in_parquet(two_sinks / "out") == in_topic(two_sinks) == each_once(OLD, OLD + NEW)


@pytest.mark.slow
def test_only_the_user_knows_what_a_topic_holds(folder: Path) -> None:
    with pytest.raises(JobError, match="--assume-unheld needs --until"):
        claim_backfill(job_of(folder), replace(ALL, end=None))
    with pytest.raises(JobError, match="this sink cannot say which offsets it holds") as refused:
        claim_backfill(job_of(folder), replace(ALL, assumes_unheld=False))
    assert refused.value.key == "sink[1]"
    assert not (folder / "offsets.json.backfill").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (Backfill(30, 20), "t-0: --from leads to offset 30, which is after --until, offset 20"),
        (Backfill(OffsetSpec(offsets={TopicPartition(TOPIC, 7): 1})), "--from: t-7 is none of the partitions here"),
        (Backfill(0, OffsetSpec(offsets={TopicPartition("u", 0): 1})), "--until: u-0 is none of the partitions"),
        (
            Backfill(OffsetSpec(offsets={NAME: 5}), OffsetSpec(offsets={OTHER: 9})),
            "--until: t-1 is none of the partitions here, which are t-0",
        ),
    ],
)
def test_a_range_that_is_none(folder: Path, asked: Backfill, reason: str) -> None:
    with pytest.raises(JobError, match=reason):
        claim_backfill(only_parquet(folder), asked)


@pytest.mark.slow
def test_what_the_job_is_still_to_read_is_left_to_it(folder: Path) -> None:
    append(folder, 10)
    job = only_parquet(folder)
    assert claim_backfill(job, Backfill(OLD + NEW)).claim is None
    # Also what is past the end of the log.
    assert claim_backfill(job, Backfill(1000)).claim is None
    run_backfill(folder, Backfill(OffsetSpec(offsets={NAME: 30}), 10_000), job)
    Pipeline(job_of(folder)).run()
    expected = each_once(OLD, OLD + NEW + 10) + Counter((0, offset) for offset in range(30, OLD))
    assert in_parquet(folder / "out") == expected


def test_a_job_without_a_position_is_run_first(tmp_path: Path) -> None:
    make(tmp_path, OLD)
    with pytest.raises(JobError, match="the job has no position in t-0"):
        claim_backfill(only_parquet(tmp_path), Backfill(0))


@pytest.mark.slow
def test_offsets_below_the_start_of_the_log_are_lost(folder: Path) -> None:
    with odradek.open(folder / "data") as logs:
        logs[TOPIC, 0].delete_records(15)
    job = only_parquet(folder)
    with pytest.raises(OdradekError, match=r"t-0: offsets \[5, 70\) are wanted, but it holds \[15, 70\)"):
        claim_backfill(job, Backfill(5))
    lossy = replace(job, source={**job.source, "failOnDataLoss": "false"})
    run_backfill(folder, Backfill(5), lossy)
    expected = each_once(5, OLD + NEW)
    for offset in range(5, 15):
        del expected[0, offset]
    assert in_parquet(folder / "out") == expected


@pytest.mark.slow
def test_records_that_are_lost_after_the_claim_are_skipped_if_the_job_says_so(folder: Path) -> None:
    job = replace(only_parquet(folder), source={**job_of(folder).source, "failOnDataLoss": "false"})
    assert claim_backfill(job, Backfill(0, 20)).claim is not None
    with odradek.open(folder / "data") as logs:
        logs[TOPIC, 0].delete_records(30)
    run_backfill(folder, Backfill(0, 20), job)
    expected = each_once(OLD, OLD + NEW) + Counter((1, offset) for offset in range(20))
    assert in_parquet(folder / "out") == expected
    assert run_backfill(folder, Backfill(0, 20), job) == 0


@pytest.mark.slow
def test_a_topic_that_was_made_again_is_another_one(folder: Path) -> None:
    job = only_parquet(folder)
    assert claim_backfill(job, Backfill(0, 20)).claim is not None
    with odradek.open(folder / "data") as logs:
        logs.delete_topic(TOPIC)
        logs.create_topic(TOPIC, partitions=PARTITIONS)
    append(folder, OLD + NEW)
    for asked in (Backfill(0, 20), Backfill(0, 20, into="again")):
        with pytest.raises(OdradekError, match="created again"):
            run_backfill(folder, asked, job)
    with odradek.open(folder / "data") as logs:
        logs.delete_topic(TOPIC)
    with pytest.raises(OdradekError, match=r"does not exist|it is gone"):
        run_backfill(folder, Backfill(0, 20), job)


@pytest.mark.slow
def test_two_at_once(folder: Path) -> None:
    job = only_parquet(folder)
    first = claim_backfill(job, Backfill(0, 20))
    with pytest.raises(JobError, match=r"run it again, by `--from 0 --until 20`"):
        claim_backfill(job, Backfill(10, 30))
    assert first.claim is not None
    pipeline = BackfillPipeline(first.job, claim=first.claim)
    second: list[type[Exception]] = []

    def again(*_: object) -> None:
        try:
            run_backfill(folder, Backfill(0, 20), job)
        except SinkError:
            second.append(SinkError)

    # While it runs, the folder is its own.
    pipeline.run(again)
    assert second == [SinkError] * 3
    assert in_parquet(folder / "out") == each_once(0, 20) + each_once(OLD, OLD + NEW)


@pytest.mark.slow
def test_one_that_was_taken_over_stops(folder: Path) -> None:
    job = only_parquet(folder)
    found = claim_backfill(job, Backfill(0, 20))
    assert found.claim is not None

    def taken_over(_: object) -> None:
        with FileOffsetStore(folder / "offsets.json.backfill") as store:
            store.claim()

    with pytest.raises(CommitConflictError):
        BackfillPipeline(found.job, claim=found.claim).run(taken_over)
    run_backfill(folder, Backfill(0, 20), job)
    assert in_parquet(folder / "out") == each_once(0, 20) + each_once(OLD, OLD + NEW)


@pytest.mark.slow
def test_one_that_has_ended_since_is_not_begun_again(folder: Path) -> None:
    job = only_parquet(folder)
    found = claim_backfill(job, Backfill(0, 20))
    run_backfill(folder, Backfill(0, 20), job)
    assert found.claim is not None
    assert BackfillPipeline(found.job, claim=found.claim).run() == 0
    assert claim_backfill(job, Backfill(20, 30)).claim is not None
    with pytest.raises(JobError, match="another backfill of this job has begun since"):
        BackfillPipeline(found.job, claim=found.claim).run()


@pytest.mark.slow
def test_a_signal_ends_it_after_a_batch(folder: Path) -> None:
    job = only_parquet(folder)
    found = claim_backfill(job, Backfill(0, 40))
    assert found.claim is not None
    pipeline = BackfillPipeline(found.job, claim=found.claim)
    assert pipeline.run(lambda _: pipeline.stop()) == 1
    run_backfill(folder, Backfill(0, 40), job)
    assert in_parquet(folder / "out") == each_once(0, OLD + NEW)


@pytest.mark.slow
def test_a_sink_that_was_added_gets_all_of_it(folder: Path) -> None:
    job = only_parquet(folder)
    found = claim_backfill(job, Backfill(0, 40))
    assert found.claim is not None
    pipeline = BackfillPipeline(found.job, claim=found.claim)
    pipeline.run(lambda _: pipeline.stop())
    both = replace(job, sinks=(*job.sinks, ParquetSinkSpec(folder / "more")))
    run_backfill(folder, Backfill(0, 40), both)
    assert in_parquet(folder / "out") == each_once(0, OLD + NEW)
    assert in_parquet(folder / "more") == each_once(0, 40)


@pytest.mark.slow
def test_what_cannot_be_written_in_part_is_refused(folder: Path) -> None:
    totals = ParquetSinkSpec(folder / "totals", name="totals", merge="SELECT * FROM totals")
    for asked in (Backfill(0), Backfill(0, into="again")):
        with pytest.raises(JobError, match="running totals cannot be backfilled"):
            claim_backfill(replace(job_of(folder), sinks=(totals,)), asked)
    assert claim_backfill(replace(job_of(folder), sinks=(ConsoleSinkSpec("SELECT 1"),)), Backfill(0)).claim
    sinks = (ParquetSinkSpec(folder / "counts", "counts"),)
    counts = Transform("counts", "SELECT count(*) AS n FROM records")
    with_state = replace(job_of(folder), sinks=sinks, transforms=(counts,), state=StateSpec(folder / "state"))
    for asked in (Backfill(0), Backfill(0, into="again")):
        with pytest.raises(JobError, match="a job with state cannot be backfilled"):
            claim_backfill(with_state, asked)
    function = PythonSinkSpec(FunctionName("ledger", "store", folder), positions=FunctionName("l", "p", folder))
    with pytest.raises(JobError, match="the function would remember the backfill's positions"):
        claim_backfill(replace(job_of(folder), sinks=(function,)), ALL)
    with pytest.raises(JobError, match="a function cannot be told to store elsewhere"):
        claim_backfill(replace(job_of(folder), sinks=(function,)), Backfill(0, into="again"))


@pytest.mark.slow
def test_merged_files_claim_no_gaps(folder: Path) -> None:
    job = only_parquet(folder)
    run_backfill(folder, Backfill(0, 10), job)
    # All files of a partition are one now, which has a gap.
    assert compact(folder / "out")[1] == PARTITIONS
    run_backfill(folder, Backfill(0), job)
    assert in_parquet(folder / "out") == each_once(0, OLD + NEW)
    compact(folder / "out")
    assert in_parquet(folder / "out") == each_once(0, OLD + NEW)


@pytest.mark.slow
def test_files_are_not_merged_while_one_runs(folder: Path) -> None:
    found = claim_backfill(only_parquet(folder), Backfill(0, 20))
    assert found.claim is not None
    refused: list[str] = []

    def merge(_: object) -> None:
        with pytest.raises(SinkError) as error:
            compact(folder / "out")
        refused.append(str(error.value))

    BackfillPipeline(found.job, claim=found.claim).run(merge)
    assert refused
    assert "another backfill writes here" in refused[0]


@pytest.mark.slow
def test_a_job_that_is_set_back_writes_nothing_that_a_backfill_has_written(folder: Path) -> None:
    job = only_parquet(folder)
    run_backfill(folder, Backfill(0, 20), job)
    with FileOffsetStore(folder / "offsets.json") as store:
        store.commit({NAME: Position(5), OTHER: Position(0)}, expected=store.load())
    Pipeline(job).run()
    assert in_parquet(folder / "out") == each_once(0, 20) + each_once(OLD, OLD + NEW)


@pytest.mark.slow
def test_a_job_begins_in_a_folder_that_only_a_backfill_has_written_to(folder: Path) -> None:
    job = replace(only_parquet(folder), sinks=(ParquetSinkSpec(folder / "new"),))
    run_backfill(folder, Backfill(0, 20), job)
    append(folder, 10)
    Pipeline(job).run()
    run_backfill(folder, Backfill(0), job)
    assert in_parquet(folder / "new") == each_once(0, OLD + NEW + 10)


@pytest.mark.slow
def test_what_is_asked_for_of_many_partitions_is_kept_in_short(folder: Path) -> None:
    with odradek.open(folder / "data") as logs:
        logs.create_partitions(TOPIC, 300)
    many = {TopicPartition(TOPIC, partition): 0 for partition in range(2, 300)}
    with FileOffsetStore(folder / "offsets.json") as store:
        store.commit(dict.fromkeys(many, Position(0)), expected=store.load())
    job, asked = only_parquet(folder), Backfill(OffsetSpec(offsets={NAME: 30, **many}))
    first = claim_backfill(job, asked).claim
    assert first is not None
    assert len(first.asked) < 1100
    assert claim_backfill(job, asked).claim == first
    with pytest.raises(JobError, match="has not ended"):
        claim_backfill(job, replace(asked, end=35))


@pytest.mark.slow
def test_a_disk_that_is_full_or_read_only_at_any_moment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = failures = 0
    asked = Backfill(OffsetSpec(offsets={NAME: 26}))
    while failures == step:
        copy = folder.with_name(f"copy-{step}")
        shutil.copytree(folder, copy)
        with monkeypatch.context() as patched:
            left = step

            def failing(real: Callable[..., Any], code: int) -> Callable[..., Any]:
                def called(*given: Any, **named: Any) -> Any:
                    nonlocal left
                    left -= 1
                    if left == -1:
                        raise OSError(code, "no")
                    return real(*given, **named)

                return called

            for kind, name in OPERATIONS:
                code = errno.ENOSPC if step % 2 else errno.EROFS
                patched.setattr(kind, name, failing(getattr(kind, name), code))
            try:
                run_backfill(copy, asked, only_parquet(copy))
            except (OSError, OdradekError):
                failures += 1
        run_backfill(copy, asked, only_parquet(copy))
        wanted = each_once(OLD, OLD + NEW) + Counter((0, offset) for offset in range(26, OLD))
        assert in_parquet(copy / "out") == wanted, step
        step += 1
    assert failures > 20


@pytest.mark.slow
def test_a_console_shows_what_others_write(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[list[tuple[int, int]]] = []

    def show(_: ConsoleSink, batch: Batch) -> None:
        shown.append([part[1:] for part in batch.ranges])

    monkeypatch.setattr(ConsoleSink, "write", show)
    job = only_parquet(folder)
    job = replace(job, sinks=(ConsoleSinkSpec("SELECT 1"), *job.sinks))
    run_backfill(folder, Backfill(36), job)
    assert shown == [[(36, 40), (36, 40)]]
    run_backfill(folder, Backfill(36), job)
    assert len(shown) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--until", "5"], "give --from, too"),
        (["--into", "x"], "give --from, too"),
        (["--from", "5", "--follow", "5"], "a backfill ends, and --follow does not"),
        (["--from", "1790000000000"], "looks like a time in ms"),
        (["--from", "20261101"], "may be an offset or 2026-11-01"),
        (["--from", "yesterday"], "nor a time such as"),
        (["--from", "t-0"], "nor a time such as"),
        (["--from", "t-0=x"], "must have the form events-0=1200"),
        (["--from", "1", "--from", "2"], "are given many times"),
        (["--from", "t-0=1", "--from", "t-0=2"], "a partition is named twice"),
        (["--from", "t-0=1", "--from", "2"], "a place for all partitions is among them"),
        (["--from", "1", "--into", "a/b"], "must have only letters, digits and _"),
    ],
)
def test_options_that_are_wrong(tmp_path: Path, options: list[str], reason: str) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        'source = { path = "data", subscribe = "t" }\noffsets = { store = "file:offsets.json" }\n'
        '[[sink]]\ntype = "parquet"\npath = "out"\n',
        encoding="utf-8",
    )
    ended = CliRunner().invoke(main, ["pipeline", "run", str(file), *options])
    assert ended.exit_code == 2
    assert reason in " ".join(ended.output.split())


def test_the_options_are_those_that_ask_for_the_same() -> None:
    asked = Backfill(OffsetSpec(offsets={OTHER: 5, NAME: 3}), OffsetSpec(timestamp=1_790_000_000_000), "x", True)
    assert asked.text == ("--from t-0=3 --from t-1=5 --until 2026-09-21T14:13:20.000+00:00 --into x --assume-unheld")
    assert Backfill(OffsetSpec(EARLIEST), 7).text == "--from earliest --until 7"


CONTEXT = multiprocessing.get_context("forkserver")
# The imports take longer than a process lives.
CONTEXT.set_forkserver_preload(["chaos.backfill_driver"])


class Victim:
    """The job or its backfill, as processes that kill themselves, each after some more operations on files."""

    def __init__(self, job: Job, folder: Path, asked: Backfill | None, chance: random.Random) -> None:
        self._job = job
        self._folder = folder
        self._asked = asked
        self._chance = chance
        self._process = self._started()
        self.kills = 0
        self.is_done = False

    def _started(self) -> ForkServerProcess:
        # With a topic, a batch is about 100 operations; to open its folder after a kill may take some 100 more.
        most = 400 if len(self._job.sinks) > 1 else 80
        step, is_done = self._chance.randrange(1, most), self._chance.random() < 0.5
        process = CONTEXT.Process(target=child, args=(self._job, self._folder, self._asked, step, is_done))
        process.start()
        return process

    def go_on(self) -> None:
        """Start it again if it was killed."""
        if self.is_done or self._process.is_alive():
            return
        self._process.join()
        if self._process.exitcode == -signal.SIGKILL:
            self.kills += 1
            self._process = self._started()
        else:
            assert self._process.exitcode == 0, (self._folder / "errors").read_text()
            self.is_done = True

    def stop(self) -> None:
        self._process.kill()
        self._process.join()


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch.setattr)
    # The server of forks has only what the environment says.
    tests = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")]))


def kill_both(folder: Path, seed: int, old: int = 120, *, forwards: bool) -> tuple[int, int]:
    """Backfill beside a job, both killed at random operations, until the backfill is done; return the kills of each."""
    chance = random.Random(seed)
    work = job_of(folder, forwards=forwards)
    make(folder, old)
    Pipeline(work).run()
    append(folder, NEW)
    asked = Backfill(OffsetSpec(EARLIEST), old, assumes_unheld=True)
    Pipeline(work).run()
    end = old + NEW
    backfill, job = Victim(work, folder, asked, chance), Victim(work, folder, None, chance)
    try:
        while not backfill.is_done:
            # The job has something to do, but not more than it can.
            if end < old + NEW + 20 * (1 + job.kills):
                append(folder, 20)
                end += 20
            backfill.go_on()
            job.go_on()
            time.sleep(0.05)
    finally:
        backfill.stop()
        job.stop()
    Pipeline(work).run()
    assert run_backfill(folder, asked, work) == 0
    for found in (in_parquet(folder / "out"), *([in_topic(folder)] if forwards else [])):
        lost, twice = each_once(0, end) - found, found - each_once(0, end)
        assert not lost, sorted(lost)[:20]
        assert not twice, sorted(twice)[:20]
    return backfill.kills, job.kills


# Which of the two does what meanwhile is chance; what that has found has tests of its own.
@pytest.mark.laboratory
@pytest.mark.usefixtures("lab")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("forwards", [False, True])
def test_a_backfill_and_its_job_are_killed(tmp_path: Path, forwards: bool) -> None:
    # On a busy machine one of them may be done before its turn to be killed comes.
    for seed in range(10):
        (tmp_path / str(seed)).mkdir()
        if all(kill_both(tmp_path / str(seed), seed, 40, forwards=forwards)):
            return
    pytest.fail("in none of ten runs both were killed")


@pytest.mark.laboratory
@pytest.mark.usefixtures("lab")
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("forwards", [False, True])
def test_a_backfill_is_killed_thirty_times(tmp_path: Path, forwards: bool) -> None:
    kills: list[tuple[int, int]] = []
    while sum(backfill for backfill, _ in kills) < 30:
        (tmp_path / str(len(kills))).mkdir()
        kills.append(kill_both(tmp_path / str(len(kills)), len(kills), forwards=forwards))
        print(f"kills of the backfill, and of the job beside it: {kills[-1]}; 0 lost, 0 twice", flush=True)
