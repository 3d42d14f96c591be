"""The fault-injecting file system: what it writes, what it remembers, and what it leaves behind after a crash."""

from __future__ import annotations

import errno
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.storage.files import FileSystem, WritableFile, write_atomically
from odradek.testing.faults import FaultyFile, FaultyFileSystem, flip_bits, read_tree

SEEDS = range(60)

Found = dict[str, bytes | None]
Survivors = Callable[..., list[Found]]


@pytest.fixture
def files(tmp_path: Path) -> FaultyFileSystem:
    root = tmp_path / "live"
    root.mkdir()
    return FaultyFileSystem(root, seed=1)


@pytest.fixture
def survivors(tmp_path: Path) -> Survivors:
    """What each of many power cuts leaves."""
    targets = (tmp_path / f"after-{number}" for number in range(1 << 20))

    def cut(files: FaultyFileSystem, operations: int | None = None) -> list[Found]:
        disk, found = files.replay(operations), []
        for seed in SEEDS:
            target = next(targets)
            target.mkdir()
            disk.cut_power(target, seed)
            found.append(read_tree(target))
        return found

    return cut


def write(files: FaultyFileSystem, name: str, data: bytes, *, synced: bool = False) -> None:
    """Write a file, and close it."""
    file = files.open(files.root / name)
    file.write(data)
    if synced:
        file.sync()
    file.close()


def distinct(found: list[Found], name: str) -> set[bytes | None]:
    return {tree[name] for tree in found if name in tree}


class TestWriting:
    def test_does_what_the_real_one_does(self, files: FaultyFileSystem, tmp_path: Path) -> None:
        twin = tmp_path / "twin"
        twin.mkdir()
        for way, root in ((files, files.root), (FileSystem(), twin)):
            way.make_directory(root / "a/b")
            file = way.open(root / "a/b/one")
            file.write(b"hello")
            file.write_at(8, memoryview(b"world"))
            file.truncate(11)
            file.sync()
            assert file.size == 11
            file.close()
            way.rename(root / "a/b/one", root / "a/b/two")
            write_atomically(root / "three", b"whole", way)
            way.set_modified_ms(root / "three", 1_600_000_000_123)
            way.link(root / "three", root / "a/again")
            way.open(root / "gone").close()
            way.unlink(root / "gone")
            way.unlink(root / "gone")
            way.make_directory(root / "empty")
            way.remove_directory(root / "empty")
            way.sync_directory(root / "a")
            way.rename(root / "a", root / "z")
        assert read_tree(files.root) == read_tree(twin)
        assert read_tree(twin) == {
            "z": None,
            "z/b": None,
            "z/b/two": b"hello\0\0\0wor",
            "three": b"whole",
            "z/again": b"whole",
        }
        assert (files.root / "three").stat().st_mtime_ns == 1_600_000_000_123_000_000
        assert files.unrecorded() == []

    def test_what_was_there_before_is_synced(self, files: FaultyFileSystem, survivors: Survivors) -> None:
        (files.root / "sub").mkdir()
        (files.root / "sub/old").write_bytes(b"old")
        assert survivors(FaultyFileSystem(files.root)) == [{"sub": None, "sub/old": b"old"}] * len(SEEDS)

    def test_names_what_was_written_past_it(self, files: FaultyFileSystem) -> None:
        write(files, "seen", b"1")
        (files.root / "seen").write_bytes(b"2")
        (files.root / "unseen").touch()
        assert files.unrecorded() == ["seen", "unseen"]

    def test_touches_nothing_outside_its_root(self, files: FaultyFileSystem, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="is not in"):
            files.open(tmp_path / "elsewhere")
        with pytest.raises(ValueError, match="is not in"):
            files.open(files.root / ".." / "elsewhere")
        with pytest.raises(FileNotFoundError):
            files.open(files.root / "missing/one")
        assert files.history == []

    @pytest.mark.parametrize(("real", "double"), [(FileSystem, FaultyFileSystem), (WritableFile, FaultyFile)])
    def test_every_way_to_write_is_recorded(self, real: type, double: type) -> None:
        public = {name for name, _ in inspect.getmembers(real, inspect.isfunction) if not name.startswith("_")}
        # What a file's mode is, no crash decides.
        ways = {"write", "close", "set_mode"}
        assert public - set(vars(double)) <= ways, "a way past the record: write goes through write_at"

    def test_prints_its_seed_and_history(self, files: FaultyFileSystem) -> None:
        write_atomically(files.root / "x", b"12345", files)
        assert str(files).splitlines() == [
            "seed 1",
            "    0 create x.tmp",
            "    1 truncate x.tmp to 0",
            "    2 write x.tmp [0, 5)",
            "    3 sync x.tmp",
            "    4 rename x from x.tmp",
            "    5 sync_directory ",
        ]


class TestPowerCut:
    def test_what_was_synced_is_there(self, files: FaultyFileSystem, survivors: Survivors) -> None:
        file = files.open(files.root / "log")
        file.write(b"synced")
        file.sync()
        files.sync_directory(files.root)
        file.write(b"not synced")
        file.close()
        found = survivors(files)
        assert all((tree["log"] or b"").startswith(b"synced") for tree in found)
        assert distinct(found, "log") > {b"synced", b"syncednot synced", b"synced" + bytes(10)}

    def test_a_synced_file_without_a_synced_name_may_be_gone(
        self, files: FaultyFileSystem, survivors: Survivors
    ) -> None:
        write(files, "log", b"synced", synced=True)
        found = survivors(files)
        assert {"log" in tree for tree in found} == {True, False}
        assert distinct(found, "log") == {b"synced"}

    def test_a_folder_without_a_synced_name_takes_its_files_along(
        self, files: FaultyFileSystem, survivors: Survivors
    ) -> None:
        files.make_directory(files.root / "sub")
        write(files, "sub/log", b"", synced=True)
        files.sync_directory(files.root / "sub")
        assert {tuple(tree) for tree in survivors(files)} == {(), ("sub", "sub/log")}
        files.sync_directory(files.root)
        assert {tuple(tree) for tree in survivors(files)} == {("sub", "sub/log")}

    def test_writes_between_two_syncs_are_torn_and_reordered(
        self, files: FaultyFileSystem, survivors: Survivors
    ) -> None:
        file = files.open(files.root / "log")
        files.sync_directory(files.root)
        for letter in (b"a", b"b", b"c"):
            file.write(letter * 30)
        file.close()
        found = {data for data in distinct(survivors(files), "log") if data is not None}
        assert any(b"\0" in data[:30] and b"c" in data for data in found), "a later one without an earlier one"
        assert any(0 < data.count(b"b") < 30 for data in found), "a torn one"
        assert any(len(data) == 90 and data.endswith(b"\0") for data in found), "a zeroed tail"
        assert any(data == b"a" * len(data) and 0 < len(data) < 30 for data in found), "a torn first"
        whole = b"a" * 30 + b"b" * 30 + b"c" * 30
        assert all(byte in {0, whole[place]} for data in found for place, byte in enumerate(data)), "nothing invented"

    def test_a_rename_happened_or_not(self, files: FaultyFileSystem, survivors: Survivors) -> None:
        for name in ("old", "new"):
            write(files, name, name.encode(), synced=True)
        files.sync_directory(files.root)
        files.rename(files.root / "new", files.root / "old")
        states = survivors(files)
        assert {tuple(sorted(tree.items())) for tree in states} == {
            (("new", b"new"), ("old", b"old")),
            (("old", b"new"),),
        }

    def test_unsynced_names_come_and_go_in_any_order(self, files: FaultyFileSystem, survivors: Survivors) -> None:
        files.open(files.root / "first").close()
        files.sync_directory(files.root)
        files.unlink(files.root / "first")
        files.open(files.root / "second").close()
        assert {tuple(sorted(tree)) for tree in survivors(files)} == {(), ("first",), ("second",), ("first", "second")}

    def test_an_atomic_write_leaves_the_old_or_the_new(self, files: FaultyFileSystem, survivors: Survivors) -> None:
        write_atomically(files.root / "x", b"old", files)
        done = len(files.history)
        write_atomically(files.root / "x", b"new and longer", files)
        for operations in range(done, len(files.history) + 1):
            found = distinct(survivors(files, operations), "x")
            assert found <= {b"old", b"new and longer"}
            assert all("x" in tree for tree in survivors(files, operations))
        assert found == {b"new and longer"}

    def test_the_same_seed_gives_the_same_disk(self, files: FaultyFileSystem, survivors: Survivors) -> None:
        for number in range(5):
            write(files, f"{number}", bytes(range(200)))
        assert survivors(files) == survivors(files)

    def test_modification_times_go_with_the_rest(self, files: FaultyFileSystem, tmp_path: Path) -> None:
        file = files.open(files.root / "x")
        files.set_modified_ms(files.root / "x", 1_500_000_000_001)
        file.sync()
        file.close()
        files.sync_directory(files.root)
        (tmp_path / "after").mkdir()
        files.replay().cut_power(tmp_path / "after", 3)
        assert (tmp_path / "after/x").stat().st_mtime_ns == 1_500_000_000_001_000_000


class TestKill:
    def test_all_is_there_and_the_last_write_torn(self, files: FaultyFileSystem, tmp_path: Path) -> None:
        file = files.open(files.root / "log")
        file.write(b"one")
        file.write(b"two")
        file.close()
        found: set[bytes | None] = set()
        for number, disk in files.replays():
            if number == 2:
                for seed in SEEDS:
                    target = tmp_path / f"{seed}"
                    target.mkdir()
                    disk.kill(target, files.history[number], seed)
                    found.add(read_tree(target)["log"])
        assert found == {b"one", b"onet", b"onetw", b"onetwo"}

    def test_every_moment_is_what_the_folder_was(self, files: FaultyFileSystem, tmp_path: Path) -> None:
        moments: list[tuple[int, Found]] = []

        def look() -> None:
            moments.append((len(files.history), read_tree(files.root)))

        look()
        write_atomically(files.root / "x", b"1", files)
        look()
        files.make_directory(files.root / "sub")
        files.rename(files.root / "x", files.root / "sub/y")
        look()
        files.unlink(files.root / "sub/y")
        look()
        for number, (operations, tree) in enumerate(moments):
            target = tmp_path / f"{number}"
            target.mkdir()
            files.replay(operations).kill(target)
            assert read_tree(target) == tree


class TestFaults:
    def test_a_full_disk_takes_a_part(self, files: FaultyFileSystem) -> None:
        file = files.open(files.root / "log")
        files.space_bytes = 5
        file.write(b"abc")
        with pytest.raises(OSError, match="No space") as raised:
            file.write(b"defg")
        assert raised.value.errno == errno.ENOSPC
        assert (files.root / "log").read_bytes() == b"abcde"
        assert file.size == 3, "the writer does not know"
        with pytest.raises(OSError, match="No space"):
            file.write(b"d")
        files.space_bytes = None
        file.write(b"xy")
        file.close()
        assert (files.root / "log").read_bytes() == b"abcxy"
        assert files.unrecorded() == []

    def test_a_failed_sync_loses_what_it_should_have_written(
        self, files: FaultyFileSystem, survivors: Survivors
    ) -> None:
        file = files.open(files.root / "log")
        files.sync_directory(files.root)
        file.write(b"a" * 4000)
        files.fail("sync")
        with pytest.raises(OSError, match="Input/output error"):
            file.sync()
        file.write(b"b" * 10)
        file.sync()
        file.close()
        assert (files.root / "log").read_bytes() == b"a" * 4000 + b"b" * 10, "the page cache shows it"
        found = distinct(survivors(files), "log")
        assert len(found) == 1, "all of it is decided"
        assert b"\0" in (found.pop() or b""), "the second sync did not write it"

    def test_a_write_fails_in_the_middle(self, files: FaultyFileSystem) -> None:
        file = files.open(files.root / "log")
        file.write(b"abc")
        files.fail("write", 1, times=2, at="log")
        file.write(b"def")
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output error"):
                file.write(b"ghijklmno")
        file.write(b"")
        file.close()
        assert b"abcdefghijklmno".startswith((files.root / "log").read_bytes())
        assert files.unrecorded() == []

    @pytest.mark.parametrize(
        ("kind", "act"),
        [
            ("create", lambda files: files.open(files.root / "new")),
            ("rename", lambda files: files.rename(files.root / "x", files.root / "y")),
            ("unlink", lambda files: files.unlink(files.root / "x")),
            ("make_directory", lambda files: files.make_directory(files.root / "d")),
            ("remove_directory", lambda files: files.remove_directory(files.root / "empty")),
            ("sync_directory", lambda files: files.sync_directory(files.root)),
            ("set_modified", lambda files: files.set_modified_ms(files.root / "x", 1)),
        ],
    )
    def test_what_fails_is_not_done(
        self, files: FaultyFileSystem, kind: str, act: Callable[[FaultyFileSystem], object]
    ) -> None:
        write_atomically(files.root / "x", b"1", files)
        files.make_directory(files.root / "empty")
        before = read_tree(files.root)
        files.fail(kind, error=errno.EROFS)  # type: ignore[arg-type]
        with pytest.raises(OSError, match="Read-only"):
            act(files)
        assert read_tree(files.root) == before
        assert files.unrecorded() == []


class TestBitFlips:
    def test_flips_where_it_is_told(self, tmp_path: Path) -> None:
        path = tmp_path / "x"
        path.write_bytes(bytes(100))
        assert flip_bits(path, 5, count=3, start=10, end=20) == flip_bits(path, 5, count=3, start=10, end=20)
        assert path.read_bytes() == bytes(100), "twice is not at all"
        (position,) = flip_bits(path, 5, start=10, end=20)
        data = path.read_bytes()
        assert 10 <= position < 20
        assert data[position].bit_count() == 1
        assert sum(data) == data[position]
        assert flip_bits(path, 5, start=200) == []


def test_a_lost_name_of_a_new_file_hides_its_synced_bytes(files: FaultyFileSystem, survivors: Survivors) -> None:
    def states() -> Iterator[bytes | None]:
        for tree in survivors(files):
            yield tree.get("log")

    file = files.open(files.root / "log")
    file.write(b"x")
    file.sync()
    assert set(states()) == {None, b"x"}
    files.fail("sync_directory")
    with pytest.raises(OSError, match="Input/output error"):
        files.sync_directory(files.root)
    assert set(states()) == {None, b"x"}
    files.sync_directory(files.root)
    assert set(states()) == {b"x"}
    file.close()
