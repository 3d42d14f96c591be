"""The offsets of a group that several consumers share (KIP-848): each is a member, and commits what it has read.

There is no version to compare: the coordinator accepts a commit of a member in its epoch only, and so of no member
that it took for gone.

Source in Kafka: `CommitRequestManager`.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Collection, Mapping

from kafka import errors
from kafka.protocol.metadata import CoordinatorType

from odradek.arguments import checked_group
from odradek.errors import BrokerUnavailableError, CommitConflictError, OffsetStoreError, OffsetStoreUnavailableError
from odradek.kafka.client import BrokerClient
from odradek.kafka.committed_offset import CommittedOffset
from odradek.kafka.consumer_member import Assignment, ConsumerMember
from odradek.kafka.group import check_commit, commit_request
from odradek.kafka.groups import committed_offsets
from odradek.kafka.settings import BrokerSettings
from odradek.offsets.store import OffsetStore, Position, Positions
from odradek.storage.names import TopicPartition

_STALE = errors.StaleMemberEpochError.errno
_GONE = (errors.FencedMemberEpochError.errno, errors.UnknownMemberIdError.errno)
_RETRY_S = 0.02
_VERSION = "member"


class MemberOffsetStore(OffsetStore):
    """The offsets of a group, for one of its members. One thread at a time; the heartbeats have a thread of their own.

    Args:
        settings: How to reach the broker.
        group: The group.
        topics: The topics that are read.
        regex: A pattern of further topics, in RE2's syntax, which the broker looks for; None for none.
        instance_id: What tells a static member from others of the group; None for a member that is not static.

    Raises:
        OptionError: There can be no group of that name.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        group: str,
        topics: Collection[str],
        regex: str | None = None,
        instance_id: str | None = None,
    ) -> None:
        self.address = f"kafka://{','.join(settings.bootstrap_servers)}/{group}"
        self._group, self._timeout_s = checked_group(group), settings.timeout_ms / 1000
        self._life = 0
        self._instance_id = instance_id
        self._client = BrokerClient(settings)
        self._member = ConsumerMember(settings, self._group, topics, regex, instance_id)
        # A store that is dropped sends no more heartbeats, so that others get its partitions.
        weakref.finalize(self, self._member.stop)

    @property
    def assignment(self) -> Assignment:
        """What this member is to read; see `ConsumerMember`."""
        return self._member.assignment

    def wait(self) -> Assignment:
        """Return what this member is to read, after it has joined."""
        return self._member.wait(self._timeout_s)

    def subscribe(self, topics: Collection[str]) -> None:
        """Set the topics that are read."""
        self._member.subscribe(topics)

    def acknowledge(self, partitions: Collection[TopicPartition], life: int) -> None:
        """Say what is read now. Commits count in the life of the member in which that was assigned."""
        self._life = life
        self._member.acknowledge(partitions, life)

    def claim(self) -> Positions:
        """Return the positions: a group that is shared is nobody's."""
        return self.load()

    def load(self) -> Positions:
        """Return the positions of the group; wait for those that an open transaction is about to set."""
        try:
            found = committed_offsets(self._client, [self._group], require_stable=True)[self._group]
        except BrokerUnavailableError as error:
            raise OffsetStoreUnavailableError(f"{self.address}: {error}") from error
        return Positions({name: Position(one.offset, one.leader_epoch) for name, one in found.items()}, _VERSION)

    def commit(self, positions: Mapping[TopicPartition, Position], *, expected: Positions) -> Positions:
        """Commit as the member; `expected` is not compared.

        Raises:
            CommitConflictError: The coordinator took the member for gone: others may have its partitions.
            OffsetStoreError: The broker cannot be reached in time, or refuses it.
        """
        offsets = {name: CommittedOffset(one.offset, one.leader_epoch, "") for name, one in positions.items()}
        deadline = time.monotonic() + self._timeout_s
        while offsets:
            try:
                self._client.attempt(f"offsets of {self._group}", lambda: self._commit(offsets))
                break
            except BrokerUnavailableError as error:
                if error.error_code in _GONE:
                    raise CommitConflictError(self.address, _VERSION, None) from error
                if error.error_code != _STALE or time.monotonic() > deadline:
                    raise OffsetStoreUnavailableError(f"{self.address}: {error}") from error
            time.sleep(_RETRY_S)
        return expected.merged(positions, _VERSION)

    def _commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        # A heartbeat may have been answered with the next epoch meanwhile.
        epoch = self._member.epoch(self._life)
        if epoch is None:
            raise CommitConflictError(self.address, _VERSION, None)
        request = commit_request(
            self._group,
            offsets,
            member_id=self._member.member_id,
            generation_id=epoch,
            group_instance_id=self._instance_id,
        )
        check_commit(self._client.ask(request, self._client.coordinator(self._group, CoordinatorType.GROUP)))

    def delete(self, partitions: Collection[TopicPartition], *, expected: Positions) -> Positions:
        """Raise: a group that has members keeps the offsets of what they read."""
        raise OffsetStoreError(f"{self.address}: offsets are not deleted while the group has members")

    def close(self) -> None:
        """Leave the group, and close the connections. The place of a static member stays until its session ends."""
        self._member.close()
        self._member.leave(self._client)
        self._client.close()
