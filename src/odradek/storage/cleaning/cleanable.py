"""What the cleaner goes by: a log as it sees it, its configs, what is to be cleaned, and what came of it.

    | segment | segment | segment | active segment |
    0         ^ first dirty offset ^ first uncleanable offset

Source in Kafka: `LogToClean`, `CleanerConfig`, `CleanerStats`.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from odradek.storage.formats.transaction_index import AbortedTransaction
from odradek.storage.log.cleaning_turn import CleaningTurn
from odradek.storage.names import TopicPartition
from odradek.storage.producers.producer_state_manager import LastRecord
from odradek.storage.segment.segment import Segment
from odradek.storage.topic_config import TopicConfig


class CleanableLog(Protocol):
    """A log as the cleaner needs it; it goes on being appended to.

    Attributes:
        topic_partition: Whose log it is.
        path: The partition's folder.
    """

    topic_partition: TopicPartition
    path: Path

    @property
    def config(self) -> TopicConfig:
        """The topic's configs, which may change at any time."""
        ...

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers are given."""
        ...

    @property
    def log_end_offset(self) -> int:
        """The offset after the last one."""
        ...

    @property
    def last_stable_offset(self) -> int:
        """Where the oldest open transaction begins, or the high watermark."""
        ...

    @property
    def segments(self) -> Sequence[Segment]:
        """All segments in order, the active one last; a list that does not change under its reader."""
        ...

    @property
    def cleaning(self) -> CleaningTurn:
        """Whose turn it is to work on its sealed segments."""
        ...

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that have a record in a range."""
        ...

    def last_records(self) -> Mapping[int, LastRecord]:
        """Return the last record of each active producer (see `ProducerStateManager.last_records`)."""
        ...

    def replace_segments(self, new_base_offset: int, old: Sequence[Segment]) -> None:
        """Put the segment whose `.cleaned` files are complete in the place of others (see `SegmentSwap`)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerConfig:
    """The broker configs `log.cleaner.*`, with Kafka's defaults.

    Attributes:
        dedupe_buffer_size: The bytes of the offset map, at most.
        io_buffer_load_factor: How full the map may get.
        io_max_bytes_per_second: How much is read and written, on average.
        backoff_ms: How long the cleaner rests where there is nothing to do.
    """

    dedupe_buffer_size: int = 128 << 20
    io_buffer_load_factor: float = 0.9
    io_max_bytes_per_second: float = float("inf")
    backoff_ms: int = 15_000


@dataclass(frozen=True, slots=True)
class CleaningRange:
    """What of a log is to be cleaned.

    Attributes:
        first_dirty_offset: Where the part begins that was not cleaned before.
        first_uncleanable_offset: Where the part begins that is not to be touched: a segment's base offset.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int


@dataclass(slots=True)
class CleaningStats:
    """What one round did.

    Attributes:
        end_offset: The first offset that is still dirty: what the checkpoint is to say.
        map_bytes_read: The bytes that the offset map was built from.
        keys: How many keys it held.
        bytes_read: The bytes of all segments that were copied.
        bytes_written: The bytes of those that took their place.
        records_read: How many records were looked at.
        records_kept: How many of them stayed.
        records_without_key: How many were dropped for want of a key.
        index_seconds: How long the map took.
        seconds: How long all took.
    """

    end_offset: int = 0
    map_bytes_read: int = 0
    keys: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    records_without_key: int = 0
    index_seconds: float = 0.0
    seconds: float = 0.0


def segments_between(segments: Sequence[Segment], start_offset: int, end_offset: int) -> list[Segment]:
    """Return the segments from the one that holds an offset up to an offset; an earlier one if none holds it."""
    first = max(0, bisect_right(segments, start_offset, key=lambda segment: segment.base_offset) - 1)
    last = bisect_left(segments, end_offset, key=lambda segment: segment.base_offset)
    return list(segments[first:last])


class Throttle:
    """Makes a stream of bytes keep to a rate on average."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._started = time.monotonic()
        self._bytes = 0

    def wait(self, size: int) -> None:
        """Note bytes, and sleep where they came too soon."""
        self._bytes += size
        ahead = self._bytes / self._rate - (time.monotonic() - self._started)
        if ahead > 0:
            time.sleep(ahead)
