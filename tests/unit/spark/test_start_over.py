"""Beginning with a topic of dead letters that was made anew, where two jobs of one file send theirs to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import odradek
from odradek.cli.app import main
from odradek.offsets.store import Position, open_store
from odradek.storage.names import TopicPartition

LETTERS = TopicPartition("failed", 0)
JOB = """
[[job]]
name = "{name}"
on_invalid = "dead-letter"
source = {{ path = "source", subscribe = "orders" }}
offsets = {{ store = "file:{name}.offsets.json" }}
dead_letters = {{ topic = "failed", path = "dead" }}
sink = [{{ type = "console", sql = "SELECT count(*) FROM records" }}]
"""
BEGUN = "first: failed-0 begins at offset 0\n", "second: failed-0 begins at offset 0\n"


def stored(folder: Path, name: str) -> Position | None:
    with open_store((folder / f"{name}.replayed.json").as_uri()) as store:
        return store.load().get(LETTERS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two jobs that have sent back three letters of a topic that is another one since."""
    (tmp_path / "job.toml").write_text("".join(JOB.format(name=name) for name in ("first", "second")), encoding="utf-8")
    with odradek.open(tmp_path / "source") as logs:
        logs.create_topic("orders")
    with odradek.open(tmp_path / "dead") as logs:
        logs.create_topic("failed")
    was = Position(3, topic_id="AAAAAAAAAAAAAAAAAAAAEQ")
    for name in ("first", "second"):
        with open_store((tmp_path / f"{name}.replayed.json").as_uri()) as store:
            store.commit({LETTERS: was}, expected=store.load())
    return tmp_path


def begin(folder: Path, *options: str) -> tuple[int, str]:
    ended = CliRunner().invoke(main, ["pipeline", "start-over", str(folder / "job.toml"), "failed", *options])
    return ended.exit_code, ended.output


def test_each_job_begins_with_it_once(folder: Path) -> None:
    assert begin(folder) == (0, "".join(BEGUN))
    assert [place.offset for name in ("first", "second") if (place := stored(folder, name))] == [0, 0]
    code, told = begin(folder)
    assert (code, "failed was not made anew" in told) == (3, True), told


def test_the_second_begins_where_only_the_first_has(folder: Path) -> None:
    assert begin(folder, "--job", "first") == (0, BEGUN[0])
    # It has sent one back since.
    with open_store((folder / "first.replayed.json").as_uri()) as store:
        positions = store.load()
        store.commit({LETTERS: replace(positions[LETTERS], offset=1)}, expected=positions)
    assert begin(folder) == (0, BEGUN[1])
    assert [place.offset for name in ("first", "second") if (place := stored(folder, name))] == [1, 0]
