"""Positions in the `__consumer_offsets` of a log directory, where a broker that starts on the folder finds them.

    data/__consumer_offsets-17/00000000000000000000.log     group, topic, partition -> offset 20, metadata {...}

A commit takes the folder's lock, compares the version, and appends what Kafka's group coordinator would append. So it
is refused while a broker runs on the folder, and while the group has members there. If this program itself has the
folder open (`odradek.open`), it is appended there. Reading needs no lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Self

from odradek.arguments import checked_group, checked_int, checked_path
from odradek.errors import (
    BrokerError,
    CommitConflictError,
    FormatError,
    LogDirectoryLockedError,
    LogError,
    OffsetStoreError,
    OffsetStoreUnavailableError,
)
from odradek.inspection.groups import load_groups
from odradek.kafka.committed_offset import CommittedOffset
from odradek.offsets.committed_form import CommittedGroup
from odradek.offsets.store import DEFAULT_TIMEOUT_MS, OffsetStore, Position, Positions, StoreAddress, new_version
from odradek.places.group_log import commit_offsets, group_partition
from odradek.places.opening import open_place
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.directory.opening import writable
from odradek.storage.names import TopicPartition

_Changes = Mapping[TopicPartition, CommittedOffset | None]


class FolderOffsetStore(OffsetStore):
    """The positions of one group of a log directory.

    Args:
        path: The log directory.
        group: The group's name. No consumer may be a member of it.
        timeout_ms: How long a commit waits for the folder's lock.

    Raises:
        OptionError: There can be no group of that name.

    Attributes:
        force: Whether a commit removes the members that the group had when its broker stopped; else it is refused.
    """

    def __init__(self, path: str | os.PathLike[str], group: str, *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
        self.path = checked_path("path", path)
        self.group = checked_group(group)
        self.address = f"folder:{self.path}?group={group}"
        self.force = False
        self._timeout_s = checked_int("timeout_ms", timeout_ms, 0) / 1000
        self._seen: CommittedGroup | None = None

    @classmethod
    def from_address(cls, address: StoreAddress) -> Self:
        """Open `folder:///path?group=name`."""
        group = address.take("group")
        if address.hosts not in ("", "localhost") or not address.path.strip("/") or not group:
            raise OffsetStoreError(f"{address.text}: a folder's address is folder:///absolute/path?group=name")
        timeout_ms = address.take_timeout_ms()
        address.refuse_the_rest()
        return cls(address.path, group, timeout_ms=timeout_ms)

    def load(self) -> Positions:
        """Return the offsets of the group, as they are on the disk."""
        try:
            with LogDirectory(self.path) as logs:
                return self._stored(logs).positions()
        except (FormatError, LogError, BrokerError) as error:
            raise OffsetStoreError(f"{self.address}: {error}") from error

    def unknown(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return those partitions that the folder does not have."""
        with LogDirectory(self.path) as logs:
            return {name for name in partitions if name not in logs}

    def commit(self, positions: Mapping[TopicPartition, Position], *, expected: Positions) -> Positions:
        """Append the offsets, under the folder's lock, if the group still has the expected version."""
        return self._append(expected, lambda group: group.committed(positions, new_version()))

    def delete(self, partitions: Collection[TopicPartition], *, expected: Positions) -> Positions:
        """Append tombstones, under the folder's lock, if the group still has the expected version."""

        def change(group: CommittedGroup) -> _Changes:
            return {**group.forgetting(partitions), **{name: None for name in partitions if name in group.stored}}

        return self._append(expected, change)

    def _append(self, expected: Positions, change: Callable[[CommittedGroup], _Changes]) -> Positions:
        try:
            with writable(self.path, self._timeout_s) as logs:
                group = self._stored(logs)
                if group.version != expected.version:
                    raise CommitConflictError(self.address, expected.version, group.version)
                own = group_partition(logs, self.group)
                offsets = {
                    name: offset
                    for name, offset in change(group).items()
                    if name.topic != own.topic or name in logs  # of notes it takes as many as it has partitions
                }
                values = {name: None if offset is None else offset.to_value() for name, offset in offsets.items()}
                commit_offsets(logs, self.group, values, force=self.force)
                logs[own].flush()
        except LogDirectoryLockedError as error:
            raise OffsetStoreUnavailableError(f"{self.address}: {error}") from error
        except (FormatError, LogError, BrokerError) as error:
            raise OffsetStoreError(f"{self.address}: {error}") from error
        self._seen = group.with_offsets(offsets)
        return self._seen.positions()

    def close(self) -> None:
        """Do nothing: the store holds nothing open between calls."""

    def _topic_ids(self, topics: Collection[str]) -> dict[str, str | None]:
        with open_place(self.path) as source:
            return {name: topic.topic_id for name, topic in source.topics().items() if name in topics}

    def _stored(self, logs: LogDirectory) -> CommittedGroup:
        committed = load_groups(logs, [self.group]).committed(self.group)
        stored = {name: CommittedOffset.from_value(value) for name, value in committed.items()}
        self._seen = CommittedGroup(self.address, stored, self._topic_ids).since(self._seen)
        return self._seen
