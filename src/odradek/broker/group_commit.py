"""Brings a partition's appends to the disk, if its settings say so: one sync for all requests that wait.

    appended    a | b c d | e f
    synced      ~~~~~~ ~~~~~~ ~~~~~~        b, c and d were appended during the sync of a
    answered          a    b c d   e f

Readers get what is on the disk, as in Kafka, where the high watermark follows the flush.

Source in Kafka: `UnifiedLog.append`, which flushes under the log's lock, each append alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from odradek.errors import LogError
from odradek.storage.log.writable_log import WritableLog


class Ends(NamedTuple):
    """Where a log ends for readers."""

    high_watermark: int
    last_stable_offset: int


class GroupCommit:
    """The syncs of a partition, one at a time. It belongs to the event loop's thread.

    Args:
        log: The partition's log.
        executor: Where the syncs run.
        changed: Called when readers may get more.
    """

    def __init__(self, log: WritableLog, executor: ThreadPoolExecutor, changed: Callable[[], None]) -> None:
        self._log = log
        self._executor = executor
        self._changed = changed
        # What readers get; None for all of the log.
        self._held: Ends | None = None
        # Appends in other threads, which may be in the log or not.
        self._writes = 0
        self._current: asyncio.Future[None] | None = None
        self._next: asyncio.Future[None] | None = None
        # The last sync, if it failed: nothing that was appended since the one before it may be acknowledged.
        self._failed: asyncio.Future[None] | None = None

    @property
    def ends(self) -> Ends:
        """Where the log ends for readers."""
        return self._held or self._log_ends()

    @property
    def holds(self) -> bool:
        """Whether readers get less than all of the log."""
        return self._held is not None

    def _log_ends(self) -> Ends:
        # First the stable offset: a marker that another thread appends in between must not count before its sync.
        stable = self._log.last_stable_offset
        return Ends(self._log.log_end_offset, stable)

    @property
    def unsynced(self) -> asyncio.Future[None] | None:
        """What is done when everything appended by now is on the disk; None if the settings ask for no sync now.

        It raises what the disk failed with. It is shared: shield it.
        """
        return self._next or self._current or self._failed

    def begin_write(self) -> None:
        """Hide what is appended from now on from readers, until it is on the disk."""
        if self._held is None:
            self._held = self._log_ends()
        self._writes += 1

    def end_write(self) -> None:
        """Sync what was appended, or let readers get it if the settings ask for no sync yet."""
        self._writes -= 1
        if self._log.flushing.is_due:
            if self._next is None:
                self._next = asyncio.get_running_loop().create_future()
                # Those that wait for it get its error; perhaps nobody waits.
                self._next.add_done_callback(lambda done: done.cancelled() or done.exception())
            if self._current is None:
                self._sync()
        else:
            self._release(None)

    def _release(self, ends: Ends | None) -> None:
        """Let readers get what is on the disk."""
        is_settled = self._current is None and not self._writes
        self._held = None if is_settled and not self._log.is_offline else ends or self._held

    def _sync(self) -> None:
        self._current, self._next = self._next, None
        ends = self._held
        with suppress(LogError):
            ends = self._log_ends()
        try:
            synced = asyncio.get_running_loop().run_in_executor(self._executor, self._log.flushing.make_durable)
        except RuntimeError:
            # The broker has ended. Those who wait have lost their connections, and closing the log syncs it.
            self._current = None
            return
        synced.add_done_callback(partial(self._finished, ends))

    def _finished(self, ends: Ends | None, synced: asyncio.Future[None]) -> None:
        done, self._current = self._current, None
        assert done is not None
        error = asyncio.CancelledError() if synced.cancelled() else synced.exception()
        self._failed = None if error is None else done
        if self._next is not None:
            self._sync()
        if error is None:
            self._release(ends)
        if not done.done():
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)
        self._changed()
