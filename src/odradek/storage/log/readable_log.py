"""What the functions that read a log need of it: `Log` is one, and so is a partition that grows (`odradek.sources`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from odradek.records.isolation import Isolation
from odradek.records.kernels.objects import Record
from odradek.storage.formats.transaction_index import AbortedTransaction
from odradek.storage.names import TopicPartition
from odradek.storage.segment.segment import Segment


class Bounded(Protocol):
    """Records between two offsets."""

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers are given."""
        ...

    def end_offset(self, isolation: Isolation) -> int:
        """Return the end of what a reader is given."""
        ...

    @property
    def read(self) -> Callable[..., Iterator[Record]]:
        """Yields the records of a range."""
        ...


class ReadableLog(Bounded, Protocol):
    """A log; see `Log`."""

    path: Path
    topic_partition: TopicPartition

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, by base offset."""
        ...

    @property
    def log_end_offset(self) -> int:
        """The offset after the last record."""
        ...

    def refresh(self) -> None:
        """Look again at what a writer changed."""
        ...

    def tail_identity(self) -> object:
        """Return what changes if offsets that were read may have other records now."""
        ...

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that have a record in a range."""
        ...

    def may_have_gaps(self) -> bool:
        """Whether offsets may be missing without a loss."""
        ...

    def bounds(self, start_offset: int, end_offset: None, isolation: Isolation) -> tuple[int, int]:
        """Return the range of offsets to read."""
        ...
