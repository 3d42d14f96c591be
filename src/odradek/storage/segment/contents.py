"""The bytes of one `.log` file, as a reader holds them: mapped if no program cuts the file, otherwise read into memory.

    stable     | batch | batch | batch |            sealed and on the disk: mapped, whole
    unstable   | batch | batch | ba...              its writer may be killed, and cut it when it starts again: `pread`

If a mapped file is cut, accessing the part that was cut ends the reader with SIGBUS. So only bytes that no recovery and
no truncation reaches are mapped. Bytes that were handed out stay valid, even after the file was closed, replaced or
deleted.

Source in Kafka: `FileRecords`.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from pathlib import Path
from typing import NamedTuple, TypeAlias

from odradek.errors import LogError
from odradek.records.header import LOG_OVERHEAD, BatchHeader, claimed_size
from odradek.records.scan import scan_batches
from odradek.storage.regular_files import open_descriptor
from odradek.storage.system_errors import raise_unless_of_system

Mapped: TypeAlias = mmap.mmap | bytes
"""A file's bytes; an empty file cannot be mapped."""

WINDOW_BYTES = 1 << 20
"""How much of an unstable file is read at a time, unless a batch is larger."""

_PROBE_BYTES = 1 << 16

# Two threads that open a mapped file again at a time would leave one descriptor open.
_opening = threading.Lock()


class Window(NamedTuple):
    """A part of a file, as memory.

    Attributes:
        data: The bytes.
        origin: The position in the file that they start at.
    """

    data: Mapped
    origin: int

    @property
    def end(self) -> int:
        """The position in the file that they end at."""
        return self.origin + len(self.data)


class Contents:
    """The bytes of a `.log` file. Any thread may read them.

    Args:
        path: The file.
        is_stable: Whether no program will ever cut it.

    Attributes:
        identity: The device and inode.
        mapped: The whole file, where it is stable.

    Raises:
        FileNotFoundError: The file was deleted: its writer deleted or replaced it.
        FormatError: It is not a regular file.
    """

    _descriptor = -1

    def __init__(self, path: Path, *, is_stable: bool) -> None:
        self._path = path
        self._descriptor = open_descriptor(path)
        status = os.fstat(self._descriptor)
        self.identity = status.st_dev, status.st_ino
        self.mapped: Mapped | None = None
        if is_stable:
            size = status.st_size
            self.mapped = mmap.mmap(self._descriptor, size, access=mmap.ACCESS_READ) if size else b""
            self._whole = Window(self.mapped, 0)
            self._close()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self._close()

    def fileno(self) -> int:
        """Return the descriptor of the file; a mapped file is opened again, and stays open.

        Raises:
            FileNotFoundError: It was deleted, or another file has its name.
        """
        if self._descriptor < 0:
            with _opening:
                if self._descriptor < 0:
                    descriptor = open_descriptor(self._path)
                    status = os.fstat(descriptor)
                    if (status.st_dev, status.st_ino) != self.identity:
                        os.close(descriptor)
                        raise FileNotFoundError(errno.ENOENT, "another file has its name", str(self._path))
                    self._descriptor = descriptor
        return self._descriptor

    @property
    def size(self) -> int:
        """The size of the file: as it is now, or as it was mapped."""
        return os.fstat(self._descriptor).st_size if self.mapped is None else len(self.mapped)

    def status(self) -> os.stat_result | None:
        """Return what the system tells of the file; None if it is mapped, and so no longer open."""
        return os.fstat(self._descriptor) if self.mapped is None else None

    def window(self, position: int, size_bytes: int) -> Window:
        """Return the bytes from a position on, as many as are asked for if the file has them.

        Raises:
            LogError: The disk cannot read them.
        """
        return Window(self.read(position, size_bytes), position) if self.mapped is None else self._whole

    def read(self, position: int, size_bytes: int) -> bytes:
        """Read the bytes from a position on, of a file that is not mapped; for the rest see `window`."""
        try:
            data = os.pread(self._descriptor, size_bytes, position)
            # A signal, or a limit of the kernel, may have made it shorter.
            while data and len(data) < size_bytes:
                more = os.pread(self._descriptor, size_bytes - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise_unless_of_system(error)
            raise LogError(f"{self._path} cannot be read at position {position}: {error.strerror}") from error
        return data

    def batch_at(self, position: int, end: int) -> BatchHeader | None:
        """Return the header of the batch that starts at a position; `None` if no valid batch does.

        Args:
            position: The position.
            end: Where the batches end, at most.
        """
        left = end - position
        if position < 0 or left < LOG_OVERHEAD:
            return None
        window = self.window(position, min(left, _PROBE_BYTES))
        size = claimed_size(window.data, position - window.origin)
        if not LOG_OVERHEAD <= size <= left:
            return None
        if window.end < position + size:
            window = self.window(position, size)
            if window.end < position + size:
                return None
        return next(iter(scan_batches(window.data, position, position + size, origin=window.origin)), None)
