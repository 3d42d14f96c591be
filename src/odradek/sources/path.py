"""A file, a partition's folder or a log directory as a source."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from odradek.arguments import checked_path
from odradek.errors import UnknownTopicOrPartitionError
from odradek.inspection.groups import GroupStates
from odradek.inspection.log_files import LogDirectoryFolder, LogFile, locate
from odradek.kafka.committed_offset import CommittedOffset
from odradek.messages.coordinators.group_records import NO_LEADER_EPOCH, OffsetCommitValue
from odradek.messages.uuids import format_uuid
from odradek.records.isolation import Isolation
from odradek.sources.segment_file import SegmentFile
from odradek.sources.source import SLICE_BYTES, Bounds, Source, SourceSlice, TopicDescription
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.formats.partition_metadata import PARTITION_METADATA, read_partition_metadata
from odradek.storage.log.log import Log
from odradek.storage.log.read_only_log import ReadOnlyLog
from odradek.storage.metadata.metadata_image import MetadataImage
from odradek.storage.metadata.metadata_log import load_metadata
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, TopicPartition
from odradek.storage.system_errors import unreadable


class PathSource(Source):
    """What a path holds.

    Args:
        path: A segment, a partition's folder or a log directory.

    Raises:
        LogError: The path is none of these, or cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path: Path = checked_path("path", path)
        self.address = str(self._path)
        located = locate(self._path)
        self._directory: LogDirectory | None = None
        self._alone: Log | None = None
        if isinstance(located, LogDirectoryFolder):
            self._directory = LogDirectory(self._path)
        elif isinstance(located, LogFile):
            self._alone = SegmentFile(located)
        else:
            self._alone = ReadOnlyLog(self._path)

    def log(self, topic_partition: TopicPartition) -> Log:
        """Return the log of a partition, which this source closes.

        Raises:
            UnknownTopicOrPartitionError: There is no such partition.
        """
        if self._directory is not None:
            return self._directory[topic_partition]
        assert self._alone is not None
        if topic_partition != self._alone.topic_partition:
            raise UnknownTopicOrPartitionError(*topic_partition, path=self._path)
        return self._alone

    def _partitions(self) -> list[TopicPartition]:
        if self._directory is not None:
            return self._directory.topic_partitions()
        assert self._alone is not None
        return [self._alone.topic_partition]

    def topics(self) -> dict[str, TopicDescription]:
        """Return the topics by name, sorted."""
        numbers: dict[str, list[int]] = {}
        for topic, partition in self._partitions():
            numbers.setdefault(topic, []).append(partition)
        return {name: TopicDescription(self._topic_id(name, of[0]), tuple(of)) for name, of in sorted(numbers.items())}

    def _topic_id(self, topic: str, partition: int) -> str | None:
        folder = self._path / f"{topic}-{partition}" if self._directory is not None else self.log_folder
        topic_id = read_partition_metadata(folder / PARTITION_METADATA)
        return None if topic_id is None else format_uuid(topic_id)

    @property
    def log_folder(self) -> Path:
        """The folder of the one partition."""
        assert self._alone is not None
        return self._alone.path

    def topic_config(self, topic: str) -> dict[str, str]:
        """Return the settings of a topic in the directory's metadata; none of a file or of a partition's folder."""
        if all(name.topic != topic for name in self._partitions()):
            raise UnknownTopicOrPartitionError(topic, path=self._path)
        if self._directory is None:
            return {}
        try:
            return load_metadata(self._path).image.topic_config(topic)
        except OSError as error:
            raise unreadable(error, self._path) from error

    def all_bounds(
        self, partitions: Iterable[TopicPartition], isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, Bounds]:
        """Return which offsets partitions hold, as the folder was when it was opened or last refreshed."""
        found = {}
        there = set(self._partitions())
        for topic_partition in partitions:
            if topic_partition in there:
                log = self.log(topic_partition)
                found[topic_partition] = Bounds(log.log_start_offset, log.end_offset(isolation))
        return found

    def find_timestamp(
        self, topic_partition: TopicPartition, timestamp_ms: int, isolation: Isolation = "read_uncommitted"
    ) -> int | None:
        """Return the offset of the first record at or after a time, found through the time index."""
        log = self.log(topic_partition)
        found = log.find_timestamp(timestamp_ms, log.end_offset(isolation))
        return None if found is None else found.offset

    def slices(
        self,
        topic_partition: TopicPartition,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        isolation: Isolation = "read_uncommitted",
        slice_bytes: int = SLICE_BYTES,
    ) -> Iterator[SourceSlice]:
        """Yield the batches that hold a range of offsets; the bytes are mapped where no program can cut the file."""
        log = self.log(topic_partition)
        start, end = log.bounds(start_offset, end_offset, isolation)
        committed = isolation == "read_committed" and start < end
        aborted = [transaction[:3] for transaction in log.aborted_transactions(start, end)] if committed else []
        for part in log.slices(start_offset, end, slice_bytes=slice_bytes):
            yield SourceSlice(
                part.path, part.data, part.position, part.end_position, part.origin, part.next_offset, aborted
            )

    def group_offsets(self) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """Return the committed offsets of each group, by replaying `__consumer_offsets`."""
        states = GroupStates(MetadataImage())
        for name in self._partitions():
            if name.topic == CONSUMER_OFFSETS_TOPIC:
                states.load(self.log(name))
        return {
            group_id: {name: _committed(value) for name, value in offsets.items()}
            for group_id in states.group_ids()
            if (offsets := states.committed(group_id))
        }

    def refresh(self) -> None:
        """Look at the folder again."""
        if self._directory is not None:
            self._directory.refresh()
        else:
            assert self._alone is not None
            self._alone.refresh()

    def close(self) -> None:
        """Close the files."""
        for held in (self._directory, self._alone):
            if held is not None:
                held.close()


def _committed(value: OffsetCommitValue) -> CommittedOffset:
    epoch = None if value.leader_epoch == NO_LEADER_EPOCH else value.leader_epoch
    return CommittedOffset(value.offset, epoch, value.metadata)
