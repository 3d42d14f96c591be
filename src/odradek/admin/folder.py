"""Topics and groups of a log directory.

It is read without its lock, also beside a running broker; each change takes the lock, so that it is refused while a
broker runs.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from odradek.admin.admin import Admin, GroupIdNotFoundError
from odradek.errors import InvalidTopicError, OptionError, PolicyViolationError, UnknownTopicOrPartitionError
from odradek.inspection.group_description import GroupDescription
from odradek.inspection.groups import GroupStates, load_groups
from odradek.inspection.log_files import is_log_directory, locate_log_directory
from odradek.messages.coordinators.group_records import OffsetCommitKey, OffsetCommitValue, encode_offset_commit
from odradek.places.group_log import (
    append_group_records,
    begin_share_group,
    check_has_no_members,
    commit_offsets,
    remove_share_states,
)
from odradek.places.path import PathPlace
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.names import DELETE_DIRECTORY_SUFFIX, TopicPartition, is_internal, parse_partition_directory
from odradek.storage.regular_files import subfolders


class FolderAdmin(Admin):
    """Topics and groups of a log directory.

    Args:
        path: The folder.
        adopt: Whether a change makes a log directory of a folder of partitions without metadata.
        create: Whether a change makes the folder, if there is none.

    Raises:
        OSError: It does not exist, unless it may be made, or is no folder.
    """

    def __init__(self, path: str | os.PathLike[str], *, adopt: bool = False, create: bool = False) -> None:
        self._path = Path(path)
        self._adopt = adopt
        self.address = str(path)
        is_made = create and not self._path.exists()
        if not is_made and self._path.stat() and not self._path.is_dir():
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.address)
        self._place: PathPlace | None = None

    @property
    def place(self) -> PathPlace:
        """The log directory, open for reading."""
        if self._place is None:
            if not is_log_directory(self._path):
                # Raises, and says what it is.
                locate_log_directory(self._path)
            self._place = PathPlace(self._path, is_directory=True)
        return self._place

    def _changing(self) -> WritableLogDirectory:
        self.close()
        return WritableLogDirectory(self._path, adopt=self._adopt)

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
        locate_log_directory(self._path)
        with self._changing() as logs:
            logs.create_partitions(name, total)

    def alter_topic_config(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change settings of a topic."""
        locate_log_directory(self._path)
        with self._changing() as logs:
            logs.alter_topic_config(name, changes)

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics with their folders, and the groups' offsets of them as Kafka's coordinator does."""
        locate_log_directory(self._path)
        with self._changing() as logs:
            unknown = sorted(set(names) - set(logs.topics()))
            if unknown:
                raise UnknownTopicOrPartitionError(unknown[0], path=self._path)
            forgotten: dict[str, list[tuple[bytes, bytes | None]]] = {}
            for group_id, partition in load_groups(logs).offsets_of_topics(names):
                key = OffsetCommitKey(group_id, *partition)
                forgotten.setdefault(group_id, []).append(encode_offset_commit(key, None))
            logs.delete_topics(names)
            for group_id, records in forgotten.items():
                append_group_records(logs, group_id, records)
            for folder in subfolders(self._path):
                parsed = parse_partition_directory(folder)
                if parsed is not None and parsed.suffix == DELETE_DIRECTORY_SUFFIX:
                    logs.remove_deleted_folder(self._path / folder)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Move log start offsets; the segments before them are deleted by the next broker on the folder.

        Raises:
            InvalidTopicError: A topic is Kafka's own; nothing is deleted.
            PolicyViolationError: A topic is compacted only; nothing is deleted.
        """
        locate_log_directory(self._path)
        with self._changing() as logs:
            for topic in {name.topic for name in before}:
                if is_internal(topic):
                    raise InvalidTopicError(f"{topic} is Kafka's own topic, and keeps its records")
                if logs.topic_config(topic).keeps_records:
                    raise PolicyViolationError(f"{topic} is compacted only, and keeps its records")
            for name, offset in before.items():
                logs[name].delete_records(offset)

    def describe_groups(self, groups: Collection[str] | None = None) -> list[GroupDescription]:
        """Return groups as `__consumer_offsets` has them."""
        states = self.place.groups()
        return [self._group(states, group_id) for group_id in sorted(states.group_ids() if groups is None else groups)]

    def _group(self, states: GroupStates, group_id: str) -> GroupDescription:
        described = states.describe(group_id)
        if described is None:
            raise GroupIdNotFoundError(f"{self.address} has no group {group_id}")
        return described

    def delete_groups(self, groups: Sequence[str], *, force: bool = False) -> None:
        """Append the records that remove groups and their offsets.

        Raises:
            FormatError: What the folder has of groups is damaged. To open it for writing would cut off the rest.
        """
        shared = [group.group_id for group in self.describe_groups(groups) if group.type == "share"]
        self.place.shared_offsets(shared)
        with self._changing() as logs:
            states = load_groups(logs, groups)
            for group_id in groups:
                described = self._group(states, group_id)
                if not force:
                    check_has_no_members(described)
            remove_share_states(logs, [group_id for group_id in groups if states.is_shared(group_id)])
            for group_id in dict.fromkeys(groups):
                keys = [OffsetCommitKey(group_id, *partition) for partition in states.partitions_with_offsets(group_id)]
                records = [encode_offset_commit(key, None) for key in keys]
                append_group_records(logs, group_id, [*records, *states.tombstones(group_id)])

    def reset_offsets(self, group: GroupDescription, offsets: Mapping[TopicPartition, int], *, force: bool) -> None:
        """Append the records that commit offsets, or those that begin the states of a share group anew.

        Raises:
            FormatError: What the folder has of groups is damaged. To open it for writing would cut off the rest.
        """
        locate_log_directory(self._path)
        if group.type == "share":
            self.place.shared_offsets([group.group_id])
            with self._changing() as logs:
                begin_share_group(logs, group.group_id, offsets, force=force)
            return
        with self._changing() as logs:
            values = {name: OffsetCommitValue(offset, "", 0) for name, offset in offsets.items()}
            commit_offsets(logs, group.group_id, values, force=force)

    def close(self) -> None:
        """Close the files."""
        if self._place is not None:
            self._place.close()
        self._place = None
