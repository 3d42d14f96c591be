"""The search over all of a topic, with its progress, and the export of records as JSON lines, CSV or Parquet.

Both are sent as they are found: a page of hits grows in the browser without a script, and leaving it ends the search.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from odradek.console.console import Console, console_of, text_of
from odradek.console.exporting import FORMATS, Encoder, encoder_of, exported
from odradek.console.pages.records import ISOLATIONS, asked_isolation
from odradek.console.parameters import Parameters
from odradek.console.searching import MODES, Query, Search
from odradek.console.shown_records import RecordView, ShownRecord
from odradek.console.source import Source
from odradek.console.streaming import Streamed
from odradek.errors import OdradekError, UnknownTopicOrPartitionError
from odradek.extras import missing_package
from odradek.inspection.searching.pattern import FIELDS
from odradek.inspection.selection import DumpSelection

_HITS = (100, 250, 1000)
_PROGRESS_S = 0.5
_RENDERED = 25
_SUGGESTED = 1000
_MARK = "<!-- what is found -->"


def _query(source: Source, asked: Parameters) -> Query:
    topic = asked.text("topic")
    numbers = source.numbers(topic)
    partition = asked.optional("partition")
    if partition is not None and partition not in numbers:
        raise UnknownTopicOrPartitionError(topic, partition, path=source.address)
    begun = asked.optional("from_partition")
    return Query(
        topic,
        tuple(numbers if partition is None else [partition]),
        asked.choice("mode", MODES),
        asked.text("pattern"),
        asked.words("in", FIELDS),  # type: ignore[arg-type]
        asked.flag("ignore_case"),
        asked.text("condition"),
        DumpSelection(asked.optional("start"), asked.optional("end"), asked.time_ms("since"), asked.time_ms("until")),
        asked_isolation(asked),
        None if begun is None else (begun, asked.number("from_offset", 0)),
        len(numbers),
    )


async def _search(request: Request) -> Response:
    console, asked = console_of(request), Parameters(request.query_params)

    def make() -> dict[str, Any]:
        return _form(console.source, asked)

    if not (asked.text("topic") and (asked.text("pattern") or asked.text("condition"))) or asked.flag("edit"):
        return await console.page("search.html", make)

    def prepared() -> tuple[Query, str]:
        # What is wrong with a pattern is told before anything is sent.
        query = _query(console.source, asked)
        with console.source.admin() as admin:
            Search(admin.place, query, console.options, lambda _: None)
        return query, console.render("search.html", make() | {"runs": True})

    query, page = await console.work.run(prepared)
    return Streamed(console.work, _found(console, query, asked, page), "text/html")


def _form(source: Source, asked: Parameters) -> dict[str, Any]:
    topic = asked.text("topic")
    return {
        "topics": list(source.topics())[:_SUGGESTED],
        "topic": topic,
        "mode": asked.choice("mode", MODES),
        "modes": [("pattern", "the pattern (RE2)"), ("text", "the text"), ("key", "the whole key")],
        "pattern": asked.text("pattern"),
        "fields": asked.words("in", FIELDS),
        "all_fields": FIELDS,
        "ignore_case": asked.flag("ignore_case"),
        "condition": asked.text("condition"),
        "partition": asked.text("partition"),
        "since": asked.text("since"),
        "until": asked.text("until"),
        "isolation": asked_isolation(asked),
        "isolations": ISOLATIONS,
        "hits": asked.number("hits", _HITS[0], 1, _HITS[-1]),
        "all_hits": _HITS,
        "stop": asked.link(edit=1, from_partition=None, from_offset=None),
        "exported": asked.link(edit=None, hits=None),
        "runs": False,
        "mark": _MARK,
    }


def _found(console: Console, query: Query, asked: Parameters, page: str) -> Generator[str]:
    """Yield a page as its records are found."""
    head, _, foot = page.partition(_MARK)
    yield head
    most, found, notes = asked.number("hits", _HITS[0], 1, _HITS[-1]), 0, list[str]()
    view, told_s = RecordView(query.topic, console.options), time.monotonic()
    ended: dict[str, Any] = {"more": None, "error": None}
    shown: list[ShownRecord] = []
    try:
        with console.source.admin() as admin:
            search = Search(admin.place, query, console.options, notes.append)
            for hit in search.steps():
                if hit is not None:
                    found += 1
                    shown.append(view.show(hit[0].partition, hit[1]))
                now, parts = time.monotonic(), list[str]()
                if hit is None or found == 1 or len(shown) == _RENDERED or found >= most:
                    parts = _rendered(console, query.topic, shown, notes)
                    shown.clear()
                    notes.clear()
                if now - told_s > _PROGRESS_S:
                    told_s = now
                    state = {"searched": search.searched, "total": search.total, "found": found}
                    parts.append(console.render("search_progress.html", state))
                if hit is None or parts:
                    yield "".join(parts)
                if found >= most and search.position is not None:
                    partition, offset = search.position
                    ended["more"] = asked.link(from_partition=partition, from_offset=offset)
                    break
            ended |= {"searched": search.searched, "total": search.total}
    except (OdradekError, OSError) as error:
        ended["error"] = text_of(error)
    yield "".join(_rendered(console, query.topic, shown, []))
    yield console.render("search_end.html", {"found": found, "notes": notes, **ended}) + foot


def _rendered(console: Console, topic: str, shown: list[ShownRecord], notes: list[str]) -> list[str]:
    parts = [console.render("search_notes.html", {"notes": notes[:100]})] if notes else []
    if shown:
        parts.append(console.render("tailed.html", {"topic": topic, "records": shown}))
    return parts


# -- export


async def _export(request: Request) -> Response:
    console, asked = console_of(request), Parameters(request.query_params)
    form = asked.choice("format", tuple(FORMATS))

    def prepared() -> tuple[Query, Encoder]:
        query = _query(console.source, asked)
        try:
            return query, encoder_of(form, query.topic, console.options)
        except ModuleNotFoundError as error:
            raise HTTPException(501, missing_package(error)) from error

    query, encoder = await console.work.run(prepared)
    # A topic's name has no character that a header would take for another: `numbers` has found it.
    name = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "_" for char in query.topic)
    headers = {"Content-Disposition": f'attachment; filename="{name}.{form}"'}
    return Streamed(console.work, _file(console, query, encoder), FORMATS[form], headers=headers)


def _file(console: Console, query: Query, encoder: Encoder) -> Generator[bytes]:
    with console.source.admin() as admin:
        yield from exported(admin.place, query, console.options, encoder)


ROUTES = [Route("/search", _search), Route("/export", _export)]
