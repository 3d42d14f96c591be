"""The offsets in the checkpoint of a Spark stream, for a job that keeps its place there and nowhere else.

    checkpoint/offsets/17     v1                                                   what batch 17 reads up to
                              {"batchWatermarkMs":0, ...}
                              {"events":{"0":1200,"1":900}}                        a line for each source, or "-";
                                                                                   see `stream_offsets`
    checkpoint/commits/17     v1 ...                                               batch 17 is done

A batch is done when its file is in `commits`; Spark repeats a batch that is only in `offsets`. So the positions are
those of the last batch in both. Sources whose offsets do not have the form above (Spark's Kafka source and this package
use it) are skipped. Spark: OffsetSeqLog, CommitLog, JsonUtils.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from odradek.errors import OffsetStoreError
from odradek.offsets.store import Position
from odradek.offsets.stream_offsets import parse_stream_offsets
from odradek.storage.names import TopicPartition

_VERSION = "v1"
_LINES_BEFORE_SOURCES = 2
_NO_OFFSETS = "-"


def is_checkpoint(path: Path) -> bool:
    """Return whether a folder looks like the checkpoint of a stream."""
    return (path / "offsets").is_dir() and (path / "commits").is_dir()


def read_checkpoint(path: Path) -> dict[TopicPartition, Position]:
    """Return the positions after the last batch that is done, each with the batch's number.

    Raises:
        OffsetStoreError: It is no checkpoint, no batch of it is done, or its sources do not read topics.
    """
    if not is_checkpoint(path):
        raise OffsetStoreError(f"{path}: not a checkpoint: it lacks the directories offsets and commits")
    done = done_batches(path) & planned_batches(path)
    if not done:
        raise OffsetStoreError(f"{path}: no batch is done, so there are no positions")
    positions = read_batch(path, max(done))
    if not positions:
        raise OffsetStoreError(f"{path / 'offsets' / str(max(done))}: none of its sources reads topics")
    return positions


def planned_batches(path: Path) -> set[int]:
    """Return the numbers of the batches whose offsets a checkpoint has."""
    return _batches(path / "offsets")


def done_batches(path: Path) -> set[int]:
    """Return the numbers of the batches that a checkpoint says are done."""
    return _batches(path / "commits")


def read_batch(path: Path, batch: int) -> dict[TopicPartition, Position]:
    """Return the positions after a batch of a checkpoint, done or not, each with the batch's number.

    Raises:
        OffsetStoreError: They cannot be read, or two sources disagree.
    """
    file = path / "offsets" / str(batch)
    try:
        version, *lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise OffsetStoreError(f"{file}: cannot be read: {error}") from error
    if version != _VERSION:
        raise OffsetStoreError(f"{file}: unknown format {version!r:.20}, expected {_VERSION}")
    positions: dict[TopicPartition, Position] = {}
    for line in lines[_LINES_BEFORE_SOURCES - 1 :]:
        for name, position in _source_positions(line, file).items():
            if positions.setdefault(name, replace(position, batch=str(batch))).offset != position.offset:
                raise OffsetStoreError(f"{file}: two sources read {name}, and are at different offsets")
    return positions


def _batches(folder: Path) -> set[int]:
    # Beside the batches lie checksums (`.17.crc`) and what a crash left of a file being written.
    if not folder.is_dir():
        return set()
    return {int(entry.name) for entry in folder.iterdir() if entry.name.isascii() and entry.name.isdecimal()}


def _source_positions(line: str, file: Path) -> dict[TopicPartition, Position]:
    """Return the positions of a source; nothing if it does not read topics."""
    if line == _NO_OFFSETS:
        return {}
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise OffsetStoreError(f"{file}: the offsets of a source are not JSON: {error}") from error
    try:
        return parse_stream_offsets(content)
    except OffsetStoreError:
        return {}
