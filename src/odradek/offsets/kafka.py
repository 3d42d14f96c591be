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

The broker deletes the offsets of a topic with it; `committed_form` says how a group remembers the topic all the same.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Self, TypeVar

from kafka import errors

from odradek.arguments import checked_group
from odradek.errors import CommitConflictError, OffsetStoreError, OffsetStoreUnavailableError, OptionError
from odradek.kafka.cluster import client_config
from odradek.kafka.group import GroupClient
from odradek.kafka.servers import parse_servers
from odradek.kafka.settings import BrokerSettings
from odradek.offsets.committed_form import CommittedGroup
from odradek.offsets.store import DEFAULT_TIMEOUT_MS, OffsetStore, Position, Positions, StoreAddress, new_version
from odradek.places.address import broker_settings
from odradek.storage.names import TopicPartition

_FENCED = (
    errors.FencedInstanceIdError,
    errors.UnknownMemberIdError,
    errors.IllegalGenerationError,
    errors.RebalanceInProgressError,
)
_FENCED_RETRY_S = 0.05
_RETRY_S = 0.1

_Answer = TypeVar("_Answer")


class KafkaOffsetStore(OffsetStore):
    """The positions of one group of a broker (Apache Kafka 2.3 or later, or whatever speaks its protocol).

    Args:
        bootstrap_servers: `host:port`, several with commas.
        group: The group's name. No consumer may be a member of it.
        timeout_ms: How long a call may take.
        config: Settings of the connection, by Kafka's names: `security.protocol`, `sasl.mechanism`, `sasl.jaas.config`,
            `ssl.truststore.location` and so on, and kafka-python's own, such as `sasl.plain.username`.
        connection: Instead, kafka-python's settings of a client of that broker.
        keeps_topic_ids: Whether the group remembers topics that the broker has deleted, and their offsets with them:
            the group then also has offsets of `__consumer_offsets`.

    Raises:
        OffsetStoreError: The addresses or the settings are not valid.
        OptionError: There can be no group of that name.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        group: str,
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        config: Mapping[str, str] | None = None,
        connection: Mapping[str, Any] | None = None,
        keeps_topic_ids: bool = True,
    ) -> None:
        self.address = f"kafka://{bootstrap_servers}/{group}"
        self._timeout_s = timeout_ms / 1000
        self._seen: CommittedGroup | None = None
        self._keeps_topic_ids = keeps_topic_ids
        try:
            settings = client_config(dict(config or {})) if connection is None else connection
            servers = parse_servers(bootstrap_servers)
        except ValueError as error:
            raise OffsetStoreError(f"{self.address}: {error}") from error
        self._group = GroupClient(list(servers), checked_group(group), settings)

    @classmethod
    def from_address(cls, address: StoreAddress) -> Self:
        """Open `kafka://[user:password@]host:port[,host:port]/group`; a user and password are those of SASL."""
        group = address.path.removeprefix("/")
        if not address.hosts or not group or "/" in group:
            raise OffsetStoreError(f"{address.text}: Kafka's address is kafka://host:port/group")
        if "default.api.timeout.ms" in address.options:
            address.options.setdefault("timeout_ms", address.options["default.api.timeout.ms"])
        timeout_ms = address.take_timeout_ms()
        if "bootstrap.servers" in address.options:
            raise OffsetStoreError(
                f"{address.text}: the brokers are named before the group: leave out bootstrap.servers"
            )
        try:
            connection = broker_settings(address.hosts, address.user, address.password, address.options).connection
        except OptionError as error:
            raise OffsetStoreError(f"{address.text}: {error}") from error
        return cls(address.hosts, group, timeout_ms=timeout_ms, connection=connection)

    @classmethod
    def of_broker(cls, settings: BrokerSettings, group: str) -> Self:
        """Open the store of a group of a broker that a client knows how to reach, for a consumer as Kafka's are.

        Such a consumer asks its reset policy where a topic was deleted.
        """
        timeout_ms = min(DEFAULT_TIMEOUT_MS, settings.timeout_ms)
        servers = ",".join(settings.bootstrap_servers)
        return cls(servers, group, timeout_ms=timeout_ms, connection=settings.connection, keeps_topic_ids=False)

    def load(self) -> Positions:
        """Return the offsets of the group, without joining it."""
        return self._patiently(lambda deadline: self._stored(deadline).positions())

    def unknown(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return those partitions that the broker does not have."""
        return self._patiently(lambda deadline: self._group.unknown(partitions, deadline))

    def _patiently(self, ask: Callable[[float], _Answer]) -> _Answer:
        """Ask the broker; ask again while it cannot be reached."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return ask(deadline)
            except (errors.KafkaError, OSError) as error:
                self._wait_or_raise(error, deadline)

    def commit(self, positions: Mapping[TopicPartition, Position], *, expected: Positions) -> Positions:
        """Commit as the only member of the group, if its offsets still have the expected version."""
        version = new_version()
        return self._as_member(lambda deadline: self._commit(positions, expected, version, deadline))

    def _as_member(self, attempt: Callable[[float], Positions]) -> Positions:
        """Repeat an attempt while others take the group from this member, or the broker cannot be reached."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return attempt(deadline)
            except _FENCED as error:
                self._group.forget_membership()
                if time.monotonic() > deadline:
                    raise OffsetStoreError(f"{self.address}: others keep on taking the group over ({error})") from error
                # Without the random part two committers could take the group from each other for ever.
                time.sleep(_FENCED_RETRY_S * random.random())
            except (errors.KafkaError, OSError) as error:
                self._wait_or_raise(error, deadline)

    def delete(self, partitions: Collection[TopicPartition], *, expected: Positions) -> Positions:
        """Delete the offsets, as `kafka-consumer-groups --delete-offsets` does, if the group has the expected version.

        The broker deletes offsets of a group without members only. So this store joins, which refuses the commits of
        the member before it, compares the version, leaves, and deletes; what another program commits after it has left
        may be deleted.
        """
        left = {name: place for name, place in expected.items() if name not in partitions}

        def attempt(deadline: float) -> Positions:
            group = self._stored(deadline)
            gone = sorted(group.stored.keys() & set(partitions))
            found = group.positions()
            if not gone and dict(found) == left:  # nothing is to be done, or the answer to an earlier attempt was lost
                return found
            if found.version != expected.version:
                raise CommitConflictError(self.address, expected.version, found.version)
            if not self._group.is_member:
                self._join(group.stored, deadline)
                return attempt(deadline)
            self._group.commit(group.forgetting(partitions), deadline)
            self._group.leave(deadline)
            self._group.delete(gone, deadline)
            return self._stored(deadline).positions()

        return self._as_member(attempt)

    def close(self) -> None:
        """Leave the group, if a member, so that its offsets can be reset by Kafka's tools; close the connections."""
        self._group.close(time.monotonic() + min(self._timeout_s, 2.0))

    def _commit(
        self, positions: Mapping[TopicPartition, Position], expected: Positions, version: str, deadline: float
    ) -> Positions:
        group = self._stored(deadline)
        if not self._group.is_member:
            # A committer that has lost already finds out here, without taking the group from its owner.
            if group.version != expected.version and not group.holds(version):
                raise CommitConflictError(self.address, expected.version, group.version)
            if not group.stored and not positions:
                # Nothing to claim. A member that joined now would own no partitions for as long as it stays.
                return group.positions()
            self._join({*group.stored, *positions}, deadline)
            group = self._stored(deadline)
        if group.holds(version):  # the answer to an earlier attempt was lost
            return group.positions()
        if group.version != expected.version:
            raise CommitConflictError(self.address, expected.version, group.version)
        offsets = group.committed(positions, version, keeps_ids=self._keeps_topic_ids)
        unknown = self._group.unknown(offsets.keys() - group.stored.keys(), deadline)
        if missing := unknown & positions.keys():
            raise OffsetStoreError(f"{self.address}: the broker has no {', '.join(map(str, sorted(missing)))}")
        # A user to whom the broker does not show its own topic has no notes.
        offsets = {name: offset for name, offset in offsets.items() if name not in unknown}
        self._group.commit(offsets, deadline)
        self._seen = group.with_offsets(offsets)
        return self._seen.positions()

    def _stored(self, deadline: float) -> CommittedGroup:
        stored = self._group.fetch(deadline)
        group = CommittedGroup(self.address, stored, lambda topics: self._group.topic_ids(topics, deadline))
        self._seen = group.since(self._seen)
        return self._seen

    def _join(self, partitions: Collection[TopicPartition], deadline: float) -> None:
        if self._group.is_of_live_consumers(deadline):
            raise OffsetStoreError(f"{self.address}: the group has members: stop them first")
        self._group.join(partitions, deadline)

    def _wait_or_raise(self, error: Exception, deadline: float) -> None:
        """Wait a little before another attempt, if another one may help and there is time."""
        self._group.forget_coordinator()
        fatal = isinstance(error, errors.KafkaError) and not error.retriable
        if fatal or time.monotonic() + _RETRY_S > deadline:
            kind = OffsetStoreError if fatal else OffsetStoreUnavailableError
            raise kind(f"{self.address}: {error}") from error
        time.sleep(_RETRY_S)
