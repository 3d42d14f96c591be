"""Searches the partitions of a source, as `odradek.inspection.searching` searches files."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path

from odradek.inspection.searching.batch_search import Committed
from odradek.inspection.searching.part_search import Context, Part, PartSearch, SearchOptions, search_part
from odradek.inspection.searching.pattern import RecordPattern
from odradek.inspection.selection import NO_END, DumpSelection
from odradek.places.place import Place, PlaceSlice
from odradek.records import Record
from odradek.records.isolation import Isolation
from odradek.sources.growing_partition import growing_partition
from odradek.storage.names import TopicPartition
from odradek.storage.segment.batch_reader import Damage

_SLICE_BYTES = 4 << 20
_STEP_RECORDS = 256


def search_partition(
    source: Place,
    topic_partition: TopicPartition,
    options: SearchOptions,
    isolation: Isolation,
    damaged: Callable[[Damage], None],
) -> Iterator[PartSearch]:
    """Yield what is found in a partition, in the order of the offsets; often nothing.

    Raises:
        UnknownTopicOrPartitionError: There is no such partition.
        BrokerUnavailableError: A broker did not answer in time.
    """
    selection = options.selection
    bounds = source.bounds(topic_partition, isolation)
    start = max(bounds.start_offset, selection.start_offset or 0)
    if selection.since is not None:
        found = source.find_timestamp(topic_partition, selection.since)
        start = bounds.end_offset if found is None else max(start, found)
    end = bounds.end_offset if selection.end_offset is None else min(selection.end_offset, bounds.end_offset)
    if start >= end:
        return
    # Without a start (None), it is no error if retention deletes the first records meanwhile.
    first = None if start == bounds.start_offset else start
    narrowed = options._replace(selection=selection.within(start, end))
    for part in source.slices(topic_partition, first, end, isolation=isolation, slice_bytes=_SLICE_BYTES):
        committed = Committed(part.aborted, NO_END) if isolation == "read_committed" else None
        data = bytes(part.batches)
        _forget(part)
        search = search_part(narrowed, Part(Path(part.path), data, 0, len(data), committed))
        for damage in search.damages:
            damaged(damage)
        search.decide()
        yield search


def search_records(
    source: Place,
    topic_partition: TopicPartition,
    pattern: RecordPattern | None,
    selection: DumpSelection,
    isolation: Isolation,
    report: Callable[[str], None],
) -> Iterator[tuple[Record | None, int]]:
    """Yield the records that a pattern matches, or all without one, each with the offset after it.

    Now and then None comes with the offset that is next, so that the caller may stop there.

    Args:
        source: Where the partition is.
        topic_partition: The partition.
        pattern: What is looked for.
        selection: Which offsets, both bounds given, and which times.
        isolation: The isolation level.
        report: Called with each text about damage.
    """
    if pattern is None:
        partition = growing_partition(source, topic_partition, isolation, report)
        start, end = selection.start_offset or 0, selection.end_offset or 0
        for number, record in enumerate(partition.read(start, end, isolation=isolation)):
            position = (record.offset or 0) + 1
            if selection.takes(record):
                yield record, position
            if number % _STEP_RECORDS == 0:
                yield None, position
        return
    # With a context the records that are found are handed out as such, and not only as lines.
    options = SearchOptions(pattern, selection, Context(0, 1))
    for part in search_partition(source, topic_partition, options, isolation, lambda damage: report(str(damage))):
        if part.count:
            for row in part.rows():
                if row is not None and row.is_found:
                    yield row.record, (row.record.offset or 0) + 1
        if part.next_offset is not None:
            yield None, part.next_offset


def _forget(part: PlaceSlice) -> None:
    """Let the pages of a slice leave this process, which would hold whole segments otherwise."""
    if isinstance(part.data, mmap.mmap):
        start = part.position - part.position % mmap.PAGESIZE
        part.data.madvise(mmap.MADV_DONTNEED, start, part.end_position - start)
