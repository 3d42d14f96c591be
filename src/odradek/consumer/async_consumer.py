"""A consumer for asyncio: `Consumer`, with its blocking steps run in a thread.

    async with odradek.consume_async("data", "events", auto_offset_reset="latest") as consumer:
        async for topic, partition, record in consumer:
            ...

    __anext__     is a record in memory?  yes: return it, without an await in between
                                          no:  commit and read ahead in a thread, then look again

So a cancelled task neither loses a record nor gets one twice. A step that has begun in its thread runs to its end; the
next call, and `close`, wait for it first.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from odradek.consumer.consumer import Consumer
from odradek.consumer.opening import (
    DEFAULT_AUTO_COMMIT_INTERVAL_MS,
    DEFAULT_METADATA_MAX_AGE_MS,
    Protocol,
    Topics,
    consume,
)
from odradek.consumer.partition_reader import ResetPolicy
from odradek.errors import LogError
from odradek.offsets.store import OffsetStore, Position
from odradek.records.isolation import Isolation
from odradek.storage.directory.consumed_record import ConsumedRecord
from odradek.storage.names import TopicPartition
from odradek.storage.uncopied import Uncopied

_T = TypeVar("_T")


def consume_async(
    path: str | os.PathLike[str],
    topics: Topics,
    *,
    group: str | OffsetStore | None = None,
    auto_commit: bool = True,
    auto_commit_interval_ms: int = DEFAULT_AUTO_COMMIT_INTERVAL_MS,
    auto_offset_reset: ResetPolicy | None = None,
    isolation: Isolation = "read_uncommitted",
    follow: bool = True,
    metadata_max_age_ms: int = DEFAULT_METADATA_MAX_AGE_MS,
    protocol: Protocol | None = None,
    group_instance_id: str | None = None,
) -> AsyncConsumer:
    """Read topics of a log directory or of a broker in asyncio: `consume`, for `async with` and `async for`.

    The consumer opens when it is entered or iterated over; the errors of `consume` are raised then.

    Args:
        path: The log directory or the broker. All arguments are those of `consume`.
        topics: A name, a pattern (`events-*`, or a compiled regular expression), or a list of them, as for `scan`.
        group: The address of an offset store, an open store, or the name of a broker's group; None keeps no place.
        auto_commit: Whether records that are done are committed at an interval and on close.
        auto_commit_interval_ms: That interval.
        auto_offset_reset: Where to start in a partition without a valid position.
        isolation: `read_committed` leaves out aborted and undecided transactions.
        follow: Whether iteration waits for more records at the end; if not, it stops there.
        metadata_max_age_ms: How often new topics and partitions are looked for.
        protocol: `consumer` shares the partitions among all consumers of the group.
        group_instance_id: The name of a static member of such a group.
    """
    return AsyncConsumer(
        partial(
            consume,
            path,
            topics,
            group=group,
            auto_commit=auto_commit,
            auto_commit_interval_ms=auto_commit_interval_ms,
            auto_offset_reset=auto_offset_reset,
            isolation=isolation,
            follow=follow,
            metadata_max_age_ms=metadata_max_age_ms,
            protocol=protocol,
            group_instance_id=group_instance_id,
        )
    )


class AsyncConsumer(Uncopied):
    """An asynchronous iterator of records in the order of each partition; a context manager. Made by `consume_async`.

    Only one task may use it at a time. A record is done when the next one is asked for.
    """

    def __init__(self, opens: Callable[[], Consumer]) -> None:
        self._opens = opens
        self._consumer: Consumer | None = None
        self._step: asyncio.Future[Any] | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "not open yet" if self._consumer is None else repr(self._consumer)
        return f"<AsyncConsumer, {state}>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumedRecord:
        consumer = await self._opened()
        pauses = consumer.pauses()
        while not consumer.is_ready:
            await self._in_thread(partial(consumer.prepare, 0.0))
            # A record in memory is returned even if a commit is due: the next step commits.
            if consumer.has_next:
                break
            if not consumer.follows:
                raise StopAsyncIteration
            await asyncio.sleep(next(pauses))
        # The record is in memory, and no await separates it from the caller.
        return consumer.take()

    async def _opened(self) -> Consumer:
        await self._settled()
        if self._is_closed:
            raise LogError("the consumer is closed")
        if self._consumer is None:
            await self._in_thread(self._open)
        assert self._consumer is not None
        return self._consumer

    def _open(self) -> None:
        self._consumer = self._opens()

    async def _in_thread(self, step: Callable[[], _T]) -> _T:
        """Run a step in a thread. If the task is cancelled meanwhile, `_settled` waits for the step."""
        future = asyncio.get_running_loop().run_in_executor(None, step)
        self._step = future
        # The waiting task gets an exception. If that task was cancelled, the next step meets the exception again.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await asyncio.shield(future)
        finally:
            if future.done():
                self._step = None

    async def _settled(self) -> None:
        """Wait for the end of a step that a cancelled task has left behind."""
        if self._step is not None:
            if not self._step.done():
                await asyncio.wait([self._step])
            self._step = None

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read; none before the consumer is opened."""
        return [] if self._consumer is None else self._consumer.assignment

    @property
    def committed(self) -> Mapping[TopicPartition, Position]:
        """The positions in the store, as far as this consumer knows."""
        return {} if self._consumer is None else self._consumer.committed

    async def commit(self) -> None:
        """Store the positions after the records handed out; see `Consumer.commit`."""
        consumer = await self._opened()
        await self._in_thread(consumer.commit)

    async def close(self) -> None:
        """Commit the records handed out, if commits are automatic, and close everything. May be called twice."""
        await self._end(lambda consumer: consumer.close())

    async def _end(self, step: Callable[[Consumer], None]) -> None:
        self._is_closed = True
        # If the task is cancelled, the consumer still closes cleanly before the cancellation is raised.
        ending = asyncio.ensure_future(self._ended(step))
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            await asyncio.wait([ending])
            raise

    async def _ended(self, step: Callable[[Consumer], None]) -> None:
        await self._settled()
        consumer = self._consumer
        if consumer is not None:
            await self._in_thread(partial(step, consumer))

    async def __aenter__(self) -> Self:
        try:
            await self._opened()
        except BaseException:
            # `__aexit__` is not called after this.
            await self.close()
            raise
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(lambda consumer: consumer.__exit__(error_type, error, trace))
