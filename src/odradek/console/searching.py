"""Searches topics for records: by a pattern, a text, a key or a condition, partition by partition, in small steps.

    partition 0 |------>|------>|.....      each step a few megabytes, or some hundred records
                 records, or nothing yet

Between two steps the search may be stopped, and other searches have their turn. What is searched, and how far it is,
can always be told; a search that ends early says where it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from odradek.console.options import ConsoleOptions
from odradek.errors import OptionError
from odradek.inspection.searching.pattern import FIELDS, Field, RecordPattern
from odradek.inspection.selection import DumpSelection
from odradek.places.place import Place
from odradek.records import Record
from odradek.records.isolation import Isolation
from odradek.sources.condition import condition
from odradek.sources.growing_partition import growing_partition
from odradek.sources.re2_only import Re2Pattern
from odradek.sources.record_search import search_records
from odradek.sources.redaction import Redaction
from odradek.storage.names import TopicPartition

MODES = ("pattern", "text", "key")
"""What is looked for: a regular expression of RE2, a text as it stands, or a whole key."""

_EVERYTHING = DumpSelection()


@dataclass(frozen=True)
class Query:
    """What is looked for.

    Attributes:
        topic: The topic.
        partitions: Its partitions that are searched, in this order.
        mode: One of `MODES`.
        pattern: The regular expression, text or key; empty for every record.
        fields: Where a pattern or text is looked for.
        ignore_case: Whether the case of letters is ignored.
        condition: A condition (`odradek.sources.condition`), or empty.
        selection: Which offsets and times.
        isolation: `read_committed` leaves out aborted and undecided transactions.
        start: The partition and the offset at which the search goes on; None for the beginning.
        partition_count: How many partitions the topic has.
    """

    topic: str
    partitions: tuple[int, ...]
    mode: str = "pattern"
    pattern: str = ""
    fields: tuple[Field, ...] = FIELDS
    ignore_case: bool = False
    condition: str = ""
    selection: DumpSelection = _EVERYTHING
    isolation: Isolation = "read_uncommitted"
    start: tuple[int, int] | None = None
    partition_count: int = 0


class Search:
    """One run of a query; one thread at a time.

    Args:
        place: What is searched.
        query: What is looked for.
        options: What is left out of records, and so cannot be looked for.
        report: Is told of what is damaged.

    Attributes:
        searched: How many offsets were looked at.
        total: How many there are.
        position: The partition and offset that come next; None at the end.

    Raises:
        OptionError: A pattern or condition cannot be used, or looks for what is left out.
    """

    def __init__(self, place: Place, query: Query, options: ConsoleOptions, report: Callable[[str], None]) -> None:
        self._place = place
        self._query = query
        self._report = report
        self._redaction = options.redaction()
        self._wants = condition(query.condition) if query.condition else None
        self._pattern = _pattern(query, self._redaction)
        self._key = query.pattern.encode() if query.mode == "key" and query.pattern else None
        names = [TopicPartition(query.topic, number) for number in query.partitions]
        if query.start is not None:
            names = [name for name in names if name.partition >= query.start[0]]
        bounds = place.all_bounds(names, query.isolation)
        self._ranges = {name: self._range(name, *bounds[name][:2]) for name in names if name in bounds}
        self.searched = 0
        self.total = sum(end - start for start, end in self._ranges.values())
        self.position: tuple[int, int] | None = None

    def _range(self, name: TopicPartition, start: int, end: int) -> tuple[int, int]:
        selection, begun = self._query.selection, self._query.start
        start = max(start, selection.start_offset or 0)
        if begun is not None and name.partition == begun[0]:
            start = max(start, begun[1])
        if selection.end_offset is not None:
            end = min(end, selection.end_offset)
        if selection.since is not None and start < end:
            found = self._place.find_timestamp(name, selection.since, self._query.isolation)
            start = end if found is None else max(start, found)
        return start, max(start, end)

    def steps(self) -> Iterator[tuple[TopicPartition, Record] | None]:
        """Yield what is found, and None after each step that found nothing more."""
        before = 0
        for name, (start, end) in self._ranges.items():
            if start < end:
                self.position = name.partition, start
                yield None
                selection = replace(self._query.selection, start_offset=start, end_offset=end)
                found = search_records(self._place, name, self._pattern, selection, self._query.isolation, self._report)
                for record, position in found:
                    self.searched = before + min(position, end) - start
                    self.position = name.partition, position
                    if record is None:
                        yield None
                    elif self._is_wanted(name, record):
                        yield name, record
            before += end - start
            self.searched = before
            # A log ends before damage in its last segment: nobody should take that for all that there is.
            growing_partition(self._place, name, self._query.isolation, self._report).report_end()
        yield None
        self.position = None

    def _is_wanted(self, name: TopicPartition, record: Record) -> bool:
        if self._key is not None and record.key != self._key:
            return False
        return self._wants is None or self._wants(self._redaction.row(name, record, self._query.partition_count))


def _pattern(query: Query, redaction: Redaction) -> RecordPattern | None:
    if query.mode not in MODES:
        raise OptionError(f"mode must be one of {', '.join(MODES)}, not {query.mode!r}")
    if not query.pattern:
        return None
    wanted = ("key",) if query.mode == "key" else query.fields
    # Whether it matches would tell what is left out.
    fields: list[Field] = [field for field in FIELDS if field in wanted and not redaction.hides(field)]
    if not fields:
        raise OptionError("what the pattern is looked for in is left out of this console")
    if query.mode == "pattern":
        return Re2Pattern(query.pattern, fields, ignore_case=query.ignore_case)
    ignore_case = query.ignore_case and query.mode == "text"
    return RecordPattern(query.pattern, fixed=True, ignore_case=ignore_case, fields=fields)
