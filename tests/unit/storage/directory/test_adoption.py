"""Which folders are opened for writing, and what is left of those that are not."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

import odradek
from odradek.errors import ForeignDirectoryError, FormatError, LogError
from odradek.places.opening import open_place
from odradek.records import Record
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.metadata.cluster import ClusterMetadata
from odradek.testing.faults import FaultyFileSystem
from peers.files import create_log


def tree(path: Path) -> list[tuple[str, bytes | None]]:
    return sorted((str(p.relative_to(path)), p.read_bytes() if p.is_file() else None) for p in path.rglob("*"))


def partition(folder: Path, *, segments: int = 1) -> Path:
    folder.mkdir(parents=True)
    for number in range(segments):
        (folder / f"{number:020d}.log").touch()
    return folder


@pytest.mark.parametrize(
    "names",
    [
        ["photos-2024/"],
        ["backup-20240131/"],
        ["notes.txt"],
        [".kafka_cleanshutdown"],
        ["meta.properties.bak", "a", "b", "c", "d"],
        ["orders-0.final-delete/"],
    ],
)
def test_a_folder_that_holds_something_else_is_refused_by_name(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        path = tmp_path / name
        if name.endswith("/"):
            path.mkdir()
            (path / "kept.jpg").write_bytes(b"kept")
        else:
            path.write_bytes(b"kept")
    before = tree(tmp_path)

    with pytest.raises(ForeignDirectoryError, match="adopt=True") as caught:
        odradek.open(tmp_path)

    assert min(names).rstrip("/") in str(caught.value)
    assert caught.value.found == tuple(sorted(name.rstrip("/") for name in names))
    assert isinstance(caught.value, LogError)
    assert tree(tmp_path) == before
    with odradek.open(tmp_path, mode="r") as logs:
        assert all(log.log_end_offset == 0 for log in logs)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("photos-2024", "'photos-2024' cannot become a partition: it holds no segment"),
        ("backup-20240131", "'backup-20240131' would be one of more than 10000 partitions"),
        ("orders-10000", "'orders-10000' would be one of more than 10000 partitions"),
        ("orders-0.final-delete", "'orders-0.final-delete' is marked as deleted: it would be removed"),
    ],
)
def test_adoption_has_bounds(tmp_path: Path, name: str, reason: str) -> None:
    partition(tmp_path / name, segments=0 if name.startswith("photos") else 1)
    partition(tmp_path / "good-0")
    before = tree(tmp_path)
    with pytest.raises(ForeignDirectoryError, match=reason):
        odradek.open(tmp_path, adopt=True)
    assert tree(tmp_path) == before


def test_what_is_asked_for_is_adopted(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "a") as logs:
        topic_id = logs.create_topic("t", partitions=3).topic_id
        logs["t", 2].append([Record(None, b"v")])
    shutil.copytree(tmp_path / "a" / "t-2", tmp_path / "b" / "t-2")
    (tmp_path / "b" / "notes.txt").write_text("kept")
    with odradek.open(tmp_path / "b", adopt=True) as logs:
        assert logs.topic_id("t") == topic_id
        assert [[record.value for record in log.read()] for log in logs] == [[], [], [b"v"]]
    # From now on it is one, and what else comes is a stray.
    shutil.copytree(tmp_path / "a" / "t-2", tmp_path / "b" / "other-0")
    with odradek.open(tmp_path / "b") as logs:
        assert (logs.topics(), logs.strays) == (["t"], [tmp_path / "b" / "other-0"])
    assert (tmp_path / "b" / "notes.txt").read_text() == "kept"


@pytest.mark.slow
def test_leftovers_of_an_interrupted_first_opening_count_as_nothing(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    files = FaultyFileSystem(tmp_path / "live")
    with odradek.open(files.root / "data", files=files) as logs:
        assert logs.topics() == []
    opened = 0
    for number, disk in files.replays():
        found = tmp_path / "found" / str(number)
        found.mkdir(parents=True)
        disk.cut_power(found, number)
        (found / "data").mkdir(exist_ok=True)
        (found / "data" / "lost+found").mkdir()
        with odradek.open(found / "data") as logs:
            logs.create_topic("t")
            opened += 1
    assert opened == len(files.history) + 1


@pytest.mark.parametrize("adopt", [False, True])
def test_metadata_whose_owner_is_not_named_are_never_written_over(tmp_path: Path, adopt: bool) -> None:
    create_log(tmp_path, "t", [b"v"])
    meta = (tmp_path / "meta.properties").read_bytes()
    (tmp_path / "meta.properties").unlink()
    before = tree(tmp_path)
    with pytest.raises(ForeignDirectoryError, match=r"metadata of a cluster, bootstrap\.checkpoint, .*put it back"):
        odradek.open(tmp_path, adopt=adopt)
    with odradek.open(tmp_path, mode="r") as logs:
        assert ["meta.properties: it is missing" in str(problem) for problem in logs.problems] == [True]
    assert tree(tmp_path) == before
    (tmp_path / "meta.properties").write_bytes(meta)
    with odradek.open(tmp_path, adopt=adopt) as logs:
        assert [record.value for record in logs["t", 0].read()] == [b"v"]


def test_partitions_that_lost_the_folder_with_the_metadata(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    with odradek.open(paths) as logs:
        logs.create_topic("t", partitions=2)
        logs["t", 1].append([Record(None, b"v")])
    shutil.rmtree(tmp_path / "a")
    before = tree(tmp_path / "b")
    with pytest.raises(
        ForeignDirectoryError, match=r"/b holds topics, t among them .1 in all., but .*/a, .*adopt=True"
    ):
        odradek.open(paths)
    assert tree(tmp_path / "b") == before
    assert not (tmp_path / "a").exists()
    with odradek.open(paths, adopt=True) as logs:
        assert [[record.value for record in log.read()] for log in logs] == [[], [b"v"]]


def test_a_directory_that_was_not_there_is_not_left_behind(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "other") as logs:
        logs.create_topic("t")
    (tmp_path / "file").touch()
    new = tmp_path / "x" / "y" / "new"
    for second in (tmp_path / "other", tmp_path / "file"):
        with pytest.raises(LogError):
            # The second is not to be the one with the metadata, or no folder.
            odradek.open([new, second])
        assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "other"]
    with odradek.open(tmp_path / "other") as logs:
        assert logs.topics() == ["t"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["write", "sync", "rename", "create", "sync_directory"])
def test_a_directory_that_was_not_there_is_not_left_behind_by_a_failing_disk(tmp_path: Path, kind: str) -> None:
    (tmp_path / "live").mkdir()
    for countdown in range(3):
        files = FaultyFileSystem(tmp_path / "live")
        files.fail(kind, countdown)  # type: ignore[arg-type]
        try:
            logs = odradek.open(files.root / "x" / "data", files=files)
        except (LogError, OSError):
            assert list(files.root.iterdir()) == []
        else:
            with suppress(LogError, OSError):
                logs.close()
            shutil.rmtree(files.root / "x")


def test_a_clean_directory_that_cannot_be_opened_stays_clean(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
    whole = (tmp_path / "bootstrap.checkpoint").read_bytes()
    (tmp_path / "bootstrap.checkpoint").write_bytes(whole[:-1])
    before = tree(tmp_path)
    with pytest.raises(FormatError, match=r"bootstrap\.checkpoint"):
        odradek.open(tmp_path)
    assert tree(tmp_path) == before
    (tmp_path / "bootstrap.checkpoint").write_bytes(whole)
    with odradek.open(tmp_path) as logs:
        assert logs.report.segments_scanned == 0


def test_a_link_to_itself_and_a_folder_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for mode in ("a", "r"):
        with pytest.raises(LogError, match="loop"):
            odradek.open(tmp_path / "loop", mode=mode)
    (tmp_path / "data").mkdir()

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    # `Path.iterdir` calls the one, or since Python 3.13 the other.
    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, refuse)
    with pytest.raises(LogError, match="data cannot be read as a log directory: Permission denied"):
        WritableLogDirectory(tmp_path / "data")


def test_a_name_that_is_no_text_is_told_all_the_same(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/photos-\xff")).mkdir()
    with pytest.raises(ForeignDirectoryError) as caught:
        odradek.open(tmp_path)
    str(caught.value).encode()


@pytest.mark.slow
def test_a_topic_of_thousands_of_partitions_is_adopted_at_once(tmp_path: Path) -> None:
    partition(tmp_path / "many-500")
    with odradek.open(tmp_path, adopt=True) as logs:
        assert len(logs.topic_partitions("many")) == 501
    assert len(ClusterMetadata(tmp_path).image.topics["many"].partitions) == 501


def test_adopted_topics_of_coordinators_have_the_settings_that_kafka_gives_them(tmp_path: Path) -> None:
    for name in ("__consumer_offsets", "__transaction_state", "__share_group_state", "events"):
        partition(tmp_path / f"{name}-0")
    odradek.open(tmp_path, adopt=True).close()
    with open_place(tmp_path) as place:
        found = {topic.name: dict(topic.config) for topic in place.describe()}
    segments = {"segment.bytes": "104857600"}
    assert found == {
        "__consumer_offsets": {"cleanup.policy": "compact", "compression.type": "producer"} | segments,
        "__transaction_state": {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",
            "unclean.leader.election.enable": "false",
        }
        | segments,
        # Without the retention, records of groups that are still there would be deleted after a week.
        "__share_group_state": {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": "1",
            "retention.ms": "-1",
        }
        | segments,
        "events": {},
    }
