from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.cli.app import ExitCode
from odradek.offsets.store import Position, open_store
from odradek.storage.names import TopicPartition
from peers import command
from peers.kafka_fixture import KafkaFixture

EVENTS_0, EVENTS_1 = TopicPartition("events", 0), TopicPartition("my-events", 1)


def run(*arguments: str | Path, code: int = ExitCode.CLEAN) -> str:
    return command.run("offsets", *arguments, code=code).output


rows = partial(command.rows, "offsets")


def row(name: TopicPartition, offset: int, **known: Any) -> dict[str, Any]:
    none = {"leader_epoch": None, "topic_id": None, "batch": None}
    return {"topic": name.topic, "partition": name.partition, "offset": offset, **none, **known}


@pytest.fixture
def address(tmp_path: Path) -> str:
    return (tmp_path / "offsets.json").as_uri()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Two batches done, and a third one begun."""
    path = tmp_path / "checkpoint"
    for folder in ("offsets", "commits"):
        (path / folder).mkdir(parents=True)
    for batch, offset in ((8, 20), (9, 30), (10, 40)):
        lines = ["v1", '{"batchWatermarkMs":0}', json.dumps({"events": {"0": offset}}), "-", '{"logOffset":7}']
        (path / "offsets" / str(batch)).write_text("\n".join(lines))
        (path / "offsets" / f".{batch}.crc").write_bytes(b"")
    for batch in (8, 9):
        (path / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return path


def test_delete(address: str) -> None:
    rows("set", address, "events-0=20", "events-1=5", "my-events-1=4", "other-0=1")
    assert [found["partition"] for found in rows("delete", address, "events-0")] == [1, 1, 0]
    assert rows("delete", address, "other-0", "--topic", "events") == [row(EVENTS_1, 4)]
    assert "has no position of events, other-0" in run(
        "delete", address, "other-0", "--topic", "events", code=ExitCode.INPUT_OUTPUT
    )
    for wrong in ((), ("--all", "my-events-1"), ("my-events",)):
        run("delete", address, *wrong, code=ExitCode.USAGE)
    assert rows("delete", address, "--all") == rows("delete", address, "--all") == rows("show", address) == []


def test_set_and_show(address: str) -> None:
    assert "has no positions: nothing is stored there" in run("show", address, code=ExitCode.INPUT_OUTPUT)
    assert rows("set", address, "events-0=20", "my-events-1=4") == [row(EVENTS_0, 20), row(EVENTS_1, 4)]
    assert rows("set", address, "events-0=3") == [row(EVENTS_0, 3), row(EVENTS_1, 4)]
    assert run("show", address).splitlines() == [
        "TOPIC      PARTITION  OFFSET",
        "events             0       3",
        "my-events          1       4",
    ]


def test_set_keeps_the_topic_and_forgets_the_batch(address: str) -> None:
    with open_store(address) as store:
        store.commit({EVENTS_0: Position(20, 3, "topic-id", "17")}, expected=store.load())
    assert rows("show", address) == [row(EVENTS_0, 20, leader_epoch=3, topic_id="topic-id", batch="17")]
    assert rows("set", address, "events-0=5") == [row(EVENTS_0, 5, topic_id="topic-id")]


def test_set_fences_what_runs(address: str) -> None:
    with open_store(address) as store:
        claimed = store.claim()
        run("set", address, "events-0=5")
        with pytest.raises(Exception, match="another reader"):
            store.commit({EVENTS_0: Position(9)}, expected=claimed)


@pytest.mark.parametrize("place", ["events=3", "events-0", "events-0=-1", "events-x=1", "events-0=1.5"])
def test_place_that_is_none(address: str, place: str) -> None:
    run("set", address, place, code=ExitCode.USAGE)
    run("set", address, "events-0=1", "events-0=2", code=ExitCode.USAGE)
    run("show", address, code=ExitCode.INPUT_OUTPUT)


def test_copy_keeps_all_that_is_known(address: str, tmp_path: Path) -> None:
    target = (tmp_path / "copied.json").as_uri()
    with open_store(address) as store:
        store.commit({EVENTS_0: Position(20, 3, "topic-id", "17")}, expected=store.load())
    run("set", target, "other-0=1")
    copied = rows("copy", address, target)
    assert [found["topic"] for found in copied] == ["events", "other"]
    assert copied[0] == row(EVENTS_0, 20, leader_epoch=3, topic_id="topic-id", batch="17")
    assert "--overwrite" in run("copy", address, target, code=ExitCode.INPUT_OUTPUT)
    run("set", address, "events-0=2")
    assert rows("copy", address, target, "--overwrite")[0]["offset"] == 2


def test_checkpoint_counts_what_is_done(checkpoint: Path, address: str) -> None:
    expected = [row(EVENTS_0, 30, batch="9")]
    assert rows("show", checkpoint) == expected
    assert rows("from-checkpoint", checkpoint, address) == expected
    assert run("to-starting-offsets", checkpoint) == run("to-starting-offsets", address) == '{"events":{"0":30}}\n'


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("commits/8", None, ""),
        ("offsets/9", "v7\n{}\n{}", "v7"),
        ("offsets/9", "v1\n{}\n{", "not JSON"),
        ("offsets/9", "v1\n{}\n-\n7", "none of its sources"),
        ("offsets/9", "", "cannot be read"),
        ("offsets/9", 'v1\n{}\n{"events":{"0":3}}\n{"events":{"0":4}}', "two sources read events-0"),
    ],
)
def test_checkpoint_that_says_something_else(checkpoint: Path, name: str, content: str | None, said: str) -> None:
    if content is None:
        for file in (checkpoint / "commits").iterdir():
            file.unlink()
        said = "no batch is done"
    else:
        (checkpoint / name).write_text(content)
    assert said in run("show", checkpoint, code=ExitCode.INPUT_OUTPUT)


def test_addresses_that_are_none(tmp_path: Path) -> None:
    assert "not a checkpoint" in run("show", tmp_path, code=ExitCode.INPUT_OUTPUT)
    assert "must start with one of" in run("show", "nowhere://host/group", code=ExitCode.USAGE)


def test_a_file_without_an_end_is_no_file_of_positions() -> None:
    assert "not a file" in run("show", "file:///dev/zero", code=ExitCode.INPUT_OUTPUT)


@pytest.mark.slow
def test_a_plan_is_exported_and_read(tmp_path: Path, kafka_fixture: KafkaFixture) -> None:
    shutil.copytree(kafka_fixture.log_dir, tmp_path / "data")
    address, plan = f"folder:{tmp_path}/data?group=group-1", tmp_path / "plan.csv"
    before = run("show", address)
    planned = run("set", address, "--to-earliest", "--dry-run", "--export")
    assert planned == "keyed,0,0\nkeyed,1,0\nkeyed,2,0\n"
    assert run("show", address) == before
    # As Kafka prints it: with a line at the end that is empty, and with quotes.
    plan.write_text('"keyed",0,7\nkeyed,2,9999999\n\n')
    done = run("set", address, "--from-file", str(plan), "--export")
    end = json.loads(run("set", address, "--to-latest", "--dry-run", "--format", "jsonl").splitlines()[2])["after"]
    assert done == f"odradek: keyed-2: 9999999 is beyond the log end offset, {end}\nkeyed,0,7\nkeyed,2,{end}\n"
    assert [row["offset"] for row in rows("show", address) if row["partition"] != 1] == [7, end]
    # Of a plan for several groups, what is of this one.
    plan.write_text("other,keyed,1,3\ngroup-1,keyed,1,4\nother,keyed,0,3\n")
    assert run("set", address, "--from-file", str(plan), "--export") == "keyed,1,4\n"
    # A file knows neither groups nor the ends of logs.
    store = f"file:{tmp_path}/offsets.json"
    result = command.run("offsets", "set", store, "--from-file", "-", "--export", given=b"keyed,1,4\n", code=0)
    assert result.stdout == "keyed,1,4\n"
    assert "keyed          1       4" in run("show", store)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("topic,partition,offset\n", "line 1: it is not topic,partition,offset"),
        ("keyed,0,1\nkeyed,0\n", "line 2: it is not topic,partition,offset"),
        ("keyed,0,-1\n", "line 1: it is not"),
        ("keyed,2147483648,1\n", "line 1: it is not"),
        ("a,b,keyed,0,1\n", "line 1: it is not"),
        ("key/ed,0,1\n", "line 1: "),
        ("keyed,0,1\nkeyed,0,2\n", "line 2: keyed-0 comes twice"),
        ("one,keyed,0,1\ntwo,keyed,0,1\n", "it is a plan for 2 groups"),
        ("", "there is no offset in it"),
        ('"keyed,0,1\n', "line 1: "),
        ("keyed,0,\xff\n".encode("latin-1"), "it is not UTF-8"),
    ],
)
def test_what_is_no_plan_changes_nothing(tmp_path: Path, plan: str | bytes, said: str) -> None:
    path = tmp_path / "plan.csv"
    path.write_bytes(plan if isinstance(plan, bytes) else plan.encode())
    (told,) = run("set", f"file:{tmp_path}/o.json", "--from-file", path, code=3).splitlines()
    assert f"odradek: {path}" in told
    assert said in told
    assert not (tmp_path / "o.json").exists()


def test_a_plan_goes_with_no_other_place(tmp_path: Path) -> None:
    (tmp_path / "plan.csv").write_text("keyed,0,1\n")
    for more in (["keyed-0=1"], ["--topic", "keyed"], ["--to-latest"], ["--export", "--format", "jsonl"]):
        run("set", f"file:{tmp_path}/o.json", "--from-file", tmp_path / "plan.csv", *more, code=2)
