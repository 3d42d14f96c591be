"""Changes of a log that happen completely or not at all, even if an exception interrupts them.

    carry_out(change)   change.apply() ------------------------------------> done
                                   | Ctrl-C, a time-out, no memory left
                                   v
                       change.settle()   completes or undoes it, depending on how far it came   -> the exception goes on

An exception from a signal handler may come between any two bytecodes, also within `settle`. Then the next change of the
log settles it first. If the disk has failed, nothing is settled: what is on it is unknown.
"""

from __future__ import annotations

from typing import Protocol

from odradek.storage.log_disk import LogDisk


class Change(Protocol):
    """Something that takes several steps."""

    def apply(self) -> None:
        """Do it."""

    def settle(self) -> None:
        """Complete or undo it, after an exception interrupted `apply`, or an earlier `settle`, anywhere."""


class Changes:
    """The changes of one log, one at a time. The caller holds the log's LOG lock.

    Args:
        disk: The way to the disk.

    Attributes:
        unfinished: The change that is in progress, or was interrupted.
    """

    def __init__(self, disk: LogDisk) -> None:
        self._disk = disk
        self.unfinished: Change | None = None

    def carry_out(self, change: Change) -> None:
        """Make a change."""
        self.unfinished = change
        try:
            change.apply()
        except BaseException:
            self.settle()
            raise
        self.unfinished = None

    def settle(self) -> None:
        """Settle an interrupted change, if there is one."""
        change = self.unfinished
        if change is not None and self._disk.failure is None:
            change.settle()
            self.unfinished = None
