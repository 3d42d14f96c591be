"""Positions in a JSON file: the store for one machine, with nothing to install.

    {"version": "5f0c...", "positions": {"events": {"0": {"offset": 20, "batch": "17"}, "1": {"offset": 4}}}}

A commit writes a new file beside the old one, `.NAME.tmp`, makes it durable and renames it over, so that a reader (and
a crash) sees the old positions or the new ones, never a mixture. Committers exclude each other by a lock on a file
beside it, `.NAME.lock`: not on the positions file itself, whose inode every commit replaces. The lock is a POSIX lock
(see `FileLock`), which works over NFS too and is released when its process dies.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from odradek.arguments import checked_int, checked_path
from odradek.errors import CommitConflictError, FormatError, OffsetStoreError, OffsetStoreUnavailableError
from odradek.offsets.store import (
    DEFAULT_TIMEOUT_MS,
    OffsetStore,
    Position,
    Positions,
    StoreAddress,
    kept_partition,
    new_version,
    unique_fields,
)
from odradek.storage.file_lock import FileLock
from odradek.storage.files import hidden_temporary, write_atomically
from odradek.storage.names import TopicPartition
from odradek.storage.regular_files import read_file
from odradek.storage.system_errors import raise_unless_of_system

_RETRY_S = 0.005
_LIMIT_BYTES = 256 << 20
"""The largest file that is read: enough for millions of partitions, at 100 bytes each."""


class FileOffsetStore(OffsetStore):
    """The positions of one group in one file.

    Args:
        path: The JSON file; it and its folder are made by the first commit.
        timeout_ms: How long a commit waits for another process that is committing.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
        self.path = checked_path("path", path).absolute()
        self.address = f"file://{self.path}"
        # A link stays: the file that it leads to is replaced, whichever of the names it is known by.
        self._place = Path(os.path.realpath(self.path))
        self._lock_path = self._place.with_name(f".{self._place.name}.lock")
        self._timeout_s = checked_int("timeout_ms", timeout_ms, 0) / 1000

    @classmethod
    def from_address(cls, address: StoreAddress) -> Self:
        """Open `file:///path`."""
        if address.hosts not in ("", "localhost") or not address.path.strip("/") or address.path.endswith("/"):
            raise OffsetStoreError(f"{address.text}: a file's address is file:///absolute/path")
        timeout_ms = address.take_timeout_ms()
        address.refuse_the_rest()
        return cls(address.path, timeout_ms=timeout_ms)

    def load(self) -> Positions:
        """Return the positions in the file; none if there is no file."""
        try:
            data = read_file(self.path, _LIMIT_BYTES)
        except FileNotFoundError:
            return Positions()
        except FormatError as error:
            raise OffsetStoreError(f"{self.address}: {error.reason}") from error
        except OSError as error:
            raise_unless_of_system(error)
            raise OffsetStoreError(f"{self.address}: {error.strerror}") from error
        return self._parse(data)

    def commit(self, positions: Mapping[TopicPartition, Position], *, expected: Positions) -> Positions:
        """Replace the file, durably, if it still has the expected version."""
        return self._replace(expected, lambda current: current.merged(positions, new_version()))

    def delete(self, partitions: Collection[TopicPartition], *, expected: Positions) -> Positions:
        """Replace the file by one without these positions, if it still has the expected version."""
        return self._replace(expected, lambda current: current.without(partitions, new_version()))

    def _replace(self, expected: Positions, change: Callable[[Positions], Positions]) -> Positions:
        try:
            self._place.parent.mkdir(parents=True, exist_ok=True)
            with self._locked():
                current = self.load()
                if current.version != expected.version:
                    raise CommitConflictError(self.address, expected.version, current.version)
                committed = change(current)
                write_atomically(self._place, _format(committed), temporary=hidden_temporary(self._place))
        except OSError as error:
            raise_unless_of_system(error)
            raise OffsetStoreError(f"{self.address}: {error.strerror}") from error
        return committed

    def close(self) -> None:
        """Do nothing: the store holds nothing open between calls."""

    @contextmanager
    def _locked(self) -> Iterator[None]:
        deadline = time.monotonic() + self._timeout_s
        lock = FileLock(self._lock_path)
        try:
            while not lock.acquire():
                if time.monotonic() > deadline:
                    holder = "another thread" if lock.is_taken_here else "another process"
                    raise OffsetStoreUnavailableError(
                        f"{self.address}: {holder} has held its lock for {self._timeout_s:g} s"
                    )
                time.sleep(_RETRY_S)
            yield
        finally:
            lock.release()

    def _parse(self, data: bytes) -> Positions:
        try:
            content = json.loads(data, object_pairs_hook=unique_fields)
            version, topics = content["version"], content["positions"]
            entries = [
                (kept_partition(topic, partition, self.address), entry)
                for topic, partitions in topics.items()
                for partition, entry in partitions.items()
            ]
            offsets = [entry["offset"] for _, entry in entries]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise OffsetStoreError(f"{self.address}: this is not a file of positions: {_wrong(error)}") from error
        if not isinstance(version, str):
            raise OffsetStoreError(f"{self.address}: the version must be a string, not {version!r:.100}")
        return Positions(
            {
                name: Position.parse(offset, entry, where=f"{self.address}, {name}")
                for (name, entry), offset in zip(entries, offsets, strict=True)
            },
            version,
        )


def _wrong(error: Exception) -> str:
    match error:
        case json.JSONDecodeError() | UnicodeDecodeError():
            return f"it is not JSON ({error})"
        case RecursionError():
            return "it is nested too deeply"
        case KeyError():
            return f"the field {error.args[0]} is missing"
        case ValueError():
            return str(error)
    return "a field does not hold what it should"


def _format(positions: Positions) -> bytes:
    topics: dict[str, dict[str, dict[str, str | int]]] = {}
    for (topic, partition), position in sorted(positions.items()):
        topics.setdefault(topic, {})[str(partition)] = {"offset": position.offset, **position.metadata()}
    content = {"version": positions.version, "positions": topics}
    return json.dumps(content, ensure_ascii=False, indent=1).encode() + b"\n"
