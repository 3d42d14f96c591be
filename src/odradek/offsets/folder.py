"""Positions in the `__consumer_offsets` of a log directory, where a broker that starts on the folder finds them.

    data/__consumer_offsets-17/00000000000000000000.log     group, topic, partition -> offset 20, metadata {...}

A commit takes the folder's lock, compares the version, and appends what Kafka's group coordinator would append. So it
is refused while a broker runs on the folder, and while the group has members there. Reading needs no lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Self

from odradek.admin.group_log import commit_offsets
from odradek.arguments import checked_int, checked_path
from odradek.errors import (
    BrokerError,
    CommitConflictError,
    FormatError,
    LogError,
    OffsetStoreError,
)
from odradek.inspection.groups import load_groups
from odradek.kafka.committed_offset import CommittedOffset
from odradek.messages.coordinators.group_records import NO_LEADER_EPOCH, OffsetCommitValue
from odradek.offsets.committed_form import Stored, positions_of, stored_form, touched, version_of
from odradek.offsets.store import (
    DEFAULT_TIMEOUT_MS,
    OffsetStore,
    Position,
    Positions,
    StoreAddress,
    new_version,
)
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.directory.opening import open_when_unlocked
from odradek.storage.names import TopicPartition


class FolderOffsetStore(OffsetStore):
    """The positions of one group of a log directory.

    Args:
        path: The log directory.
        group: The group's name. No consumer may be a member of it.
        timeout_ms: How long a commit waits for the folder's lock.

    Attributes:
        force: Whether a commit removes the members that the group had when its broker stopped; else it is refused.
    """

    def __init__(self, path: str | os.PathLike[str], group: str, *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
        self.path = checked_path("path", path)
        self.group = group
        self.address = f"folder:{self.path}?group={group}"
        self.force = False
        self._timeout_s = checked_int("timeout_ms", timeout_ms, 0) / 1000

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
                return positions_of(self.address, self._stored(logs))
        except (FormatError, LogError, BrokerError) as error:
            raise OffsetStoreError(f"{self.address}: {error}") from error

    def commit(self, positions: Mapping[TopicPartition, Position], *, expected: Positions) -> Positions:
        """Append the offsets, under the folder's lock, if the group still has the expected version."""
        version = new_version()

        def change(stored: Stored) -> dict[TopicPartition, CommittedOffset]:
            offsets = {name: stored_form(self.address, name, position, version) for name, position in positions.items()}
            return offsets or touched(self.address, stored, version)

        return self._append(expected, change)

    def delete(self, partitions: Collection[TopicPartition], *, expected: Positions) -> Positions:
        """Append tombstones, under the folder's lock, if the group still has the expected version."""
        return self._append(expected, lambda stored: {name: None for name in partitions if name in stored})

    def _append(
        self, expected: Positions, change: Callable[[Stored], Mapping[TopicPartition, CommittedOffset | None]]
    ) -> Positions:
        try:
            with open_when_unlocked(self.path, self._timeout_s) as logs:
                stored = self._stored(logs)
                if version_of(stored) != expected.version:
                    raise CommitConflictError(self.address, expected.version, version_of(stored))
                offsets = change(stored)
                values = {name: None if offset is None else _value(offset) for name, offset in offsets.items()}
                commit_offsets(logs, self.group, values, force=self.force)
        except (FormatError, LogError, BrokerError) as error:
            raise OffsetStoreError(f"{self.address}: {error}") from error
        left = {name: offset for name, offset in {**stored, **offsets}.items() if offset is not None}
        return positions_of(self.address, left)

    def close(self) -> None:
        """Do nothing: the store holds nothing open between calls."""

    def _stored(self, logs: LogDirectory) -> dict[TopicPartition, CommittedOffset]:
        committed = load_groups(logs, [self.group]).committed(self.group)
        return {
            name: CommittedOffset(
                value.offset, None if value.leader_epoch == NO_LEADER_EPOCH else value.leader_epoch, value.metadata
            )
            for name, value in committed.items()
        }


def _value(committed: CommittedOffset) -> OffsetCommitValue:
    epoch = NO_LEADER_EPOCH if committed.leader_epoch is None else committed.leader_epoch
    return OffsetCommitValue(committed.offset, committed.metadata, 0, epoch)
