"""What a consumer has done with each partition, and what of that is in its offset store.

    done         the next offset of each partition, after the records that the application is done with
    committed    the positions in the store, as far as is known here: what the next commit expects there
    unanswered   commits that a lost connection or Ctrl-C has ended early: they may have happened

Source in Kafka: `CommitRequestManager.AutoCommitState`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from odradek.consumer.partition_reader import PartitionReader
from odradek.errors import CommitConflictError, LogError
from odradek.offsets.store import OffsetStore, Position, Positions
from odradek.storage.names import TopicPartition
from odradek.storage.process import WritingProcess

if TYPE_CHECKING:
    from odradek.offsets.member import MemberOffsetStore

Readers = Mapping[TopicPartition, PartitionReader]


class Commits:
    """The commits of one consumer. Only one thread may use it at a time.

    Args:
        store: Where positions are kept; None for a consumer without a group.
        membership: The same store, if this consumer is one of several members of its group.
        process: The process of the consumer; a fork of it commits nothing by itself.
        interval_ms: How often the consumer commits by itself; None if it never does.
        close_store: Whether `close` closes the store.

    Attributes:
        done: The next offset of each partition that is read.
        committed: The positions in the store.
    """

    def __init__(
        self,
        store: OffsetStore | None,
        membership: MemberOffsetStore | None,
        process: WritingProcess,
        *,
        interval_ms: int | None,
        close_store: bool,
    ) -> None:
        self._store = store
        self._membership = membership
        self._process = process
        self._interval_s = None if interval_ms is None else interval_ms / 1000
        self._close_store = close_store
        self._name = secrets.token_hex(4)
        self._count = 0
        self._next = 0.0
        self._unanswered: list[Mapping[TopicPartition, Position]] = []
        self.done: dict[TopicPartition, int] = {}
        self.committed = Positions() if store is None else store.claim()

    def check_group(self) -> None:
        """Check that there is a group to commit for.

        Raises:
            LogError: The consumer has no group.
        """
        if self._store is None:
            raise LogError("this consumer has no group to commit for: give consume(..., group=...)")

    def begin_interval(self) -> None:
        """Let the next automatic commit be due after the interval."""
        self._next = time.monotonic() + (self._interval_s or 0)

    @property
    def are_automatic(self) -> bool:
        """Whether the consumer commits by itself; not so in a fork of its process."""
        return self._interval_s is not None and self._process.is_this

    @property
    def is_due(self) -> bool:
        """Whether it is time for an automatic commit."""
        return self.are_automatic and time.monotonic() >= self._next

    def commit_due(self, readers: Readers) -> None:
        """Make the automatic commit that is due."""
        try:
            self.commit_automatically(readers)
        finally:
            # Set after the commit: else a store slower than the interval would get a commit for each record.
            self.begin_interval()

    def commit_automatically(self, readers: Readers) -> None:
        """Commit, if the consumer commits by itself."""
        # A member that was removed joins again: others continue from its last commit, and the application did no wrong.
        with suppress(*(() if self._membership is None else (CommitConflictError,))):
            if self.are_automatic:
                self.commit(readers)

    def commit(self, readers: Readers) -> None:
        """Store the positions that have changed.

        Raises:
            CommitConflictError: Another consumer has the group.
            OffsetStoreError: The store cannot be reached.
        """
        changed = {name: offset for name, offset in self.done.items() if offset != self.committed.offset(name)}
        if self._store is None or not changed:
            return
        self._count += 1
        batch = f"{self._name}/{self._count}"
        positions = {name: readers[name].stored_form(offset, batch) for name, offset in changed.items()}
        if self._membership is not None:
            self.committed = self._membership.commit(positions, expected=self.committed)
            return
        # If a lost connection or Ctrl-C ends this early, the commit may have happened.
        self._unanswered.append(positions)
        self.committed = self._commit_over_own(self._store, positions)
        self._unanswered.clear()

    def _commit_over_own(self, store: OffsetStore, positions: Mapping[TopicPartition, Position]) -> Positions:
        """Commit, even if an earlier commit of this consumer has happened without being answered."""
        try:
            return store.commit(positions, expected=self.committed)
        except CommitConflictError:
            loaded = store.load()
            if not any(own.items() <= loaded.items() for own in self._unanswered):
                raise
            return store.commit(positions, expected=loaded)

    def close(self) -> None:
        """Close the store, if that was asked for. In a fork the connection to the store is the parent's."""
        if self._store is not None and self._close_store and self._process.is_this:
            self._store.close()
