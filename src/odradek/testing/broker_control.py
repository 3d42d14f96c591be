"""What a test does with a broker that runs: set faults, look at requests, move the time; topics and groups."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol, TypeVar

from kio.schema.errors import ErrorCode

from odradek.broker.errors import ApiError
from odradek.broker.groups.shard import Commit
from odradek.broker.quotas.changes import apply_change, change_quotas
from odradek.broker.server import Server
from odradek.broker.turns import whole
from odradek.coordination.authorization.acls import Acl, AclFilter
from odradek.coordination.quotas.alterations import Alteration
from odradek.coordination.quotas.limits import CLIENT_ID, IP, USER
from odradek.errors import OptionError, UnknownTopicOrPartitionError
from odradek.messages.coordinators.group_records import NO_EXPIRY, NO_LEADER_EPOCH, OffsetCommitValue
from odradek.messages.uuids import ZERO_UUID
from odradek.records import Record
from odradek.storage.config_def import ConfigValue
from odradek.storage.metadata.metadata_image import TopicImage
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, TopicPartition
from odradek.testing.produced import by_partition
from odradek.testing.request_tap import ReceivedRequest, RequestFault, RequestTap
from odradek.testing.security import credentials

_T = TypeVar("_T")

_QUOTA_TYPES = {"users": USER, "clients": CLIENT_ID, "ips": IP}
_QUOTA_DEFAULT = "<default>"

_SETTLED_WITHIN_S = 5.0
_QUIET_ROUNDS = 3
_LOADED_WITHIN_S = 30.0
_LOOK_S = 0.01
_LONGEST_S = 1000 * 366 * 86_400


def quota_entity(path: str) -> dict[str, str | None]:
    """Return whom a quota is for: `users/alice/clients/<default>`.

    Raises:
        OptionError: It is of another form.
    """
    parts = path.split("/")
    kinds, names = parts[::2], parts[1::2]
    if len(kinds) != len(names) or len(set(kinds)) < len(kinds) or not set(kinds) <= _QUOTA_TYPES.keys():
        raise OptionError(f"expected users/NAME, clients/NAME, users/NAME/clients/NAME or ips/ADDRESS, got {path!r}")
    named = zip(kinds, names, strict=True)
    return {_QUOTA_TYPES[kind]: None if name == _QUOTA_DEFAULT else name for kind, name in named}


class Call(Protocol):
    """Does something in the broker's thread, and returns its result."""

    def __call__(self, action: Callable[[], _T], /) -> _T:
        """Do it; any other thread may call this."""


def calls_on(loop: asyncio.AbstractEventLoop) -> Call:
    """Return what does something in the thread of an event loop, for other threads."""

    def call(action: Callable[[], _T], /) -> _T:
        async def act() -> _T:
            return action()

        return asyncio.run_coroutine_threadsafe(act(), loop).result()

    return call


class BrokerClock:
    """The time of a broker. Any thread but the broker's own may use it.

    Args:
        control: The broker.
    """

    def __init__(self, control: BrokerControl) -> None:
        self._control = control

    def now_ms(self) -> int:
        """Return the broker's time of day in ms since 1970."""
        return self._control.server.broker.clock.now_ms()

    def advance(self, seconds: float) -> None:
        """Move the broker's time forward, and return when what falls due is done.

        Sessions and transactions time out, fetches that wait are answered, and retention, compaction and flushes that
        are due are done. Others that use the broker meanwhile see the jump too: members of other groups that send no
        heartbeat at that very moment are out.

        Raises:
            OptionError: The time would go back, or never be reached.
            LogError: Some of the maintenance failed.
        """
        if not 0 <= seconds <= _LONGEST_S:
            raise OptionError(f"time moves forward, by a thousand years at most, not by {seconds} s")
        broker = self._control.server.broker
        # Requests that have come in begin to wait first.
        self._settle()
        self._control.call(lambda: broker.clock.advance(seconds))
        # What timers started continues in other threads, such as markers of transactions.
        self._settle()
        broker.logs.maintain()

        def wake() -> None:
            for partition in broker.partitions:
                partition.changed()

        self._control.call(wake)

    def _settle(self) -> None:
        """Wait until the broker has done what it can do without time passing, or for as long as a busy one may take."""
        executor = self._control.server.broker.executor

        def begin() -> Future[bool]:
            return asyncio.run_coroutine_threadsafe(executor.wait(_SETTLED_WITHIN_S), asyncio.get_running_loop())

        deadline, quiet = time.monotonic() + _SETTLED_WITHIN_S, 0
        while quiet < _QUIET_ROUNDS and time.monotonic() < deadline:
            quiet = 0 if self._control.call(begin).result() else quiet + 1


def _checked(acls: Iterable[Acl]) -> list[Acl]:
    # One alone is a tuple, and so could be taken for several.
    found = [] if isinstance(acls, Acl) else list(acls)
    if isinstance(acls, Acl) or not all(isinstance(one, Acl) for one in found):
        raise OptionError("acls is a list of what allow(...) and deny(...) return")
    return found


class BrokerControl:
    """A running broker as a test holds it. Any thread but the broker's own may use it.

    Args:
        server: The broker's server; made before it accepts connections.
        call: Does something in the broker's thread and returns its result: `BrokerThread.call`, or `calls_on(loop)`.

    Attributes:
        server: The broker's server; it belongs to the broker's thread.
        call: As given.
        clock: The broker's time.
    """

    def __init__(self, server: Server, call: Call) -> None:
        self.server = server
        self.call = call
        self.clock = BrokerClock(self)
        self._tap = RequestTap(server)

    def fault(self, api: str | int, **options: Any) -> RequestFault:
        """Let requests of an API go wrong; the options are those of `Broker.fault`."""
        fault = RequestFault(self._tap, api, **options)
        self._tap.add(fault)
        return fault

    def requests(self, api: str | int | None = None) -> list[ReceivedRequest]:
        """Return the requests that came in; see `Broker.requests`."""
        return self._tap.requests(api)

    def reset(self) -> None:
        """Remove all faults, and forget the requests."""
        self._tap.clear()

    def alter_quotas(self, quotas: Mapping[str, Mapping[str, float | None]]) -> None:
        """Change quotas; see `Broker.alter_quotas`."""
        broker = self.server.broker
        if not isinstance(quotas, Mapping) or not all(isinstance(ops, Mapping) for ops in quotas.values()):
            raise OptionError('quotas is a mapping, such as {"clients/app": {"producer_byte_rate": 1000}}')
        alterations = [
            Alteration(quota_entity(of), [(key, None if value is None else float(value)) for key, value in ops.items()])
            for of, ops in quotas.items()
        ]
        change = change_quotas(broker.logs, alterations)
        self.call(lambda: whole(apply_change(broker.quotas, broker.logs, change)))
        for _, error in change.errors:
            if error is not None:
                raise error

    def alter_users(self, users: Mapping[str, str | None]) -> None:
        """Change users; see `Broker.alter_users`."""
        changes = credentials(users)
        self.call(lambda: self.server.broker.logs.metadata.alter_scram_credentials(changes))

    def create_acls(self, acls: Iterable[Acl]) -> None:
        """Create access control lists; see `Broker.create_acls`."""
        created = _checked(acls)
        self._change_acls(lambda: self.server.broker.logs.metadata.create_acls(created))

    def delete_acls(self, acls: Iterable[Acl]) -> None:
        """Delete access control lists; see `Broker.delete_acls`."""
        deleted = [AclFilter(*acl) for acl in _checked(acls)]
        self._change_acls(lambda: self.server.broker.logs.metadata.delete_acls(deleted))

    def _change_acls(self, action: Callable[[], Any]) -> None:
        broker = self.server.broker
        authorization = broker.authorization
        if authorization is None:
            raise OptionError("the broker has no authorizer: start it with acls, if only with acls=[]")

        def change() -> Future[Any]:
            done = authorization.change(action, broker.run)
            return asyncio.run_coroutine_threadsafe(done, asyncio.get_running_loop())

        self.call(change).result()

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, ConfigValue] | None = None
    ) -> TopicImage:
        """Create a topic; see `odradek.open(...).create_topic`."""
        return self.call(lambda: self.server.broker.logs.create_topic(name, partitions, config))

    def delete_topic(self, name: str) -> None:
        """Delete a topic.

        Raises:
            UnknownTopicOrPartitionError: There is none.
        """

        def delete() -> Future[None]:
            broker = self.server.broker
            topic = broker.logs.metadata_image.topics.get(name)
            broker.logs.delete_topic(name)
            deleted = {name: None if topic is None else topic.topic_id}
            return asyncio.run_coroutine_threadsafe(broker.topics_deleted(deleted), asyncio.get_running_loop())

        self.call(delete).result()

    def produce(
        self, topic: str, values: Iterable[bytes | Record | None], key: bytes | None, partition: int | None
    ) -> None:
        """Append records; see `Broker.produce`."""
        broker = self.server.broker
        chosen = by_partition(values, key, partition, len(broker.logs.topic_partitions(topic)))

        async def append() -> None:
            for number, records in chosen.items():
                there = await broker.partitions.opened(topic, number)
                await there.in_order(partial(there.log.append, records))

        self.call(lambda: asyncio.run_coroutine_threadsafe(append(), asyncio.get_running_loop())).result()

    def commit_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets of a group; see `Broker.commit_offsets`."""
        broker = self.server.broker

        def commit() -> None:
            broker.topics.create_internal(CONSUMER_OFFSETS_TOPIC)
            shard = broker.groups.shard(group)
            shard.check_commit(group, "", None, -1, is_transactional=False, partitions=(), version=0)
            now_ms = broker.clock.now_ms()
            values = []
            for (name, partition), offset in offsets.items():
                topic = broker.logs.metadata_image.topics.get(name)
                if topic is None or partition not in topic.partitions:
                    raise UnknownTopicOrPartitionError(name, partition)
                value = OffsetCommitValue(offset, "", now_ms, NO_LEADER_EPOCH, NO_EXPIRY, topic.topic_id or ZERO_UUID)
                values.append(Commit.of(group, TopicPartition(name, partition), value))
            shard.commit(values)

        self._when_loaded(commit)

    def delete_group(self, group: str) -> None:
        """Delete a group; see `Broker.delete_group`."""
        self._when_loaded(lambda: whole(self.server.broker.groups.shard(group).delete_group(group)))

    def _when_loaded(self, action: Callable[[], None]) -> None:
        """Do something in the broker's thread, as soon as it has loaded the groups of its log directory."""
        deadline = time.monotonic() + _LOADED_WITHIN_S
        while True:
            try:
                return self.call(action)
            except ApiError as error:
                is_loading = error.error_code == ErrorCode.coordinator_load_in_progress
                if not is_loading or time.monotonic() > deadline:
                    raise
            time.sleep(_LOOK_S)
