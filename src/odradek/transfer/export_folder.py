"""The folder of an export: files of records, and what says how far each partition has come.

    DIR/_odradek/export.json                  how it is exported, and the topics with their settings
                 orders-0.json                {"next_offset": 1200, ...}: up to there it is done
                 orders-0.tmp, ...            being written
    DIR/topic=orders/partition=0/00000-00000000000000000000-00000000000000001200.parquet      [0, 1200) of partition 0
    DIR/topic=orders/date=2026-11-22/00000-...parquet                                         --partition-by date

A file is written under a temporary name, brought to the disk and renamed; then the partition's next offset is written,
the same way. What a crash leaves beyond that offset is removed by the next run, which writes it again. So files that
are done may be moved elsewhere: the next run exports only what is new. Other programs read the folder as a table that
is partitioned as Hive does it, and leave out what begins with `_`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from odradek import system
from odradek.errors import LogError
from odradek.storage.file_lock import FileLock
from odradek.storage.files import FILES, write_atomically
from odradek.storage.names import TopicPartition

STATE_FOLDER = "_odradek"
_EXPORT = "export.json"
_VERSION = 1
_FILE = re.compile(r"(?P<partition>[0-9]{5,10})-(?P<start>[0-9]{20})-(?P<end>[0-9]{20})\.(?P<form>[a-z]+)")
_TOPIC_FOLDER = "topic="


class ExportedFile(NamedTuple):
    """A file, and what its name says.

    Attributes:
        path: The file.
        topic_partition: Its partition.
        start_offset: The first offset that it may hold.
        end_offset: The offset after the last one.
    """

    path: Path
    topic_partition: TopicPartition
    start_offset: int
    end_offset: int


class Progress(NamedTuple):
    """How far a partition is exported.

    Attributes:
        next_offset: The next offset to export.
        files_end: Where the last file ends, and the next one begins: no file holds offsets that have no records.
        topic_id: The topic's id; None if the source has none.
    """

    next_offset: int
    files_end: int
    topic_id: str | None


def exported_file(path: Path) -> ExportedFile | None:
    """Return what the name of a file in an export says; None if it is no such name."""
    match = _FILE.fullmatch(path.name)
    topics = [part for part in path.parts if part.startswith(_TOPIC_FOLDER)]
    if match is None or not topics:
        return None
    name = TopicPartition(topics[-1].removeprefix(_TOPIC_FOLDER), int(match["partition"]))
    return ExportedFile(path, name, int(match["start"]), int(match["end"]))


def exported_topics(directory: Path) -> dict[str, dict[str, Any]]:
    """Return the topics of an export with `partitions` and `config`; none if the folder is not one.

    Raises:
        LogError: The folder's state cannot be read.
    """
    topics: dict[str, dict[str, Any]] = _read(directory / STATE_FOLDER / _EXPORT).get("topics", {})
    return topics


class ExportFolder:
    """The folder of one export, locked for one program; a context manager.

    Args:
        directory: The folder; created if it is missing.
        how: How it is exported. A folder that was started in another way is refused.

    Raises:
        LogError: It holds something else, was started in another way, or another program has it open.
    """

    def __init__(self, directory: Path, how: Mapping[str, Any]) -> None:
        self.directory = directory
        self._state = directory / STATE_FOLDER
        is_begun = self._state.is_dir()
        if directory.exists() and not is_begun and any(directory.iterdir()):
            raise LogError(f"{directory} is not empty, and no export: name an empty folder or a new one")
        self._state.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self._state / "lock")
        if not self._lock.acquire():
            raise LogError(f"{directory}: another program is exporting into it")
        try:
            self._begin(how)
        except BaseException:
            self._lock.release()
            raise

    def _begin(self, how: Mapping[str, Any]) -> None:
        held = _read(self._state / _EXPORT)
        begun = held.get("how")
        if begun is not None and begun != how:
            different = sorted(key for key in {*begun, *how} if begun.get(key) != how.get(key))
            was = ", ".join(f"{key}={begun.get(key)}" for key in different)
            raise LogError(f"{self.directory} was begun with {was}: go on with that, or name another folder")
        self._how = dict(how)
        self._topics: dict[str, Any] = held.get("topics", {})
        for left in self._state.glob("*.tmp"):
            left.unlink()

    def note_topics(self, topics: Mapping[str, Mapping[str, Any]]) -> None:
        """Note the topics, so that an import creates them as they are."""
        self._topics |= topics
        content = {"version": _VERSION, "how": self._how, "topics": self._topics}
        write_atomically(self._state / _EXPORT, _format(content))

    def progress(self, name: TopicPartition) -> Progress | None:
        """Return how far a partition is, or None, and remove the files beyond that, which a crash left."""
        held = _read(self._state / f"{name}.json")
        progress = Progress(held["next_offset"], held["files_end"], held["topic_id"]) if held else None
        done = 0 if progress is None else progress.files_end
        for path in (self.directory / f"{_TOPIC_FOLDER}{name.topic}").rglob(f"{name.partition:05d}-*"):
            file = exported_file(path)
            if file is not None and file.topic_partition == name and file.start_offset >= done:
                path.unlink()
        return progress

    def temporary(self, name: TopicPartition, part: str) -> Path:
        """Return where a file is written before it is published."""
        return self._state / f"{name}.{part}.tmp"

    def publish(
        self, name: TopicPartition, files: Mapping[Path, str], start: int, progress: Progress, form: str
    ) -> list[Path]:
        """Give files their names, and note that the partition has come further.

        Args:
            name: The partition.
            files: Temporary files, and the folder below that of the topic that each belongs to.
            start: The first offset of the files.
            progress: How far the partition has come with them.
            form: What the files' names end with.
        """
        published = []
        for temporary, folder in files.items():
            path = self.directory / f"{_TOPIC_FOLDER}{name.topic}" / folder
            path.mkdir(parents=True, exist_ok=True)
            path /= f"{name.partition:05d}-{start:020d}-{progress.files_end:020d}.{form}"
            with temporary.open("rb") as file:
                system.sync(file.fileno())
            FILES.rename(temporary, path)
            FILES.sync_directory(path.parent)
            published.append(path)
        write_atomically(self._state / f"{name}.json", _format(progress._asdict()))
        return published

    def __enter__(self) -> ExportFolder:
        return self

    def __exit__(self, *_: object) -> None:
        for left in self._state.glob("*.tmp"):
            with suppress(OSError):
                left.unlink()
        self._lock.release()


def _format(content: object) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True).encode() + b"\n"


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise LogError(f"{path} is not what an export writes: {error}") from error
    if not isinstance(content, dict):
        raise LogError(f"{path} is not what an export writes")
    return content
