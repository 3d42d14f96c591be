"""How a log is closed: in order, so that the next opening finds it clean, or as it is.

    close     producers' snapshot | files cut to their used size | everything on the disk | closed
    discard                                                                                 closed, as by a crash

Both hold all locks of the log. A `close` that was interrupted continues where it stopped when it is called again.

Source in Kafka: `UnifiedLog.close`.
"""

from __future__ import annotations

from functools import partial

from odradek.storage.log.log_parts import LogParts


class Shutdown:
    """The end of one log. Any thread may call any method, without a lock of the log.

    Args:
        parts: The parts of the log.
    """

    def __init__(self, parts: LogParts) -> None:
        self._parts = parts

    def discard(self, *, is_deleted: bool) -> None:
        """Close the files as they are; see `WritableLog.discard`."""
        self._parts.guard.check_entry()
        self._parts.guard.run_alone(partial(self._discard, is_deleted))

    def _discard(self, is_deleted: bool) -> None:
        state = self._parts.guard.state
        state.is_deleted = state.is_deleted or is_deleted
        state.is_closed = True
        self._parts.local.close()

    def close(self) -> None:
        """Close the log in order; see `WritableLog.close`."""
        self._parts.guard.check_entry()
        self._parts.guard.run_alone(self._close)

    def _close(self) -> None:
        guard = self._parts.guard
        if guard.state.is_closed:
            return
        try:
            if guard.disk.failure is None:
                self._finish()
        finally:
            # Otherwise it was interrupted: the next `close` completes it.
            if guard.disk.failure is not None:
                self._discard(False)
        self._discard(False)

    def _finish(self) -> None:
        parts, durability, local = self._parts, self._parts.durability, self._parts.local
        parts.guard.settle()
        if not durability.is_dirty:
            return
        parts.head.follow()
        local.producers.take_snapshot()
        local.seal_active(is_synced=False)
        durability.sync(local.segments, local.log_end_offset, indexes=True)
        durability.recovery_point = local.log_end_offset
        durability.is_dirty = False
