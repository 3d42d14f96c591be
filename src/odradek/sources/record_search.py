"""Searches the partitions of a source, as `odradek.inspection.searching` searches files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from odradek.inspection.searching.batch_search import Committed
from odradek.inspection.searching.part_search import Part, PartSearch, SearchOptions, search_part
from odradek.inspection.selection import NO_END
from odradek.records.isolation import Isolation
from odradek.sources.source import Source
from odradek.storage.names import TopicPartition
from odradek.storage.segment.batch_reader import Damage

_SLICE_BYTES = 4 << 20


def search_partition(
    source: Source,
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
        search = search_part(narrowed, Part(Path(part.path), data, 0, len(data), committed))
        for damage in search.damages:
            damaged(damage)
        search.decide()
        yield search
