"""Guards changes of a log directory: one process, one thread at a time, never in the middle of another change.

    with guard.changing():       a fork? a signal handler in the middle of a change? then the DIRECTORY lock
        guard.check_usable()     closed? an interrupted change to settle?

Readers take no lock. If a change was interrupted they settle it, unless another thread holds the lock: that one does.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from odradek.errors import LogError
from odradek.storage.directory.maintenance import collect
from odradek.storage.directory.topic_changes import TopicChanges
from odradek.storage.locks import Lock, Rank, create_lock, run_if_free
from odradek.storage.names import TopicPartition
from odradek.storage.open_state import OpenState
from odradek.storage.process import WritingProcess

if TYPE_CHECKING:
    from odradek.storage.log.writable_log import WritableLog


class DirectoryGuard:
    """Guards the changes of a log directory. Any thread may use it.

    Args:
        state: Whether the directory is open.
        open_logs: Its open logs.
        changes: The changes of its topics.

    Attributes:
        lock: The DIRECTORY lock.
        process: The process that opened the directory.
    """

    def __init__(
        self, state: OpenState, open_logs: Mapping[TopicPartition, WritableLog], changes: TopicChanges
    ) -> None:
        self.lock = create_lock(Rank.DIRECTORY)
        self.process = WritingProcess(state.path)
        self._state = state
        self._open_logs = open_logs
        self._changes = changes

    def changing(self) -> Lock:
        """Return the lock for a change; see `check_entry`."""
        self.check_entry()
        return self.lock

    def check_entry(self) -> None:
        """Raise if no change may begin here; to be called before any lock is taken.

        Raises:
            LogError: This is a fork, where locks may be held forever; or a signal handler called this in the middle of
                another change.
        """
        self.process.check()
        # Signal handlers run in the main thread only, so other threads need not ask all logs: there may be 10,000.
        may_be_handler = threading.current_thread() is threading.main_thread()
        logs = list(self._open_logs.values()) if may_be_handler else []
        if self.lock._is_owned() or any(log.guard.is_within_call for log in logs):
            raise LogError(
                f"{self._state.path}: a change was asked for in the middle of another one, by a signal's handler?"
            )

    def check_usable(self) -> None:
        """Raise if nothing can be changed; to be called under the lock, before a change.

        Raises:
            LogError: The directory is closed.
        """
        self._state.check_open()
        if not self._changes.is_settled:
            self._changes.settle()

    def settle_if_free(self) -> None:
        """Settle an interrupted change; if the lock is taken, the thread that holds it does so."""
        if not self._changes.is_settled and not self._state.is_closed and self.process.is_this:
            run_if_free(self.lock, partial(collect, [], self._changes.settle))
