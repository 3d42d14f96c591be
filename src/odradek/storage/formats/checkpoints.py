"""The text files that hold offsets: four in the root of a log directory, one in each partition's folder.

    0                    version                        0            leader-epoch-checkpoint
    2                    how many lines follow          1
    orders 0 1200        topic partition offset         0 777        epoch start_offset
    orders 1 988

An empty file holds no entries; any other text that is not of this form stops Kafka. Text that Kafka accepts but never
writes is refused here too: a partition that is named twice, a number below 0, an impossible topic name. The files are
written to `.tmp` as a whole, and renamed.

Source in Kafka: `OffsetCheckpointFile`, `LeaderEpochCheckpointFile`, `CheckpointFile`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from odradek.errors import CheckpointError
from odradek.storage.config_def import MAX_INT32, MAX_INT64
from odradek.storage.files import FILES, FileSystem, write_atomically
from odradek.storage.names import TopicPartition, invalid_topic_name_reason
from odradek.storage.regular_files import read_file

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"

MAX_CHECKPOINT_BYTES = 1 << 28
"""Room for a million partitions with names of the greatest length: more than a log directory has."""

_VERSION = 0
_LINE_END = re.compile(r"\r\n|\r|\n")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


class EpochEntry(NamedTuple):
    """A leader epoch, and the first offset that was written in it."""

    epoch: int
    start_offset: int


def _parse_lines(text: str, fields: int, path: Path | None) -> list[list[str]]:
    lines = _LINE_END.split(text)
    if lines[-1] == "":
        lines.pop()
    if not lines:
        return []
    if _integer(lines[0], path) != _VERSION:
        raise CheckpointError(f"version {lines[0]!r} is unknown", path=path)
    if len(lines) == 1:
        return []
    expected, rows = _integer(lines[1], path, MAX_INT64), [line.split() for line in lines[2:]]
    for number, row in enumerate(rows, start=3):
        if len(row) != fields:
            raise CheckpointError(f"line {number} has {len(row)} fields, not {fields}", path=path)
    if len(rows) != expected:
        raise CheckpointError(f"{expected} entries are announced, {len(rows)} follow", path=path)
    return rows


def _integer(text: str, path: Path | None, highest: int = MAX_INT32) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise CheckpointError(f"{text[:40]!r} is not a number", path=path)
    value = int(text)
    if not 0 <= value <= highest:
        raise CheckpointError(f"{value} is not within 0 to {highest}", path=path)
    return value


def _format_lines(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in [str(_VERSION), str(len(lines)), *lines]).encode()


def parse_offset_checkpoint(text: str, *, path: Path | None = None) -> dict[TopicPartition, int]:
    """Read an offset checkpoint.

    Raises:
        CheckpointError: The text is not of the form that Kafka writes.
    """
    offsets = {}
    for number, (topic, partition, offset) in enumerate(_parse_lines(text, 3, path), start=3):
        reason = invalid_topic_name_reason(topic)
        if reason is not None:
            raise CheckpointError(f"line {number}: {reason}", path=path)
        topic_partition = TopicPartition(topic, _integer(partition, path))
        if topic_partition in offsets:
            raise CheckpointError(f"line {number} names {topic_partition} again", path=path)
        offsets[topic_partition] = _integer(offset, path, MAX_INT64)
    return offsets


def format_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return an offset checkpoint's bytes."""
    return _format_lines([f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()])


def read_offset_checkpoint(path: Path) -> dict[TopicPartition, int]:
    """Read an offset checkpoint; a missing file holds nothing.

    Raises:
        FormatError: The file is not of the form that Kafka writes, or is not a regular file.
    """
    return parse_offset_checkpoint(_read_text(path), path=path)


def write_offset_checkpoint(path: Path, offsets: Mapping[TopicPartition, int], files: FileSystem = FILES) -> None:
    """Write an offset checkpoint in one step."""
    write_atomically(path, format_offset_checkpoint(offsets), files)


def parse_leader_epochs(text: str, *, path: Path | None = None) -> list[EpochEntry]:
    """Read a leader epoch checkpoint.

    Raises:
        CheckpointError: The text is not of the form that Kafka writes.
    """
    rows = _parse_lines(text, 2, path)
    return [EpochEntry(_integer(epoch, path), _integer(offset, path, MAX_INT64)) for epoch, offset in rows]


def format_leader_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """Return a leader epoch checkpoint's bytes."""
    return _format_lines([f"{entry.epoch} {entry.start_offset}" for entry in entries])


def read_leader_epochs(path: Path) -> list[EpochEntry]:
    """Read a leader epoch checkpoint; a missing file holds nothing.

    Raises:
        FormatError: The file is not of the form that Kafka writes, or is not a regular file.
    """
    return parse_leader_epochs(_read_text(path), path=path)


def write_leader_epochs(path: Path, entries: Iterable[EpochEntry], files: FileSystem = FILES) -> None:
    """Write a leader epoch checkpoint in one step."""
    write_atomically(path, format_leader_epochs(entries), files)


def _read_text(path: Path) -> str:
    try:
        return read_file(path, MAX_CHECKPOINT_BYTES).decode()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise CheckpointError("this is not text", path=path, position=error.start) from error
