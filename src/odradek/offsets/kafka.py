"""Positions in a broker's `__consumer_offsets`, under a named group, where every lag tool of Kafka looks for them.

    key    group, topic, partition
    value  offset 20, leader epoch 3, metadata {"version":"5f0c...","topic_id":"dKIu...","batch":"17"}

The offsets are what `kafka-consumer-groups --describe` shows; what Kafka has no field for goes into the metadata
string.

Kafka offers no compare-and-set. The broker accepts a plain commit (generation -1, no member) whenever the group has no
members. So between reading the old offsets and committing new ones, any other program can commit, a zombie as well as
its successor; no token in the metadata prevents that, because the broker does not compare metadata. What the
coordinator does check, atomically with the append, is who commits. So a committer here *is* the group: it joins as the
only static member (KIP-345), under a `group.instance.id` that is the same for all committers. Joining replaces the
former member's id, and from then on the coordinator refuses that member's commits (FENCED_INSTANCE_ID). Then:

    join (if not yet)  ->  read the offsets, compare their version  ->  commit with the own member id and generation

A store that commits between this read and this commit must have joined first; then this commit is refused, and the
round starts again. The coordinator answers the join after everything that the former member got into the log, so the
read misses nothing. So stores of this kind cannot overwrite each other. Two others need not join: a producer's
transaction that commits offsets to the same group, and `kafka-consumer-groups --reset-offsets`, which Kafka refuses
while the group has its member.

The version is a digest of all offsets and metadata; each commit writes new metadata. It is None for a group without
offsets: there is nothing to keep a claim in, so the first commit decides. The broker removes a member 45 s after its
last commit, and the member joins again when it needs to; the first join of an empty group takes the broker's
`group.initial.rebalance.delay.ms` (3 s by default).
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Mapping
from typing import Self

from kafka import errors

from odradek.errors import CommitConflictError, OffsetStoreError
from odradek.kafka.cluster import client_config
from odradek.kafka.group import CommittedOffset, GroupClient
from odradek.offsets.store import (
    DEFAULT_TIMEOUT_MS,
    OffsetStore,
    Position,
    Positions,
    StoreAddress,
    new_version,
)
from odradek.storage.names import TopicPartition

MAX_METADATA_BYTES = 4096
"""The broker's default `offset.metadata.max.bytes`."""

_FENCED = (
    errors.FencedInstanceIdError,
    errors.UnknownMemberIdError,
    errors.IllegalGenerationError,
    errors.RebalanceInProgressError,
)
_FENCED_RETRY_S = 0.05
_RETRY_S = 0.1

_Stored = Mapping[TopicPartition, CommittedOffset]


class KafkaOffsetStore(OffsetStore):
    """The positions of one group of a broker (Apache Kafka 2.3 or later, or whatever speaks its protocol).

    Args:
        bootstrap_servers: `host:port`, several with commas.
        group: The group's name. No consumer may be a member of it.
        timeout_ms: How long a call may take.
        config: Settings of the connection, by Kafka's names: `security.protocol`, `sasl.mechanism`,
            `sasl.plain.username`, `sasl.plain.password`, `ssl.cafile` and so on, as kafka-python has them.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        group: str,
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self.address = f"kafka://{bootstrap_servers}/{group}"
        self._timeout_s = timeout_ms / 1000
        try:
            settings = client_config(dict(config or {}))
        except ValueError as error:
            raise OffsetStoreError(f"{self.address}: {error}") from error
        self._group = GroupClient(bootstrap_servers.split(","), group, settings)

    @classmethod
    def from_address(cls, address: StoreAddress) -> Self:
        """Open `kafka://[user:password@]host:port[,host:port]/group`; a user and password are those of SASL."""
        group = address.path.removeprefix("/")
        if not address.hosts or not group or "/" in group:
            raise OffsetStoreError(f"{address.text}: Kafka's address is kafka://host:port/group")
        timeout_ms = address.take_timeout_ms()
        config = dict(address.options)
        if address.user is not None:
            config.setdefault("sasl.plain.username", address.user)
            config.setdefault("sasl.plain.password", address.password or "")
        return cls(address.hosts, group, timeout_ms=timeout_ms, config=config)

    def load(self) -> Positions:
        """Return the offsets of the group, without joining it."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return self._positions(self._group.fetch(deadline))
            except (errors.KafkaError, OSError) as error:
                self._wait_or_raise(error, deadline)

    def commit(self, positions: Mapping[TopicPartition, Position], *, expected: Positions) -> Positions:
        """Commit as the only member of the group, if its offsets still have the expected version."""
        version = new_version()
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return self._commit(positions, expected, version, deadline)
            except _FENCED as error:
                self._group.forget_membership()
                if time.monotonic() > deadline:
                    raise OffsetStoreError(f"{self.address}: others keep on taking the group over ({error})") from error
                # Without the random part two committers could take the group from each other for ever.
                time.sleep(_FENCED_RETRY_S * random.random())
            except (errors.KafkaError, OSError) as error:
                self._wait_or_raise(error, deadline)

    def close(self) -> None:
        """Leave the group, if a member, so that its offsets can be reset by Kafka's tools; close the connections."""
        self._group.close(time.monotonic() + min(self._timeout_s, 2.0))

    def _commit(
        self, positions: Mapping[TopicPartition, Position], expected: Positions, version: str, deadline: float
    ) -> Positions:
        if not self._group.is_member:
            # A committer that has lost already finds out here, without taking the group from its owner.
            stored = self._group.fetch(deadline)
            if _version_of(stored) != expected.version and not _holds(stored, version):
                raise CommitConflictError(self.address, expected.version, _version_of(stored))
            if not stored and not positions:
                # Nothing to claim. A member that joined now would own no partitions for as long as it stays.
                return self._positions(stored)
            self._group.join({*stored, *positions}, deadline)
        stored = self._group.fetch(deadline)
        if _holds(stored, version):  # the answer to an earlier attempt was lost
            return self._positions(stored)
        if _version_of(stored) != expected.version:
            raise CommitConflictError(self.address, expected.version, _version_of(stored))
        offsets = {name: self._stored_form(name, position, version) for name, position in positions.items()}
        if not offsets:
            offsets = self._touched(stored, version)
        unknown = self._group.unknown(offsets.keys() - stored.keys(), deadline)
        if unknown:
            raise OffsetStoreError(f"{self.address}: the broker has no {', '.join(map(str, sorted(unknown)))}")
        self._group.commit(offsets, deadline)
        return self._positions({**stored, **offsets})

    def _stored_form(self, name: TopicPartition, position: Position, version: str) -> CommittedOffset:
        known = position.metadata()
        known.pop("leader_epoch", None)
        text = json.dumps({"version": version, **known}, ensure_ascii=False, separators=(",", ":"))
        if len(text.encode()) > MAX_METADATA_BYTES:
            raise OffsetStoreError(f"{self.address}, {name}: more than {MAX_METADATA_BYTES} bytes of metadata")
        return CommittedOffset(position.offset, position.leader_epoch, text)

    def _touched(self, stored: _Stored, version: str) -> dict[TopicPartition, CommittedOffset]:
        """Return one of the stored offsets, unchanged but for a new version."""
        if not stored:
            return {}
        name = min(stored)
        return {name: self._stored_form(name, self._position(name, stored[name]), version)}

    def _positions(self, stored: _Stored) -> Positions:
        positions = {name: self._position(name, committed) for name, committed in sorted(stored.items())}
        return Positions(positions, _version_of(stored))

    def _position(self, name: TopicPartition, committed: CommittedOffset) -> Position:
        known = _metadata_of(committed)
        fields = {field: known.get(field) for field in ("topic_id", "batch")}
        fields["leader_epoch"] = committed.leader_epoch
        return Position.parse(committed.offset, fields, where=f"{self.address}, {name}")

    def _wait_or_raise(self, error: Exception, deadline: float) -> None:
        """Wait a little before another attempt, if another one may help and there is time."""
        self._group.forget_coordinator()
        fatal = isinstance(error, errors.KafkaError) and not error.retriable
        if fatal or time.monotonic() + _RETRY_S > deadline:
            raise OffsetStoreError(f"{self.address}: {error}") from error
        time.sleep(_RETRY_S)


def _metadata_of(committed: CommittedOffset) -> dict[str, object]:
    """Return the metadata that a store of this kind wrote with an offset; none if another program wrote it."""
    try:
        known = json.loads(committed.metadata)
    except (ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) and isinstance(known.get("version"), str) else {}


def _holds(stored: _Stored, version: str) -> bool:
    return any(_metadata_of(committed).get("version") == version for committed in stored.values())


def _version_of(stored: _Stored) -> str | None:
    if not stored:
        return None
    lines = [repr((*name, *committed)) for name, committed in sorted(stored.items())]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
