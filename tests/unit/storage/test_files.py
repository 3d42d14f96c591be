"""Reading what may be anything where a file should be."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from flips.breakage import THINGS
from odradek.errors import FormatError
from odradek.storage.formats.checkpoints import read_leader_epochs, read_offset_checkpoint
from odradek.storage.formats.meta_properties import MetaProperties
from odradek.storage.formats.metadata_snapshot import read_snapshot as read_metadata_snapshot
from odradek.storage.formats.partition_metadata import read_partition_metadata
from odradek.storage.formats.producer_snapshot import ProducerSnapshotEntry, format_snapshot, read_snapshot
from odradek.storage.formats.quorum_state import read_quorum_state
from odradek.storage.metadata.metadata_log import load_bootstrap
from odradek.storage.regular_files import read_file, subfolders
from peers.descriptors import descriptors, stay_open

STRANGE: dict[str, Callable[[Path], object]] = {
    **{name: make for name, make in THINGS.items() if name != "a link that leads nowhere"},
    "below a file": lambda path: path.symlink_to("/dev/null/x"),
}

READERS: dict[str, Callable[[Path], object]] = {
    "read_file": lambda path: read_file(path, 100),
    "meta.properties": MetaProperties.read,
    "offset checkpoint": read_offset_checkpoint,
    "leader epochs": read_leader_epochs,
    "partition.metadata": read_partition_metadata,
    "producer snapshot": read_snapshot,
    "metadata snapshot": read_metadata_snapshot,
    "bootstrap": load_bootstrap,
    "quorum-state": read_quorum_state,
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("strange", STRANGE)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_file_is_named_at_once(tmp_path: Path, reader: str, strange: str) -> None:
    path = tmp_path / "x"
    STRANGE[strange](path)
    with pytest.raises(FormatError) as caught:
        READERS[reader](path)
    assert caught.value.path == str(path)


@pytest.mark.parametrize("reader", READERS)
def test_a_file_without_an_end_is_not_read(tmp_path: Path, reader: str) -> None:
    path = tmp_path / "x"
    with path.open("wb") as file:
        file.truncate(20 << 30)
    with pytest.raises(FormatError) as caught:
        READERS[reader](path)
    assert caught.value.path == str(path)


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with pytest.raises(FileNotFoundError):
        read_file(path, 3)
    path.write_bytes(b"abc")
    assert read_file(path, 3) == b"abc"
    with pytest.raises(FormatError, match="3 bytes are more than such a file can have: 2"):
        read_file(path, 2)
    (tmp_path / "link").symlink_to(path)
    assert read_file(tmp_path / "link", 3) == b"abc"


def test_no_descriptor_is_left_behind(tmp_path: Path) -> None:
    before = descriptors()
    for name, make in STRANGE.items():
        make(tmp_path / name)
        with pytest.raises(FormatError):
            read_file(tmp_path / name, 3)
    assert stay_open(before) == set()


def test_a_producer_snapshot_is_read_when_its_size_is_what_its_header_says(tmp_path: Path) -> None:
    path = tmp_path / "x"
    data = format_snapshot([ProducerSnapshotEntry(3, 0, 72, 72, 0, 1700000072000, -1, -1)])
    path.write_bytes(data)
    with path.open("r+b") as file:
        file.truncate(20 << 30)
    with pytest.raises(FormatError, match=f"1 producers take {len(data)} bytes, there are {20 << 30}") as caught:
        read_snapshot(path)
    assert caught.value.position == 6
    # And where the header agrees, so many producers there are not.
    count = ((20 << 30) - 10) // 46
    with path.open("r+b") as file:
        file.write(data[:6] + count.to_bytes(4, "big", signed=True))
        file.truncate(10 + 46 * count)
    with pytest.raises(FormatError, match=f"{count} producers"):
        read_snapshot(path)


def test_what_a_link_leads_to_hides_no_other_folder(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "nowhere").symlink_to(tmp_path / "none")
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    (tmp_path / "to-file").symlink_to(tmp_path / "file")
    assert subfolders(tmp_path) == ["folder", "link"]


def test_a_file_that_may_not_be_read_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"0\n0\n")

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PermissionError):
        read_offset_checkpoint(path)
    monkeypatch.undo()

    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pread", fail)
    with pytest.raises(OSError, match="Input/output error") as caught:
        read_offset_checkpoint(path)
    assert caught.value.filename == str(path)
