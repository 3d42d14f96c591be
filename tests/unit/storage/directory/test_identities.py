"""Whose a folder of `log.dirs` is, and whether several belong together."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import odradek
from odradek.errors import CheckpointError, FormatError, LogError
from odradek.messages.uuids import random_uuid
from odradek.storage.formats.meta_properties import META_PROPERTIES, MetaProperties
from peers.kafka_fixture import KafkaFixture

GOOD = "version=1\nnode.id=1\ncluster.id=c\ndirectory.id=gkm79SPRSZeHcXGd1WaD-g\n"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "broker.id is missing"),
        ("\x93\x1f\xd0\x00\x8a;\xe1=\x02", "broker.id is missing"),
        ("version=0\ncluster.id=c\n", "broker.id is missing"),
        ("version=0\nnode.id=1\n", "broker.id is missing"),
        ("version=1\ncluster.id=c\n", "node.id is missing"),
        ("version=1\nbroker.id=1\ncluster.id=c\n", "node.id is missing"),
        ("version=1\nnode.id=1\n", "cluster.id is missing"),
        ("version=2\nnode.id=1\n", "version 2 is unknown"),
        ("version=one\nnode.id=1\n", "version is 'one', not a number"),
        ("version=1\nnode.id=one\ncluster.id=c\n", "node.id is 'one', not a number"),
        ("version=1\nnode.id=-1\ncluster.id=c\n", "node.id is '-1', not a number"),
        ("version=1\nnode.id=1_0\ncluster.id=c\n", "node.id is '1_0', not a number"),
        ("version=1\nnode.id=2147483648\ncluster.id=c\n", "node.id is '2147483648', not a number"),
        ("version=1\nnode.id=" + "9" * 5000, "not a number"),
        (GOOD + "node.id=2\n", "'node.id' occurs twice"),
        (GOOD + "unknown=1\nunknown=1\n", "'unknown' occurs twice"),
        ("version=1\nnode.id=1\ncluster.id=c\ndirectory.id=x\n", "directory.id: 'x' is not a UUID"),
        ("version=1\nnode.id=1\ncluster.id=c\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n", "reserved by Kafka"),
    ],
)
def test_a_damaged_meta_properties_is_named_and_nothing_is_written(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / META_PROPERTIES).write_text(text, encoding="latin-1")
    with pytest.raises(CheckpointError, match=re.escape(reason)) as caught:
        odradek.open(tmp_path)
    assert caught.value.path == str(tmp_path / META_PROPERTIES)
    assert [path.name for path in tmp_path.iterdir()] == [META_PROPERTIES]
    with odradek.open(tmp_path, mode="r") as logs:
        assert [problem.path for problem in logs.problems] == [str(tmp_path / META_PROPERTIES)]
        with pytest.raises(CheckpointError):
            _ = logs.meta_properties


def test_what_kafka_leaves_out_may_be_missing() -> None:
    assert MetaProperties.parse("broker.id=3\n") == MetaProperties(None, 3, None, 0)
    assert MetaProperties.parse("version=1\nnode.id=+3\ncluster.id=c\n") == MetaProperties("c", 3, None, 1)
    assert MetaProperties.parse(GOOD).directory_id is not None


def test_every_cut_of_it_is_an_error_or_the_whole() -> None:
    for cut in range(len(GOOD)):
        try:
            found = MetaProperties.parse(GOOD[:cut])
        except CheckpointError:
            continue
        assert found == MetaProperties.parse(GOOD) or found.directory_id is None
        assert cut > GOOD.index("cluster.id=c")


def two(tmp_path: Path, change: Callable[[MetaProperties], MetaProperties]) -> list[Path]:
    paths = [tmp_path / "a", tmp_path / "b"]
    odradek.open(paths).close()
    meta = MetaProperties.read(paths[1] / META_PROPERTIES)
    assert meta is not None
    change(meta).write(paths[1] / META_PROPERTIES)
    return paths


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda meta: MetaProperties("other", meta.node_id, meta.directory_id),
            "/b belongs to another cluster than .*/a",
        ),
        (lambda meta: MetaProperties(meta.cluster_id, 7, meta.directory_id), "/b belongs to node 7, .*/a to node 1"),
    ],
)
def test_folders_of_different_clusters_or_nodes(
    tmp_path: Path, change: Callable[[MetaProperties], MetaProperties], reason: str
) -> None:
    paths = two(tmp_path, change)
    before = {path: sorted(entry.name for entry in path.iterdir()) for path in paths}
    # A third one that is new gets no identity before the others are known to belong together.
    with pytest.raises(LogError, match=reason):
        odradek.open([*paths, tmp_path / "c"])
    assert {path: sorted(entry.name for entry in path.iterdir()) for path in paths} == before
    assert not (tmp_path / "c").exists()


def test_one_folder_and_a_copy_of_it(tmp_path: Path) -> None:
    odradek.open([tmp_path / "a", tmp_path / "b"]).close()
    shutil.copytree(tmp_path / "b", tmp_path / "c")
    with pytest.raises(LogError, match=r"/c and .*/b have one directory\.id: one is a copy of the other"):
        odradek.open([tmp_path / "a", tmp_path / "b", tmp_path / "c"])


def test_a_new_folder_beside_one_of_version_0_joins_its_cluster(fixture_2_8_2: KafkaFixture, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for text in ("version=0\nbroker.id=3\n", (fixture_2_8_2.log_dir / META_PROPERTIES).read_text()):
        (tmp_path / "a" / META_PROPERTIES).write_text(text)
        for _ in range(2):
            with odradek.open([tmp_path / "a", tmp_path / "b"]) as logs:
                assert logs.topics() == []
        ours, theirs = (MetaProperties.read(tmp_path / name / META_PROPERTIES) for name in ("b", "a"))
        assert ours is not None
        assert theirs is not None
        assert (ours.version, ours.node_id, ours.cluster_id) == (0, theirs.node_id, theirs.cluster_id)
        shutil.rmtree(tmp_path / "b")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [META_PROPERTIES, "bootstrap.checkpoint", "log-start-offset-checkpoint"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to(path)])
def test_what_is_no_file_is_named_and_not_waited_for(tmp_path: Path, name: str, make: Callable[[Path], object]) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
    (tmp_path / name).unlink()
    make(tmp_path / name)
    with pytest.raises(FormatError) as caught:
        odradek.open(tmp_path)
    assert caught.value.path == str(tmp_path / name)
    with odradek.open(tmp_path, mode="r") as logs:
        assert str(tmp_path / name) in {problem.path for problem in logs.problems}
        assert logs.topics() == ["t"]


def test_a_disk_that_fails_is_a_log_error_that_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
    real = os.open

    def refuse(path: Path | str, *arguments: int, **options: int) -> int:
        if str(path).endswith(META_PROPERTIES):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(LogError, match=r"meta\.properties cannot be opened: Permission denied"):
        odradek.open(tmp_path)
    with odradek.open(tmp_path, mode="r") as reader:
        assert "it cannot be read: Permission denied" in str(reader.problems[0])


def test_node_and_directory_are_held_against_the_metadata(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        meta = logs.meta_properties
        assert meta is not None
        assert logs.problems == []
    for changed, reason in (
        (MetaProperties(meta.cluster_id, 3, meta.directory_id), "node.id is 3, but none of the partitions here"),
        (MetaProperties(meta.cluster_id, meta.node_id, random_uuid()), "directory.id is not that"),
    ):
        changed.write(tmp_path / META_PROPERTIES)
        with odradek.open(tmp_path, mode="r") as found:
            assert [reason in str(problem) for problem in found.problems] == [True]
