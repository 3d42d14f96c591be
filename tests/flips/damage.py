"""What can be done to a file."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from flips.folders import Folder
from odradek.records import scan_batches
from odradek.storage.names import CLUSTER_METADATA_TOPIC, TopicPartition, parse_partition_directory

WHOLE = ("emptied", "halved", "cut", "removed", "random", "zeroed")
OFFSET_BYTES = range(8)
EPOCH_BYTES = range(12, 16)
HEADER_BYTES = 61
COMPACTED = {"keyed"}
METADATA = f"{CLUSTER_METADATA_TOPIC}-0"


@dataclass(frozen=True, slots=True)
class Damage:
    """Something done to one file.

    Attributes:
        folder: Which folder.
        state: In which state.
        path: The file.
        what: `bit`, or one of `WHOLE`.
        number: Which bit, from 1 on; negative for one of a batch's base offset.
    """

    folder: str
    state: str
    path: str
    what: str
    number: int = 0

    def __str__(self) -> str:
        return ",".join(map(str, (self.folder, self.state, self.path, self.what, self.number)))

    @classmethod
    def parse(cls, text: str) -> Damage:
        """Read what `str` gives."""
        folder, state, path, what, number = text.split(",")
        return cls(folder, state, path, what, int(number))

    @property
    def partition(self) -> TopicPartition | None:
        """Whose file it is; None for what concerns the whole folder."""
        named = parse_partition_directory(self.path.partition("/")[0])
        return None if named is None or self.path.startswith(METADATA) else named.topic_partition

    @property
    def kind(self) -> str:
        """What kind of file it is, and what was done to it, for the table."""
        path = PurePosixPath(self.path)
        place = "metadata " if self.path.startswith(METADATA) else ""
        name = path.suffix if path.stem.isdigit() or path.stem.partition("-")[0].isdigit() else path.name
        part = ""
        if name == ".log" and self.what == "bit" and not place:
            part = " base offset" if self.number < 0 else " leader epoch"
        return f"{place}{name}{part} {self.what}"

    def applied(self, data: bytes) -> bytes | None:
        """Return what becomes of a file; None where it is removed."""
        if self.what == "bit":
            changed = bytearray(data)
            position, bit = divmod(abs(self.number) - 1, 8)
            changed[position] ^= 1 << bit
            return bytes(changed)
        if self.what == "removed":
            return None
        if self.what == "random":
            return random.Random(self.path).randbytes(len(data))
        return {"emptied": b"", "halved": data[: len(data) // 2], "cut": data[:-1], "zeroed": bytes(len(data))}[
            self.what
        ]


def damages(folder: Folder) -> Iterator[Damage]:
    """Give everything that is done to a folder, file by file."""
    logs: dict[str, list[str]] = {}
    for path, data in folder.tree.items():
        if data is None:
            continue
        if path.endswith(".log"):
            logs.setdefault(path.partition("/")[0], []).append(path)
            continue
        for what in WHOLE:
            if data or what == "removed":
                yield Damage(folder.name, folder.state, path, what)
        for bit in range(len(data) * 8):
            yield Damage(folder.name, folder.state, path, "bit", bit + 1)
    for directory, paths in logs.items():
        if directory == METADATA:
            yield from _in_metadata(folder, paths)
        elif directory.rpartition("-")[0] not in COMPACTED:
            yield from (Damage(folder.name, folder.state, path, "removed") for path in sorted(paths)[1:-1])
            for path in paths:
                yield from _in_headers(folder, path)


def _in_headers(folder: Folder, path: str) -> Iterator[Damage]:
    """Flip what no checksum covers."""
    data = folder.tree[path] or b""
    for header in scan_batches(data):
        for byte in OFFSET_BYTES:
            for bit in range(8):
                yield Damage(folder.name, folder.state, path, "bit", -((header.position + byte) * 8 + bit + 1))
        for byte in EPOCH_BYTES if header.magic == 2 else ():
            for bit in range(8):
                yield Damage(folder.name, folder.state, path, "bit", (header.position + byte) * 8 + bit + 1)


def _in_metadata(folder: Folder, paths: list[str]) -> Iterator[Damage]:
    """Flip a bit of every fourth byte, and every bit of the headers of the last batches."""
    for path in paths:
        data = folder.tree[path] or b""
        last = [header.position for header in scan_batches(data)][-3:]
        headers = {position for start in last for position in range(start, start + HEADER_BYTES)}
        for position in range(len(data)):
            for bit in range(8) if position in headers else () if position % 4 else (position // 4 % 8,):
                yield Damage(folder.name, folder.state, path, "bit", position * 8 + bit + 1)
        yield from (Damage(folder.name, folder.state, path, what) for what in WHOLE)
