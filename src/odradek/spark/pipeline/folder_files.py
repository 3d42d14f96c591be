"""What a Parquet folder needs of its file system, on this machine (`LocalFiles`) or on another (`RemoteFiles`).

    claim()                            from now on no other process commits
    last_commit() -> content           of the last commit
    write_commit(staging, content)     atomic: the commit
    finish(moves, removals)            carries out what it lists; may be repeated

Files go by their names, relative to the folder.
"""

from __future__ import annotations

import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from odradek import system
from odradek.errors import SinkError
from odradek.storage.directory.surrounding import check_outside
from odradek.storage.file_lock import FileLock
from odradek.storage.files import FILES, write_atomically

STATE = "_odradek"
PARQUET = ".parquet"
STAGED = f"{STATE}/staged"
BACKFILL = f"{STATE}/backfill"
"""The commits of a backfill, which go beside those of the job."""
LOCAL_COMMIT = f"{STATE}/commit.json"


class FolderFiles(ABC):
    """The files of a folder. Tasks only create files; all else is the driver's, after `claim`.

    Raises, from each method:
        SinkError: The file system of another machine refuses, or cannot be reached.
        OSError: That of this machine.
    """

    def errors(self) -> AbstractContextManager[None]:
        """Return what names the folder in errors of the file system, where these do not."""
        return nullcontext()

    @abstractmethod
    def claim(self) -> None:
        """Become the only process that commits; the folder is created if it is missing.

        Raises:
            SinkError: Another process commits.
        """

    @abstractmethod
    def release(self) -> None:
        """Let another process commit."""

    @abstractmethod
    def last_commit(self) -> bytes | None:
        """Return the last commit, or None."""

    @abstractmethod
    def stage(self) -> str:
        """Return the name of a folder for files to be staged in."""

    @abstractmethod
    def create(self, name: str) -> BinaryIO:
        """Create a staged file."""

    @abstractmethod
    def seal(self, file: BinaryIO) -> None:
        """Close a file that `create` returned; its content is durable then."""

    @abstractmethod
    def write_commit(self, staging: str, content: bytes) -> None:
        """Commit what was staged, all or nothing.

        Raises:
            FencedError: Another process has claimed the folder: the commit does not count.
        """

    @abstractmethod
    def finish(self, moves: Sequence[tuple[str, str]], removals: Sequence[str], *, again: bool = False) -> None:
        """Do what the last commit lists.

        Args:
            moves: The names of staged files, and their final names.
            removals: The names of files to remove.
            again: Whether some of it may be done already.
        """

    @abstractmethod
    def clear(self, staging: str | None = None) -> None:
        """Remove what is staged in a folder; by default in all of them."""

    @abstractmethod
    def names(self, ending: str = PARQUET) -> list[str]:
        """Return the names of the Parquet files, or of those with another ending, in order."""

    @abstractmethod
    def open_input(self, name: str) -> pa.NativeFile:
        """Open a file to read it."""


def _walk(top: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield folders with the names of what is in them, as `os.walk`; folders may go meanwhile.

    Raises:
        OSError: A folder that is there cannot be read.
    """

    def failed(error: OSError) -> None:
        if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
            raise error

    for path, folders, names in os.walk(top, onerror=failed):
        yield Path(path), folders, names


def nested(folder: str, other: str) -> SinkError:
    """Return the error of a folder around or within another pipeline's: readers of the outer one see rows of both."""
    return SinkError(
        f"{folder}: a pipeline writes to {other} too, and who reads the outer one of these folders would see the rows "
        f"of both: give this sink another path, or remove {other}/{STATE} if nothing writes there any more"
    )


class LocalFiles(FolderFiles):
    """A folder of this machine: a lock, one `commit.json`, renames.

    Args:
        path: The folder.
        state: Where its lock, its last commit and what is staged are.
    """

    def __init__(self, path: Path, state: str = STATE) -> None:
        self._path = path
        self._state = state
        self._staged = f"{state}/staged"
        self._commit = path / state / "commit.json"
        self._lock = FileLock(path / state / "lock")

    def claim(self) -> None:
        """Lock the folder, until `release`."""
        check_outside(self._path)
        self._check_alone()
        (self._path / self._state).mkdir(parents=True, exist_ok=True)
        if not self._lock.acquire():
            other = "backfill" if self._state == BACKFILL else "pipeline"
            raise SinkError(f"{self._path}: another {other} writes here")
        try:
            # Two that begin at the same time see each other now.
            self._check_alone()
        except SinkError:
            self._lock.release()
            raise

    def _check_alone(self) -> None:
        here = self._path.absolute()
        around = (folder for folder in here.parents if (folder / STATE).is_dir())
        within = (found for found, folders, _ in _walk(here) if STATE in folders and found != here)
        if (other := next(around, None) or next(within, None)) is not None:
            raise nested(str(self._path), str(other))

    def release(self) -> None:
        """Release the lock."""
        self._lock.release()

    def last_commit(self) -> bytes | None:
        """Return what `commit.json` holds."""
        try:
            return self._commit.read_bytes()
        except FileNotFoundError:
            return None

    def stage(self) -> str:
        """Make and return a folder of its own for each call."""
        staging = f"{self._staged}/{uuid.uuid4().hex}"
        (self._path / staging).mkdir(parents=True)
        return staging

    def create(self, name: str) -> BinaryIO:
        """Create a file."""
        return (self._path / name).open("wb")

    def seal(self, file: BinaryIO) -> None:
        """Sync and close a file."""
        file.flush()
        system.sync(file.fileno())
        file.close()

    def write_commit(self, staging: str, content: bytes) -> None:
        """Commit by one rename, after all names above it are durable."""
        for folder in (staging, self._staged, self._state, STATE, ""):
            FILES.sync_directory(self._path / folder)
        write_atomically(self._commit, content)

    def finish(self, moves: Sequence[tuple[str, str]], removals: Sequence[str], *, again: bool = False) -> None:
        """Rename, sync and remove."""
        folders = {self._path}
        for staged, final in moves:
            target = self._path / final
            target.parent.mkdir(parents=True, exist_ok=True)
            # A file that is no longer staged was renamed before.
            if (self._path / staged).exists():
                (self._path / staged).replace(target)
            folders.update(folder for folder in target.parents if folder.is_relative_to(self._path))
        for folder in sorted(folders):
            FILES.sync_directory(folder)
        for name in removals:
            (self._path / name).unlink(missing_ok=True)

    def clear(self, staging: str | None = None) -> None:
        """Remove folders."""
        shutil.rmtree(self._path / (staging or self._staged), ignore_errors=True)

    def names(self, ending: str = PARQUET) -> list[str]:
        """Return the names of the Parquet files, or of those with another ending, in order."""
        found = []
        for path, folders, names in _walk(self._path):
            # A backfill looks while its job stages and removes files there.
            folders[:] = [folder for folder in folders if folder != STATE]
            found += [(path / name).relative_to(self._path) for name in names if name.endswith(ending)]
        return [str(name) for name in sorted(found)]

    def open_input(self, name: str) -> pa.NativeFile:
        """Open a file."""
        return pa.OSFile(str(self._path / name))
