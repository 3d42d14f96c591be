"""Where a backup is written to: a folder, or a tar archive."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Protocol

from odradek.errors import LogError
from odradek.inspection.backups.held_partition import HeldFile
from odradek.storage.files import FileSystem
from odradek.storage.names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX

INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

_COPY_BYTES = 1 << 20
_SYNC_THREADS = 16


class BackupTarget(Protocol):
    """Receives the files of a backup, each folder before its files.

    Attributes:
        copied_bytes: How many bytes were copied.
        linked_bytes: How many bytes were not, as the files got one more name.
    """

    copied_bytes: int
    linked_bytes: int

    def add_folder(self, name: str) -> None:
        """Make a folder."""

    def add_bytes(self, name: str, data: bytes) -> None:
        """Write a file."""

    def add_file(self, name: str, file: HeldFile, size_bytes: int, *, is_settled: bool) -> None:
        """Write a file with the first bytes of another.

        Args:
            name: Its name in the backup.
            file: The other file.
            size_bytes: How much of it is wanted.
            is_settled: Whether the whole file is wanted, and will never change: then it may get one more name.
        """


class FolderTarget:
    """A folder.

    Args:
        path: The folder, which exists.
        files: The file system to write through.
        previous: The last backup, whose files are used again, or None.
        links: Whether a settled file of the source gets one more name, if the file system can.
    """

    def __init__(self, path: Path, files: FileSystem, *, previous: Path | None = None, links: bool = True) -> None:
        self.copied_bytes = self.linked_bytes = 0
        self._path = path
        self._files = files
        self._previous = previous
        self._links = links
        self._folders = [path]
        self._written: list[Path] = []

    def add_folder(self, name: str) -> None:
        """Make a folder."""
        self._files.make_directory(self._path / name)
        self._folders.append(self._path / name)

    def add_bytes(self, name: str, data: bytes) -> None:
        """Write a file."""
        with self._files.open(self._path / name) as file:
            file.write(data)
        self._written.append(self._path / name)
        self.copied_bytes += len(data)

    def add_file(self, name: str, file: HeldFile, size_bytes: int, *, is_settled: bool) -> None:
        """Write a file with the first bytes of another."""
        path = self._path / name
        modified_ms = file.status.st_mtime_ns // 1_000_000
        if is_settled and self._link(path, name, file, size_bytes, modified_ms):
            self.linked_bytes += size_bytes
            return
        self._write(path, _parts(file, size_bytes), modified_ms)

    def add_stream(self, name: str, content: IO[bytes], modified_ms: int) -> None:
        """Write a file with what a stream gives."""
        self._write(self._path / name, iter(lambda: content.read(_COPY_BYTES), b""), modified_ms)

    def _write(self, path: Path, parts: Iterable[bytes], modified_ms: int) -> None:
        with self._files.open(path) as written:
            for data in parts:
                written.write(data)
                self.copied_bytes += len(data)
        self._written.append(path)
        # Retention goes by the modification time if the records have no timestamps.
        self._files.set_modified_ms(path, modified_ms)

    def _link(self, path: Path, name: str, file: HeldFile, size_bytes: int, modified_ms: int) -> bool:
        """Give a file one more name: the source's, or the one that the last backup made of it."""
        if self._links and self._try_link(file.path, path):
            if path.stat().st_ino == file.status.st_ino:
                return True
            # Another file took its name meanwhile.
            self._files.unlink(path)
        if self._previous is None:
            return False
        before = self._previous / name
        try:
            status = before.stat()
            # Size and time do not tell of a compaction: Kafka gives the new files the old times, and an index often
            # keeps its size. So an index is the same only if its segment is.
            is_of_segment = path.suffix not in INDEX_SUFFIXES or path.with_suffix(LOG_SUFFIX).samefile(
                before.with_suffix(LOG_SUFFIX)
            )
        except FileNotFoundError:
            return False
        is_same = is_of_segment and status.st_size == size_bytes and status.st_mtime_ns // 1_000_000 == modified_ms
        is_a_copy = (status.st_dev, status.st_ino) != (file.status.st_dev, file.status.st_ino)
        return is_same and (is_a_copy or self._links) and self._try_link(before, path)

    def _try_link(self, source: Path, target: Path) -> bool:
        try:
            self._files.link(source, target)
        except OSError:
            # It must be copied: the file system is another one or has no links, or the file is another user's or gone.
            return False
        return True

    def finish(self) -> None:
        """Return when all of it is on the disk."""
        # All at the end, and many at a time, since they wait for the same journal of the disk. `syncfs` would also
        # write what a broker beside us has not yet flushed, and on older kernels it does not report errors.
        with ThreadPoolExecutor(_SYNC_THREADS) as executor:
            for _ in executor.map(self._sync, self._written):
                pass
        for folder in reversed(self._folders):
            self._files.sync_directory(folder)

    def _sync(self, path: Path) -> None:
        with self._files.open(path) as file:
            file.sync()


class TarTarget:
    """A tar archive, written to a stream.

    Args:
        stream: The stream, which need not be able to seek.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self.copied_bytes = self.linked_bytes = 0
        self._tar = tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT)  # noqa: SIM115

    def add_folder(self, name: str) -> None:
        """Make a folder."""
        info = tarfile.TarInfo(name)
        info.type, info.mode = tarfile.DIRTYPE, 0o755
        self._tar.addfile(info)

    def add_bytes(self, name: str, data: bytes) -> None:
        """Write a file."""
        info = tarfile.TarInfo(name)
        info.size = len(data)
        self._tar.addfile(info, io.BytesIO(data))
        self.copied_bytes += len(data)

    def add_file(self, name: str, file: HeldFile, size_bytes: int, *, is_settled: bool) -> None:
        """Write a file with the first bytes of another."""
        info = tarfile.TarInfo(name)
        info.size, info.mtime = size_bytes, file.status.st_mtime
        self._tar.addfile(info, _Reader(file, size_bytes))
        self.copied_bytes += size_bytes

    def finish(self) -> None:
        """Write the end of the archive."""
        self._tar.close()


class _Reader(io.RawIOBase):
    """Reads the first bytes of a held file."""

    def __init__(self, file: HeldFile, size_bytes: int) -> None:
        self._parts = _parts(file, size_bytes)
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes; fewer only at the end."""
        while len(self._rest) < size and (part := next(self._parts, None)) is not None:
            self._rest += part
        data, self._rest = self._rest[:size], self._rest[size:]
        return data


def _parts(file: HeldFile, size_bytes: int) -> Iterator[bytes]:
    position = 0
    while position < size_bytes:
        data = os.pread(file.descriptor, min(_COPY_BYTES, size_bytes - position), position)
        if not data:
            raise LogError(f"{file.path} was cut while it was copied")
        position += len(data)
        yield data
