"""The segments whose files are open for reading: how many there may be, and which are closed first."""

from __future__ import annotations

import resource
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, TypeVar

from odradek.storage.locks import Rank, create_lock
from odradek.storage.system_errors import NO_DESCRIPTORS, unreadable

_T = TypeVar("_T")
_FILES_PER_SEGMENT = 3


class Closable(Protocol):
    """Something with open files."""

    def close(self) -> None:
        """Close the files; they are opened again when they are needed."""


class OpenSegments:
    """The segments whose files are open, the last used one at the end; if there are too many, the first is closed.

    What was handed out stays valid: a file is closed with its last user. Any thread may use the register.

    Args:
        limit: How many there may be; if None, a part of the number of descriptors that the process may have.

    Attributes:
        arrivals: How often a segment was opened. While it stays the same, the order of use does not matter.
    """

    def __init__(self, limit: int | None = None) -> None:
        if limit is None:
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            limit = max(16, min(4096, soft // 3 // _FILES_PER_SEGMENT))
        self._limit = limit
        self._lock = create_lock(Rank.REGISTER)
        self._segments: OrderedDict[Closable, None] = OrderedDict()
        self.arrivals = 0

    def __len__(self) -> int:
        return len(self._segments)

    def open(self, action: Callable[[], _T]) -> _T:
        """Open a file; if the process has no descriptors left, close others first.

        Raises:
            FileNotFoundError: There is no such file.
            LogError: The system does not let us read it, or there is no descriptor left all the same.
        """
        for attempt in range(2):
            try:
                return action()
            except FileNotFoundError:
                raise
            except OSError as error:
                if attempt > 0 or error.errno not in NO_DESCRIPTORS:
                    raise unreadable(error, "a file of a segment") from error
            self.close_all()
        raise AssertionError("unreachable")

    def touch(self, segment: Closable) -> None:
        """Note that a segment is in use. There is no need to do so again while `arrivals` stays."""
        excess = []
        with self._lock:
            self.arrivals += segment not in self._segments
            self._segments[segment] = None
            self._segments.move_to_end(segment)
            while len(self._segments) > self._limit:
                excess.append(self._segments.popitem(last=False)[0])
        for unused in excess:
            unused.close()

    def forget(self, segment: Closable) -> None:
        """Note that a segment was closed."""
        with self._lock:
            self._segments.pop(segment, None)

    def close_all(self) -> None:
        """Close the files of every segment."""
        with self._lock:
            segments = list(self._segments)
        for segment in segments:
            segment.close()
