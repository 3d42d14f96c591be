"""A file system that fails on demand and records every operation.

    files = FaultyFileSystem(tmp_path / "live", seed=7)        # give it to the code under test
    ...                                                        # which writes: the files are really there
    disk = files.replay(40)                                    # the disk as it was after 40 operations
    disk.cut_power(tmp_path / "after", seed=7)                 # what is found if the machine died then
    disk.kill(tmp_path / "killed", files.history[40], seed=7)  # what is found after `kill -9` in the 41st

Readers see the real files, which stand for the kernel's page cache. Faults are set beforehand: a disk that is full
after so many bytes, an operation that fails. A failed sync loses what it should have written, and later syncs succeed,
as on Linux: a program that retries and believes the second answer loses data. All randomness follows from one seed.

`odradek.testing.disk` makes what is found after a crash.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from odradek.storage.files import Buffer, FileSystem, WritableFile
from odradek.testing.disk import Disk, Kind, Operation, flip_bits, read_tree, tear

__all__ = ["Disk", "Fault", "FaultyFile", "FaultyFileSystem", "Operation", "flip_bits", "read_tree"]

_WriteAt: TypeAlias = Callable[[int, Buffer], None]


@dataclass(slots=True)
class Fault:
    """An error that a later operation will raise.

    Attributes:
        kind: The kind of operation that fails.
        countdown: How many of them succeed before.
        error: The `errno` that is raised.
        times: How many fail, one after the other.
        path_part: Only operations whose path contains this text count.
    """

    kind: Kind
    countdown: int = 0
    error: int = errno.EIO
    times: int = 1
    path_part: str = ""


class FaultyFile(WritableFile):
    """A file of a `FaultyFileSystem`."""

    def __init__(self, path: Path, descriptor: int, files: FaultyFileSystem, node: int) -> None:
        super().__init__(path, descriptor)
        self._files = files
        self._node = node

    def write_at(self, position: int, data: Buffer) -> None:
        """Write, or write a part and fail."""
        size = self.size
        try:
            self._files.write(self._node, self.path, position, data, super().write_at)
        except OSError:
            # As after a short write of the kernel: the file is longer than its writer knows.
            self.size = size
            raise

    def truncate(self, size: int) -> None:
        """Truncate, or fail."""
        self._files.run(Operation("truncate", self._files.relative(self.path), self._node, position=size))
        super().truncate(size)

    def sync(self) -> None:
        """Note that the file is on the disk, or lose what was written and fail."""
        self._files.run(Operation("sync", self._files.relative(self.path), self._node))


class FaultyFileSystem(FileSystem):
    """A file system below one folder that fails on demand and records every operation.

    What is in the folder at the start counts as synced. No sync reaches the real disk.

    Args:
        root: The folder; nothing outside it can be touched.
        seed: Decides the torn parts of writes that fail.

    Attributes:
        root: The folder.
        seed: The seed.
        history: The operations, in order.
        space_bytes: How many more bytes can be written; `None` for a disk that is never full.
        file_type: The class that `open` returns.
    """

    file_type: type[FaultyFile] = FaultyFile

    def __init__(self, root: Path, seed: int = 0) -> None:
        self.root = root.resolve()
        self.seed = seed
        self.history: list[Operation] = []
        self.space_bytes: int | None = None
        self._start = read_tree(self.root)
        self._now = Disk(self._start)
        self._next_node = self._now.next_node
        self._faults: list[Fault] = []
        self._rng = random.Random(seed)
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<FaultyFileSystem {self.root} seed={self.seed} operations={len(self.history)}>"

    def __str__(self) -> str:
        lines = [f"{number:5} {operation}" for number, operation in enumerate(self.history)]
        return "\n".join([f"seed {self.seed}", *lines])

    def fail(self, kind: Kind, countdown: int = 0, *, error: int = errno.EIO, times: int = 1, at: str = "") -> Fault:
        """Let a later operation fail.

        Args:
            kind: The kind of operation.
            countdown: How many such operations succeed before.
            error: The `errno` to raise.
            times: How many fail from then on.
            at: Only operations whose path contains this text count.
        """
        fault = Fault(kind, countdown, error, times, at)
        self._faults.append(fault)
        return fault

    def repair(self) -> None:
        """Remove all faults; what was lost stays lost."""
        self._faults.clear()
        self.space_bytes = None

    def replay(self, operations: int | None = None) -> Disk:
        """Return the disk as it was after the first operations, all of them by default."""
        disk = Disk(self._start)
        for operation in self.history[:operations]:
            disk.apply(operation)
        return disk

    def replays(self) -> Iterator[tuple[int, Disk]]:
        """Yield one disk repeatedly, before the first operation and after each, with the number of operations done."""
        disk = Disk(self._start)
        yield 0, disk
        for number, operation in enumerate(self.history, start=1):
            disk.apply(operation)
            yield number, disk

    def unrecorded(self) -> list[str]:
        """Return the paths that differ from the history: the code under test bypassed this file system for them."""
        recorded, real = self._now.tree(), read_tree(self.root)
        return sorted(path for path in recorded.keys() | real.keys() if recorded.get(path, 0) != real.get(path, 0))

    def relative(self, path: Path) -> str:
        """Return a path below the root.

        Raises:
            ValueError: The path is outside the root.
        """
        text = os.path.normpath(path if path.is_absolute() else path.absolute())
        root = os.fspath(self.root)
        if text != root and not text.startswith(root + os.sep):
            raise ValueError(f"{path} is not in {self.root}")
        return text[len(root) + 1 :]

    def _node(self, path: str) -> int | None:
        return self._now.find(path)

    def _parent(self, path: str) -> tuple[int, str]:
        parent, _, name = path.rpartition("/")
        folder = self._node(parent)
        if folder is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.root / parent))
        return folder, name

    def _note(self, operation: Operation) -> None:
        self.history.append(operation)
        self._now.apply(operation)

    def _due(self, kind: Kind, path: str) -> Fault | None:
        for fault in self._faults:
            if fault.kind != kind or fault.path_part not in path:
                continue
            if fault.countdown:
                fault.countdown -= 1
                continue
            fault.times -= 1
            if not fault.times:
                self._faults.remove(fault)
            return fault
        return None

    def run(self, operation: Operation) -> None:
        """Record an operation before it is done, or fail instead."""
        with self._lock:
            fault = self._due(operation.kind, operation.path)
            if fault is not None:
                if operation.kind in {"sync", "sync_directory"}:
                    self._note(replace(operation, failed=True, seed=self._rng.getrandbits(32)))
                raise OSError(fault.error, os.strerror(fault.error), str(self.root / operation.path))
            self._note(operation)

    def write(self, node: int, path: Path, position: int, data: Buffer, write_at: _WriteAt) -> None:
        """Write into a file, or write a part and fail."""
        with self._lock:
            whole, name = bytes(data), self.relative(path)
            operation = Operation("write", name, node, position=position, data=whole)
            fault, error = self._due("write", name), 0
            if fault is not None:
                error = fault.error
                part: list[Operation] = []
                tear(part.append, operation, self._rng)
                operation = part[0]
            elif self.space_bytes is not None and len(whole) > self.space_bytes:
                error = errno.ENOSPC
                operation = Operation("write", name, node, position=position, data=whole[: self.space_bytes])
            if self.space_bytes is not None:
                self.space_bytes -= len(operation.data)
            if operation.data or not error:
                self._note(operation)
                write_at(position, operation.data)
            if error:
                raise OSError(error, os.strerror(error), str(path))

    def open(self, path: Path) -> WritableFile:
        """Open a file; create it if it is missing."""
        with self._lock:
            name = self.relative(path)
            node = self._node(name)
            if node is None:
                folder, last = self._parent(name)
                node = self._next_node
                self.run(Operation("create", name, node, folder, last))
                self._next_node += 1
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            return self.file_type(path, os.open(path, flags, 0o644), self, node)

    def rename(self, source: Path, target: Path) -> None:
        """Rename, or fail."""
        with self._lock:
            old, new = self.relative(source), self.relative(target)
            node = self._node(old)
            if node is not None:
                source_folder, source_name = self._parent(old)
                folder, name = self._parent(new)
                self.run(Operation("rename", new, node, folder, name, source_folder, source_name))
            super().rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        """Give a file one more name, or fail."""
        with self._lock:
            name, node = self.relative(target), self._node(self.relative(source))
            if node is not None and self._node(name) is None:
                self.run(Operation("link", name, node, *self._parent(name)))
            super().link(source, target)

    def _run_on(self, kind: Kind, path: Path, position: int = 0) -> None:
        """Record an operation on a file or folder, if there is such, or fail instead."""
        name = self.relative(path)
        node = self._node(name)
        if node is not None:
            self.run(Operation(kind, name, node, *self._parent(name), position=position))

    def unlink(self, path: Path) -> None:
        """Unlink, or fail."""
        with self._lock:
            self._run_on("unlink", path)
            super().unlink(path)

    def make_directory(self, path: Path) -> None:
        """Make a folder and those above it, or fail."""
        with self._lock:
            name = self.relative(path)
            if not name or self._node(name) is not None:
                return
            self.make_directory(path.parent)
            self.run(Operation("make_directory", name, self._next_node, *self._parent(name)))
            self._next_node += 1
            super().make_directory(path)

    def remove_directory(self, path: Path) -> None:
        """Remove a folder, or fail."""
        with self._lock:
            if self._node(self.relative(path)) is not None and any(path.iterdir()):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
            self._run_on("remove_directory", path)
            super().remove_directory(path)

    def sync_directory(self, path: Path) -> None:
        """Note that the names in a folder are on the disk, or fail."""
        with self._lock:
            name = self.relative(path)
            node = self._node(name)
            if node is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            self.run(Operation("sync_directory", name, node))

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        """Set a modification time, or fail."""
        with self._lock:
            self._run_on("set_modified", path, modified_ms)
            super().set_modified_ms(path, modified_ms)
