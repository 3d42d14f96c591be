"""A folder of Parquet files that changes from one commit to the next, whatever dies.

    words/
      texts-0-00000000000000000000-00000000000000001200.parquet     topic, partition, offset range
      batch-5f0c9a7be3d4c821-00000.parquet                          rows that belong to no one record, such as counts
      _odradek/commit.json     the last commit: the positions that the files reach, the ids of the topics, its renames
                               and removals
      _odradek/lock            held by the one pipeline that writes here
      _odradek/staged/...      files being written; their names do not end in .parquet

Files are staged first. Then which of them become which is written down, and the commit is made by one rename of
`commit.json`: from there on it is done, for whoever opens the folder next finishes the renames that it lists. Before,
it is not, and what is staged is thrown away. The ranges of offsets that a file holds are also in its footer
(`odradek.ranges`), from where the positions are read if `_odradek` was removed.
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
        path: The folder; made if there is none.

    Attributes:
        path: The folder.
        positions: How far the files reach in every partition.

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

    def files(self) -> Iterator[Path]:
        """Give the Parquet files, in order."""
        for path in sorted(self.path.rglob("*.parquet")):
            if _STATE not in path.relative_to(self.path).parts:
                yield path

    def stage(self) -> Path:
        """Make a folder for files to come."""
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
        """Make staged files visible and others go, all or none of it.

        Args:
            staging: What `stage` returned; it is removed.
            moves: Staged files, durable ones, and the names that they get, relative to the folder.
            positions: How far the folder reaches with them.
            removals: Files that the new ones replace.
        """
        for folder in (staging, self._staged, self._state, self.path):
            FILES.sync_directory(folder)
        renames = [(os.path.relpath(staged, self.path), final) for staged, final in moves]
        gone = [os.path.relpath(path, self.path) for path in removals]
        self.positions = {**self.positions, **positions}
        content = {
            "positions": offsets_by_topic({name: held.offset for name, held in self.positions.items()}),
            "topic_ids": {name.topic: held.topic_id for name, held in self.positions.items() if held.topic_id},
            "moves": renames,
            "removals": gone,
        }
        write_atomically(self._commit, json.dumps(content, ensure_ascii=False, indent=1).encode())
        self._finish(renames, gone)
        shutil.rmtree(staging, ignore_errors=True)

    def close(self) -> None:
        """Let another pipeline write here."""
        self._lock.release()

    def _finish(self, moves: Sequence[tuple[str, str]], removals: Sequence[str]) -> None:
        """Do what a commit says and what is not done yet."""
        folders = {self.path}
        for staged, final in moves:
            target = self.path / final
            target.parent.mkdir(parents=True, exist_ok=True)
            # A file that is not staged any more was renamed before.
            if (self.path / staged).exists():
                (self.path / staged).replace(target)
            folders.update(folder for folder in target.parents if folder.is_relative_to(self.path))
        for folder in sorted(folders):
            FILES.sync_directory(folder)
        for name in removals:
            (self.path / name).unlink(missing_ok=True)

    def _recovered(self) -> dict[TopicPartition, Position]:
        """Finish the last commit, throw away what is staged, and return the positions."""
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
            raise SinkError(f"{self._commit}: this is no commit of a pipeline ({error!r})") from error
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
        SinkError: The file does not say so: it is somebody else's.
    """
    try:
        metadata: Mapping[bytes, bytes] = pq.read_metadata(path).metadata or {}
        content = json.loads(metadata[RANGES_KEY])
    except (OSError, pa.ArrowInvalid, KeyError, ValueError, RecursionError) as error:
        raise SinkError(f"{path}: this file was not written by a pipeline: put it elsewhere") from error
    return [OffsetRange(TopicPartition(topic, partition), start, end) for topic, partition, start, end in content]


def format_ranges(ranges: Mapping[TopicPartition, tuple[int, int]]) -> bytes:
    """Write ranges for a footer."""
    return json.dumps([[*name, start, end] for name, (start, end) in sorted(ranges.items())]).encode()
