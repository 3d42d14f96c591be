"""A folder of Parquet files that changes by atomic commits, even if the program is killed.

    words/
      texts-0-00000000000000000000-00000000000000001200.parquet     topic, partition, offset range
      batch-5f0c9a7be3d4c821-00000.parquet                          rows that are not of one record, such as counts
      texts-0-...-00000000000000001300.1.parquet                    from after the positions were set back once
      _1.set-back              from where on it was written again then; readers pass over it
      _odradek/commit.json     the last commit: the positions that the files reach, the ids of the topics, its renames
                               and removals
      _odradek/lock            held by the one pipeline that writes here
      _odradek/backfill/...    the same three of a backfill, which writes beside it what is before its positions
      _odradek/staged/...      files being written; their names do not end in .parquet

Files are staged first. Then `commit.json` is written with the final name of each staged file, and one rename puts it in
place: that is the commit. If the program dies after it, the next one to open the folder finishes the renames that it
lists; before it, the staged files are deleted. The footer of a file also has the ranges of offsets that it holds
(`odradek.ranges`), from which, and from what was set back, the positions are read if `_odradek` was removed. They are
only the least then: a batch may have left no rows.

On another file system than this machine's the steps are the same; `remote_files` says what commits and locks are there.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from odradek.errors import SinkError
from odradek.offsets.store import Position, is_same_topic
from odradek.spark.options import offsets_by_topic
from odradek.spark.pipeline.folder_files import BACKFILL, PARQUET, STATE, FolderFiles, LocalFiles
from odradek.spark.pipeline.folder_uri import FolderUri
from odradek.spark.pipeline.remote_files import RemoteFiles
from odradek.spark.ranges import OffsetRange
from odradek.storage.names import TopicPartition

RANGES_KEY = b"odradek.ranges"


def files_of(path: Path | FolderUri, *, for_backfill: bool = False) -> FolderFiles:
    """Return the files of a folder, which nobody has claimed yet.

    Args:
        path: The folder.
        for_backfill: Whether they are claimed for a backfill, beside a running job.
    """
    if isinstance(path, FolderUri):
        return RemoteFiles(path)
    return LocalFiles(path, BACKFILL if for_backfill else STATE)


_SET_BACK = ".set-back"
_MARK = re.compile(r"_([1-9][0-9]{0,8})\.set-back")
_OF_LIFE = re.compile(r"\.([1-9][0-9]{0,8})\.parquet$")
"""The name of a file from after the positions were set back."""


_NOT_OURS = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


def file_name(stem: str, lives: int) -> str:
    """Return the name of a Parquet file: not one from before the positions were last set back, which are others."""
    return f"{stem}.{lives}{PARQUET}" if lives else f"{stem}{PARQUET}"


def lives_of(name: str) -> int:
    """Return how often the positions had been set back when a Parquet file was written, by its name."""
    found = _OF_LIFE.search(name)
    return int(found[1]) if found else 0


class ParquetFolder:
    """A folder that one process at a time commits to.

    Args:
        path: The folder; it is created if it is missing.
        for_backfill: Whether a backfill writes to it: its files say what they hold, and its commits have no positions.

    Attributes:
        path: The folder.
        files: Its files.
        positions: The position that the files reach in every partition.
        columns: The columns of its files, as Spark writes a schema in JSON; None if the last commit does not say it.
        lives: How often positions were set back: new files then have names that those of before do not have.

    Raises:
        SinkError: Another pipeline writes here, or the last commit cannot be read.
    """

    def __init__(self, path: Path | FolderUri, *, for_backfill: bool = False) -> None:
        self.path = path
        self.files = files_of(path, for_backfill=for_backfill)
        self.columns: Any = None
        self.lives = 0
        self._for_backfill = for_backfill
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

    def set_back(self, places: Mapping[TopicPartition, Position]) -> None:
        """Let partitions be written again from these positions, beside the files that there are.

        Of a topic that was made anew, the partitions that are not named are forgotten.
        """
        anew = {name.topic for name, place in places.items() if not is_same_topic(place.topic_id, self._id(name.topic))}
        offsets = {name: 0 for name in self.positions if name.topic in anew}
        offsets.update({name: place.offset for name, place in places.items()})
        self.positions = {name: held for name, held in self.positions.items() if name.topic not in anew}
        self.lives += 1
        staging = self.files.stage()
        staged = f"{staging}/{uuid.uuid4().hex}.staged"
        with closing(self.files.create(staged)) as file:
            file.write(json.dumps(offsets_by_topic(offsets), ensure_ascii=False).encode())
            self.files.seal(file)
        self.commit(staging, [(staged, f"_{self.lives}{_SET_BACK}")], places)

    def _id(self, topic: str) -> str | None:
        return next((held.topic_id for name, held in self.positions.items() if name.topic == topic), None)

    def commit(
        self,
        staging: str,
        moves: Sequence[tuple[str, str]],
        positions: Mapping[TopicPartition, Position],
        removals: Sequence[str] = (),
        columns: Any = None,
    ) -> None:
        """Make staged files visible and remove others, all or nothing. Files go by their names in the folder.

        Args:
            staging: What `files.stage` returned; it is removed.
            moves: Staged files, already durable, and their final names.
            positions: The positions that the folder then reaches.
            removals: Files that the new ones replace.
            columns: The columns that the folder then has; by default those that it has.

        Raises:
            FencedError: Another pipeline writes here now.
        """
        reached = {**self.positions, **positions}
        content = {
            "positions": offsets_by_topic({name: held.offset for name, held in reached.items()}),
            "topic_ids": {name.topic: held.topic_id for name, held in reached.items() if held.topic_id},
            "moves": moves,
            "removals": removals,
            "columns": columns or self.columns,
            "lives": self.lives,
        }
        if self._for_backfill:
            content["positions"] = {}
        self.files.write_commit(staging, json.dumps(content, ensure_ascii=False, indent=1).encode())
        self.positions = reached
        self.columns = columns or self.columns
        self.files.finish(moves, removals)
        self.files.clear(staging)

    def ranges(self) -> list[OffsetRange]:
        """Return the ranges that the files say they hold, but for what was set back since.

        Raises:
            SinkError: A file does not say so.
        """
        marks = self._set_back()
        held = []
        for name in self.files.names():
            later = [places for life, places in marks.items() if life > lives_of(name)]
            for partition, start, end in footer_ranges(self, name):
                left = min([end, *(places[partition] for places in later if partition in places)])
                if start < left:
                    held.append(OffsetRange(partition, start, left))
        return held

    def close(self) -> None:
        """Release the folder: another pipeline may write to it."""
        self.files.release()

    def _recovered(self) -> dict[TopicPartition, Position]:
        """Finish the last commit, delete staged files, and return the positions."""
        try:
            last = self.files.last_commit()
            if last is None:
                positions = {} if self._for_backfill else self._positions_of_files()
            else:
                content = json.loads(last)
                moves = [(str(staged), str(final)) for staged, final in content["moves"]]
                removals = [str(name) for name in content["removals"]]
                self.columns = content.get("columns")
                self.lives = int(content.get("lives", 0))
                topic_ids = {str(topic): str(topic_id) for topic, topic_id in content.get("topic_ids", {}).items()}
                positions = {
                    name: Position(offset, topic_id=topic_ids.get(name.topic))
                    for name, offset in _offsets(content["positions"]).items()
                }
            if self._for_backfill and (of_job := files_of(self.path).last_commit()) is not None:
                # The job may have written other columns since the last backfill.
                self.columns = json.loads(of_job).get("columns")
        except (OSError, *_NOT_OURS) as error:
            raise SinkError(f"{self.path}: its last commit is not one of a pipeline ({error!r})") from error
        if last is not None:
            self.files.finish(moves, [], again=True)
            # If the files that replaced others were removed since, a backfill may have written these others again.
            there = set(self.files.names()) if removals else set()
            if all(final in there for _, final in moves):
                self.files.finish([], removals, again=True)
        self.files.clear()
        return positions

    def _set_back(self) -> dict[int, dict[TopicPartition, int]]:
        """Return from where on partitions were written again, each time that they were set back."""
        found = {}
        for name in self.files.names(_SET_BACK):
            if not (mark := _MARK.fullmatch(name)):
                continue
            try:
                with self.files.open_input(name) as file:
                    found[int(mark[1])] = _offsets(json.loads(file.read()))
            except (*_NOT_OURS, pa.ArrowInvalid) as error:
                raise SinkError(
                    f"{self.path}/{name}: this file was not written by a pipeline: put it elsewhere"
                ) from error
        return found

    def _positions_of_files(self) -> dict[TopicPartition, Position]:
        set_back = self._set_back()
        names: dict[int, list[str]] = {}
        for name in self.files.names():
            names.setdefault(lives_of(name), []).append(name)
        ends: dict[TopicPartition, int] = {}
        for life in sorted({*set_back, *names}):
            ends.update(set_back.get(life, {}))
            for name in names.get(life, ()):
                for partition, _, end in footer_ranges(self, name):
                    ends[partition] = max(end, ends.get(partition, 0))
            self.lives = life
        return {name: Position(end) for name, end in ends.items()}


def _offsets(by_topic: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, offsets in by_topic.items()
        for partition, offset in offsets.items()
    }


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


def format_ranges(ranges: Iterable[OffsetRange]) -> bytes:
    """Format ranges for a footer."""
    return json.dumps([[*name, start, end] for name, start, end in sorted(ranges)]).encode()
