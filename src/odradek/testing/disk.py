"""What is on a disk after a power cut, derived from the history of operations on it.

    operations   create  write  write  sync  write  rename  sync_directory  write
                 |------ on the disk ------|      |--- its folder's names ---|
                                             ^ from here on no write is synced: after a power cut any part of these
                                               writes may be there, in any order; so may names that were not synced

A `Disk` replays `Operation`s. For each file it knows what was synced and what was written since; for each folder, which
names were synced and which were changed since. From that it makes, in another folder, what a program finds afterwards:
`kill` for a killed program (the kernel still writes everything), `cut_power` for a dead machine (any part of what was
not synced). As in POSIX, a sync of a file does not sync its name; renames are atomic.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal[
    "create",
    "write",
    "truncate",
    "sync",
    "set_modified",
    "rename",
    "link",
    "unlink",
    "make_directory",
    "remove_directory",
    "sync_directory",
]
"""The kinds of operations on a disk."""

Style: TypeAlias = Literal["nothing", "everything", "prefix", "scattered", "zeroed"]
"""How much of a file's writes since its last sync is on the disk after a power cut.

`prefix`: the first of them, the last one torn; `scattered`: any sectors of any of them; `zeroed`: a prefix, but the
file has its full size.
"""

STYLES: tuple[Style, ...] = ("nothing", "everything", "prefix", "scattered", "zeroed")
_SECTORS = (1, 7, 16, 64, 512, 4096)
ROOT = 0


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation on a disk.

    Attributes:
        kind: The kind of operation.
        path: The path of the file or folder, relative to the root; for people who read a history.
        node: The number of the file or folder.
        folder: The number of the folder that holds its name.
        name: That name.
        source_folder: For a rename, the number of the folder that held the name before.
        source_name: For a rename, the name before.
        position: For a write, the position in the file; for a truncation, the size; for `set_modified`, the time in ms.
        data: For a write, the bytes.
        failed: For a sync, whether it failed: the kernel has then given up on the pages written before.
        seed: For a failed sync, the seed that decides which pages reached the disk.
    """

    kind: Kind
    path: str
    node: int
    folder: int = -1
    name: str = ""
    source_folder: int = -1
    source_name: str = ""
    position: int = 0
    data: bytes = b""
    failed: bool = False
    seed: int = 0

    def __str__(self) -> str:
        detail = {
            "write": f" [{self.position}, {self.position + len(self.data)})",
            "truncate": f" to {self.position}",
            "set_modified": f" {self.position} ms",
            "rename": f" from {self.source_name}",
        }.get(self.kind, "")
        return f"{self.kind} {self.path}{detail}{' FAILED' if self.failed else ''}"


@dataclass(slots=True)
class _Contents:
    """A file's bytes and modification time."""

    data: bytearray = field(default_factory=bytearray)
    modified_ms: int | None = None

    def copy(self) -> _Contents:
        return _Contents(bytearray(self.data), self.modified_ms)

    def resize(self, size: int) -> None:
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))

    def put(self, position: int, data: bytes | memoryview) -> None:
        if data:
            if position > len(self.data):
                self.resize(position)
            self.data[position : position + len(data)] = data

    def apply(self, operation: Operation) -> None:
        if operation.kind == "write":
            self.put(operation.position, operation.data)
        elif operation.kind == "truncate":
            self.resize(operation.position)
        else:
            self.modified_ms = operation.position


class _File:
    """A file: what was synced, and what was done to it since."""

    def __init__(self, contents: _Contents) -> None:
        self.cached = contents
        self.synced = contents.copy()
        self.pending: list[Operation] = []

    def apply(self, operation: Operation) -> None:
        if operation.kind != "sync":
            self.cached.apply(operation)
            self.pending.append(operation)
            return
        if operation.failed:
            # The kernel marks the pages clean, whether they are on the disk or not: no later sync writes them.
            _scatter(self.synced, self.pending, random.Random(operation.seed), keeps_sizes=True)
        else:
            for done in self.pending:
                self.synced.apply(done)
        self.pending.clear()

    def survivor(self, rng: random.Random, style: Style) -> _Contents:
        """Return what is on the disk after a power cut."""
        contents = self.synced.copy()
        if style == "everything":
            for operation in self.pending:
                contents.apply(operation)
        elif style in {"prefix", "zeroed"} and self.pending:
            whole = rng.randint(0, len(self.pending))
            for operation in self.pending[:whole]:
                contents.apply(operation)
            if whole < len(self.pending):
                tear(contents.apply, self.pending[whole], rng)
        elif style == "scattered":
            _scatter(contents, self.pending, rng)
        grown = len(self.cached.data) > len(contents.data)
        if grown and (style == "zeroed" or (style == "scattered" and rng.random() < 0.5)):
            contents.resize(len(self.cached.data))
        return contents


def _scatter(
    contents: _Contents, operations: list[Operation], rng: random.Random, *, keeps_sizes: bool = False
) -> None:
    """Apply random sectors of the writes, and random other operations, or all of those with `keeps_sizes`."""
    chance, sector = rng.choice((0.1, 0.5, 0.9)), rng.choice(_SECTORS)
    for operation in operations:
        if operation.kind != "write":
            if keeps_sizes or rng.random() < chance:
                contents.apply(operation)
            continue
        for position, piece in _sectors(operation, sector):
            if rng.random() < chance:
                contents.put(position, piece)


class _Folder:
    """A folder: the names that were synced, and what was done to them since."""

    def __init__(self, names: dict[str, int]) -> None:
        self.cached = names
        self.synced = dict(names)
        self.pending: list[Operation] = []

    def survivor(self, rng: random.Random, style: Style, number: int) -> dict[str, int]:
        names = dict(self.synced)
        chance = {"nothing": 0.0, "everything": 1.0}.get(style, rng.choice((0.2, 0.5, 0.8)))
        kept = self.pending
        if style == "prefix":
            kept = self.pending[: rng.randint(0, len(self.pending))]
        elif style in {"scattered", "zeroed"}:
            kept = [operation for operation in self.pending if rng.random() < chance]
        elif style == "nothing":
            kept = []
        for operation in kept:
            change_names(names, operation, number)
        return names


_Names: TypeAlias = Callable[[_Folder, int], dict[str, int]]
"""Returns the names in a folder."""


def _sectors(operation: Operation, sector: int) -> Iterator[tuple[int, memoryview]]:
    view, position = memoryview(operation.data), operation.position
    end = position + len(view)
    while position < end:
        stop = min(end, (position // sector + 1) * sector)
        yield position, view[position - operation.position : stop - operation.position]
        position = stop


def tear(apply: Callable[[Operation], None], operation: Operation, rng: random.Random) -> None:
    """Apply a part of an operation: the first bytes of a write; any other operation whole or not at all."""
    if operation.kind == "write":
        part = operation.data[: rng.randint(0, len(operation.data))]
        apply(Operation("write", operation.path, operation.node, position=operation.position, data=part))
    elif rng.random() < 0.5:
        apply(operation)


def change_names(names: dict[str, int], operation: Operation, folder: int) -> None:
    """Apply an operation to the names of a folder."""
    if operation.kind == "rename":
        if operation.source_folder == folder:
            for name in [name for name, node in names.items() if node == operation.node]:
                del names[name]
        if operation.folder == folder:
            names[operation.name] = operation.node
    elif operation.kind in {"unlink", "remove_directory"}:
        if names.get(operation.name) == operation.node:
            del names[operation.name]
    else:
        names[operation.name] = operation.node


class Disk:
    """A disk on which a history of operations is replayed.

    Args:
        tree: What is on it at the start, all of it synced: each path with its bytes, `None` for a folder.
    """

    def __init__(self, tree: dict[str, bytes | None] | None = None) -> None:
        self._nodes: dict[int, _File | _Folder] = {ROOT: _Folder({})}
        self._paths: dict[str, int] = {"": ROOT}
        for path, data in sorted((tree or {}).items()):
            number = len(self._nodes)
            parent, _, name = path.rpartition("/")
            for names in (self._folder(self._paths[parent]).cached, self._folder(self._paths[parent]).synced):
                names[name] = number
            self._nodes[number] = _Folder({}) if data is None else _File(_Contents(bytearray(data)))
            self._paths[path] = number

    @property
    def next_node(self) -> int:
        """The number of the next file or folder that is created."""
        return len(self._nodes)

    def _folder(self, number: int) -> _Folder:
        node = self._nodes[number]
        if not isinstance(node, _Folder):
            raise TypeError(f"node {number} is not a folder")
        return node

    def _file(self, number: int) -> _File:
        node = self._nodes[number]
        if not isinstance(node, _File):
            raise TypeError(f"node {number} is not a file")
        return node

    def find(self, path: str) -> int | None:
        """Return the number of the file or folder that has a path now, or None."""
        number = ROOT
        for name in path.split("/") if path else ():
            node = self._nodes[number]
            if not isinstance(node, _Folder) or name not in node.cached:
                return None
            number = node.cached[name]
        return number

    def is_folder(self, number: int) -> bool:
        """Return whether a number is that of a folder."""
        return isinstance(self._nodes[number], _Folder)

    def apply(self, operation: Operation) -> None:
        """Replay one operation."""
        if operation.kind in {"write", "truncate", "sync", "set_modified"}:
            self._file(operation.node).apply(operation)
            return
        if operation.kind == "sync_directory":
            folder = self._folder(operation.node)
            if not operation.failed:
                for done in folder.pending:
                    change_names(folder.synced, done, operation.node)
                folder.pending.clear()
            return
        if operation.kind == "create":
            self._nodes[operation.node] = _File(_Contents())
        elif operation.kind == "make_directory":
            self._nodes[operation.node] = _Folder({})
        for number in {operation.folder, operation.source_folder} - {-1}:
            folder = self._folder(number)
            change_names(folder.cached, operation, number)
            folder.pending.append(operation)

    def tree(self) -> dict[str, bytes | None]:
        """Return what a program sees now: each path with its bytes, `None` for a folder."""
        found = self._select(lambda folder, _: folder.cached, lambda _, file: file.cached)
        return {path: None if data is None else bytes(data) for path, data, _ in found}

    def kill(self, target: Path, torn: Operation | None = None, seed: int = 0) -> None:
        """Write the tree that is found after the program was killed: everything that was done.

        Args:
            target: An empty folder.
            torn: The operation that was under way; only its first bytes are written.
            seed: Decides how many.
        """
        replaced: dict[int, _Contents] = {}
        if torn is not None and torn.kind == "write":
            contents = self._file(torn.node).cached.copy()
            tear(contents.apply, torn, random.Random(seed))
            replaced[torn.node] = contents
        self._write(target, lambda folder, _: folder.cached, lambda number, file: replaced.get(number) or file.cached)

    def cut_power(self, target: Path, seed: int = 0) -> None:
        """Write the tree that is found after the power was cut: what was synced, and any part of the rest.

        Args:
            target: An empty folder.
            seed: Decides which part.
        """
        rng = random.Random(seed)
        mixed = rng.random() < 0.4
        files_style, names_style = rng.choice(STYLES), rng.choice(STYLES)

        def names(folder: _Folder, number: int) -> dict[str, int]:
            return folder.survivor(rng, rng.choice(STYLES) if mixed else names_style, number)

        survivors: dict[int, _Contents] = {}
        for number, node in self._nodes.items():
            if isinstance(node, _File):
                survivors[number] = node.survivor(rng, rng.choice(STYLES) if mixed else files_style)
        self._write(target, names, lambda number, _: survivors[number])

    def _write(self, target: Path, names: _Names, contents: Callable[[int, _File], _Contents]) -> None:
        for path, data, modified_ms in self._select(names, contents):
            name = os.fspath(target / path)
            if data is None:
                os.mkdir(name)  # noqa: PTH102 - thousands of disks are made in a run
                continue
            descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            try:
                os.write(descriptor, data)
                if modified_ms is not None:
                    os.utime(descriptor, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
            finally:
                os.close(descriptor)

    def _select(
        self, names: _Names, contents: Callable[[int, _File], _Contents], number: int = ROOT, path: str = ""
    ) -> Iterator[tuple[str, bytearray | None, int | None]]:
        for name, child in names(self._folder(number), number).items():
            node, below = self._nodes[child], f"{path}/{name}" if path else name
            if isinstance(node, _Folder):
                yield below, None, None
                yield from self._select(names, contents, child, below)
            else:
                kept = contents(child, node)
                yield below, kept.data, kept.modified_ms


def read_tree(root: Path) -> dict[str, bytes | None]:
    """Return what a folder holds: each path relative to it with its bytes, `None` for a folder."""
    found: dict[str, bytes | None] = {}
    for folder, folders, files in os.walk(root):
        prefix = os.path.relpath(folder, root)
        prefix = "" if prefix == "." else f"{prefix}/"
        found.update({f"{prefix}{name}": None for name in folders})
        for name in files:
            found[f"{prefix}{name}"] = (Path(folder) / name).read_bytes()
    return found


def flip_bits(path: Path, seed: int, *, count: int = 1, start: int = 0, end: int | None = None) -> list[int]:
    """Flip bits of a file between two positions, as a bad disk does; return the positions of their bytes."""
    data = bytearray(path.read_bytes())
    rng = random.Random(seed)
    stop = len(data) if end is None else min(end, len(data))
    if start >= stop:
        return []
    positions = [rng.randrange(start, stop) for _ in range(count)]
    for position in positions:
        data[position] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return positions
