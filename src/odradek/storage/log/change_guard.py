"""Guards changes of a log: one process, one thread at a time, never in the middle of another change.

    check_entry     a fork? a signal handler in the middle of a change?      before any lock is taken
    lock            FLUSH, LOG: see `odradek.storage.locks`
    check_usable    closed? offline? an interrupted change to settle?        under the LOG lock, before the change

Readers take no lock. If a change was interrupted they settle it, unless another thread holds the lock: that one does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from odradek.errors import LogError
from odradek.storage.locks import Rank, create_lock, run_if_free
from odradek.storage.log.changes import Changes
from odradek.storage.log.cleaning_turn import CleaningTurn
from odradek.storage.log.log_state import LogState
from odradek.storage.log_disk import LogDisk
from odradek.storage.process import WritingProcess


class ChangeGuard:
    """Guards the changes of one log. Any thread may use it.

    Args:
        state: Whether the log is open.
        disk: Its disk.

    Attributes:
        state: As given.
        disk: As given.
        flush_lock: Held by the thread that flushes the log.
        lock: The LOG lock, held by the thread that changes the log.
        cleaning: Whose turn it is to work on its sealed segments.
        changes: The change of the segments that is in progress, or was interrupted.
        in_parts: The append to several segments that is in progress, or was interrupted.
    """

    def __init__(self, state: LogState, disk: LogDisk) -> None:
        self.state = state
        self.disk = disk
        self.flush_lock = create_lock(Rank.FLUSH)
        self.lock = create_lock(Rank.LOG)
        self.cleaning = CleaningTurn()
        self.changes = Changes(disk)
        self.in_parts = Changes(disk)
        self._process = WritingProcess(state.path)
        self._pid = self._process.pid

    @property
    def is_within_call(self) -> bool:
        """Whether this thread is in the middle of changing the log: a signal handler interrupted the change."""
        return self.lock._is_owned() or self.flush_lock._is_owned()

    @property
    def is_changeable(self) -> bool:
        """Whether the log is open in the process that opened it, and its disk has not failed."""
        return self.is_owned and self.disk.failure is None

    @property
    def is_owned(self) -> bool:
        """Whether the log is open, and this is the process that opened it."""
        return not self.state.is_closed and self._process.is_this

    def check_entry(self) -> None:
        """Raise in a fork, or if this thread is in the middle of a change; to be called before a lock is taken.

        Raises:
            LogError: It is so.
        """
        if os.getpid() != self._pid or self.lock._is_owned() or self.flush_lock._is_owned():
            self._process.check()
            raise LogError(
                f"{self.state.path}: a change was asked for in the middle of another one, by a signal's handler?"
            )

    def check_usable(self) -> None:
        """Raise if nothing can be changed; to be called under the LOG lock, before a change.

        Raises:
            LogOfflineError: The disk failed.
            LogError: The log is closed.
        """
        if self.state.is_closed or self.disk.failure is not None:
            self.disk.check()
            self.state.check_open()
        # A change was interrupted.
        if self.changes.unfinished is not None or self.in_parts.unfinished is not None:
            self.settle()

    def check_readable(self) -> None:
        """Raise if nothing can be read; settle an interrupted change, so that the log is as before or after it.

        An exception may have interrupted the settling too. If the lock is taken, the thread that holds it settles the
        change.

        Raises:
            UnknownTopicOrPartitionError: The topic was deleted.
            LogError: The log is closed.
        """
        self.state.check_open()
        self.settle_if_free()

    def run_alone(self, action: Callable[[], None]) -> None:
        """Call a function under all locks of the log, after asking the cleaner to give way.

        Raises:
            LogError: This thread is compacting the log.
        """
        if self.cleaning.lock._is_owned():
            raise LogError(f"{self.state.path}: a change was asked for in the middle of its compaction")
        with self.cleaning.asked():
            self.cleaning.give_way()
            with self.flush_lock, self.lock:
                action()

    def settle(self) -> None:
        """Settle an interrupted change; to be called under the LOG lock."""
        self.changes.settle()
        self.in_parts.settle()

    def settle_if_free(self) -> None:
        """Settle an interrupted change if the LOG lock is free."""
        is_unsettled = self.changes.unfinished is not None or self.in_parts.unfinished is not None
        if is_unsettled and self.is_owned:
            # A disk that fails takes the log offline; the rest can still be read.
            with suppress(LogError):
                run_if_free(self.lock, self.settle)
