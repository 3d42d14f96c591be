"""The partitions' folders within the folders of `log.dirs`: found, made, set aside, deleted.

    a/orders-0/                        the partition's place
    a/orders-1.<32 hex>-delete/        of a deleted topic: removed after a delay, or at the next start
    b/orders-0/                        stray: a second folder of a partition, or one that the metadata does not have
    b/orders-0.<32 hex>-stray/         set aside when a new topic got the name: the records are not the new topic's

Source in Kafka: `LogManager`.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import UUID, uuid4

from odradek.errors import FormatError, LogError
from odradek.storage.directory.cluster_directories import ClusterDirectories
from odradek.storage.directory.directory_state import DirectoryState
from odradek.storage.files import FILES, FileSystem, replace_file
from odradek.storage.formats.partition_metadata import (
    PARTITION_METADATA,
    format_partition_metadata,
    read_partition_metadata,
)
from odradek.storage.log.recovery_report import RecoveryKind, RecoveryReport
from odradek.storage.metadata.cluster import check_partition_count
from odradek.storage.names import (
    DELETE_DIRECTORY_SUFFIX,
    LOG_SUFFIX,
    STRAY_DIRECTORY_SUFFIX,
    TopicPartition,
    marked_directory_name,
    parse_segment_file,
)

_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}
"""What a file system answers that cannot give a file one more name."""


class PartitionFolders:
    """The place of each partition. Changing it requires the lock of every folder.

    Args:
        states: The folders of `log.dirs`.
        cluster: The partitions in the metadata.
        report: Receives which folders were set aside.
        files: The file system to write through.

    Attributes:
        places: The folder of `log.dirs` that holds each partition.
        strays: The partitions' folders that the metadata does not have.
        deleted: The folders that are marked as deleted.
    """

    def __init__(
        self,
        states: Sequence[DirectoryState],
        cluster: ClusterDirectories,
        report: RecoveryReport,
        files: FileSystem = FILES,
    ) -> None:
        self._states = states
        self._cluster = cluster
        self._report = report
        self._files = files
        self.places: dict[TopicPartition, DirectoryState] = {}
        self.strays: list[Path] = []
        self.deleted: list[Path] = []
        self._going: dict[TopicPartition, Path] = {}

    def find(self) -> None:
        """Look at the folders."""
        places: dict[TopicPartition, DirectoryState] = {}
        strays: list[Path] = []
        deleted: list[Path] = []
        for state in self._states:
            for folder in self._cluster.partition_folders(state.path):
                if folder.suffix == DELETE_DIRECTORY_SUFFIX:
                    deleted.append(folder.path)
                elif folder.is_stray or folder.topic_partition in places:
                    strays.append(folder.path)
                elif not folder.suffix:
                    places[folder.topic_partition] = state
        # Only when everything is known: the checkpoints are written from these lists.
        self.places, self.strays, self.deleted = places, strays, deleted

    def within(self, state: DirectoryState) -> Iterator[TopicPartition]:
        """Yield the partitions that a folder of `log.dirs` holds."""
        return (place for place, held in self.places.items() if held is state)

    def choose(self, count: int) -> list[DirectoryState]:
        """Return the folders for new partitions: for each one, the folder that has the fewest.

        Raises:
            PolicyViolationError: There are more than 10,000.
        """
        check_partition_count(count)
        if len(self._states) == 1:
            return [self._states[0]] * count
        load = Counter({id(state): 0 for state in self._states})
        load.update(id(state) for state in self.places.values())
        chosen = []
        for _ in range(count):
            state = min(self._states, key=lambda state: load[id(state)])
            load[id(state)] += 1
            chosen.append(state)
        return chosen

    def make(
        self,
        partitions: Sequence[TopicPartition],
        states: Sequence[DirectoryState],
        topic_ids: Mapping[str, UUID | None],
    ) -> None:
        """Make the folders of partitions, and return when their names are on the disk.

        The name of a `partition.metadata` may get there later: nothing is appended before the partition's folder is
        synced.

        Args:
            partitions: The partitions.
            states: In which folder of `log.dirs` each is made.
            topic_ids: The ids of their topics.

        Raises:
            LogError: A file that is not a folder has the name.
            OSError: The disk failed.
        """
        written: dict[tuple[Path, UUID], Path] = {}
        for topic_partition, state in zip(partitions, states, strict=True):
            topic_id = topic_ids[topic_partition.topic]
            self._set_aside(topic_partition, topic_id)
            folder = state.path / str(topic_partition)
            try:
                self._files.make_directory(folder)
            except FileExistsError as error:
                raise LogError(f"{folder} cannot be created: something that is not a folder has its name") from error
            if topic_id is not None:
                path = folder / PARTITION_METADATA
                if not self._link(written.setdefault((state.path, topic_id), path), path):
                    replace_file(path, format_partition_metadata(topic_id), self._files)
            self.places[topic_partition] = state
        for path in {state.path for state in states}:
            self._files.sync_directory(path)

    def _link(self, written: Path, path: Path) -> bool:
        """Give a file that is on the disk one more name; return whether that was done.

        All partitions of a topic have the same `partition.metadata`, and one file has to be synced once.
        """
        if path == written:
            return False
        try:
            self._files.link(written, path)
        except FileExistsError:
            # An interrupted change has left it: it is this topic's, or the folder would have been set aside.
            return True
        except OSError as error:
            if error.errno in _NO_LINKS:
                return False
            raise
        return True

    def _set_aside(self, topic_partition: TopicPartition, topic_id: UUID | None) -> None:
        """Rename a folder of another topic that has a new partition's name; forget its checkpoints."""
        for state in self._states:
            folder = state.path / str(topic_partition)
            if folder in self.strays or self._is_of_others(folder, topic_id):
                self._report_aside(folder)
                aside = self._mark(folder, topic_partition, STRAY_DIRECTORY_SUFFIX)
                self._files.sync_directory(state.path)
                self.strays = [aside if stray == folder else stray for stray in self.strays]
                if aside not in self.strays:
                    self.strays.append(aside)
            elif folder.is_dir():
                # It was made for this partition; an interrupt kept the rest from being done.
                continue
            state.forget([topic_partition])

    def refuse_strays(self) -> None:
        """Raise if the first partition of the same name would set a folder aside, and the report is strict.

        Raises:
            LogError: There is such a folder.
        """
        for folder in self.strays:
            if not folder.name.endswith(STRAY_DIRECTORY_SUFFIX):
                self._report_aside(folder)

    def _report_aside(self, folder: Path) -> None:
        reason = "the metadata do not have its topic, or with another id: it is renamed to end with -stray"
        self._report.add(RecoveryKind.SET_ASIDE, folder, 0, 0, reason, loses=True)

    @staticmethod
    def _is_of_others(folder: Path, topic_id: UUID | None) -> bool:
        if topic_id is None or not folder.is_dir():
            return False
        try:
            found = read_partition_metadata(folder / PARTITION_METADATA)
        except FormatError:
            return True
        return found != topic_id if found is not None else holds_segments(folder)

    def _mark(self, folder: Path, topic_partition: TopicPartition, suffix: str) -> Path:
        target = folder.with_name(marked_directory_name(topic_partition, uuid4(), suffix))
        self._files.rename(folder, target)
        return target

    def mark_deleted(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Path]:
        """Rename the folders of partitions, if they have a place; return those that are to be removed.

        The partitions have their places until they are forgotten. Until then, also if an exception ended it, it can be
        called again, and continues where it stopped.
        """
        going = {place: self.places[place].path for place in partitions if place in self.places}
        for topic_partition, path in going.items():
            folder = path / str(topic_partition)
            name = marked_directory_name(topic_partition, uuid4(), DELETE_DIRECTORY_SUFFIX)
            target = self._going.setdefault(topic_partition, folder.with_name(name))
            if folder.exists():
                self._files.rename(folder, target)
        # Once for all of them: it takes as long as for one.
        for path in dict.fromkeys(going.values()):
            self._files.sync_directory(path)
        return {topic_partition: self._going[topic_partition] for topic_partition in going}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions whose folders were marked as deleted."""
        going = list(partitions)
        for state in {id(self.places[place]): self.places[place] for place in going}.values():
            state.forget(going)
        for topic_partition in going:
            self.places.pop(topic_partition, None)
            self._going.pop(topic_partition, None)

    def remove(self, folder: Path) -> None:
        """Remove a folder and what is in it; it is not an error if it does not exist.

        A symbolic link is removed itself, here and inside the folder, but not what it leads to. Anything else that is
        not a folder stays, since this package never marks such a thing as deleted.
        """
        if folder.is_symlink():
            self._files.unlink(folder)
            return
        if not folder.is_dir():
            return
        # Two threads may remove it: a `maintain` that is not over yet, and the next opening of a closed directory.
        with suppress(FileNotFoundError):
            for path in folder.iterdir():
                if path.is_dir() and not path.is_symlink():
                    self.remove(path)
                else:
                    self._files.unlink(path)
            self._files.remove_directory(folder)


def holds_segments(folder: Path) -> bool:
    """Whether a folder holds segments of a log."""
    return any(
        file is not None and file.suffix == LOG_SUFFIX
        for file in (parse_segment_file(p.name) for p in folder.iterdir())
    )
