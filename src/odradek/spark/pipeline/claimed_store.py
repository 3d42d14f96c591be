"""The offset store of a job, claimed for one driver.

    claim()                     from now on no driver before this one can commit
    check_owner()               has another driver claimed it since?
    commit(done(...))           the end of a batch, with a note of it for `odradek pipeline status`

A store that cannot be reached is asked again for `STORE_PATIENCE_S`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from queue import Empty, SimpleQueue

from odradek.errors import CommitConflictError, OffsetStoreError, OffsetStoreUnavailableError
from odradek.offsets.store import OffsetStore, Position, Positions
from odradek.spark.pipeline.run_note import LastBatch, LastError, LastLoss, RunNote, newest_note
from odradek.storage.names import TopicPartition

STORE_PATIENCE_S = 60.0
STORE_RETRY_S = 0.5


class StopRequest:
    """A request to stop, from a signal handler or another thread.

    Attributes:
        is_made: Whether it was made.
    """

    def __init__(self) -> None:
        self.is_made = False
        # A signal handler may always put into a SimpleQueue; an Event could deadlock with the interrupted thread.
        self._requests: SimpleQueue[None] = SimpleQueue()

    def make(self) -> None:
        """Make it."""
        self.is_made = True
        self._requests.put(None)

    def sleep(self, seconds: float) -> None:
        """Sleep, at most until it is made."""
        with suppress(Empty):
            self._requests.get(timeout=seconds)


class ClaimedStore:
    """The positions of a job, in a store that this driver has claimed.

    Args:
        store: The store.
        stopping: Ends the wait for a store that cannot be reached.
        on_step: Called with the reason of each wait.

    Attributes:
        positions: The positions, as this driver last found or stored them.
    """

    def __init__(self, store: OffsetStore, stopping: StopRequest, on_step: Callable[[str], None]) -> None:
        self._store = store
        self._stopping = stopping
        self._on_step = on_step
        self._note = RunNote()
        self.positions = Positions()

    @property
    def address(self) -> str:
        """The address of the store, without secrets."""
        return self._store.address

    @property
    def may_be_elsewhere(self) -> bool:
        """Whether it has no positions, and is where an older program should have left some."""
        return self._store.is_of_older_programs and not self.positions

    def claim(self) -> None:
        """Claim the group, and load its positions."""
        self.positions = self._while_away(self._store.claim)
        self._note = newest_note(self.positions.values())

    def check_owner(self, *, patiently: bool = True) -> None:
        """Check that the store is as this driver left it: no other driver has claimed the group since.

        Args:
            patiently: Whether to wait for a store that cannot be reached; otherwise the check is skipped.

        Raises:
            CommitConflictError: Another driver has.
        """
        if patiently:
            found = self._while_away(self._store.load)
        else:
            try:
                found = self._store.load()
            except OffsetStoreError:
                return
        if found.version != self.positions.version:
            raise CommitConflictError(self._store.address, self.positions.version, found.version)

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Store positions; retry while the store cannot be reached.

        A commit may have happened although its answer was lost: then the store holds exactly these positions.
        """

        def attempt() -> Positions:
            try:
                return self._store.commit(positions, expected=self.positions)
            except OffsetStoreError as error:
                try:
                    loaded = self._store.load()
                except OffsetStoreError:
                    raise error from None
                if all(loaded.get(name) == place for name, place in positions.items()):
                    return loaded
                raise

        self.positions = self._while_away(attempt)

    def done(
        self, ends: Mapping[TopicPartition, Position], offsets: int, seconds: float, refused: int
    ) -> dict[TopicPartition, Position]:
        """Return the positions after a batch, with a note of it beside the first one.

        Args:
            ends: The positions; at least one.
            offsets: How many offsets the batch spanned.
            seconds: How long it took.
            refused: How many records the sinks' targets did not take.
        """
        self._note = replace(self._note, batch=LastBatch(_now_ms(), offsets, round(seconds, 3), refused))
        return self.noted(ends)

    def note_loss(self, what: str) -> None:
        """Let the next note say which offsets were lost where logs were cut."""
        self._note = replace(self._note, loss=LastLoss(_now_ms(), what))

    def noted(self, positions: Mapping[TopicPartition, Position]) -> dict[TopicPartition, Position]:
        """Return positions, at least one, with the note beside the first one."""
        noted = dict(positions)
        first = min(noted)
        noted[first] = replace(noted[first], note=self._note.text())
        return noted

    def note_error(self, error: Exception) -> None:
        """Let the store say how the run ended, for `odradek pipeline status`."""
        if not self.positions or isinstance(error, OffsetStoreError):
            return
        first = min(self.positions)
        note = replace(self._note, error=LastError(_now_ms(), str(error)))
        # What ends the run is the error; that it cannot be stored adds nothing.
        with suppress(OffsetStoreError):
            self._store.commit({first: replace(self.positions[first], note=note.text())}, expected=self.positions)

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def _while_away(self, ask: Callable[[], Positions]) -> Positions:
        """Ask the store; retry while it cannot be reached."""
        deadline = time.monotonic() + STORE_PATIENCE_S
        while True:
            try:
                return ask()
            except OffsetStoreUnavailableError as error:
                if self._stopping.is_made or time.monotonic() > deadline:
                    raise
                self._on_step(f"waiting for the offset store: {error}")
            self._stopping.sleep(STORE_RETRY_S)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
