"""Follows a log: its records as they come, and between them a wait.

    look: more?   yes: read it, hand it out       no: wait until an append of this process wakes us,
      ^                                               or until it is time to look again
      |_______________________________________________|

What another process appends is looked for by two calls of `stat`, more seldom the longer nothing came. That costs next
to nothing, and works on every file system; inotify says nothing of what another machine, or a container's host, writes.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress

from odradek.errors import FormatError
from odradek.records.isolation import Isolation
from odradek.records.kernels.objects import Record
from odradek.storage.log.readable_log import ReadableLog

FIRST_WAIT_S = 0.001
LONGEST_WAIT_S = 0.05


def waits(first_s: float = FIRST_WAIT_S, longest_s: float = LONGEST_WAIT_S) -> Iterator[float]:
    """Give the times in seconds to wait before looking again: each twice as long as the last one, up to a limit."""
    wait_s = first_s
    while True:
        yield wait_s
        wait_s = min(2 * wait_s, longest_s)


class Wakeup:
    """Wakes threads that wait for a change. Nothing that is interrupted here keeps another thread waiting for ever.

    Attributes:
        changes: Is another number after each change.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._waiting: deque[threading.Lock] = deque()

    def wake(self) -> None:
        """Wake all that wait. To be called after the change."""
        self.changes += 1
        while self._waiting:
            with suppress(IndexError):
                # The thread that takes it out is the only one to release it.
                self._waiting.pop().release()

    def wait(self, changes: int, timeout_s: float) -> None:
        """Wait for a change.

        Args:
            changes: What `changes` was before the caller looked: it returns at once where it is another by now.
            timeout_s: How long to wait at most.
        """
        released_by_change = threading.Lock()
        released_by_change.acquire()
        self._waiting.append(released_by_change)
        try:
            if self.changes == changes:
                released_by_change.acquire(timeout=timeout_s)
        finally:
            with suppress(ValueError):
                self._waiting.remove(released_by_change)


def followed(
    log: ReadableLog, position: int, isolation: Isolation, timeout_s: float | None, wakeup: Wakeup, *, is_woken: bool
) -> Iterator[Record]:
    """Give the records of a log from a position on, as they come; see `Log.follow`.

    Args:
        log: The log.
        position: The first offset wanted.
        isolation: Which records are given.
        timeout_s: How long to wait for the next record; None for ever.
        wakeup: Is told of what happens to the log in this process.
        is_woken: Whether nobody else changes the log.
    """
    # Where a signal's handler kept an append from waking us, we look all the same.
    pauses = waits(1.0, 1.0) if is_woken else waits()
    asked_s = time.monotonic()
    read_to, tail_then = position, log.tail_identity()
    while True:
        changes = wakeup.changes
        log.refresh()
        end, tail = log.end_offset(isolation), log.tail_identity()
        # Nothing that is given lies between the last record and the end of what was read. Had the end been cut
        # meanwhile, other records may; but none that was deleted since.
        position = max(position, read_to if tail == tail_then else min(read_to, log.log_start_offset))
        if position < end:
            try:
                for record in log.read(position, end, isolation=isolation):
                    yield record
                    asked_s = time.monotonic()
                    if record.offset is not None:
                        position = record.offset + 1
            except FormatError:
                log.refresh()
                if log.tail_identity() == tail:
                    raise
            else:
                read_to = end
            tail_then = tail
            pauses = pauses if is_woken else waits()
            continue
        log.bounds(position, None, isolation)
        pause_s = next(pauses)
        if timeout_s is not None:
            left_s = asked_s + timeout_s - time.monotonic()
            if left_s <= 0:
                return
            pause_s = min(pause_s, left_s)
        wakeup.wait(changes, pause_s)
