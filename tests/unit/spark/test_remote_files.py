"""A Parquet folder of another file system: commits that end, or stop for a while, at each operation in turn."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow.fs import (
    FileSelector,
    FileSystem,
    FileSystemHandler,
    FileType,
    PyFileSystem,
    S3FileSystem,
    _MockFileSystem,
)

from chaos.folder_driver import NAME, rows, stage
from odradek.errors import SinkError
from odradek.offsets.store import Position
from odradek.spark.pipeline.folder_uri import FolderUri
from odradek.spark.pipeline.merging import compact
from odradek.spark.pipeline.parquet_folder import ParquetFolder
from odradek.spark.pipeline.remote_files import RemoteFiles
from odradek.spark.pipeline.sink import FencedError
from peers.s3 import ACCESS_KEY, SECRET_KEY, S3Server

CASES = int(os.environ.get("ODRADEK_FOLDER_CASES", "10"))
URIS = {"puts": "s3://bucket/orders", "renames": "hdfs://namenode:8020/orders"}


class Watched(FileSystemHandler):  # type: ignore[misc]
    """A file system in memory that tells `before` and `after` of each operation."""

    def __init__(self) -> None:
        self.inner = _MockFileSystem()
        self.renames = False
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None

    def _do(self, name: str, *given: Any, made: str = "") -> Any:
        self.before()
        if made:
            self.inner.create_dir(made)
        result = getattr(self.inner, name)(*given)
        self.after()
        return result

    def get_type_name(self) -> str:
        return "watched"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> Any:
        raise AssertionError("on HDFS a look at one file takes each error for its absence")

    def get_file_info_selector(self, selector: FileSelector) -> Any:
        assert not selector.allow_not_found, "on HDFS each error would be an empty list"
        return self._do("get_file_info", selector)

    def create_dir(self, path: str, recursive: bool) -> None:
        self._do("create_dir", path)

    def delete_file(self, path: str) -> None:
        self._do("delete_file", path)

    def move(self, source: str, target: str) -> None:
        self._do("move", source, target)

    def copy_file(self, source: str, target: str) -> None:
        try:
            self._do("copy_file", source, target, made=target.rpartition("/")[0])
        except FileNotFoundError:
            # So does Arrow of S3: without an errno.
            raise OSError("AWS Error NO_SUCH_KEY during CopyObject operation") from None

    def open_input_stream(self, path: str) -> Any:
        return self._do("open_input_stream", path)

    def open_input_file(self, path: str) -> Any:
        return self._do("open_input_file", path)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        # On HDFS, a file that is being written is there already.
        assert not self.renames or "/commit-" not in path or path.endswith("-0000000000.json")
        # Object stores and HDFS make the folders.
        return self._do("open_output_stream", path, made=path.rpartition("/")[0])

    def delete_dir(self, path: str) -> None:
        self._do("delete_dir", path)

    delete_dir_contents = delete_root_dir_contents = open_append_stream = None


@pytest.fixture(params=URIS)
def uri(request: pytest.FixtureRequest) -> FolderUri:
    return FolderUri.parse(URIS[request.param])


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch, uri: FolderUri) -> Watched:
    watched = Watched()
    watched.renames = uri.scheme == "hdfs"
    monkeypatch.setattr(FolderUri, "open", lambda self: (PyFileSystem(watched), "top/orders"))
    return watched


def append(folder: ParquetFolder, start: int, end: int) -> None:
    move = (stage(folder, start, end), f"date=x/t-0-{start:020d}-{end:020d}.parquet")
    folder.commit(folder.files.stage(), [move], {NAME: Position(end)})


def replace(folder: ParquetFolder, start: int, end: int) -> None:
    """Commit what a merge does: other files instead of all that there are."""
    moves = [(stage(folder, 0, 5), f"a-{end}.parquet"), (stage(folder, 5, end), f"date=y/b-{end}.parquet")]
    folder.commit(folder.files.stage(), moves, {NAME: Position(end)}, folder.files.names())


COMMITS = [append, replace]
Commit = Callable[[ParquetFolder, int, int], None]


def at_step(number: int, do: Callable[[], None]) -> Callable[[], None]:
    """Return what counts operations, also those of several threads, and does something at one of them."""
    steps = count()
    lock = threading.Lock()

    def step() -> None:
        with lock:
            is_now = next(steps) == number
        if is_now:
            do()

    return step


def steps_of(case: Callable[[int], bool]) -> int:
    """Try a case at every step; return how many there are."""
    return next(number for number in count() if not case(number))


def in_the_middle(watched: Watched, number: int, do: Callable[[], None], commit: Callable[[], None]) -> bool:
    """Do something before one of the operations of another thing; return whether there is that one."""
    reached = False

    def now() -> None:
        nonlocal reached
        reached = True
        watched.before = lambda: None
        do()

    watched.before = at_step(number, now)
    try:
        commit()
    finally:
        watched.before = lambda: None
    return reached


@pytest.mark.sampled
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("error", [OSError("the network is gone"), KeyboardInterrupt()])
@pytest.mark.parametrize("commit", COMMITS)
def test_a_commit_that_ends_anywhere(
    uri: FolderUri, watched: Watched, commit: Commit, error: BaseException, moment: str
) -> None:
    def case(number: int) -> bool:
        watched.inner = _MockFileSystem()
        folder = ParquetFolder(uri)
        append(folder, 0, 10)
        is_dead = False

        def die() -> None:
            nonlocal is_dead
            is_dead = True

        def dead(step: Callable[[], None]) -> Callable[[], None]:
            def operation() -> None:
                step()
                if is_dead:
                    raise error

            return operation

        setattr(watched, moment, dead(at_step(number, die)))
        with suppress(type(error), SinkError):
            commit(folder, 10, 20)
        watched.before = watched.after = lambda: None
        known = folder.positions[NAME].offset
        folder.close()
        folder = ParquetFolder(uri)
        held = folder.positions[NAME].offset
        assert held in (10, 20)
        # It must not believe that more is there than a restart finds.
        assert known <= held
        assert rows(folder) == list(range(held))
        if held == 10:
            commit(folder, 10, 20)
            assert rows(folder) == list(range(20))
        left = watched.inner.get_file_info(FileSelector("top/orders/_odradek/staged", recursive=True))
        assert not [info.path for info in left if info.type == FileType.File]
        return is_dead

    assert steps_of(case) > 5


@pytest.mark.sampled
@pytest.mark.parametrize("commit", COMMITS)
@pytest.mark.parametrize("other_commit", [None, *COMMITS])
def test_a_driver_that_pauses_in_the_middle_of_a_commit(
    uri: FolderUri, watched: Watched, commit: Commit, other_commit: Commit | None
) -> None:
    outcomes = set()

    def case(number: int) -> bool:
        watched.inner = _MockFileSystem()
        folder = ParquetFolder(uri)
        append(folder, 0, 10)
        others: list[ParquetFolder] = []

        def take_over() -> None:
            other = ParquetFolder(uri)
            others.append(other)
            if other_commit is not None:
                # Its batches end elsewhere, and so its files have other names.
                held = other.positions[NAME].offset
                append(other, held, held + 7)
                other_commit(other, held + 7, held + 13)

        is_fenced = False

        def paused() -> None:
            nonlocal is_fenced
            try:
                commit(folder, 10, 20)
            except FencedError:
                is_fenced = True

        if not in_the_middle(watched, number, take_over, paused):
            return False
        (other,) = others
        held = other.positions[NAME].offset
        assert rows(other) == list(range(held))
        append(other, held, held + 3)
        assert rows(other) == list(range(held + 3))
        assert rows(ParquetFolder(uri)) == list(range(held + 3))
        outcomes.add((is_fenced, held in (20, 33)))
        return True

    steps_of(case)
    # Fenced before the commit; fenced between commit and moves, or not: then the other one has seen it.
    assert (True, False) in outcomes
    assert (False, False) not in outcomes
    assert {was_seen for _, was_seen in outcomes} == {False, True}


@pytest.mark.slow
@pytest.mark.parametrize("commit", COMMITS)
def test_a_folder_that_is_opened_while_another_driver_commits(uri: FolderUri, watched: Watched, commit: Commit) -> None:
    def case(number: int) -> bool:
        watched.inner = _MockFileSystem()
        before = ParquetFolder(uri)
        append(before, 0, 10)
        opened: list[ParquetFolder] = []

        def commits() -> None:
            with suppress(FencedError):
                commit(before, 10, 20)

        if not in_the_middle(watched, number, commits, lambda: opened.append(ParquetFolder(uri))):
            return False
        (folder,) = opened
        held = folder.positions[NAME].offset
        assert rows(folder) == list(range(held))
        with pytest.raises(FencedError):
            append(before, before.positions[NAME].offset, 30)
        append(folder, held, 40)
        assert rows(ParquetFolder(uri)) == list(range(40))
        return True

    assert steps_of(case) > 6


@pytest.mark.slow
@pytest.mark.parametrize("commit", COMMITS)
def test_moves_that_two_drivers_finish(
    uri: FolderUri, watched: Watched, commit: Commit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def case(number: int) -> bool:
        watched.inner = _MockFileSystem()
        before = ParquetFolder(uri)
        append(before, 0, 10)
        finish = before.files.finish
        left: list[Any] = []
        with monkeypatch.context() as patched:
            patched.setattr(before.files, "finish", lambda *given: left.append(given))
            commit(before, 10, 20)
        (given,) = left

        def go_on() -> None:
            with suppress(FencedError):
                finish(*given)

        opened: list[ParquetFolder] = []
        is_step = in_the_middle(watched, number, go_on, lambda: opened.append(ParquetFolder(uri)))
        assert rows(opened[0]) == list(range(20))
        return is_step

    assert steps_of(case) > 10


class Turns:
    """Lets one of several threads do an operation at a time, at random."""

    def __init__(self, chance: random.Random, names: list[str]) -> None:
        self._chance = chance
        self._names = names
        self._turn = threading.Condition()
        self._next = chance.choice(names)

    def wait(self) -> None:
        """Let another one go on, and wait until it is this thread's turn again."""
        with self._turn:
            self._next = self._chance.choice(self._names)
            self._turn.notify_all()
            self._turn.wait_for(lambda: self._next == threading.current_thread().name)

    def end(self) -> None:
        """Take no more turns."""
        with self._turn:
            self._names.remove(threading.current_thread().name)
            if self._names:
                self._next = self._chance.choice(self._names)
            self._turn.notify_all()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(CASES))
def test_several_drivers_at_the_same_time(
    uri: FolderUri, watched: Watched, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(RemoteFiles, "_each", lambda self, do, items: [do(item) for item in items])
    names = [f"driver {number}" for number in range(chance.randint(2, 4))]
    deaths = {name: chance.randint(0, 60) for name in names if chance.random() < 0.3}
    turns = Turns(chance, list(names))
    unexpected: list[BaseException] = []

    def operation() -> None:
        name = threading.current_thread().name
        if name not in names:
            return
        turns.wait()
        if name in deaths:
            deaths[name] -= 1
            if deaths[name] < 0:
                raise SystemExit

    def drive() -> None:
        own = random.Random(f"{seed}-{threading.current_thread().name}")
        try:
            turns.wait()
            for _ in range(own.randint(1, 4)):
                with suppress(FencedError):
                    folder = ParquetFolder(uri)
                    for _ in range(own.randint(1, 3)):
                        held = folder.positions[NAME].offset if folder.positions else 0
                        commit = own.choice(COMMITS) if held >= 5 else append
                        commit(folder, held, held + own.randint(6, 9))
        except SystemExit:
            pass
        except BaseException as error:
            unexpected.append(error)
        finally:
            turns.end()

    watched.before = operation
    threads = [threading.Thread(target=drive, name=name) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    watched.before = lambda: None
    assert not unexpected
    folder = ParquetFolder(uri)
    held = folder.positions[NAME].offset if folder.positions else 0
    assert rows(folder) == list(range(held))


@pytest.mark.parametrize(
    "error", [OSError("no route to host"), pa.ArrowException("no token"), pa.ArrowNotImplementedError("flat")]
)
def test_each_error_names_the_folder(uri: FolderUri, watched: Watched, error: Exception) -> None:
    folder = ParquetFolder(uri)
    append(folder, 0, 10)

    def fail() -> None:
        raise error

    watched.before = fail
    for do in (lambda: ParquetFolder(uri), lambda: append(folder, 10, 20), folder.files.names, lambda: compact(uri)):
        with pytest.raises(SinkError, match=f"^{uri}: {error}"):
            do()
    watched.before = lambda: None
    append(folder, 10, 20)
    watched.inner.open_output_stream("top/orders/other.parquet").close()
    watched.inner.delete_dir("top/orders/_odradek")
    with pytest.raises(SinkError, match=f"^{uri}/other.parquet: this file was not written by a pipeline"):
        ParquetFolder(uri)


def test_without_its_commits_the_files_say_what_they_hold(uri: FolderUri, watched: Watched) -> None:
    folder = ParquetFolder(uri)
    append(folder, 0, 10)
    append(folder, 10, 20)
    watched.inner.delete_dir("top/orders/_odradek")
    folder = ParquetFolder(uri)
    assert folder.positions == {NAME: Position(20)}
    folder.take_over({NAME: Position(25)})
    assert folder.positions == {NAME: Position(25)}
    append(folder, 25, 30)
    assert ParquetFolder(uri).positions == {NAME: Position(30)}


@pytest.mark.parametrize("name", ["commit-.json", "commit-0000000009-1.json", "commit-new.json", "commit.json.bak"])
def test_objects_of_other_names_are_no_commits(uri: FolderUri, watched: Watched, name: str) -> None:
    watched.inner.create_dir("top/orders/_odradek")
    with watched.inner.open_output_stream(f"top/orders/_odradek/{name}") as file:
        file.write(b"?")
    append(ParquetFolder(uri), 0, 10)
    folder = ParquetFolder(uri)
    append(folder, 10, 20)
    assert rows(folder) == list(range(20))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("content", [b"[" * 100_000, b"null", b"\xff", b'{"moves": 1}', b'{"positions": {}, "moves": '])
def test_a_damaged_commit(uri: FolderUri, watched: Watched, content: bytes) -> None:
    append(ParquetFolder(uri), 0, 10)
    (name,) = ParquetFolder(uri).files._commits()  # type: ignore[attr-defined]
    with watched.inner.open_output_stream(f"top/orders/{name}") as file:
        file.write(content)
    with pytest.raises(SinkError, match=f"^{uri}: its last commit is not one of a pipeline"):
        ParquetFolder(uri)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("is_opened_before", [False, True])
def test_a_folder_that_was_copied_from_a_machine(
    uri: FolderUri,
    watched: Watched,
    tmp_path: Path,
    is_opened_before: bool,
    is_killed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if is_opened_before:
        ParquetFolder(uri)
    local = ParquetFolder(tmp_path)
    append(local, 0, 10)
    append(local, 10, 20)
    if is_killed:
        monkeypatch.setattr(local.files, "finish", lambda moves, removals: None)
    replace(local, 20, 30)
    local.close()
    for path in tmp_path.rglob("*"):
        if path.is_file():
            copy = f"top/orders/{path.relative_to(tmp_path)}"
            watched.inner.create_dir(copy.rpartition("/")[0])
            with watched.inner.open_output_stream(copy) as file:
                file.write(path.read_bytes())
    folder = ParquetFolder(uri)
    assert folder.positions == {NAME: Position(30)}
    assert rows(folder) == list(range(30))
    append(folder, 30, 40)
    assert rows(ParquetFolder(uri)) == list(range(40))
    # Whoever copies it back finds no commit that is an old one by now.
    left = [info.base_name for info in watched.inner.get_file_info(FileSelector("top/orders/_odradek"))]
    assert "commit.json" not in left


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)


@pytest.mark.slow
@pytest.mark.usefixtures("keys")
def test_a_bucket(s3: S3Server) -> None:
    uri = FolderUri.parse(s3.uri("shop/paid%20orders"))
    folder = ParquetFolder(uri)
    append(folder, 0, 10)
    append(folder, 10, 20)
    replaced = ParquetFolder(uri)
    with pytest.raises(FencedError, match=r"^s3://cafe/shop/paid orders: another pipeline has opened the folder since"):
        append(folder, 20, 30)
    append(replaced, 20, 30)
    assert compact(uri) == (3, 1)
    folder = ParquetFolder(uri)
    assert folder.files.names() == ["date=x/t-0-00000000000000000000-00000000000000000030.parquet"]
    assert rows(folder) == list(range(30))
    replace(folder, 30, 40)
    assert rows(folder) == list(range(40))
    # Also no marks of folders above: the keys may be allowed to write to this folder alone.
    assert all(key.startswith("shop/paid orders/") for key in s3.objects)
    files = {key for key in s3.objects if not key.endswith("/")}
    assert {key.rpartition("/")[0] for key in files} == {
        "shop/paid orders",
        "shop/paid orders/date=y",
        "shop/paid orders/_odradek",
    }


@pytest.mark.slow
@pytest.mark.usefixtures("keys")
def test_a_driver_whose_staged_files_another_one_has_moved(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = FolderUri.parse(s3.uri("orders"))
    folder = ParquetFolder(uri)
    finish = folder.files.finish
    left: list[Any] = []
    monkeypatch.setattr(folder.files, "finish", lambda *given: left.append(given))
    append(folder, 0, 10)
    other = ParquetFolder(uri)
    with pytest.raises(FencedError, match=r"^s3://cafe/orders: another pipeline has opened the folder since"):
        finish(*left[0])
    assert rows(other) == list(range(10))
    # Of any other error it is not said that a file is missing.
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    with pytest.raises(SinkError, match=r"^s3://cafe/orders: ") as caught:
        RemoteFiles(uri).finish(*left[0])
    assert not isinstance(caught.value, FencedError)


@pytest.mark.slow
def test_a_bucket_that_refuses(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "else")
    with pytest.raises(SinkError, match=r"^s3://cafe/orders: .*(ACCESS_DENIED|INVALID_ACCESS_KEY_ID|HTTP status 403)"):
        ParquetFolder(FolderUri.parse(s3.uri("orders")))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    with pytest.raises(SinkError, match=r"^s3://teashop/orders: .*'teashop'.* NO_SUCH_BUCKET"):
        ParquetFolder(FolderUri.parse(s3.uri("orders", bucket="teashop")))


def test_what_a_file_system_refuses_of_its_address_shows_no_keys() -> None:
    uri = FolderUri.parse("s3://AKIA123:tech%2Fgood@bucket/orders?colour=AKIA123&region=eu-central-1")
    with pytest.raises(SinkError, match=r"^s3://bucket/orders: Unexpected query parameter") as caught:
        ParquetFolder(uri)
    for secret in ("AKIA123", "tech"):
        assert secret not in str(caught.value) + repr(uri) + str(uri)
    assert caught.value.__cause__ is None


@pytest.mark.slow
def test_keys_in_the_uri_are_those_that_arrow_reads(s3: S3Server) -> None:
    address = s3.uri("orders").replace("s3://", f"s3://{ACCESS_KEY}:{SECRET_KEY.replace('/', '%2F')}@")
    files, root = FolderUri.parse(address).open()
    assert isinstance(files, S3FileSystem)
    assert isinstance(files, FileSystem)
    assert root == "cafe/orders"
    append(ParquetFolder(FolderUri.parse(address)), 0, 10)
    assert any(key.endswith(".parquet") for key in s3.objects)


@pytest.mark.parametrize(("first", "second"), [("orders", "orders/deep/inner"), ("orders/deep/inner", "orders")])
def test_a_folder_around_or_within_that_of_another_job_is_refused(
    monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    files = PyFileSystem(Watched())
    monkeypatch.setattr(FolderUri, "open", lambda uri: (files, "/".join(["bucket", *uri.parts[1:]])))
    RemoteFiles(FolderUri.parse(f"s3://bucket/{first}")).claim()
    with pytest.raises(SinkError, match=f"s3://bucket/{second}: a pipeline writes to .*{first} too"):
        RemoteFiles(FolderUri.parse(f"s3://bucket/{second}")).claim()
    RemoteFiles(FolderUri.parse("s3://bucket/orders-beside")).claim()
