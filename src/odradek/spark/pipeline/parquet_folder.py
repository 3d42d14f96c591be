"""A folder of Parquet files that changes by atomic commits, even if the program is killed.

    words/
      texts-0-00000000000000000000-00000000000000001200.parquet     topic, partition, offset range
      batch-5f0c9a7be3d4c821-00000.parquet                          rows that are not of one record, such as counts
      _odradek/commit.json     the last commit: the positions that the files reach, the ids of the topics, its renames
                               and removals
      _odradek/lock            held by the one pipeline that writes here
      _odradek/staged/...      files being written; their names do not end in .parquet

Files are staged first. Then `commit.json` is written with the final name of each staged file, and one rename puts it in
place: that is the commit. If the program dies after it, the next one to open the folder finishes the renames that it
lists; before it, the staged files are deleted. The footer of a file also has the ranges of offsets that it holds
(`odradek.ranges`), from which the positions are read if `_odradek` was removed. They are only the least then: a batch
may have left no rows.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from odradek.errors import SinkError
from odradek.offsets.store import Position
from odradek.spark.options import offsets_by_topic
from odradek.spark.ranges import OffsetRange
from odradek.storage.file_lock import FileLock
from odradek.storage.files import FILES, write_atomically
from odradek.storage.names import TopicPartition

RANGES_KEY = b"odradek.ranges"
_STATE = "_odradek"


class ParquetFolder:
    """A folder that one process at a time commits to.

    Args:
        path: The folder; it is created if it is missing.

    Attributes:
        path: The folder.
        positions: The position that the files reach in every partition.

    Raises:
        SinkError: Another pipeline writes here, or the last commit cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._state = path / _STATE
        self._staged = self._state / "staged"
        self._commit = self._state / "commit.json"
        self._state.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self._state / "lock")
        try:
            if not self._lock.acquire():
                raise SinkError(f"{path}: another pipeline writes here")
            self.positions = self._recovered()
        except BaseException:
            self._lock.release()
            raise

    def take_over(self, stored: Mapping[TopicPartition, Position]) -> None:
        """Take over greater positions of the offset store, if there is no commit: `_odradek` was removed.

        A store takes a position only after the commit of the sink, so what it says is done is done.
        """
        if not self._commit.exists():
            for name, held in self.positions.items():
                if name in stored and stored[name].offset > held.offset:
                    self.positions[name] = Position(stored[name].offset, topic_id=stored[name].topic_id)

    def files(self) -> Iterator[Path]:
        """Yield the Parquet files, in order."""
        for path in sorted(self.path.rglob("*.parquet")):
            if _STATE not in path.relative_to(self.path).parts:
                yield path

    def stage(self) -> Path:
        """Make and return a folder for staged files."""
        staging = self._staged / uuid.uuid4().hex
        staging.mkdir(parents=True)
        return staging

    def commit(
        self,
        staging: Path,
        moves: Sequence[tuple[Path, str]],
        positions: Mapping[TopicPartition, Position],
        removals: Sequence[Path] = (),
    ) -> None:
        """Make staged files visible and remove others, all or nothing.

        Args:
            staging: What `stage` returned; it is removed.
            moves: Staged files, already durable, and their final names, relative to the folder.
            positions: The positions that the folder then reaches.
            removals: Files that the new ones replace.
        """
        for folder in (staging, self._staged, self._state, self.path):
            FILES.sync_directory(folder)
        renames = [(os.path.relpath(staged, self.path), final) for staged, final in moves]
        gone = [os.path.relpath(path, self.path) for path in removals]
        reached = {**self.positions, **positions}
        content = {
            "positions": offsets_by_topic({name: held.offset for name, held in reached.items()}),
            "topic_ids": {name.topic: held.topic_id for name, held in reached.items() if held.topic_id},
            "moves": renames,
            "removals": gone,
        }
        write_atomically(self._commit, json.dumps(content, ensure_ascii=False, indent=1).encode())
        self.positions = reached
        self._finish(renames, gone)
        shutil.rmtree(staging, ignore_errors=True)

    def close(self) -> None:
        """Release the folder: another pipeline may write to it."""
        self._lock.release()

    def _finish(self, moves: Sequence[tuple[str, str]], removals: Sequence[str]) -> None:
        """Do what a commit lists and is not done yet."""
        folders = {self.path}
        for staged, final in moves:
            target = self.path / final
            target.parent.mkdir(parents=True, exist_ok=True)
            # A file that is no longer staged was renamed before.
            if (self.path / staged).exists():
                (self.path / staged).replace(target)
            folders.update(folder for folder in target.parents if folder.is_relative_to(self.path))
        for folder in sorted(folders):
            FILES.sync_directory(folder)
        for name in removals:
            (self.path / name).unlink(missing_ok=True)

    def _recovered(self) -> dict[TopicPartition, Position]:
        """Finish the last commit, delete staged files, and return the positions."""
        try:
            content = json.loads(self._commit.read_text(encoding="utf-8"))
            moves = [(str(staged), str(final)) for staged, final in content["moves"]]
            removals = [str(name) for name in content["removals"]]
            topic_ids = {str(topic): str(topic_id) for topic, topic_id in content.get("topic_ids", {}).items()}
            positions = {
                TopicPartition(topic, int(partition)): Position(int(offset), topic_id=topic_ids.get(topic))
                for topic, offsets in content["positions"].items()
                for partition, offset in offsets.items()
            }
        except FileNotFoundError:
            positions = self._positions_of_files()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SinkError(f"{self._commit}: not the commit of a pipeline ({error!r})") from error
        else:
            self._finish(moves, removals)
        shutil.rmtree(self._staged, ignore_errors=True)
        return positions

    def _positions_of_files(self) -> dict[TopicPartition, Position]:
        ends: dict[TopicPartition, int] = {}
        for path in self.files():
            for name, _, end in footer_ranges(path):
                ends[name] = max(end, ends.get(name, 0))
        return {name: Position(end) for name, end in ends.items()}


def footer_ranges(path: Path) -> list[OffsetRange]:
    """Return the ranges that a file says it holds.

    Raises:
        SinkError: The file does not say so: a pipeline did not write it.
    """
    try:
        metadata: Mapping[bytes, bytes] = pq.read_metadata(path).metadata or {}
        content = json.loads(metadata[RANGES_KEY])
    except (OSError, pa.ArrowInvalid, KeyError, ValueError, RecursionError) as error:
        raise SinkError(f"{path}: this file was not written by a pipeline: put it elsewhere") from error
    return [OffsetRange(TopicPartition(topic, partition), start, end) for topic, partition, start, end in content]


def format_ranges(ranges: Mapping[TopicPartition, tuple[int, int]]) -> bytes:
    """Format ranges for a footer."""
    return json.dumps([[*name, start, end] for name, (start, end) in sorted(ranges.items())]).encode()
