"""A Parquet folder of another file system: S3 and other object stores, HDFS. It knows no lock that outlives a pause.

    _odradek/commit-0000000002-5f0c...-0000000000.json    empty: what the second to open the folder claims it with
    _odradek/commit-0000000002-5f0c...-0000000001.json    its first commit: a copy of the last one that it found
    _odradek/commit-0000000002-5f0c...-0000000002.json    its next one; those before are deleted
    _odradek/staged/0000000002-5f0c.../...                what it is writing; those of earlier epochs are deleted

The name of a commit is its place: the epoch of the one that wrote it, by whom, and its number there. The last name that
is not empty is the commit that counts. So one of an earlier epoch counts only until a later one begins with its copy.
After a commit, and before it moves a file, its writer asks whether its epoch is still the last one. A driver that was
thought dead and continues

    before it asks       finds the later epoch, and moves nothing
    after it has asked   was seen by the later one, which has moved the same files to the same names; none is staged now

This needs a file system whose lists show at once what was written, as those of S3, Google Cloud Storage, Azure and HDFS
do.

A folder that was copied from a machine has that one's last commit, `_odradek/commit.json`: it counts as long as there
is no other commit, and the first epoch removes it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import BinaryIO, TypeVar

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileType

from odradek.errors import SinkError
from odradek.spark.pipeline.folder_files import LOCAL_COMMIT, PARQUET, STAGED, STATE, FolderFiles, nested
from odradek.spark.pipeline.folder_uri import OBJECT_STORES, FolderUri
from odradek.spark.pipeline.sink import FencedError

_T = TypeVar("_T")
_COMMIT = f"{STATE}/commit-"
_COMMIT_NAME = re.compile(rf"{_COMMIT}[0-9]{{10}}-[0-9a-f]{{32}}-[0-9]{{10}}\.json")
_NOTHING = b"{}"
"""What an epoch begins with if there is no commit."""
_THREADS = 8
_MOST_COPIED_BYTES = 5 << 30
"""The most bytes that one request to S3 copies."""


class RemoteFiles(FolderFiles):
    """A folder of another file system.

    Args:
        uri: The folder.

    Raises:
        SinkError: There is no such file system.
    """

    def __init__(self, uri: FolderUri) -> None:
        self._uri = uri
        self._is_object_store = uri.scheme in OBJECT_STORES
        files, root = uri.open()
        self._files, self._root = files, root.rstrip("/")
        self._epoch = ""
        self._number = 0
        self._last: bytes | None = None

    def errors(self) -> AbstractContextManager[None]:
        """Return what names the folder in errors."""
        return self._uri.errors()

    def claim(self) -> None:
        """Begin an epoch, with a copy of the last commit."""
        self._check_alone()
        with self._owned():
            # On S3 that would put a mark in each folder above, too, where the keys may not be allowed to write.
            is_s3 = self._uri.scheme == "s3"
            if not is_s3:
                self._files.create_dir(self._path(STAGED))
            found: dict[str, int] = {}
            with suppress(FileNotFoundError) if is_s3 else nullcontext():
                found = self._commits()
            # `NUMBER-UUID`: of two that begin at the same time, the greater is the later one.
            before = max(map(_epoch, found), default="0-")
            self._epoch = f"{int(before.partition('-')[0]) + 1:010d}-{uuid.uuid4().hex}"
            self._write(self._commit_name(), b"")
            if is_s3:
                self._files.create_dir(self._path(STAGED), recursive=False)
            found = dict(self._list(STATE))
            commits = [name for name, size_bytes in found.items() if size_bytes and _COMMIT_NAME.fullmatch(name)]
            content = self._read(max(commits)) if commits else _NOTHING
            if content == _NOTHING and LOCAL_COMMIT in found:
                content = self._read(LOCAL_COMMIT)
            # Also without a commit: one of an earlier epoch may be on its way.
            self.write_commit(self.stage(), content)
            if LOCAL_COMMIT in found:
                self._remove(LOCAL_COMMIT)
            self._last = None if content == _NOTHING else content

    def _check_alone(self) -> None:
        """Look for another pipeline's folder around this one, where the keys may look there, and within it."""
        names = self._root.split("/")
        for count in range(1, len(names)):
            around = "/".join(names[:count])
            with suppress(OSError, pa.ArrowException):
                if self._files.get_file_info(FileSelector(f"{around}/{STATE}")):
                    raise nested(str(self._uri), around)
        found: list[str] = []
        with self.errors(), suppress(FileNotFoundError):
            found = [name for name, _ in self._list("", recursive=True)]
        for name in found:
            folder, middle, _ = name.partition(f"/{STATE}")
            if middle and not name.startswith(f"{STATE}/"):
                raise nested(str(self._uri), f"{self._uri}/{folder}")

    def release(self) -> None:
        """Do nothing: the next process begins its own epoch."""

    def last_commit(self) -> bytes | None:
        """Return the commit that was the last one when this epoch began."""
        return self._last

    def stage(self) -> str:
        """Return the folder of this epoch: an earlier one that continues may not clear it."""
        return f"{STAGED}/{self._epoch}"

    def create(self, name: str) -> BinaryIO:
        """Create a file, which appears when it is closed, or before."""
        with self.errors():
            file: BinaryIO = self._files.open_output_stream(self._path(name))
            return file

    def seal(self, file: BinaryIO) -> None:
        """Close a file: the file system has it then, as durable as it keeps any."""
        with self.errors():
            size_bytes = file.tell()
            file.close()
        if self._uri.scheme == "s3" and size_bytes > _MOST_COPIED_BYTES:
            raise SinkError(
                f"{self._uri}: a file of {size_bytes:,} bytes, and S3 copies no more than {_MOST_COPIED_BYTES:,} at "
                "once: let batches be smaller (trigger.max_offsets_per_batch)"
            )

    def write_commit(self, staging: str, content: bytes) -> None:
        """Commit by one object or, on HDFS, by one rename."""
        with self._owned():
            self._number += 1
            name = self._commit_name()
            if self._is_object_store:
                self._write(name, content)
            else:
                self._write(f"{staging}/{uuid.uuid4().hex}", content, name)
            found = self._commits()
            self._check_owner(found)
            self._each(self._remove, [older for older in found if older < name])

    def finish(self, moves: Sequence[tuple[str, str]], removals: Sequence[str], *, again: bool = False) -> None:
        """Move and remove, several files at a time."""
        with self._owned():
            if again:
                # Lists, as HDFS takes each error of a look at one file for its absence.
                staged = {name for name, _ in self._list(STAGED, recursive=True)}
                moves = [move for move in moves if move[0] in staged]
                there = set(self.names()) if removals else set()
                removals = [name for name in removals if name in there]
            self._each(lambda move: self._move(*move, again=again), moves)
            self._each(self._remove, removals)

    def clear(self, staging: str | None = None) -> None:
        """Remove what earlier epochs have left; this one leaves nothing but, after an error, to the next one."""
        if staging is not None:
            return
        with self.errors():
            for info in self._files.get_file_info(FileSelector(self._path(STAGED))):
                if info.type == FileType.Directory and info.base_name < self._epoch:
                    with suppress(FileNotFoundError):
                        self._files.delete_dir(info.path)

    def names(self, ending: str = PARQUET) -> list[str]:
        """Return the names of the Parquet files, or of those with another ending, in order."""
        with self.errors():
            found = [name for name, _ in self._list("", recursive=True)]
        return sorted(name for name in found if name.endswith(ending) and STATE not in name.split("/"))

    def open_input(self, name: str) -> pa.NativeFile:
        """Open a file to read it, here and there."""
        with self.errors():
            return self._files.open_input_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _commit_name(self) -> str:
        return f"{_COMMIT}{self._epoch}-{self._number:010d}.json"

    def _list(self, folder: str, *, recursive: bool = False) -> list[tuple[str, int]]:
        """Return the names and sizes of files. A folder that is missing is an error: so no error is taken for that."""
        selector = FileSelector(self._path(folder).rstrip("/"), recursive=recursive)
        found: list[FileInfo] = self._files.get_file_info(selector)
        skipped = len(self._root) + 1
        return [(info.path[skipped:], info.size) for info in found if info.type == FileType.File]

    def _commits(self) -> dict[str, int]:
        """Return the names and sizes of the commits."""
        return {name: size_bytes for name, size_bytes in self._list(STATE) if _COMMIT_NAME.fullmatch(name)}

    @contextmanager
    def _owned(self) -> Iterator[None]:
        """Name the folder in errors; a missing file may mean that another process has claimed the folder since."""
        with self.errors():
            try:
                yield
            except FileNotFoundError:
                self._check_owner(self._commits())
                raise

    def _check_owner(self, commits: Iterable[str]) -> None:
        if max(map(_epoch, commits), default=None) != self._epoch:
            raise FencedError(f"{self._uri}: another pipeline has opened the folder since, and writes here now")

    def _read(self, name: str) -> bytes:
        with self._files.open_input_stream(self._path(name)) as file:
            content: bytes = file.read()
            return content

    def _write(self, name: str, content: bytes, final: str | None = None) -> None:
        with self._files.open_output_stream(self._path(name)) as file:
            if content:
                file.write(content)
        if final is not None:
            self._files.move(self._path(name), self._path(final))

    def _move(self, staged: str, final: str, *, again: bool) -> None:
        source, target = self._path(staged), self._path(final)
        # The one that has committed it may be moving it, too.
        with suppress(FileNotFoundError) if again else nullcontext():
            if self._is_object_store:
                try:
                    self._files.copy_file(source, target)
                except FileNotFoundError:
                    raise
                except OSError as error:
                    # What S3 says of a file that is missing, Arrow tells as any other error.
                    if staged in dict(self._list(staged.rpartition("/")[0])):
                        raise
                    raise FileNotFoundError(str(error)) from error
                self._files.delete_file(source)
            else:
                self._files.create_dir(target.rpartition("/")[0])
                self._files.move(source, target)

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._files.delete_file(self._path(name))

    def _each(self, do: Callable[[_T], None], items: Sequence[_T]) -> None:
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(do, items))


def _epoch(name: str) -> str:
    return name.removeprefix(_COMMIT).rpartition("-")[0]
