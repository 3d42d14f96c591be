"""The file store: the conformance suite, and what only a file can go through."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.errors import OffsetStoreError
from odradek.offsets.file import FileOffsetStore
from odradek.offsets.store import Position, open_store
from odradek.storage.names import TopicPartition
from odradek.testing.offset_store_suite import EVENTS_0, OffsetStoreSuite


class TestFileStore(OffsetStoreSuite):
    @pytest.fixture
    def address(self, tmp_path: Path) -> str:
        return f"file://{tmp_path}/folder/offsets.json"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "offsets.json"


def test_the_file_is_json_that_people_can_read(path: Path) -> None:
    with FileOffsetStore(path) as store:
        committed = store.commit({EVENTS_0: Position(20, batch="17")}, expected=store.load())
    assert json.loads(path.read_text()) == {
        "version": committed.version,
        "positions": {"events": {"0": {"offset": 20, "batch": "17"}}},
    }
    assert sorted(entry.name for entry in path.parent.iterdir()) == [".offsets.json.lock", "offsets.json"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"7",
        b"{}",
        b'{"version": 7, "positions": {}}',
        b'{"version": "a", "positions": []}',
        b'{"version": "a", "positions": {"events": {"0": 20}}}',
        b'{"version": "a", "positions": {"events": {"0": {}}}}',
        b'{"version": "a", "positions": {"events": {"zero": {"offset": 20}}}}',
        b'{"version": "a", "positions": {"events": {"00": {"offset": 20}}}}',
        b'{"version": "a", "positions": {"events": {"1_0": {"offset": 20}}}}',
        b'{"version": "a", "positions": {"events": {"+1": {"offset": 20}}}}',
        '{"version": "a", "positions": {"events": {"\u0663": {"offset": 20}}}}'.encode(),
        b'{"version": "a", "positions": {"events": {"2147483648": {"offset": 20}}}}',
        b'{"version": "a", "positions": {"events": {"0": {"offset": 20}, "0": {"offset": 30}}}}',
        b'{"version": "a", "positions": {"events": {"0": {"offset": 20}}, "events": {}}}',
        b'{"version": "a", "positions": {"": {"0": {"offset": 20}}}}',
        b'{"version": "a", "positions": {"a/b": {"0": {"offset": 20}}}}',
        b'{"version": "a", "positions": {"..": {"0": {"offset": 20}}}}',
        b'{"version": "a", "positions": {"events": {"0": {"offset": 20, "note": "\\ud800"}}}}',
        b'{"version": "a", "positions": {"events": {"0": {"offset": -1}}}}',
        b'{"version": "a", "positions": {"events": {"0": {"offset": 9223372036854775808}}}}',
        b'{"version": "a", "positions": {"events": {"0": {"offset": 1.5}}}}',
        b'{"version": "a", "positions": {"events": {"0": {"offset": true}}}}',
        b'{"version": "a", "positions": {"events": {"0": {"offset": 1, "batch": 7}}}}',
        b'{"version": "a", "positions": {"events": {"0": {"offset": 1, "leader_epoch": "7"}}}}',
    ],
)
def test_another_file_is_neither_believed_nor_replaced(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with FileOffsetStore(path) as store:
        with pytest.raises(OffsetStoreError, match=r"offsets\.json"):
            store.load()
        with pytest.raises(OffsetStoreError):
            store.claim()
    assert path.read_bytes() == content


def test_the_file_keeps_its_mode_and_its_neighbours_stay(path: Path) -> None:
    neighbour = path.with_name("offsets.json.tmp")
    neighbour.write_bytes(b"of somebody else")
    with FileOffsetStore(path) as store:
        committed = store.claim()
        path.chmod(0o600)
        store.commit({EVENTS_0: Position(1)}, expected=committed)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert neighbour.read_bytes() == b"of somebody else"


def test_a_torn_temporary_file_of_a_crash_is_no_hindrance(path: Path) -> None:
    path.with_name(".offsets.json.tmp").write_bytes(b'{"versi')
    with FileOffsetStore(path) as store:
        store.commit({EVENTS_0: Position(1)}, expected=store.load())
        assert store.load().offset(EVENTS_0) == 1


def test_a_lock_that_is_never_released_is_an_error_in_time(path: Path) -> None:
    script = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX);"
        "print('locked', flush=True); sys.stdin.read()"
    )
    lock = path.with_name(".offsets.json.lock")
    with subprocess.Popen(
        [sys.executable, "-c", script, os.fspath(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with FileOffsetStore(path, timeout_ms=50) as store:
            with pytest.raises(OffsetStoreError, match="lock"):
                store.claim()
        holder.kill()
    with FileOffsetStore(path, timeout_ms=50) as store:
        store.claim()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with FileOffsetStore(tmp_path / "file" / "offsets.json") as store:
        with pytest.raises(OffsetStoreError, match="file"):
            store.load()
        with pytest.raises(OffsetStoreError):
            store.claim()


def test_names_of_any_partition(path: Path) -> None:
    names = {TopicPartition("a-1", 2): Position(1), TopicPartition("a", 12): Position(2)}
    with open_store(f"file://{path}") as store:
        store.commit(names, expected=store.load())
        assert dict(store.load()) == names
