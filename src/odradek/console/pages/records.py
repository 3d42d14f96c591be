"""The records of a partition: from an offset, a time or the end; one record; and live, as they come."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Generator, Iterator
from itertools import islice
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from odradek.console.console import Console, console_of, text_of
from odradek.console.parameters import MAX_OFFSET, Parameters, query_text
from odradek.console.reading import read_from, read_last
from odradek.console.shown_records import ALONE, RecordView
from odradek.console.source import Source
from odradek.console.streaming import Streamed
from odradek.console.text_filters import part_of_path
from odradek.errors import OdradekError, OptionError, UnknownTopicOrPartitionError
from odradek.inspection.explaining.explanation import explain
from odradek.inspection.explaining.summary import hexdump, summary_lines
from odradek.inspection.searching.pattern import FIELDS
from odradek.printable import printable
from odradek.records import Record
from odradek.records.isolation import ISOLATION_LEVELS, Isolation
from odradek.sources.condition import Value, expression
from odradek.sources.tail import Choice, Tail
from odradek.storage.names import TopicPartition

_STARTS = ("end", "start", "offset", "time")
ISOLATIONS: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")
"""The isolation levels, the default first."""

_COUNTS = (25, 50, 100, 250)
_MOST_COUNT = 500
_MOST_COLUMNS = 12
_LONGEST_CELL = 200
_FIRST_OF_TAIL = 20
_MOST_OF_EVENT = 100
_KEEP_ALIVE_S = 10.0
_MOST_LINES = 500

assert set(ISOLATIONS) == set(ISOLATION_LEVELS)


def asked_isolation(asked: Parameters) -> Isolation:
    """Return the isolation level that a reader asks for."""
    return ISOLATIONS[ISOLATIONS.index(asked.choice("isolation", ISOLATIONS))]


async def _records(request: Request) -> Response:
    console, asked, topic = console_of(request), Parameters(request.query_params), request.path_params["topic"]
    return await console.page("records.html", lambda: _found(console.source, topic, asked))


def _found(source: Source, topic: str, asked: Parameters) -> dict[str, Any]:
    numbers = source.numbers(topic)
    name = TopicPartition(topic, asked.number("partition", numbers[0]))
    source.check_partition(name)
    at, count = asked.choice("at", _STARTS), asked.number("count", _COUNTS[0], 1, _MOST_COUNT)
    isolation, as_hex = asked_isolation(asked), asked.flag("hex")
    with source.admin() as admin:
        place = admin.place
        if at == "end":
            found = read_last(place, name, count, isolation)
        else:
            start = 0 if at == "start" else asked.number("offset", 0)
            if at == "time":
                moment = asked.time_ms("time")
                if moment is None:
                    raise OptionError("time: give one, such as 2026-11-01T12:00:00")
                known = place.find_timestamp(name, moment, isolation)
                start = MAX_OFFSET if known is None else known
            found = read_from(place, name, start, count, isolation)
    view, columns = RecordView(topic, source.options, as_hex=as_hex), _columns(asked)
    first = (found.records[0].offset or 0) if found.records else min(found.next_offset, found.end_offset)
    kept = {"partition": name.partition, "count": count, "isolation": isolation if isolation != ISOLATIONS[0] else ""}
    kept |= {"hex": int(as_hex) or "", "columns": asked.text("columns")}

    def link(offset: int) -> str:
        return query_text({**kept, "at": "offset", "offset": offset})

    return {
        "topic": topic,
        "partition": name.partition,
        "numbers": numbers,
        "records": [] if columns else [view.show(name.partition, record) for record in found.records],
        "columns": columns,
        "cells": _cells(source, name, found.records, columns) if columns else [],
        "found": found,
        "asked": asked,
        "at": at,
        "starts": [("end", "the end"), ("start", "the start"), ("offset", "the offset"), ("time", "the time")],
        "count": count,
        "counts": sorted({*_COUNTS, count}),
        "isolation": isolation,
        "isolations": ISOLATIONS,
        "as_hex": as_hex,
        "offset": asked.optional("offset"),
        "time": asked.text("time"),
        "exact": link(first),
        "earlier": link(max(found.start_offset, first - count)) if first > found.start_offset else None,
        "later": link(found.next_offset) if found.next_offset < found.end_offset else None,
        "exported": query_text({"topic": topic, "partition": name.partition, "start": first, "end": found.next_offset}),
    }


def _columns(asked: Parameters) -> list[str]:
    """Return the columns, fields and functions that a reader wants a table of.

    Raises:
        OptionError: There are too many of them.
    """
    columns = [text.strip() for text in asked.text("columns").split(",") if text.strip()]
    if len(columns) > _MOST_COLUMNS:
        raise OptionError(f"columns: at most {_MOST_COLUMNS}, not {len(columns)}")
    return columns


def _cells(
    source: Source, name: TopicPartition, records: list[Record], columns: list[str]
) -> list[tuple[Record, list[str | None]]]:
    """Return the columns of each record, as conditions see them: without what is left out."""
    computed, redaction = [expression(text) for text in columns], source.options.redaction()
    partitions = len(source.numbers(name.topic))
    rows = [redaction.row(name, record, partitions) for record in records]
    return [(row.record, [_cell(one(row)) for one in computed]) for row in rows]


def _cell(value: Value) -> str | None:
    text = value if isinstance(value, str) or value is None else json.dumps(value)
    return text if text is None or len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}…"


async def _record(request: Request) -> Response:
    console, asked, parts = console_of(request), Parameters(request.query_params), request.path_params
    if not all(re.fullmatch("[0-9]{1,19}", parts[name]) for name in ("partition", "offset")):
        raise HTTPException(404)
    name, offset = TopicPartition(parts["topic"], int(parts["partition"])), int(parts["offset"])
    return await console.page("record.html", lambda: _one(console.source, name, offset, asked))


def _one(source: Source, name: TopicPartition, offset: int, asked: Parameters) -> dict[str, Any]:
    source.check_partition(name)
    if offset > MAX_OFFSET:
        raise OptionError(f"offset: there is none above {MAX_OFFSET}")
    as_hex = asked.flag("hex")
    with source.admin() as admin:
        found = read_from(admin.place, name, offset, 1, ISOLATIONS[0])
    view = RecordView(name.topic, source.options, ALONE, as_hex=as_hex)
    return {
        "topic": name.topic,
        "partition": name.partition,
        "offset": offset,
        "record": next((view.show(name.partition, one) for one in found.records if one.offset == offset), None),
        "found": found,
        "as_hex": as_hex,
        "explained": None if found.is_too_large else _explained(source, name, offset),
    }


def _explained(source: Source, name: TopicPartition, offset: int) -> dict[str, Any] | None:
    """Return where an offset lies and who is given it; without the bytes, if anything is left out of records."""
    if source.folder is None:
        return None
    found = explain(source.folder / str(name), offset)
    is_whole = not source.options.redact
    lines = [(fact, text) for fact, text in summary_lines(found) if is_whole or fact not in FIELDS]
    dump = list(islice(hexdump(found.own_fields, full=False), _MOST_LINES)) if is_whole else []
    return {"lines": lines, "dump": "\n".join(map(printable, dump)), "findings": found.findings}


# -- live


async def _live(request: Request) -> Response:
    console, asked, topic = console_of(request), Parameters(request.query_params), request.path_params["topic"]

    def make() -> dict[str, Any]:
        partition = asked.optional("partition")
        return {
            "topic": topic,
            "numbers": console.source.numbers(topic),
            "partition": partition,
            "isolation": asked_isolation(asked),
            "isolations": ISOLATIONS,
            "events": f"/topics/{part_of_path(topic)}/events{asked.link()}",
        }

    return await console.page("tail.html", make)


async def _events(request: Request) -> Response:
    console, asked, topic = console_of(request), Parameters(request.query_params), request.path_params["topic"]
    partition, isolation = asked.optional("partition"), asked_isolation(asked)
    numbers = await console.work.run(console.source.numbers, topic)
    if partition is not None and partition not in numbers:
        raise UnknownTopicOrPartitionError(topic, partition, path=console.source.address)
    chosen = Choice((topic,), () if partition is None else (partition,), isolation)
    return Streamed(console.work, _followed(console, topic, chosen), "text/event-stream", "tail")


def _followed(console: Console, topic: str, chosen: Choice) -> Generator[str]:
    """Yield server-sent events: the last records, and those that come; an empty text each time that nothing came."""
    source, notes = console.source, list[str]()
    view, sent_s = RecordView(topic, source.options), time.monotonic()
    yield event("reset", "")
    try:
        config = dict(source.options.config) or None
        with Tail([source.options.address], chosen, report=notes.append, follows=True, config=config) as tail:
            last = tail.last(_FIRST_OF_TAIL)[-_FIRST_OF_TAIL:]
            for records in _with_first(last, tail.follow()):
                if len(records) > _MOST_OF_EVENT:
                    notes.append(f"{len(records) - _MOST_OF_EVENT} records came too fast to be shown.")
                shown = [view.show(one.topic_partition.partition, one.record) for one in records[-_MOST_OF_EVENT:]]
                parts = [event("note", note) for note in notes]
                notes.clear()
                if shown:
                    page = console.render("tailed.html", {"topic": topic, "records": shown[::-1]})
                    parts.append(event("records", page))
                if not parts and time.monotonic() - sent_s > _KEEP_ALIVE_S:
                    # Tells that the reader has gone, where its system did not.
                    parts.append(": still here\n\n")
                sent_s = time.monotonic() if parts else sent_s
                yield "".join(parts)
    except (OdradekError, OSError) as error:
        yield event("end", text_of(error))


def _with_first(first: list[Any], more: Iterator[list[Any]]) -> Iterator[list[Any]]:
    yield first
    yield from more


def event(name: str, text: str) -> str:
    """Return a server-sent event; each of its lines has its own field, and no line end of a record ends one."""
    lines = printable(text, kept="\n\t").split("\n")
    return f"event: {name}\n" + "".join(f"data: {line}\n" for line in lines) + "\n"


ROUTES = [
    Route("/topics/{topic}/records", _records),
    Route("/topics/{topic}/tail", _live),
    Route("/topics/{topic}/events", _events),
    Route("/topics/{topic}/{partition}/{offset}", _record),
]
