"""What the cleaner works with: a log as it sees it, its configs, the range to clean, and the result.

    | segment | segment | segment | active segment |
    0         ^ first dirty offset ^ first uncleanable offset

Source in Kafka: `LogToClean`, `CleanerConfig`, `CleanerStats`.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek.storage.names import TopicPartition
from odradek.storage.topic_config import TopicConfig

if TYPE_CHECKING:
    from odradek.storage.formats.transaction_index import AbortedTransaction
    from odradek.storage.log.cleaning_turn import CleaningTurn
    from odradek.storage.producers.producer_state_manager import LastRecord
    from odradek.storage.segment.segment import Segment

_NAP_S = 0.1
"""How long a sleep takes at most before it is asked whether it must end."""


class CleanableLog(Protocol):
    """A log as the cleaner needs it; appends to it continue.

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
        """The first offset that readers can get."""
        ...

    @property
    def log_end_offset(self) -> int:
        """The offset after the last record."""
        ...

    @property
    def last_stable_offset(self) -> int:
        """Where the oldest open transaction begins, or the high watermark."""
        ...

    @property
    def segments(self) -> Sequence[Segment]:
        """All segments in order, the active one last. The list does not change while it is read."""
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
        """Replace segments with the one whose `.cleaned` files are complete (see `SegmentSwap`)."""
        ...


class CleanerConfig(NamedTuple):
    """The broker configs `log.cleaner.*`, with Kafka's defaults.

    Attributes:
        dedupe_buffer_size: The size of the offset map in bytes, at most.
        io_buffer_load_factor: How full the map may get, from 0 to 1.
        io_max_bytes_per_second: How many bytes are read and written per second, on average.
        backoff_ms: How long the cleaner sleeps if there is nothing to do, in ms.
    """

    dedupe_buffer_size: int = 128 << 20
    io_buffer_load_factor: float = 0.9
    io_max_bytes_per_second: float = float("inf")
    backoff_ms: int = 15_000


class CleaningRange(NamedTuple):
    """The range of a log to clean.

    Attributes:
        first_dirty_offset: The offset up to which the log was cleaned before.
        first_uncleanable_offset: The offset from which on the log must not be cleaned: a segment's base offset.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int


@dataclass(slots=True)
class CleaningStats:
    """The result of one round.

    Attributes:
        end_offset: The first offset that is still dirty, for the checkpoint.
        keys: The number of keys in the map.
        bytes_read: The size of all segments that were copied.
        records_read: The number of records that were read.
        records_kept: The number of records that were kept.
        records_without_key: The number of records that were dropped because they have no key.
        index_seconds: How long building the map took.
        seconds: How long the round took.
    """

    end_offset: int = 0
    keys: int = 0
    bytes_read: int = 0
    records_read: int = 0
    records_kept: int = 0
    records_without_key: int = 0
    index_seconds: float = 0.0
    seconds: float = 0.0


def segments_between(segments: Sequence[Segment], start_offset: int, end_offset: int) -> list[Segment]:
    """Return the segments from the one that holds an offset (or the one before it) up to another offset."""
    first = max(0, bisect_right(segments, start_offset, key=lambda segment: segment.base_offset) - 1)
    last = bisect_left(segments, end_offset, key=lambda segment: segment.base_offset)
    return list(segments[first:last])


class Throttle:
    """Limits the rate of a stream of bytes. What was not used in a second is lost."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        # When the bytes that were counted will have had their time.
        self._end = time.monotonic()

    def wait(self, size: int, check: Callable[[], None]) -> None:
        """Count bytes, and sleep if they came too fast.

        Args:
            size: How many.
            check: Called now and then meanwhile; it raises to end that.
        """
        self._end = max(self._end, time.monotonic() - 1) + size / self._rate
        while (ahead := self._end - time.monotonic()) > 0:
            check()
            time.sleep(min(ahead, _NAP_S))
