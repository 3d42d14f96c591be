"""Records by partition, offset, time, pattern and condition, for as long as a call may read.

    cursor    events-0@4711     the first record that was not looked at

Damage is noted and stepped over. A pattern is searched for as `odradek grep` does, by its literal parts, and RE2 alone
decides: Python's own regular expressions can take hours for one record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from odradek.errors import OptionError
from odradek.inspection.searching.pattern import FIELDS
from odradek.inspection.selection import DumpSelection
from odradek.mcp.answer import Answer
from odradek.mcp.tool import COUNT, TEXT, Call, Schema, several
from odradek.places.place import Place
from odradek.records.isolation import Isolation
from odradek.records.timestamps import typed_bound_ms
from odradek.sources.condition import MOST_CHARACTERS, Row, condition
from odradek.sources.re2_only import Re2Pattern
from odradek.sources.record_search import search_records
from odradek.sources.redaction import Redaction, matching
from odradek.storage.names import TopicPartition, parse_partition_directory

_CHECKED_RECORDS = 256

TIME: Schema = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "minimum": -1 << 63,
    "maximum": (1 << 63) - 1,
    "description": "milliseconds, or ISO 8601; UTC without a zone",
}
PARTITION_FIELDS: dict[str, Schema] = {
    "topic": {**TEXT, "description": "a name, or a pattern such as events-*"},
    "partitions": {**several(COUNT), "description": "all without it"},
}
ISOLATION: Schema = {
    "enum": ["read_uncommitted", "read_committed"],
    "default": "read_uncommitted",
    "description": "read_committed leaves out aborted and undecided transactions, as such consumers do",
}
RANGE_FIELDS: dict[str, Schema] = {
    "start_offset": COUNT,
    "end_offset": {**COUNT, "description": "the offset after the last one"},
    "since": TIME,
    "until": TIME,
    "isolation": ISOLATION,
}
FILTER_FIELDS: dict[str, Schema] = {
    "pattern": {**TEXT, "maxLength": 1000, "description": "a regular expression of RE2, over the fields"},
    "fields": {**several({"enum": list(FIELDS)}), "description": "where the pattern is looked for; all without it"},
    "ignore_case": {"type": "boolean", "default": False},
    "condition": {
        **TEXT,
        "maxLength": MOST_CHARACTERS,
        "description": "as in SQL: value.user.id = 17 and not key like 'a%'; columns: topic partition offset timestamp "
        "key value default_partition value.FIELD headers.NAME; functions: lower upper length contains starts_with "
        "ends_with matches coalesce is_json; timestamp takes ISO 8601",
    },
}


@dataclass(frozen=True)
class Query:
    """Which records are looked for.

    Attributes:
        chosen: The partitions, sorted.
        selection: Which offsets and times.
        isolation: `read_committed` leaves out aborted and undecided transactions.
        redaction: What is left out of records.
        pattern: What is looked for; None for nothing.
        wants: Whether a record is wanted.
        partitions: How many partitions each topic has, where a condition asks for that.
    """

    chosen: list[TopicPartition]
    selection: DumpSelection
    isolation: Isolation
    redaction: Redaction
    pattern: Re2Pattern | None
    wants: Callable[[Row], bool]
    partitions: dict[str, int]


def given_ms(time: int | str | None) -> int | None:
    """Return the milliseconds of a time that an argument gives."""
    return typed_bound_ms(time) if isinstance(time, str) else time


def query(call: Call, place: Place, arguments: dict[str, Any], *texts: str) -> Query:
    """Return what the arguments of a tool look for.

    Args:
        call: The call.
        place: What is read.
        arguments: Those of `PARTITION_FIELDS`, `RANGE_FIELDS` and `FILTER_FIELDS`.
        texts: Other expressions of the call.

    Raises:
        OdradekError: A topic does not exist, or an argument is wrong.
    """
    chosen = place.choose(arguments["topic"], arguments.get("partitions"))
    redaction = Redaction(call.served.redact)
    text: str | None = arguments.get("condition")
    wants = condition(text) if text else lambda row: True
    pattern = None
    if arguments.get("pattern"):
        fields = redaction.fields(arguments.get("fields") or FIELDS)
        if not fields:
            raise OptionError("the fields that the pattern is for are redacted")
        ignore_case = arguments.get("ignore_case", False)
        if redaction.paths:
            matches, also = matching(arguments["pattern"], fields, ignore_case=ignore_case), wants
            wants = lambda row: matches(row) and also(row)  # noqa: E731
        else:
            pattern = Re2Pattern(arguments["pattern"], fields, ignore_case=ignore_case)
    partitions = {}
    if any("default_partition" in one.lower() for one in (text or "", *texts)):
        described = place.describe({name.topic for name in chosen})
        partitions = {topic.name: len(topic.partitions) for topic in described}
    selection = DumpSelection(
        arguments.get("start_offset"),
        arguments.get("end_offset"),
        given_ms(arguments.get("since")),
        given_ms(arguments.get("until")),
    )
    isolation = arguments.get("isolation", "read_uncommitted")
    return Query(chosen, selection, isolation, redaction, pattern, wants, partitions)


class Scan:
    """One run over the records that a query is for; one thread at a time.

    Args:
        call: The call, whose time it uses.
        place: What is read.
        query: What is looked for.
        answer: Is told what is damaged or was deleted.
        cursor: Where it begins; at the first record if None.

    Attributes:
        cursor: The record that was given last, or where the run ended; None at the end.
        searched: How many offsets were looked at.
    """

    def __init__(self, call: Call, place: Place, query: Query, answer: Answer, cursor: str | None = None) -> None:
        self.cursor: str | None = None
        self.searched = 0
        self._call = call
        self._place = place
        self._query = query
        self._answer = answer
        self._from = None if cursor is None else _parsed(cursor)
        if self._from is not None and self._from[0] not in query.chosen:
            raise OptionError(f"cursor {cursor!r} is not of these partitions: use that of the answer before")

    def rows(self) -> Iterator[Row]:
        """Yield the records that are wanted; when the time is over the answer says so."""
        for owner in self._query.chosen:
            if self._from is not None and owner < self._from[0]:
                continue
            first = 0 if self._from is None or owner != self._from[0] else self._from[1]
            before, start = self.searched, None
            for number, (row, position) in enumerate(self._of_partition(owner, first)):
                start = position if start is None else start
                self.searched = before + position - start
                self.cursor = f"{owner}@{position if row is None else row.record.offset}"
                if (row is None or number % _CHECKED_RECORDS == 0) and self._call.is_late():
                    self._answer.leave_out(f"what comes after {self.cursor}: {self._call.late}", self.cursor)
                    return
                if row is not None:
                    yield row
        self.cursor = None

    def _of_partition(self, owner: TopicPartition, first: int) -> Iterator[tuple[Row | None, int]]:
        """Yield what is wanted, and now and then only the offset that is next."""
        query, selection = self._query, self._query.selection
        bounds = self._place.bounds(owner, query.isolation)
        if selection.start_offset is not None and selection.start_offset < bounds.start_offset:
            self._answer.note(f"{owner} starts at offset {bounds.start_offset}: what was below it is deleted")
            self._answer.hint(
                "explain", "why it is not there", topic=owner.topic, partition=owner.partition,
                offset=selection.start_offset,
            )  # fmt: skip
        start = max(bounds.start_offset, selection.start_offset or 0, first)
        end = bounds.end_offset if selection.end_offset is None else min(selection.end_offset, bounds.end_offset)
        if selection.since is not None:
            found = self._place.find_timestamp(owner, selection.since, query.isolation)
            start = end if found is None else max(start, found)
        if start >= end:
            return
        yield None, start
        selection = replace(selection, start_offset=start, end_offset=end)
        found_records = search_records(self._place, owner, query.pattern, selection, query.isolation, self._answer.note)
        for number, (record, position) in enumerate(found_records):
            if record is not None:
                row = query.redaction.row(owner, record, query.partitions.get(owner.topic, 0))
                if query.wants(row):
                    yield row, position
                    continue
            if record is None or number % _CHECKED_RECORDS == 0:
                yield None, position
        yield None, end


def _parsed(cursor: str) -> tuple[TopicPartition, int]:
    name, at, offset = cursor.rpartition("@")
    parsed = parse_partition_directory(name)
    if not at or parsed is None or parsed.suffix or not offset.isdecimal() or len(offset) > 19:
        raise OptionError(f"cursor {cursor!r} is none of this tool's: use that of the answer before")
    return parsed.topic_partition, int(offset)
