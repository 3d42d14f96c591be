"""A segment by itself, as a log that holds nothing else: also one that its log no longer has (`.deleted`)."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.errors import FormatError, LogError
from odradek.inspection.log_files import FileKind, LogFile
from odradek.storage.formats.checkpoints import EpochEntry
from odradek.storage.formats.transaction_index import AbortedTransaction
from odradek.storage.log.log import Log
from odradek.storage.log.replaced_files import retried
from odradek.storage.log.transactions import Transactions
from odradek.storage.names import LOG_SUFFIX, TopicPartition, segment_file_name
from odradek.storage.segment.open_segments import OpenSegments
from odradek.storage.segment.segment import Access, Segment


class SegmentFile(Log):
    """A segment, open for reading as a log. The folder's name need not be that of a partition.

    Args:
        file: The `.log` file.

    Raises:
        LogError: It is not a segment.
    """

    def __init__(self, file: LogFile) -> None:
        name = file.path.name
        if LOG_SUFFIX not in name:
            reason = f"records are in files that end with {LOG_SUFFIX}"
            if file.kind is FileKind.RECORDS and not file.is_metadata_snapshot:
                reason = f"call it {segment_file_name(file.base_offset, LOG_SUFFIX)}, for the offset of its first batch"
            raise LogError(f"{file.path} is not a segment by its name: {reason}")
        # Outside of a partition's folder the file's name, which is valid as a topic's, replaces that of the topic.
        super().__init__(file.path.parent, file.topic_partition or TopicPartition(name, 0))
        suffix = name.partition(LOG_SUFFIX)[2]
        self._opened = OpenSegments()
        self._segments = (
            Segment(file.path.parent, file.base_offset, self._opened, suffix=suffix, access=Access.UNSTABLE),
        )
        self._transactions = Transactions(self.path)

    @property
    def segments(self) -> Sequence[Segment]:
        """The one segment."""
        self._state.check_open()
        return self._segments

    @property
    def leader_epochs(self) -> list[EpochEntry]:
        """Always empty: a segment does not have them."""
        return []

    @property
    def log_start_offset(self) -> int:
        """The segment's base offset."""
        return self._segments[0].base_offset

    @property
    def log_end_offset(self) -> int:
        """The offset after the segment's last record."""
        return retried(self, lambda: self.segments[0].end().next_offset)

    @property
    def last_stable_offset(self) -> int:
        """Where the oldest transaction begins that the segment does not end."""
        return retried(self, lambda: self._transactions.last_stable_offset(self.segments, self.log_end_offset))

    @property
    def damage(self) -> list[FormatError]:
        """What is wrong at the end of the segment."""
        damage = retried(self, lambda: self.segments[0].end().damage)
        return [] if damage is None else [damage]

    def _aborted(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        return retried(self, lambda: self._transactions.aborted(self.segments, start_offset, end_offset))

    def may_have_gaps(self) -> bool:
        """Whether offsets may be missing without a loss: that is not known."""
        return True

    def refresh(self) -> None:
        """Do nothing: the segment is what it was when it was opened."""
        self._state.check_open()

    def close(self) -> None:
        """Close the files."""
        self._state.is_closed = True
        self._opened.close_all()
