"""Groups of every kind in a folder that Apache Kafka wrote: shown as its tools show them, kept, dumped, compacted."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.inspection.backups.restoring import restore
from odradek.inspection.backups.run import backup
from odradek.records.timestamps import now_ms
from odradek.storage.cleaning.cleanable import CleanerConfig, CleaningRange
from odradek.storage.cleaning.cleaner import Cleaner
from odradek.storage.directory.log_directory import LogDirectory
from odradek.testing import Broker
from odradek.testing.wire import WireClient
from peers.command import rows, run, told
from peers.every_group import DECODERS, GROUPS
from peers.group_tables import tables_of
from peers.requests import ask

SHARE_BATCHES = [
    [3, 4, 0, 2], [5, 7, 2, 1], [8, 8, 4, 1], [9, 11, 2, 1], [12, 13, 2, 2], [14, 19, 2, 1],
]  # fmt: skip
"""What is kept of partition 0 of the group `share`; the start offset is 3."""


@pytest.fixture(params=["kafka_groups", "older_kafka_groups"])
def every_groups(request: pytest.FixtureRequest) -> Path:
    """The groups that each Apache Kafka wrote."""
    path: Path = request.getfixturevalue(request.param)
    return path


@pytest.fixture
def folder(every_groups: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(every_groups / "log-dir", tmp_path / "data"))


def described(folder: Path | str) -> dict[str, dict[str, Any]]:
    return {row["group"]: row for row in rows("groups", "describe", folder)}


def test_groups_are_shown_as_kafkas_tools_showed_them(every_groups: Path) -> None:
    expected = json.loads((every_groups / "tables.json").read_text())
    found = described(every_groups / "log-dir")
    assert tables_of(found.values()) == expected
    assert sorted(found) == list(GROUPS)
    (pattern,) = (one for one in found["consumer"]["members"] if one["client_id"] == "native")
    assert pattern["topic_regex"] == "(^ev.*)"
    assert [list(one.values()) for one in found["share"]["offsets"][0]["batches"]] == SHARE_BATCHES
    assert [one["source_topics"] for one in found["streams-wordcount"]["topology"]["subtopologies"]] == [
        ["streams-plaintext-input"],
        ["streams-wordcount-KSTREAM-AGGREGATE-STATE-STORE-0000000003-repartition"],
    ]
    text = told("groups", "describe", every_groups / "log-dir")
    for words in ("/(^ev.*)/", "IN_FLIGHT", "topology, epoch 0", "0_0 0_1 1_0 1_1", "events:0-3"):
        assert words in text


def test_groups_are_listed_by_type_and_state(every_groups: Path) -> None:
    def listed(*options: str) -> list[tuple[str, str]]:
        return [(row["group"], row["state"]) for row in rows("groups", "list", every_groups / "log-dir", *options)]

    assert listed("--type", "share") == [("idle-share", "Empty"), ("java-share", "Stable"), ("share", "Stable")]
    assert listed("--type", "share", "--type", "consumer", "--state", "empty") == [
        ("idle", "Empty"),
        ("idle-share", "Empty"),
    ]
    assert listed("--state", "Dead") == []


@pytest.mark.parametrize("partition", DECODERS)
def test_the_records_are_dumped_as_kafkas_tool_dumps_them(
    partition: str, folder: Path, every_groups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    segments = [path.relative_to(folder) for path in sorted((folder / partition).glob("*.log"))]
    printed = run("dump", "--kafka-compat", "--print-data-log", DECODERS[partition], *segments, code=0)
    assert printed.stdout == (every_groups / "dump" / f"{partition}.txt").read_text()


@pytest.mark.slow
def test_the_records_are_explained_and_verified(every_groups: Path) -> None:
    folder = every_groups / "log-dir"
    run("verify", folder, code=0)
    kinds = set()
    for partition in DECODERS:
        with LogDirectory(folder) as logs:
            end = logs[partition.rpartition("-")[0], 0].log_end_offset
        for offset in range(end):
            (row,) = rows("explain", folder / partition, str(offset))
            kinds.add((partition, int(row["decoded"]["key"]["type"])))
    offsets, states = DECODERS
    assert {number for name, number in kinds if name == states} == {0, 1}
    assert {number for name, number in kinds if name == offsets} == {*range(1, 24)} - {4, 9, 18}
    assert '"topicRegex"' not in told("explain", folder / offsets, "0")
    assert 'value             {"version":"0"' in told("explain", folder / states, "0")


@pytest.mark.slow
def test_compaction_keeps_the_groups(folder: Path, every_groups: Path) -> None:
    with odradek.open(folder) as logs:
        log = logs["__consumer_offsets", 0]
        log.roll()
        before = log.size_bytes
        Cleaner(CleanerConfig()).clean(log, CleaningRange(0, log.log_end_offset), now_ms())
        assert log.size_bytes < before * 2 / 3
    assert described(folder) == described(every_groups / "log-dir")


@pytest.mark.slow
def test_a_backup_keeps_the_groups(folder: Path, every_groups: Path, tmp_path: Path) -> None:
    backup(folder, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    assert described(tmp_path / "restored") == described(every_groups / "log-dir")


@pytest.mark.slow
def test_a_broker_loads_and_keeps_the_groups(folder: Path, every_groups: Path) -> None:
    with Broker(folder) as broker:
        listed = rows("groups", f"kafka://{broker.bootstrap_servers}")
        assert {row["group"]: row["type"] for row in listed} == {
            name: row["type"] for name, row in described(every_groups / "log-dir").items()
        }
        # The folder has the feature of Streams groups.
        with WireClient("127.0.0.1", int(broker.bootstrap_servers.rpartition(":")[2])) as client:
            answer = ask(client, "ApiVersions", 4)
        assert {88, 89}.isdisjoint(one.api_key for one in answer.api_keys)
        names = {one.name for one in answer.finalized_features}
        assert {"group.version", "share.version"} <= names
        assert "streams.version" not in names
    kept = described(folder)
    for name in ("share", "java-share", "idle-share", "streams-wordcount"):
        assert kept[name] == described(every_groups / "log-dir")[name]


@pytest.mark.slow
def test_groups_with_members_are_refused(folder: Path) -> None:
    for group in ("classic", "consumer", "share", "streams-wordcount"):
        assert "NON_EMPTY_GROUP (68)" in told("groups", "delete", folder, group, code=3)
        assert "NON_EMPTY_GROUP (68)" in told("groups", "reset", folder, group, "--to-earliest", code=3)


@pytest.mark.slow
def test_offsets_of_a_folder_are_reset(folder: Path) -> None:
    told("groups", "reset", folder, "idle", "--shift", "-5", "--dry-run")
    assert described(folder)["idle"]["offsets"][0]["offset"] == 20
    (row,) = rows("groups", "reset", folder, "idle", "--shift", "-5")
    assert row == {"topic": "events", "partition": 3, "before": 20, "after": 15}
    told("groups", "reset", folder, "streams-wordcount", "--to-earliest", "--force")
    found = described(folder)
    assert found["idle"]["offsets"][0]["offset"] == 15
    assert {one["offset"] for one in found["streams-wordcount"]["offsets"]} == {0}


def starts(folder: Path, group: str) -> dict[tuple[str, int], int | None]:
    return {(one["topic"], one["partition"]): one["start_offset"] for one in described(folder)[group]["offsets"]}


def kinds_of(folder: Path, group: str) -> Counter[tuple[str, str]]:
    """Return how many records of a group there are, by topic and type."""
    keys = [(name, row["key"]) for name in DECODERS for row in rows("dump", folder / name)]
    return Counter((name, key["type"]) for name, key in keys if key["data"].get("groupId") == group)


@pytest.mark.slow
def test_a_share_group_starts_elsewhere(folder: Path) -> None:
    offsets, states = DECODERS
    one = ("idle-share", "--to-offset", "7", "--topic", "events", "--partition", "0")
    before = kinds_of(folder, "idle-share")
    (planned,) = rows("groups", "reset", folder, *one, "--dry-run")
    assert (planned["before"], planned["after"]) == (3, 7)
    assert kinds_of(folder, "idle-share") == before
    told("groups", "reset", folder, *one)
    assert starts(folder, "idle-share") == {("events", number): 0 if number else 7 for number in range(4)}
    assert described(folder)["idle-share"]["offsets"][0]["batches"] == []
    # The group has this partition already.
    first = kinds_of(folder, "idle-share")
    assert first - before == {(states, "0"): 1}
    told("groups", "reset", folder, "idle-share", "--to-earliest", "--topic", "streams-wordcount-output")
    assert starts(folder, "idle-share")["streams-wordcount-output", 0] == 0
    assert starts(folder, "idle-share")["events", 0] == 7
    assert kinds_of(folder, "idle-share") - first == {(states, "0"): 1, (offsets, "15"): 1}


@pytest.mark.slow
def test_a_share_group_with_members_is_reset_by_force(folder: Path) -> None:
    before = described(folder)["share"]
    told("groups", "reset", folder, "share", "--to-earliest", "--force")
    after = described(folder)["share"]
    assert (after["state"], after["members"], after["epoch"]) == ("Empty", [], before["epoch"] + 1)
    assert {one["start_offset"] for one in after["offsets"]} == {0}
    assert [one["batches"] for one in after["offsets"]] == [[]] * len(before["offsets"])


@pytest.mark.slow
def test_share_groups_are_deleted_with_their_state(folder: Path) -> None:
    told("groups", "delete", folder, "idle-share")
    told("groups", "delete", folder, "share", "streams-wordcount", "consumer", "--force")
    assert sorted(described(folder)) == ["classic", "idle", "java-share"]
    states = rows("dump", folder / "__share_group_state-0")
    gone = [row["key"]["data"]["groupId"] for row in states if row["value"] is None]
    assert sorted(gone) == ["idle-share"] * 4 + ["share"] * 4


def test_a_state_that_does_not_exist_is_refused(every_groups: Path) -> None:
    assert "'Emty' is not one of" in told("groups", "list", every_groups / "log-dir", "--state", "Emty", code=2)


def test_a_group_that_is_named_twice_is_described_once(every_groups: Path) -> None:
    assert len(rows("groups", "describe", every_groups / "log-dir", "idle", "idle")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("topic", ["__share_group_state-0", "__consumer_offsets-0"])
@pytest.mark.parametrize("is_cut", [False, True])
def test_groups_whose_last_records_are_damaged_are_not_shown_as_they_were(
    folder: Path, topic: str, *, is_cut: bool
) -> None:
    (path,) = (folder / topic).glob("*.log")
    data = bytearray(path.read_bytes())
    if is_cut:
        del data[len(data) * 2 // 3 :]
    else:
        data[len(data) // 2] ^= 0x55
    path.write_bytes(data)
    for arguments in (
        ("list", folder),
        ("describe", folder, "share"),
        ("delete", folder, "idle-share"),
        ("delete", folder, "share", "--force"),
        ("reset", folder, "share", "--to-earliest", "--force"),
    ):
        (line,) = told("groups", *arguments, code=1).splitlines()
        assert str(path.parent) in line
    # Nor has a change cut them off.
    assert path.read_bytes() == data
