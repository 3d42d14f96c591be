"""A log directory that lost its `bootstrap.checkpoint`: without settings, retention would delete what is to be kept."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import odradek
from odradek.errors import FormatError
from odradek.inspection import verify
from odradek.storage.metadata.metadata_log import METADATA_DIRECTORY
from odradek.storage.names import BOOTSTRAP_CHECKPOINT
from peers.kafka_fixture import KafkaFixture

MISSING = r"bootstrap\.checkpoint: it is missing, .*there are 2 partitions, kept-0 among them"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log directory with a topic that is kept for ever, without the file that says so."""
    path = tmp_path / "data"
    with odradek.open(path) as logs:
        logs.create_topic("kept", 2, {"retention.ms": -1})
        logs["kept", 0].append(value=b"old", timestamp=1_600_000_000_000)
    (path / BOOTSTRAP_CHECKPOINT).unlink()
    return path


def test_it_is_not_opened_to_append(directory: Path) -> None:
    (directory / METADATA_DIRECTORY).mkdir()
    for _ in range(2):
        with pytest.raises(FormatError, match=MISSING):
            odradek.open(directory)
        (directory / METADATA_DIRECTORY / f"{0:020d}.log").touch()
    assert not (directory / BOOTSTRAP_CHECKPOINT).exists()


def test_it_is_read_and_verify_names_the_file(directory: Path) -> None:
    with odradek.open(directory, mode="r") as logs:
        assert [record.value for record in logs["kept", 0]] == [b"old"]
        assert [problem.path for problem in logs.problems] == [str(directory / BOOTSTRAP_CHECKPOINT)]
    assert directory / BOOTSTRAP_CHECKPOINT in [finding.path for finding in verify(directory)]


def test_it_is_not_lost_while_the_directory_is_open(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("kept", 2, {"retention.ms": -1})
        whole = (tmp_path / BOOTSTRAP_CHECKPOINT).read_bytes()
        (tmp_path / BOOTSTRAP_CHECKPOINT).unlink()
        logs._parts.cluster.metadata._is_in_doubt = True
        with pytest.raises(FormatError, match=MISSING):
            logs.topic_config("kept")
        (tmp_path / BOOTSTRAP_CHECKPOINT).write_bytes(whole)
        assert logs.topic_config("kept").retention_ms == -1


def test_partitions_in_a_second_folder_count(directory: Path, tmp_path: Path) -> None:
    first = tmp_path / "first"
    odradek.open(first).close()
    (first / BOOTSTRAP_CHECKPOINT).unlink()
    (first / "meta.properties").write_bytes(
        (directory / "meta.properties").read_bytes().replace(b"directory.id", b"#directory.id")
    )
    with pytest.raises(FormatError, match=rf"first/{MISSING}"):
        odradek.open([first, directory])


def test_every_new_folder_has_one_as_with_kafkas_format_tool(tmp_path: Path) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    with odradek.open(folders) as logs:
        logs.create_topic("events", 2)
        logs["events", 0].append(value=b"one")
        logs["events", 1].flush()
    assert list(verify(folders[1])) == []
    with odradek.open(folders[1]) as logs:
        assert (logs.topics(), [path.name for path in logs.strays]) == ([], ["events-1"])
    with odradek.open(folders) as logs:
        assert [len(list(log)) for log in logs] == [1, 0]


def test_a_folder_without_partitions_gets_a_new_one(tmp_path: Path) -> None:
    # As after a formatting that was cut short.
    odradek.open(tmp_path).close()
    whole = (tmp_path / BOOTSTRAP_CHECKPOINT).read_bytes()
    (tmp_path / BOOTSTRAP_CHECKPOINT).unlink()
    with odradek.open(tmp_path) as logs:
        assert len((tmp_path / BOOTSTRAP_CHECKPOINT).read_bytes()) == len(whole)
        logs.create_topic("events")
    with odradek.open(tmp_path) as logs:
        assert logs.topics() == ["events"]


@pytest.mark.slow
def test_a_folder_of_a_kafka_with_zookeeper_never_had_one(fixture_2_8_2: KafkaFixture, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(fixture_2_8_2.log_dir, tmp_path / "old"))
    with odradek.open(copy) as logs:
        assert logs.topics()
        assert logs.problems == []
    assert not (copy / BOOTSTRAP_CHECKPOINT).exists()
