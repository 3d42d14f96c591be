"""A folder that holds a log directory is not taken for one, nor for an empty one."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import odradek
from odradek.cli.app import main


@pytest.mark.parametrize("disk", ["data-0", "disk"])
def test_the_log_directory_within_is_named(tmp_path: Path, disk: str) -> None:
    """`data-0` is also what the folder of a partition is called."""
    with odradek.open(tmp_path / disk / "kafka-log0") as logs:
        logs.create_topic("t", partitions=1)
    said = f"not a log directory, but {tmp_path / disk / 'kafka-log0'} is one"
    for call in (odradek.open, odradek.scan, odradek.dataset, lambda path: odradek.open(path, "r")):
        with pytest.raises(odradek.ForeignDirectoryError) as caught:
            call(tmp_path / disk)
        assert str(caught.value) == f"{tmp_path / disk} is {said}"
    for command in (["dump"], ["verify"], ["stat"], ["topics", "list"], ["serve", "--adopt"]):
        done = CliRunner().invoke(main, [*command, str(tmp_path / disk)])
        assert done.exit_code != 0
        assert said in done.stderr
    with odradek.open(tmp_path / disk / "other") as logs:
        logs.create_topic("t", partitions=1)
    with pytest.raises(odradek.ForeignDirectoryError, match=r"kafka-log0 is one, and 1 more$"):
        odradek.scan(tmp_path / disk)


@pytest.mark.parametrize("place", ["backup", ".snapshot", "t-0/copy"])
def test_partitions_beside_a_copy_of_a_log_directory_are_read(tmp_path: Path, place: str) -> None:
    """Also where meta.properties is gone, so that nothing else says that the folder is a log directory."""
    path = tmp_path / "data"
    with odradek.open(path) as logs:
        logs.create_topic("t", partitions=1)
        logs["t", 0].append(value=b"x")
    shutil.copytree(path, tmp_path / "copy")
    (tmp_path / "copy").rename(path / place)
    (path / "meta.properties").unlink()
    assert odradek.scan(path).read_all()["value"].to_pylist() == [b"x"]
    for folder in (path, path / "t-0"):
        assert CliRunner().invoke(main, ["dump", str(folder)]).stdout.count('value="x"') == 1
    salvaged = CliRunner().invoke(main, ["salvage", str(path), str(tmp_path / "salvaged")])
    assert "1 partition, 1 batch" in salvaged.output


def test_a_folder_that_cannot_be_looked_into_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t", partitions=1)
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "meta.properties").unlink()
    exists = Path.exists

    def refused(path: Path, **options: bool) -> bool:
        if path.parent.name == "lost+found":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return exists(path, **options)

    monkeypatch.setattr(Path, "exists", refused)
    assert odradek.scan(tmp_path).read_all().num_rows == 0


def test_a_topic_is_created_in_a_folder_that_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    refused = CliRunner().invoke(main, ["produce", str(path), "t"], input="x\n")
    assert refused.exit_code == 3
    assert refused.stderr == f"odradek: {path}: there is no such folder; odradek topics create {path} t makes it\n"
    assert not (tmp_path / "a").exists()
    assert CliRunner().invoke(main, ["topics", "create", str(path), "t"]).exit_code == 0
    assert CliRunner().invoke(main, ["produce", str(path), "t"], input="x\n").exit_code == 0
    with odradek.open(path, "r") as logs:
        assert [record.value for record in logs["t", 0].read()] == [b"x"]
