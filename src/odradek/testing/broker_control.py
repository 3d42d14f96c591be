"""What a test does with a broker that runs: set faults, look at requests, move the time; topics and groups."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Protocol, TypeVar

from kio.schema.errors import ErrorCode

from odradek.broker.errors import ApiError
from odradek.broker.server import Server
from odradek.errors import OptionError, UnknownTopicOrPartitionError
from odradek.messages.coordinators.group_records import NO_EXPIRY, NO_LEADER_EPOCH, OffsetCommitValue
from odradek.messages.uuids import ZERO_UUID
from odradek.storage.config_def import ConfigValue
from odradek.storage.metadata.metadata_image import TopicImage
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, TopicPartition
from odradek.testing.request_tap import Fault, Lost, ReceivedRequest, RequestTap

_T = TypeVar("_T")

_SETTLED_WITHIN_S = 5.0
_QUIET_ROUNDS = 3
_LOADED_WITHIN_S = 30.0
_LOOK_S = 0.01
_LONGEST_S = 1000 * 366 * 86_400


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
        are due are done. Whoever uses the broker meanwhile sees the jump too: members of other groups that send no
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
        # What timers began goes on in other threads, such as markers of transactions.
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

    def fault(
        self,
        api: str | int,
        *,
        error: str | int | None = None,
        delay_ms: float = 0,
        disconnect: Lost = False,
        drop: Lost = False,
        times: int | None = None,
        when: Callable[[ReceivedRequest], object] | None = None,
    ) -> Fault:
        """Let requests of an API go wrong; see `Broker.fault`."""
        fault = Fault(
            self._tap, api, error=error, delay_ms=delay_ms, disconnect=disconnect, drop=drop, times=times, when=when
        )
        self._tap.add(fault)
        return fault

    def requests(self, api: str | int | None = None) -> list[ReceivedRequest]:
        """Return the requests that came in; see `Broker.requests`."""
        return self._tap.requests(api)

    def reset(self) -> None:
        """Remove all faults, and forget the requests."""
        self._tap.clear()

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

        def delete() -> None:
            self.server.broker.logs.delete_topic(name)
            self.server.broker.topics_deleted([name])

        self.call(delete)

    def commit_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets of a group; see `Broker.commit_offsets`."""
        broker = self.server.broker

        def commit() -> None:
            broker.topics.internal(CONSUMER_OFFSETS_TOPIC)
            shard = broker.groups.shard(group)
            shard.check_commit(group, "", None, -1, is_transactional=False)
            now_ms = broker.clock.now_ms()
            values = []
            for (name, partition), offset in offsets.items():
                topic = broker.logs.metadata_image.topics.get(name)
                if topic is None or partition not in topic.partitions:
                    raise UnknownTopicOrPartitionError(name, partition)
                value = OffsetCommitValue(offset, "", now_ms, NO_LEADER_EPOCH, NO_EXPIRY, topic.topic_id or ZERO_UUID)
                values.append((TopicPartition(name, partition), value))
            shard.commit(group, values)

        self._when_loaded(commit)

    def delete_group(self, group: str) -> None:
        """Delete a group; see `Broker.delete_group`."""
        self._when_loaded(lambda: self.server.broker.groups.shard(group).delete_group(group))

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
