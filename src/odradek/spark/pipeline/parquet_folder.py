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

On another file system than this machine's the steps are the same; `remote_files` says what commits and locks are there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from odradek.errors import SinkError
from odradek.offsets.store import Position
from odradek.spark.options import offsets_by_topic
from odradek.spark.pipeline.folder_files import FolderFiles, LocalFiles
from odradek.spark.pipeline.folder_uri import FolderUri
from odradek.spark.pipeline.remote_files import RemoteFiles
from odradek.spark.ranges import OffsetRange
from odradek.storage.names import TopicPartition

RANGES_KEY = b"odradek.ranges"


def files_of(path: Path | FolderUri) -> FolderFiles:
    """Return the files of a folder, which nobody has claimed yet."""
    return RemoteFiles(path) if isinstance(path, FolderUri) else LocalFiles(path)


class ParquetFolder:
    """A folder that one process at a time commits to.

    Args:
        path: The folder; it is created if it is missing.

    Attributes:
        path: The folder.
        files: Its files.
        positions: The position that the files reach in every partition.

    Raises:
        SinkError: Another pipeline writes here, or the last commit cannot be read.
    """

    def __init__(self, path: Path | FolderUri) -> None:
        self.path = path
        self.files = files_of(path)
        try:
            self.files.claim()
            self.positions = self._recovered()
        except BaseException:
            self.files.release()
            raise

    def take_over(self, stored: Mapping[TopicPartition, Position]) -> None:
        """Take over greater positions of the offset store, if there is no commit: `_odradek` was removed.

        A store takes a position only after the commit of the sink, so what it says is done is done.
        """
        if self.files.last_commit() is None:
            for name, held in self.positions.items():
                if name in stored and stored[name].offset > held.offset:
                    self.positions[name] = Position(stored[name].offset, topic_id=stored[name].topic_id)

    def commit(
        self,
        staging: str,
        moves: Sequence[tuple[str, str]],
        positions: Mapping[TopicPartition, Position],
        removals: Sequence[str] = (),
    ) -> None:
        """Make staged files visible and remove others, all or nothing. Files go by their names in the folder.

        Args:
            staging: What `files.stage` returned; it is removed.
            moves: Staged files, already durable, and their final names.
            positions: The positions that the folder then reaches.
            removals: Files that the new ones replace.

        Raises:
            FencedError: Another pipeline writes here now.
        """
        reached = {**self.positions, **positions}
        content = {
            "positions": offsets_by_topic({name: held.offset for name, held in reached.items()}),
            "topic_ids": {name.topic: held.topic_id for name, held in reached.items() if held.topic_id},
            "moves": moves,
            "removals": removals,
        }
        self.files.write_commit(staging, json.dumps(content, ensure_ascii=False, indent=1).encode())
        self.positions = reached
        self.files.finish(moves, removals)
        self.files.clear(staging)

    def close(self) -> None:
        """Release the folder: another pipeline may write to it."""
        self.files.release()

    def _recovered(self) -> dict[TopicPartition, Position]:
        """Finish the last commit, delete staged files, and return the positions."""
        try:
            last = self.files.last_commit()
            if last is None:
                positions = self._positions_of_files()
            else:
                content = json.loads(last)
                moves = [(str(staged), str(final)) for staged, final in content["moves"]]
                removals = [str(name) for name in content["removals"]]
                topic_ids = {str(topic): str(topic_id) for topic, topic_id in content.get("topic_ids", {}).items()}
                positions = {
                    TopicPartition(topic, int(partition)): Position(int(offset), topic_id=topic_ids.get(topic))
                    for topic, offsets in content["positions"].items()
                    for partition, offset in offsets.items()
                }
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise SinkError(f"{self.path}: its last commit is not one of a pipeline ({error!r})") from error
        if last is not None:
            self.files.finish(moves, removals, again=True)
        self.files.clear()
        return positions

    def _positions_of_files(self) -> dict[TopicPartition, Position]:
        ends: dict[TopicPartition, int] = {}
        for name in self.files.names():
            for partition, _, end in footer_ranges(self, name):
                ends[partition] = max(end, ends.get(partition, 0))
        return {name: Position(end) for name, end in ends.items()}


def footer_ranges(folder: ParquetFolder, name: str) -> list[OffsetRange]:
    """Return the ranges that a file says it holds.

    Raises:
        SinkError: The file does not say so: a pipeline did not write it.
    """
    try:
        with folder.files.errors(), folder.files.open_input(name) as file:
            metadata: Mapping[bytes, bytes] = pq.read_metadata(file).metadata or {}
        content = json.loads(metadata[RANGES_KEY])
    except (OSError, pa.ArrowInvalid, KeyError, ValueError, RecursionError) as error:
        raise SinkError(f"{folder.path}/{name}: this file was not written by a pipeline: put it elsewhere") from error
    return [OffsetRange(TopicPartition(topic, partition), start, end) for topic, partition, start, end in content]


def format_ranges(ranges: Mapping[TopicPartition, tuple[int, int]]) -> bytes:
    """Format ranges for a footer."""
    return json.dumps([[*name, start, end] for name, (start, end) in sorted(ranges.items())]).encode()
