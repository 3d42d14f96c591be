"""The log cleaner: keeps the newest record of each key, so that an endless log takes a bounded amount of space.

    |  clean: one record a key  |  dirty: as it was appended  |  not yet: active segment, open transactions, lag  |
    ^ log start                 ^ first dirty offset          ^ first uncleanable offset

One round reads the dirty part into an offset map. Then it copies all segments up to the map's end, group by group, into
one new segment for each group, without the records for which the map has newer ones, and swaps that segment in.
Tombstones stay until a delete horizon, which the first round that meets them writes into their batch. For transactions
see `CleanedTransactions`. Appends continue meanwhile: they change only the active segment.

Source in Kafka: `Cleaner`, `LogCleaner`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from odradek.errors import FormatError, LogError
from odradek.printable import logger
from odradek.storage.cleaning.cleanable import CleanableLog, CleanerConfig, CleaningRange, CleaningStats, Throttle
from odradek.storage.cleaning.offset_map_builder import OffsetMapBuilder
from odradek.storage.cleaning.segment_cleaner import SegmentCleaner, modified_ms
from odradek.storage.files import FILES, FileSystem
from odradek.storage.formats.index_file import MAX_RELATIVE_OFFSET
from odradek.storage.formats.transaction_index import AbortedTransaction
from odradek.storage.segment.segment import Segment

_logger = logger(__name__)


def group_segments(
    segments: Sequence[Segment], max_bytes: int, max_index_bytes: int, first_uncleanable_offset: int
) -> list[list[Segment]]:
    """Group consecutive segments to merge: the sizes and offsets of a group must fit into one segment."""
    groups: list[list[Segment]] = []
    sizes = (0, 0, 0)
    for number, segment in enumerate(segments):
        index_bytes = segment.offset_index.count * segment.offset_index.ENTRY_SIZE
        time_index_bytes = segment.time_index.count * segment.time_index.ENTRY_SIZE
        grown = (sizes[0] + segment.size_bytes, sizes[1] + index_bytes, sizes[2] + time_index_bytes)
        following = segments[number + 1].base_offset if number + 1 < len(segments) else first_uncleanable_offset
        fits = (
            bool(groups)
            and grown[0] <= max_bytes
            and grown[1] <= max_index_bytes
            and grown[2] <= max_index_bytes
            # The base offset of the next segment bounds the last offset of this one.
            and (segment.size_bytes == 0 or following - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        )
        if fits:
            groups[-1].append(segment)
            sizes = grown
        else:
            groups.append([segment])
            sizes = (segment.size_bytes, index_bytes, time_index_bytes)
    return groups


def aborted_transactions(
    log: CleanableLog, segments: Sequence[Segment], work: CleaningRange
) -> list[AbortedTransaction]:
    """Return the aborted transactions that a round may meet: by the batches, since an index may lack some.

    In the part that was cleaned before, the first data of a transaction may be gone. There the entries of the segment's
    index are used, unless they contradict the batches.

    Args:
        log: The log.
        segments: Its segments.
        work: The range to clean.
    """
    found = log.aborted_transactions(segments[0].base_offset, work.first_uncleanable_offset)
    noted = {}
    for segment in segments:
        if segment.base_offset < work.first_dirty_offset:
            with suppress(FormatError):
                noted.update({entry[:3:2]: entry for entry in segment.transaction_index().transactions})
    return [
        entry
        if (entry := noted.get(transaction[:3:2])) is not None and entry.first_offset <= transaction.first_offset
        else transaction
        for transaction in found
    ]


class Cleaner:
    """Cleans logs, one at a time. Only one thread may use it at a time.

    Args:
        config: The cleaner's configs.
        files: The file system to write through.
        throttle: Limits the rate of reading and writing; one of its own if None.
        check_done: Called now and then; it raises to stop the work.
    """

    def __init__(
        self,
        config: CleanerConfig | None = None,
        *,
        files: FileSystem = FILES,
        throttle: Throttle | None = None,
        check_done: Callable[[], None] = lambda: None,
    ) -> None:
        config = config or CleanerConfig()
        self._files = files
        self._check_done = check_done
        self._throttle = throttle or Throttle(config.io_max_bytes_per_second)
        self._maps = OffsetMapBuilder(config, self._throttle, check_done)

    def clean(self, log: CleanableLog, work: CleaningRange, now_ms: int) -> CleaningStats:
        """Clean a log.

        Args:
            log: The log.
            work: The range to clean.
            now_ms: The time that tombstones are compared with, in ms.

        Returns:
            What was done; nothing if the range is empty.

        Raises:
            CorruptRecordError: A batch is damaged. Segments cleaned before it stay cleaned.
            LogError: The offset map is too small for a single batch.
        """
        stats = CleaningStats(end_offset=work.first_dirty_offset)
        started = time.monotonic()
        segments = list(log.segments)
        aborted = aborted_transactions(log, segments, work)
        clean = [segment for segment in segments if segment.base_offset < work.first_dirty_offset]
        offsets = self._maps.build(segments, work, aborted, stats)
        stats.index_seconds = time.monotonic() - started
        stats.keys = offsets.size
        stats.end_offset = max(offsets.latest_offset + 1, work.first_dirty_offset)
        if stats.end_offset == work.first_dirty_offset < work.first_uncleanable_offset:
            raise LogError(f"{log.path.name}: the offset map is too small for the batch at offset {stats.end_offset}")
        cleaner = SegmentCleaner(
            log,
            offsets,
            aborted,
            now_ms=now_ms,
            legacy_horizon_ms=modified_ms(clean[-1]) - log.config.delete_retention_ms if clean else 0,
            end_of_round=work.first_uncleanable_offset,
            files=self._files,
            throttle=self._throttle,
            check_done=self._check_done,
            stats=stats,
        )
        for group in group_segments(
            [segment for segment in segments if segment.base_offset < stats.end_offset],
            log.config.max_segment_bytes,
            log.config.segment_index_bytes,
            work.first_uncleanable_offset,
        ):
            cleaner.clean_group(group)
        stats.seconds = time.monotonic() - started
        _logger.info("%s: cleaned up to offset %d: %s", log.path.name, stats.end_offset, stats)
        return stats
