"""Share sessions: which partitions a member of a share group fetches from, so that it need not say so each time.

    epoch 0           begins a session, with all partitions; it replaces the member's old one
    epoch 1, 2, ...   what is new or forgotten; from 2,147,483,647 on to 1
    epoch -1          ends it: what the member still has is released

A session ends with its client's connection, too. When a group has no session left, what its members had is forgotten.

Source in Kafka: `ShareSession`, `ShareSessionCache`, `ShareSessionContext`, `SharePartitionManager.newContext`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple, TypeAlias
from uuid import UUID

from odradek.coordination.errors import RefusedError, ShareErrorCode

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = (1 << 31) - 1

TopicIdPartition: TypeAlias = tuple[UUID, int]
"""A partition by the id of its topic."""

MemberKey: TypeAlias = tuple[str, str]
"""A group and a member of it."""


class ShareSession:
    """The partitions that a member fetches from.

    Attributes:
        epoch: The epoch of its next request.
        connection: The connection that it began on.
        partitions: The partitions, with the topic's name when each was added, if there was such a topic.
    """

    def __init__(self, connection: Hashable) -> None:
        self.epoch = 1
        self.connection = connection
        self.partitions: dict[TopicIdPartition, str | None] = {}
        self._to_tell: set[TopicIdPartition] = set()

    def update(self, wanted: Mapping[TopicIdPartition, str | None], forgotten: Iterable[TopicIdPartition]) -> None:
        """Add partitions, which the next answer tells of in any case, and forget others."""
        for key, name in wanted.items():
            if key not in self.partitions:
                self.partitions[key] = name
                self._to_tell.add(key)
        for key in forgotten:
            self.partitions.pop(key, None)
            self._to_tell.discard(key)

    def tells(self, key: TopicIdPartition, *, has_records: bool, failed: bool) -> bool:
        """Return whether an answer tells of a partition; one with records is the last in turn from now on."""
        if key not in self.partitions:
            return has_records or failed
        tells = has_records or failed or key in self._to_tell
        self._to_tell.discard(key)
        if failed:
            # When the error is over, the client is to know.
            self._to_tell.add(key)
        if has_records:
            self.partitions[key] = self.partitions.pop(key)
        return tells


class _OfConnection(NamedTuple):
    """What began on a connection: sessions that have not ended, and a member of each group."""

    sessions: dict[MemberKey, ShareSession]
    groups: dict[str, MemberKey]


class ShareSessions:
    """The sessions of all members.

    Args:
        limit: `group.share.max.share.sessions`.

    Attributes:
        ended: How many have ended.
    """

    def __init__(self, limit: int) -> None:
        self.ended = 0
        self._limit = limit
        self._sessions: dict[MemberKey, ShareSession] = {}
        self._members: dict[str, int] = {}
        self._of_connections: dict[Hashable, _OfConnection] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: MemberKey) -> ShareSession | None:
        """Return the session of a member."""
        return self._sessions.get(key)

    def begin(
        self, key: MemberKey, wanted: Mapping[TopicIdPartition, str | None], connection: Hashable
    ) -> ShareSession:
        """Begin a session, which replaces the member's old one.

        Raises:
            RefusedError: There are too many.
        """
        self.end(key)
        if len(self._sessions) >= self._limit:
            raise RefusedError(ShareErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[key] = ShareSession(connection)
        session.partitions.update(wanted)
        self._members[key[0]] = self._members.get(key[0], 0) + 1
        begun = self._of_connections.setdefault(connection, _OfConnection({}, {}))
        begun.sessions[key] = session
        begun.groups[key[0]] = key
        return session

    def go_on(self, key: MemberKey, epoch: int) -> ShareSession:
        """Return a session for its next request.

        Raises:
            RefusedError: The session does not exist, or the request is not its next one.
        """
        session = self.known(key)
        if session.epoch != epoch:
            raise RefusedError(ShareErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        return session

    def known(self, key: MemberKey) -> ShareSession:
        """Return the session of a member.

        Raises:
            RefusedError: The session does not exist.
        """
        session = self._sessions.get(key)
        if session is None:
            raise RefusedError(ShareErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def end(self, key: MemberKey) -> ShareSession | None:
        """End the session of a member, and return it, if there is one."""
        session = self._sessions.pop(key, None)
        if session is not None:
            self.ended += 1
            left = self._members[key[0]] = self._members[key[0]] - 1
            if not left:
                del self._members[key[0]]
            begun = self._of_connections.get(session.connection)
            if begun is not None:
                del begun.sessions[key]
        return session

    def has_members(self, group_id: str) -> bool:
        """Return whether a group has a session."""
        return group_id in self._members

    def disconnected(self, connection: Hashable) -> dict[MemberKey, ShareSession | None]:
        """End the sessions of a connection that was closed.

        Returns:
            Them, by their members; of a group whose sessions on it had all ended before, a member and None.
        """
        found = self._of_connections.pop(connection, None)
        if found is None:
            return {}
        ended: dict[MemberKey, ShareSession | None] = {key: self.end(key) for key in found.sessions}
        of_groups = {group_id for group_id, _ in ended}
        return ended | {key: None for group_id, key in found.groups.items() if group_id not in of_groups}
