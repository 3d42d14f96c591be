"""Record batches that threads of pyarrow read ahead, and what becomes of them where the interpreter exits.

A scanner of pyarrow reads ahead in a thread of its own, also for some time after nobody wants its rows any more. If
that thread comes back to Python while the interpreter is finalized, Python ends it in the middle of pyarrow's C++, and
the process aborts or hangs. So at exit what it reads comes to its end, and the exit waits until the thread has left.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Generator

import pyarrow as pa

_QUIET_S = 0.5
"""After so long without a call nobody reads ahead: who does calls again at once."""

_POLL_S = 0.001

_RELEASE_S = 0.05
"""How long pyarrow's threads take to let go of batches that they still held: memory of ours is freed by Python."""


class _Pull:
    """What the exit needs to know of an iterator, also after that is gone.

    Attributes:
        is_stopped: Whether the next batch, or the one that is being read, is to be the end.
        is_over: Whether nobody calls it any more.
        is_inside: Whether somebody is reading a batch.
        left_s: When the last one was read.
    """

    __slots__ = ("is_inside", "is_over", "is_stopped", "left_s")

    def __init__(self) -> None:
        self.is_stopped = self.is_over = self.is_inside = False
        self.left_s = time.monotonic()

    @property
    def may_come_back(self) -> bool:
        return not self.is_over and (self.is_inside or time.monotonic() - self.left_s < _QUIET_S)


class PulledBatches:
    """An iterator of record batches for `pyarrow.dataset.Scanner.from_batches`.

    Args:
        batches: The record batches.
    """

    def __init__(self, batches: Generator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._pull = _Pull()
        _pulls.difference_update([pull for pull in list(_pulls) if pull.is_over])
        _pulls.add(self._pull)

    def __iter__(self) -> PulledBatches:
        return self

    def __next__(self) -> pa.RecordBatch:
        pull = self._pull
        pull.is_inside = True
        try:
            batch = None if pull.is_stopped else next(self._batches, None)
        finally:
            pull.left_s = time.monotonic()
            pull.is_inside = False
        if batch is None or pull.is_stopped:
            # pyarrow drops the iterator at its end.
            raise StopIteration
        return batch

    def __del__(self) -> None:
        self._batches.close()
        # The last step in Python: after a call the thread that exits might go on first.
        self._pull.is_over = True


_pulls: set[_Pull] = set()


def _stop() -> None:
    pulls = [pull for pull in list(_pulls) if pull.may_come_back]
    for pull in pulls:
        pull.is_stopped = True
    while any(pull.may_come_back for pull in pulls):
        time.sleep(_POLL_S)
    if pulls:
        time.sleep(_RELEASE_S)


atexit.register(_stop)
# The threads that read are the parent's.
os.register_at_fork(after_in_child=_pulls.clear)
