"""Appends that never wait: for the broker's event loop, which must not stop for a lock or for the disk.

    has_room(size)   yes: append(batch) -> appended
                     no, or None:          another thread appends it: `make_room`, `WritableLog.append_batches`

An append waits for another thread that changes the log, for the syncs of a new segment, and for those of a new leader
epoch. The LOG lock is taken only if it is free.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.buffers import Buffer
from odradek.records.append.batching import AppendResult
from odradek.records.append.validator import AppendOrigin
from odradek.records.header import V2_HEADER_BYTES
from odradek.storage.locks import run_if_free
from odradek.storage.log.follow import Wakeup
from odradek.storage.log.local_log import MustRollError
from odradek.storage.log.log_parts import LogParts


class NonblockingAppends:
    """The appends to one log that never wait. Any thread may call any method, without a lock of the log.

    Args:
        parts: The parts of the log.
        wakeup: Wakes those who follow the log.
        roll: Rolls the log, and waits for it.
    """

    def __init__(self, parts: LogParts, wakeup: Wakeup, roll: Callable[[], None]) -> None:
        self._local = parts.local
        self._appender = parts.appender
        self._guard = parts.guard
        self._wakeup = wakeup
        self._roll = roll

    def append(
        self,
        data: Buffer,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
        supports_epoch_bump: bool = False,
    ) -> AppendResult | None:
        """Append one batch as `WritableLog.append_batches` does, unless that has to wait; nothing is flushed.

        Returns:
            None if nothing was appended: another thread is changing the log, or there must be a new segment or a new
            leader epoch, which take syncs.

        Raises:
            BrokerError: As `append_batches`.
            LogError: As `append_batches`.
        """
        guard, lock, local, appender = self._guard, self._guard.lock, self._local, self._appender
        guard.check_entry()
        view = memoryview(data).cast("B")
        head = bytes(view[:V2_HEADER_BYTES])
        try:
            if not lock.acquire(blocking=False):
                return None
            guard.check_usable()
            if not appender.epochs.is_latest(appender.leader_epoch):
                return None
            local.may_roll = False
            appended = appender.append_encoded(
                data, origin, transaction_version=transaction_version, supports_epoch_bump=supports_epoch_bump
            )
        except MustRollError:
            if not view.readonly:
                # It may have been numbered and stamped already; the caller then starts again from the beginning.
                view[:V2_HEADER_BYTES] = head
            return None
        finally:
            # A signal's exception may have come just after the lock was taken.
            if lock._is_owned():
                local.may_roll = True
                lock.release()
        self._wakeup.wake()
        return appended.result

    def has_room(self, size_bytes: int) -> bool:
        """Whether `append` would take this many bytes now, as far as the segment and other threads go."""
        rooms: list[bool] = []
        run_if_free(self._guard.lock, lambda: rooms.append(self._local.has_room(size_bytes)))
        return any(rooms)

    def make_room(self, size_bytes: int) -> None:
        """Wait until no other thread changes the log, and roll it unless the segment takes this many bytes.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        self._guard.check_entry()
        with self._guard.lock:
            has_room = self._local.has_room(size_bytes)
        if not has_room:
            self._roll()
