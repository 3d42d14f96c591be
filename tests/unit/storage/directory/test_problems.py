"""`LogDirectory.problems`: what is wrong with the root and the metadata, told whoever writes there meanwhile."""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.errors import FormatError, LogError
from odradek.records import Record
from odradek.storage.directory.problems import directory_problems
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.formats.checkpoints import LOG_START_OFFSET_CHECKPOINT
from odradek.storage.formats.metadata_snapshot import write_snapshot
from odradek.storage.formats.quorum_state import QUORUM_STATE
from odradek.storage.metadata.cluster import ClusterMetadata
from odradek.storage.metadata.metadata_log import METADATA_DIRECTORY
from odradek.storage.metadata.problems import MetadataProblems
from odradek.storage.names import CLEAN_SHUTDOWN_MARKER
from odradek.testing.faults import FaultyFileSystem
from peers.kafka_fixture import KafkaFixture

SEGMENT = f"{METADATA_DIRECTORY}/{0:020d}.log"


@pytest.fixture(scope="module")
def small(fixture_4_3_1: KafkaFixture, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clean 4.3.1 log directory, without what is in its partitions' folders but whose they are. Read-only."""

    def beside(folder: str, names: list[str]) -> list[str]:
        in_root = Path(folder) == fixture_4_3_1.log_dir
        return [n for n in names if not in_root and not folder.endswith(METADATA_DIRECTORY) and n[:1].isdigit()]

    return Path(shutil.copytree(fixture_4_3_1.log_dir, tmp_path_factory.mktemp("small") / "d", ignore=beside))


@pytest.fixture
def directory(small: Path, tmp_path: Path) -> Path:
    """A private copy of it."""
    path = Path(shutil.copytree(small, tmp_path / "log-dir"))
    for snapshot in path.rglob("*.checkpoint"):
        snapshot.chmod(0o644)
    return path


@pytest.mark.parametrize("state", ["log_dir", "log_dir_unclean"])
def test_nothing_is_wrong_with_what_kafka_wrote(kafka_fixture: KafkaFixture, state: str) -> None:
    with odradek.open(getattr(kafka_fixture, state), mode="r") as logs:
        assert logs.problems == []


@pytest.mark.slow
def test_every_kind_of_damage_is_told_with_its_file(directory: Path) -> None:
    metadata = directory / METADATA_DIRECTORY
    for path in (
        directory / "meta.properties",
        directory / "bootstrap.checkpoint",
        directory / "recovery-point-offset-checkpoint",
        directory / "replication-offset-checkpoint",
        directory / "log-start-offset-checkpoint",
        directory / "cleaner-offset-checkpoint",
        directory / SEGMENT,
        metadata / f"{0:020d}-{0:010d}.checkpoint",
        metadata / "leader-epoch-checkpoint",
        metadata / "partition.metadata",
        metadata / QUORUM_STATE,
        directory / "keyed-0" / "partition.metadata",
    ):
        whole = path.read_bytes()
        path.write_bytes(b"\x93\x1f\xd0\x00" * 50)
        with odradek.open(directory, mode="r") as logs:
            assert [problem.path for problem in logs.problems] == [str(path)]
            assert len(logs.topic_partitions("keyed")) == 3
            path.write_bytes(whole)
            assert len(logs.problems) == 1, "until the next refresh"
            logs.refresh()
            assert logs.problems == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [SEGMENT, f"{METADATA_DIRECTORY}/{0:020d}-{0:010d}.checkpoint", "bootstrap.checkpoint"]
)
def test_any_flipped_bit_of_the_metadata_is_told(directory: Path, name: str) -> None:
    path = directory / name
    whole = path.read_bytes()
    rng = random.Random(3)
    for _ in range(30):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        assert [problem.path for problem in directory_problems(directory)] == [str(path)]
    for cut in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert [problem.path for problem in directory_problems(directory)] == [str(path)]


def test_older_snapshots_are_looked_at_too(directory: Path) -> None:
    older = directory / METADATA_DIRECTORY / f"{0:020d}-{0:010d}.checkpoint"
    write_snapshot(older.with_name(f"{254:020d}-{1:010d}.checkpoint"), _values(directory))
    assert directory_problems(directory) == []
    older.write_bytes(older.read_bytes()[:-1])
    assert [problem.path for problem in directory_problems(directory)] == [str(older)]
    # It does not count, and nothing is lost.
    assert len(ClusterMetadata(directory).image.topics) == 14


def _values(directory: Path) -> list[bytes | None]:
    from odradek.records import read_records, scan_batches

    data = (directory / SEGMENT).read_bytes()
    return [r.value for header in scan_batches(data) if not header.is_control for r in read_records(data, header)]


def test_partitions_that_the_metadata_do_not_know_are_one_problem(directory: Path) -> None:
    (directory / "lost-0").mkdir()
    (directory / "keyed-7").mkdir()
    shutil.copy(directory / "keyed-0" / "partition.metadata", directory / "empty-0" / "partition.metadata")
    (problem,) = directory_problems(directory)
    assert "it knows nothing of 3 partitions that are here, empty-0 among them" in str(problem)
    assert problem.path == str(directory / SEGMENT)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (Path.unlink, "it is missing, although the directory was closed in order"),
        (lambda path: path.write_bytes(b""), "it is cut short"),
        (lambda path: path.write_bytes(b"0\n"), "it is cut short"),
        (
            lambda path: path.write_bytes(path.read_bytes().replace(b"truncated", b"trumcated")),
            "trumcated-head-0 starts",
        ),
    ],
)
def test_records_that_were_deleted_do_not_come_back_in_silence(
    directory: Path, change: Callable[[Path], object], reason: str
) -> None:
    path = directory / LOG_START_OFFSET_CHECKPOINT
    change(path)
    with odradek.open(directory, mode="r") as logs:
        assert [reason in str(problem) for problem in logs.problems] == [True]
    with pytest.raises(FormatError, match=reason) as caught:
        odradek.open(directory)
    assert caught.value.path == str(path)
    # Nor after a start whose disk failed.
    faulty = FaultyFileSystem(directory)
    faulty.fail("sync_directory", 0, error=errno.EIO)
    with pytest.raises(LogError, match="Input/output error"):
        WritableLogDirectory(directory, files=faulty)
    with pytest.raises(FormatError, match=reason):
        odradek.open(directory)
    # Whoever knows what he does says so, as with Kafka.
    (directory / CLEAN_SHUTDOWN_MARKER).unlink()
    odradek.open(directory).close()


def test_a_folder_from_before_kraft_has_no_metadata_to_be_wrong(fixture_2_8_2: KafkaFixture) -> None:
    problems = MetadataProblems(fixture_2_8_2.log_dir)
    assert (problems.found, problems.is_recorded, problems.loaded) == ([], False, None)


def test_a_writer_has_them_too(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        assert logs.problems == []
        (tmp_path / "cleaner-offset-checkpoint").write_text("x")
        logs.refresh()
        assert [problem.path for problem in logs.problems] == [str(tmp_path / "cleaner-offset-checkpoint")]


def test_keys_name_a_topic_and_a_partition_that_can_be(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        for name in ("a-", "a"):
            logs.create_topic(name, partitions=2)
            logs[name, 1].append([Record(None, name.encode())])
    for mode in ("a", "r"):
        with odradek.open(tmp_path, mode=mode) as logs:
            names = ["other", "", "..", "a/../a", "a\0", "x" * 300]
            for key in (("a", -1), ("a", 2), ("a", 1 << 31), *((name, 0) for name in names)):
                assert key not in logs
                with pytest.raises(odradek.UnknownTopicOrPartitionError):
                    logs[key]
            wrong: list[Any] = [("a", True), ("a", 1.0), ("a", "0"), ["a", 1], ("a",), ("a", 1, 2), (b"a", 1), (0, "a")]
            for key in (*wrong, None, 1):
                assert key not in logs
            for key in (*wrong, None, 1, "a"):
                with pytest.raises(TypeError, match="a log is looked up by topic and partition"):
                    logs[key]
            # A name alone is that of a topic: it may be there, but it names no log.
            assert ("a", 1) in logs
            assert "a" in logs
            for name in ("b", "", "..", "a\0", "x" * 300):
                assert name not in logs
            assert [record.value for record in logs["a-", 1].read()] == [b"a-"]
