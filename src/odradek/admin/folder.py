"""Topics and groups of a log directory.

It is read without its lock, also beside a running broker; each change takes the lock, so that it is refused while a
broker runs.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from odradek.admin.admin import (
    Admin,
    GroupIdNotFoundError,
    PartitionDescription,
    TopicDescription,
)
from odradek.admin.group_log import append_group_records, check_has_no_members
from odradek.errors import OptionError, UnknownTopicOrPartitionError
from odradek.inspection.groups import GroupDescription, GroupStates, load_groups
from odradek.inspection.log_files import locate_log_directory
from odradek.messages.coordinators.group_records import OffsetCommitKey, encode_offset_commit
from odradek.messages.uuids import format_uuid
from odradek.sources.source import Bounds
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.metadata.metadata_log import load_metadata
from odradek.storage.names import (
    CLUSTER_METADATA_TOPIC,
    DELETE_DIRECTORY_SUFFIX,
    TopicPartition,
    parse_partition_directory,
)
from odradek.storage.regular_files import subfolders


class FolderAdmin(Admin):
    """Topics and groups of a log directory.

    Args:
        path: The folder.

    Raises:
        OSError: It does not exist, or is no folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self.address = str(path)
        if self._path.stat() and not self._path.is_dir():
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.address)
        self._read: LogDirectory | None = None
        self._groups: GroupStates | None = None

    def _logs(self) -> LogDirectory:
        if self._read is None:
            locate_log_directory(self._path)
            self._read = LogDirectory(self._path)
        return self._read

    def _changing(self) -> WritableLogDirectory:
        self.close()
        return WritableLogDirectory(self._path)

    def _states(self) -> GroupStates:
        if self._groups is None:
            self._groups = load_groups(self._logs())
        return self._groups

    def topic_names(self) -> list[str]:
        """Return the names of the topics, sorted, without that of the metadata log."""
        return [name for name in self._logs().topics() if name != CLUSTER_METADATA_TOPIC]

    def describe_topics(self, names: Collection[str] | None = None) -> list[TopicDescription]:
        """Return topics as the metadata have them."""
        self._logs()
        image = load_metadata(self._path).image
        described = []
        for name in sorted(image.topics if names is None else names):
            topic = image.topics.get(name)
            if topic is None:
                raise UnknownTopicOrPartitionError(name, path=self._path)
            partitions = {
                number: PartitionDescription(found.leader, found.leader_epoch, found.replicas, found.isr)
                for number, found in sorted(topic.partitions.items())
            }
            topic_id = None if topic.topic_id is None else format_uuid(topic.topic_id)
            described.append(TopicDescription(name, topic_id, partitions, image.topic_config(name)))
        return described

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        config: Mapping[str, str] | None = None,
        replication_factor: int | None = None,
    ) -> None:
        """Create a topic, and a log directory in an empty folder."""
        if replication_factor not in (None, 1):
            raise OptionError(f"{self.address} is a folder: there is one replica, not {replication_factor}")
        with self._changing() as logs:
            logs.create_topic(name, 1 if partitions is None else partitions, config)

    def create_partitions(self, name: str, total: int) -> None:
        """Add partitions to a topic."""
        self._logs()
        with self._changing() as logs:
            logs.create_partitions(name, total)

    def alter_topic_config(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change settings of a topic."""
        self._logs()
        with self._changing() as logs:
            logs.alter_topic_config(name, changes)

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics with their folders, and the groups' offsets of them as Kafka's coordinator does."""
        self._logs()
        with self._changing() as logs:
            unknown = sorted(set(names) - set(logs.topics()))
            if unknown:
                raise UnknownTopicOrPartitionError(unknown[0], path=self._path)
            forgotten: dict[str, list[tuple[bytes, bytes | None]]] = {}
            for group_id, partition in load_groups(logs).offsets.of_topics(names):
                key = OffsetCommitKey(group_id, *partition)
                forgotten.setdefault(group_id, []).append(encode_offset_commit(key, None))
            for name in dict.fromkeys(names):
                logs.delete_topic(name)
            for group_id, records in forgotten.items():
                append_group_records(logs, group_id, records)
            for folder in subfolders(self._path):
                parsed = parse_partition_directory(folder)
                if parsed is not None and parsed.suffix == DELETE_DIRECTORY_SUFFIX:
                    logs.remove_deleted_folder(self._path / folder)

    def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """Return where partitions begin and end."""
        logs = self._logs()
        found = ((partition, logs[partition]) for partition in partitions if partition in logs)
        return {partition: Bounds(log.log_start_offset, log.log_end_offset) for partition, log in found}

    def describe_groups(self, groups: Collection[str] | None = None) -> list[GroupDescription]:
        """Return groups as `__consumer_offsets` has them."""
        states = self._states()
        return [self._group(states, group_id) for group_id in sorted(states.group_ids() if groups is None else groups)]

    def _group(self, states: GroupStates, group_id: str) -> GroupDescription:
        described = states.describe(group_id)
        if described is None:
            raise GroupIdNotFoundError(f"{self.address} has no group {group_id}")
        return described

    def committed(self, groups: Collection[str]) -> dict[str, dict[TopicPartition, int]]:
        """Return the offsets of groups."""
        states = self._states()
        return {
            group_id: {partition: value.offset for partition, value in states.committed(group_id).items()}
            for group_id in groups
        }

    def delete_groups(self, groups: Sequence[str], *, force: bool = False) -> None:
        """Append the records that remove groups and their offsets."""
        self._logs()
        with self._changing() as logs:
            states = load_groups(logs, groups)
            for group_id in groups:
                described = self._group(states, group_id)
                if not force:
                    check_has_no_members(described)
            for group_id in dict.fromkeys(groups):
                keys = [OffsetCommitKey(group_id, *partition) for partition in states.offsets.removable(group_id)]
                records = [encode_offset_commit(key, None) for key in keys]
                append_group_records(logs, group_id, [*records, *states.tombstones(group_id)])

    def close(self) -> None:
        """Close the files."""
        if self._read is not None:
            self._read.close()
        self._read = self._groups = None
