"""A log that is only read, whatever program wrote its folder, and whether that is running, was closed or crashed.

A running Kafka may delete and replace files at any time: if a file is gone when the log opens it, the log lists its
folder again. Nothing is written, locked or waited for.

Source in Kafka: `UnifiedLog`, `LogLoader`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from odradek.errors import FormatError
from odradek.storage.formats.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    EpochEntry,
    read_leader_epochs,
)
from odradek.storage.formats.transaction_index import AbortedTransaction
from odradek.storage.log.listing import SegmentListing
from odradek.storage.log.log import Log
from odradek.storage.log.recovery_report import lost_records
from odradek.storage.log.refused import Refused
from odradek.storage.log.replaced_files import retried
from odradek.storage.log.root_checkpoints import RootCheckpoints
from odradek.storage.log.transactions import Transactions
from odradek.storage.segment.open_segments import OpenSegments
from odradek.storage.segment.segment import Access, Segment, SegmentEnd


class ReadOnlyLog(Log):
    """One topic-partition, open for reading; a context manager. Any thread may use it.

    It shows the folder as it was when it was opened, or at the last `refresh`.

    Args:
        path: Its folder.
        checkpoints: The checkpoints of the log directory; if None, those in the parent folder.
        opened: The register of open segments, shared by the logs of a log directory.
        may_have_gaps: Returns whether offsets may be missing without a loss; if None, that is not known.

    Raises:
        LogError: The folder is not named after a topic and a partition.
        UnknownTopicOrPartitionError: There is no such folder.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        checkpoints: RootCheckpoints | None = None,
        opened: OpenSegments | None = None,
        may_have_gaps: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(path)
        self._is_alone = checkpoints is None
        self._checkpoints = RootCheckpoints(self.path.parent) if checkpoints is None else checkpoints
        self._listing = SegmentListing(
            self.path,
            self.topic_partition,
            OpenSegments() if opened is None else opened,
            lambda: self._checkpoints.stable_offset(self.topic_partition),
        )
        self._gaps = may_have_gaps
        self._may_have_gaps: bool | None = None
        self._transactions = Transactions(self.path)
        self._start_offset: int | None = None
        self._judged_end: SegmentEnd | None = None
        self._stable: tuple[SegmentEnd | None, int] = (None, 0)

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, by base offset."""
        self._state.check_open()
        return self._listing.segments

    @property
    def leader_epochs(self) -> list[EpochEntry]:
        """The leader epochs and where they begin; empty if Kafka did not record them."""
        self._state.check_open()
        return read_leader_epochs(self.path / LEADER_EPOCH_CHECKPOINT)

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers can get: the greater of the checkpoint and the first segment's base offset."""
        self._state.check_open()
        start_offset = self._start_offset
        if start_offset is None:
            segments = self.segments
            checkpointed = self._checkpoints.start_offset(self.topic_partition)
            start_offset = max(checkpointed, segments[0].base_offset) if segments else checkpointed
            self._start_offset = start_offset
        return start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset after the last record, found by scanning from the last index entry."""
        return retried(self, self._find_end_offset)

    def _find_end_offset(self) -> int:
        start_offset, segments = self.log_start_offset, self._listing.segments
        if not segments:
            return start_offset
        last = segments[-1]
        end = last.end()
        if end is not self._judged_end:
            is_whole = last.access is Access.UNSTABLE and end.damage is None
            if is_whole and end.next_offset <= self._checkpoints.stable_offset(self.topic_partition):
                # Closed in order: a later writer leaves all of this as it is.
                last.hold(Access.STABLE)
            self._judged_end = end
        return max(end.next_offset, start_offset)

    @property
    def damage(self) -> list[FormatError]:
        """What is wrong at the ends of the segments and with the checkpoints: path, position and reason of each.

        A crash may leave an incomplete last batch. Corruption in the middle of a segment is found by reading it.
        """
        start_offset = self.log_start_offset
        ends = retried(self, lambda: [segment.end() for segment in self.segments])
        # In a log directory, the directory reports them, once.
        found = list(self._checkpoints.problems) if self._is_alone else []
        if ends and ends[-1].next_offset < start_offset:
            reason = f"{self.topic_partition} starts at {start_offset}, after its end at {ends[-1].next_offset}"
            found.append(FormatError(reason, path=self.path.parent / LOG_START_OFFSET_CHECKPOINT))
        if (lost := self.lost_end()) is not None:
            found.append(FormatError(lost_records(*lost), path=self.path))
        return [*found, *(end.damage for end in ends if end.damage is not None)]

    def lost_end(self) -> tuple[int, int] | None:
        """Return the offsets that the log had when its folder was closed, and has no more: the first, the one after.

        None if there are none, or the folder was not closed in order: then the last records may never have been there.
        """
        promised = self._checkpoints.promised_end_offset(self.topic_partition)
        if promised is None or self.log_end_offset >= promised:
            return None
        # What was appended and closed since this log was last refreshed is not lost.
        with ReadOnlyLog(self.path, checkpoints=self._checkpoints) as log:
            end_offset = log.log_end_offset
        return (end_offset, promised) if end_offset < promised else None

    @property
    def last_stable_offset(self) -> int:
        """The end of what `read_committed` returns: where the oldest open transaction begins, or the log end offset.

        Raises:
            FormatError: The marker of a transaction is corrupt.
        """
        # Records of an open transaction may have been deleted; Kafka then uses the log start offset.
        return max(retried(self, self._find_stable_offset), self.log_start_offset)

    def _find_stable_offset(self) -> int:
        log_end_offset, segments = self.log_end_offset, self._listing.segments
        if not segments:
            return log_end_offset
        end = segments[-1].end()
        known_end, stable_offset = self._stable
        if end is not known_end:
            # Up to this end: another thread may have found it after `log_end_offset`.
            stable_offset = self._transactions.last_stable_offset(segments, end.next_offset)
            self._stable = end, stable_offset
        return stable_offset

    def _aborted(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        return retried(self, lambda: self._transactions.aborted(self.segments, start_offset, end_offset))

    def may_have_gaps(self) -> bool:
        """Whether offsets may be missing without a loss: the log was compacted, or that is not known."""
        if self._may_have_gaps is None:
            self._may_have_gaps = True if self._gaps is None else self._gaps()
        return self._may_have_gaps

    def refresh(self) -> None:
        """Look at the folder again, after a writer appended, rolled, compacted or deleted.

        Raises:
            UnknownTopicOrPartitionError: The folder was deleted, or belongs to another topic of the same name.
        """
        self._state.check_open()
        if self._listing.refresh():
            # It may have been closed in order by now, and compacted.
            self._judged_end = None
            self._may_have_gaps = None
        self._start_offset = None

    def release(self) -> None:
        """Close the files; they are opened again when they are next read."""
        self._listing.close()

    def close(self) -> None:
        """Close the files. Records that were handed out stay valid; nothing more can be read."""
        self._state.is_closed = True
        self._listing.close()
        self._wakeup.wake()

    if not TYPE_CHECKING:  # a type checker says itself that there are no such methods
        append = Refused()
        append_batches = Refused()
        delete_records = Refused()
        end_transaction = Refused()
        flush = Refused()
        roll = Refused()
