"""A file, a partition's folder or a log directory as a place."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from odradek.arguments import checked_path
from odradek.errors import FormatError, UnknownTopicOrPartitionError
from odradek.inspection.group_description import SharedPartition
from odradek.inspection.groups import GroupStates
from odradek.inspection.log_files import LogFile, is_log_directory, locate
from odradek.inspection.share_state import ShareStates, shared_partition
from odradek.kafka.committed_offset import CommittedOffset
from odradek.kafka.topics import Bounds, PartitionDescription, TopicDescription
from odradek.messages.coordinators.transaction_records import decode_transaction_record
from odradek.messages.uuids import format_uuid
from odradek.places.place import SLICE_BYTES, Place, PlaceSlice
from odradek.places.segment_file import SegmentFile
from odradek.records.isolation import Isolation
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.formats.partition_metadata import PARTITION_METADATA, read_partition_metadata
from odradek.storage.log.leader_epochs import end_offset_for
from odradek.storage.log.log import Log
from odradek.storage.log.read_only_log import ReadOnlyLog
from odradek.storage.log.recovery_report import lost_records
from odradek.storage.metadata.metadata_image import MetadataImage
from odradek.storage.metadata.metadata_log import load_metadata
from odradek.storage.names import (
    CONSUMER_OFFSETS_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
)
from odradek.storage.system_errors import unreadable


class PathPlace(Place):
    """What a path holds.

    Args:
        path: A segment, a partition's folder or a log directory.
        is_directory: Whether it can only be a log directory, which may be empty.

    Raises:
        LogError: The path is none of these, or cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str], *, is_directory: bool = False) -> None:
        self._path: Path = checked_path("path", path)
        self.address = str(self._path)
        located = None if is_directory or is_log_directory(self._path) else locate(self._path)
        self._directory: LogDirectory | None = None
        self._alone: Log | None = None
        self._groups: GroupStates | None = None
        self._listed: list[TopicPartition] = []
        self._opened: set[TopicPartition] = set()
        self._stale: set[TopicPartition] = set()
        if located is None:
            self._directory = LogDirectory(self._path)
            self._listed = self._directory.topic_partitions()
        elif isinstance(located, LogFile):
            self._alone = SegmentFile(located)
        else:
            self._alone = ReadOnlyLog(self._path)

    def log(self, topic_partition: TopicPartition) -> Log:
        """Return the log of a partition, which this place closes.

        Raises:
            UnknownTopicOrPartitionError: There is no such partition.
        """
        if self._directory is not None:
            log = self._directory[topic_partition]
            self._opened.add(topic_partition)
            if topic_partition in self._stale:
                log = self._looked_at_again(self._directory, log)
            return log
        assert self._alone is not None
        if topic_partition != self._alone.topic_partition:
            raise UnknownTopicOrPartitionError(*topic_partition, path=self._path)
        return self._alone

    def _looked_at_again(self, directory: LogDirectory, log: Log) -> Log:
        name = log.topic_partition
        try:
            # This takes a tenth of what opening the log again does.
            log.refresh()
        except UnknownTopicOrPartitionError:
            # The topic was recreated: this is another log.
            directory.refresh()
            log = directory[name]
        self._stale.discard(name)
        return log

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions that were there when the folder was opened or last refreshed, sorted."""
        return [self._alone.topic_partition] if self._alone is not None else list(self._listed)

    def _numbers(self) -> dict[str, list[int]]:
        numbers: dict[str, list[int]] = {}
        for topic, partition in self.partitions():
            numbers.setdefault(topic, []).append(partition)
        return dict(sorted(numbers.items()))

    def topics(self) -> dict[str, TopicDescription]:
        """Return the topics by name, sorted."""
        return {name: self._held(name, numbers) for name, numbers in self._numbers().items()}

    def _held(self, topic: str, partitions: list[int]) -> TopicDescription:
        topic_id = self._topic_id(topic, partitions[0])
        return TopicDescription(topic, topic_id, dict.fromkeys(partitions, PartitionDescription()))

    def _topic_id(self, topic: str, partition: int) -> str | None:
        folder = self._path / f"{topic}-{partition}" if self._directory is not None else self.log_folder
        return _read_topic_id(folder)

    @property
    def log_folder(self) -> Path:
        """The folder of the one partition."""
        assert self._alone is not None
        return self._alone.path

    def describe(self, names: Collection[str] | None = None) -> list[TopicDescription]:
        """Return topics as the directory's metadata describe them; without metadata, only what the files say."""
        image, there = self._image(), self._numbers()
        described = []
        for name in sorted({*image.topics, *there} if names is None else names):
            topic = image.topics.get(name)
            if topic is not None:
                partitions = {
                    number: PartitionDescription(found.leader, found.leader_epoch, found.replicas, found.isr)
                    for number, found in sorted(topic.partitions.items())
                }
                topic_id = None if topic.topic_id is None else format_uuid(topic.topic_id)
                described.append(TopicDescription(name, topic_id, partitions, image.topic_config(name)))
            elif name in there:
                described.append(self._held(name, there[name]))
            else:
                raise UnknownTopicOrPartitionError(name, path=self._path)
        return described

    def _image(self) -> MetadataImage:
        if self._directory is None:
            return MetadataImage()
        try:
            return load_metadata(self._path).image
        except OSError as error:
            raise unreadable(error, self._path) from error

    def all_bounds(
        self, partitions: Iterable[TopicPartition], isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, Bounds]:
        """Return which offsets partitions hold, as the folder was when it was opened or last refreshed."""
        found = {}
        there = set(self.partitions())
        for topic_partition in partitions:
            if topic_partition in there:
                log = self.log(topic_partition)
                found[topic_partition] = Bounds(log.log_start_offset, log.end_offset(isolation))
        return found

    def ends(
        self, partitions: Collection[TopicPartition], isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        """Return where partitions end now, after a look at each of their folders."""
        if self._alone is not None:
            self._alone.refresh()
        self._stale.update(partitions)
        return {name: self.log(name).end_offset(isolation) for name in partitions}

    def identified(self, bounds: dict[TopicPartition, Bounds]) -> dict[TopicPartition, Bounds]:
        """Return bounds with what `partition.metadata` and `leader-epoch-checkpoint` say."""
        found = {}
        for name, held in bounds.items():
            log = self.log(name)
            try:
                topic_id = _read_topic_id(log.path)
            except FormatError:
                # Only a broker that takes the folder over needs it.
                topic_id = None
            epochs = log.leader_epochs
            found[name] = held._replace(topic_id=topic_id, leader_epoch=epochs[-1].epoch if epochs else None)
        return found

    def lost_end(self, topic_partition: TopicPartition) -> tuple[int, int] | None:
        """Return what a log has lost since its folder was closed."""
        log = self.log(topic_partition)
        return log.lost_end() if isinstance(log, ReadOnlyLog) else None

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where the records of a leader epoch end, by the logs' checkpoints."""
        ends = {}
        for name, epoch in epochs.items():
            log = self.log(name)
            end = end_offset_for(log.leader_epochs, epoch, log.log_end_offset)
            if end is not None:
                ends[name] = end.start_offset
        return ends

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, int | None]:
        """Return the first offsets at or after times, found through the time indexes."""
        offsets: dict[TopicPartition, int | None] = {}
        for name, timestamp_ms in times.items():
            log = self.log(name)
            found = log.find_timestamp(timestamp_ms, log.end_offset(isolation))
            offsets[name] = None if found is None else found.offset
        return offsets

    def slices(
        self,
        topic_partition: TopicPartition,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        isolation: Isolation = "read_uncommitted",
        slice_bytes: int = SLICE_BYTES,
    ) -> Iterator[PlaceSlice]:
        """Yield the batches that hold a range of offsets; the bytes are mapped where no program can cut the file."""
        log = self.log(topic_partition)
        start, end = log.bounds(start_offset, end_offset, isolation)
        committed = isolation == "read_committed" and start < end
        aborted = [transaction[:3] for transaction in log.aborted_transactions(start, end)] if committed else []
        for part in log.slices(start_offset, end, slice_bytes=slice_bytes):
            yield PlaceSlice(
                part.path, part.data, part.position, part.end_position, part.origin, part.next_offset, aborted
            )

    def groups(self) -> GroupStates:
        """Return the groups, by replaying `__consumer_offsets` once.

        Raises:
            FormatError: A batch or a record is damaged, or records are lost.
        """
        if self._groups is None:
            groups = GroupStates(self._image())
            for name in self.partitions():
                if name.topic == CONSUMER_OFFSETS_TOPIC:
                    groups.load(self._whole_log(name))
            self._groups = groups
        return self._groups

    def _whole_log(self, topic_partition: TopicPartition) -> Log:
        """Return a log whose last records count: without them the groups would look as they were earlier."""
        log = self.log(topic_partition)
        lost = self.lost_end(topic_partition)
        if lost is not None:
            ends = (one for one in log.damage if one.position is not None)
            raise next(ends, FormatError(lost_records(*lost), path=log.path))
        return log

    def group_offsets(self, groups: Collection[str] | None = None) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """Return the committed offsets of groups."""
        states = self.groups()
        return {
            group_id: {name: CommittedOffset.from_value(value) for name, value in states.committed(group_id).items()}
            for group_id in sorted(states.group_ids() if groups is None else groups)
        }

    def shared_offsets(self, groups: Collection[str]) -> dict[str, dict[TopicPartition, SharedPartition]]:
        """Return how far share groups are, by replaying `__share_group_state`.

        Raises:
            FormatError: A batch or a record is damaged, or records are lost.
        """
        states = ShareStates()
        for name in self.partitions():
            if name.topic == SHARE_GROUP_STATE_TOPIC and groups:
                states.load(self._whole_log(name))
        found = {group_id: self.groups().shared(group_id, states) for group_id in sorted(groups)}
        bounds = self.all_bounds({name for shared in found.values() for name in shared})
        return {
            group_id: {
                name: shared_partition(state, bounds[name].end_offset if name in bounds else None)
                for name, state in shared.items()
            }
            for group_id, shared in found.items()
        }

    def transactional_ids(self, producer_ids: Collection[int]) -> dict[int, str]:
        """Return the transactional ids of producers, from all that `__transaction_state` holds."""
        found = {}
        for name in self.partitions():
            if name.topic != TRANSACTION_STATE_TOPIC or not producer_ids:
                continue
            for record in self.log(name).read():
                with suppress(FormatError):
                    state = decode_transaction_record(record.key, record.value)
                    if state.value is not None and state.value.producer_id in producer_ids:
                        found[state.value.producer_id] = state.key.transactional_id
        return found

    def refresh(self) -> None:
        """List the folder again; a log is looked at again when it is next asked about."""
        self._groups = None
        if self._alone is not None:
            self._alone.refresh()
            return
        # Not what was listed: a log may be opened before it is.
        self._stale.update(self._opened)
        self._listed = LogDirectory(self._path).topic_partitions()

    def close(self) -> None:
        """Close the files."""
        for held in (self._directory, self._alone):
            if held is not None:
                held.close()


def _read_topic_id(folder: Path) -> str | None:
    topic_id = read_partition_metadata(folder / PARTITION_METADATA)
    return None if topic_id is None else format_uuid(topic_id)
