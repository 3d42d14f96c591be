"""Symbolic links in a log directory: what they lead to is somebody else's, and stays as it is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import odradek
from odradek.errors import LogError
from odradek.records import Record
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from peers.files import create_log


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "kept").write_bytes(b"kept")
    (folder / "kept").write_bytes(b"kept")
    return folder


def is_whole(folder: Path) -> bool:
    return sorted(path.name for path in folder.rglob("*")) == ["inner", "kept", "kept"]


def test_a_marked_link_is_removed_and_not_what_it_leads_to(tmp_path: Path, elsewhere: Path) -> None:
    data = tmp_path / "data"
    odradek.open(data).close()
    link = data / f"t-0.{'0' * 32}-delete"
    link.symlink_to(elsewhere)
    with odradek.open(data):
        assert not link.is_symlink()
        assert is_whole(elsewhere)


def test_links_within_a_marked_folder(tmp_path: Path, elsewhere: Path) -> None:
    data = tmp_path / "data"
    odradek.open(data).close()
    folder = data / f"t-0.{'0' * 32}-delete"
    (folder / "deep").mkdir(parents=True)
    for place in (folder, folder / "deep"):
        (place / "folder").symlink_to(elsewhere)
        (place / "file").symlink_to(elsewhere / "kept")
        (place / "loop").symlink_to(place / "loop")
        (place / "nowhere").symlink_to(place / "none")
    with odradek.open(data):
        assert not folder.exists()
        assert is_whole(elsewhere)


def test_a_file_is_not_written_through_a_link_that_has_the_name_of_its_draft(tmp_path: Path, elsewhere: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("meta.properties", "bootstrap.checkpoint"):
        (data / f"{name}.tmp").symlink_to(elsewhere / "kept")
    with odradek.open(data) as logs:
        logs.create_topic("t")
    assert (elsewhere / "kept").read_bytes() == b"kept"
    assert not any(path.is_symlink() for path in data.iterdir())


def test_what_is_marked_but_no_folder_stays(tmp_path: Path) -> None:
    data = tmp_path / "data"
    odradek.open(data).close()
    file = data / f"t-0.{'0' * 32}-delete"
    file.write_bytes(b"kept")
    loop = data / f"t-1.{'0' * 32}-delete"
    loop.symlink_to(loop)
    with odradek.open(data) as logs:
        logs.create_topic("t")
        assert file.read_bytes() == b"kept"
        assert loop.is_symlink()
    with odradek.open(data, mode="r") as again:
        assert again.topics() == ["t"]


def test_a_partition_behind_a_link_is_read_and_its_link_deleted(tmp_path: Path) -> None:
    data, away = tmp_path / "data", tmp_path / "away" / "t-0"
    create_log(data, "t", [b"v"], config={"file.delete.delay.ms": "0"})
    away.parent.mkdir()
    shutil.move(data / "t-0", away)
    (data / "t-0").symlink_to(away)
    segments = {path.name: path.read_bytes() for path in away.glob("*.log")}
    with WritableLogDirectory(data) as logs:
        assert [record.value for record in logs["t", 0].read()] == [b"v"]
        logs.delete_topic("t")
        logs.maintain()
        assert not list(data.glob("t-0*"))
    assert {path.name: path.read_bytes() for path in away.glob("*.log")} == segments


def test_a_new_partition_is_not_made_through_a_link_or_over_a_file(tmp_path: Path, elsewhere: Path) -> None:
    data = tmp_path / "data"
    with odradek.open(data) as logs:
        (data / "nowhere-0").symlink_to(tmp_path / "none")
        (data / "file-0").write_bytes(b"kept")
        for name in ("nowhere", "file"):
            with pytest.raises(LogError, match=f"{name}-0 cannot be created"):
                logs.create_topic(name)
        (data / "stray-0").symlink_to(elsewhere)
        logs.refresh()
        logs.create_topic("stray")
        logs["stray", 0].append([Record(None, b"v")])
        assert not (data / "stray-0").is_symlink()
        assert [path.is_symlink() for path in logs.strays] == [True]
    assert not (tmp_path / "none").exists()
    assert (data / "file-0").read_bytes() == b"kept"
    assert is_whole(elsewhere)


def test_records_under_the_name_of_a_new_topic_are_set_aside_whoever_put_them_there(tmp_path: Path) -> None:
    data = tmp_path / "data"
    create_log(tmp_path / "other", "t", [b"theirs"])
    with odradek.open(data) as logs:
        # Since the folders were last looked at.
        shutil.copytree(tmp_path / "other" / "t-0", data / "t-0")
        shutil.copytree(tmp_path / "other" / "t-0", data / "u-0")
        (data / "u-0" / "partition.metadata").write_text("damaged")
        for name in ("t", "u"):
            logs.create_topic(name)
            assert logs[name, 0].log_end_offset == 0
        assert len(logs.strays) == 2
        for stray in logs.strays:
            assert list(stray.glob("*.log"))
