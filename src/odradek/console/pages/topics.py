"""The list of topics, and one topic: partitions, readers, producers, settings, and plots over time."""

from __future__ import annotations

import heapq
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from odradek.console.console import console_of
from odradek.console.drawing import DRAWN_PARTITIONS, asked_plots, growth_plots, segments_timeline
from odradek.console.parameters import Parameters
from odradek.console.source import SUMMARISED, Source, Survey, TopicTotals
from odradek.errors import FormatError
from odradek.kafka.topics import TopicDescription
from odradek.plots import Svg
from odradek.storage.names import CLUSTER_METADATA_TOPIC, TopicPartition, is_internal

_SORTS = ("name", "partitions", "size", "offsets", "last")
_SURVEY_S = 0.5
_MOST_ROWS = 1000
_MOST_PRODUCERS = 100


async def _list(request: Request) -> Response:
    console, asked = console_of(request), Parameters(request.query_params)
    return await console.page("topics.html", lambda: _listed(console.source, asked))


def _listed(source: Source, asked: Parameters) -> dict[str, Any]:
    words, sort, internal = asked.text("q"), asked.choice("sort", _SORTS), asked.flag("internal")
    there = source.topics()
    names = [name for name in there if words.lower() in name.lower() and (internal or not _is_internal(name))]
    is_counted = True
    if sort == "partitions":
        names.sort(key=lambda name: -len(there[name]))
    elif sort != "name":
        survey = source.survey(wait_s=1.0)
        is_counted = survey is not None
        known = {} if survey is None else survey.topics
        attribute = {"size": "size_bytes", "offsets": "offsets", "last": "last_timestamp"}[sort]
        names.sort(key=lambda name: -(getattr(known.get(name, TopicTotals(0)), attribute) or 0))
    shown, page, pages = asked.paged(names)
    totals = source.totals({name: there[name] for name in shown})
    return {
        "rows": [(name, totals.get(name, TopicTotals(len(there[name])))) for name in shown],
        "asked": asked,
        "words": words,
        "sort": sort,
        "sorts": _SORTS,
        "internal": internal,
        "page": page,
        "pages": pages,
        "found": len(names),
        "total": len(there),
        "is_counted": is_counted,
    }


def _is_internal(topic: str) -> bool:
    return is_internal(topic) or topic == CLUSTER_METADATA_TOPIC


async def _topic(request: Request) -> Response:
    console, asked, topic = console_of(request), Parameters(request.query_params), request.path_params["topic"]
    return await console.page("topic.html", lambda: _described(console.source, topic, asked))


def _described(source: Source, topic: str, asked: Parameters) -> dict[str, Any]:
    source.numbers(topic)
    described, settings, undescribed = TopicDescription(topic, None, {}), [], None
    try:
        with source.admin() as admin:
            (described,) = admin.place.describe([topic])
        settings = source.settings(topic)
    except FormatError as error:
        # Damaged metadata hide no records.
        undescribed = str(error)
    summaries = source.summaries([topic])
    known = {one.topic_partition.partition: one for one in summaries}
    numbers = sorted({*described.partitions, *known})
    drawn = numbers[:DRAWN_PARTITIONS]
    names = [TopicPartition(topic, number) for number in drawn]
    return {
        "topic": topic,
        "topic_id": described.topic_id,
        "rows": [(number, described.partitions.get(number), known.get(number)) for number in numbers[:SUMMARISED]],
        "left_out": max(0, len(numbers) - SUMMARISED),
        "totals": source.totals({topic: numbers}, summaries)[topic],
        "settings": settings,
        "undescribed": undescribed,
        "survey": (survey := source.survey(_SURVEY_S)),
        "readers": _readers(survey, topic),
        "problems": [problem for one in summaries for problem in one.problems],
        "since": asked.text("since"),
        "until": asked.text("until"),
        "drawn": len(drawn),
        "plots": _plots(source, names, asked),
        **_producers(source, names),
        "timeline": None if source.folder is None else segments_timeline(source.folder, names),
    }


def _readers(survey: Survey | None, topic: str) -> list[tuple[dict[str, Any], int | None]]:
    """Return the groups with positions in a topic, as the survey has them, with their lag there."""
    groups = [] if survey is None else survey.groups
    found = [(group, group["lags"][topic]) for group in groups if topic in group["lags"]]
    return sorted(found, key=lambda one: -(one[1] or 0))[:_MOST_ROWS]


def _producers(source: Source, names: list[TopicPartition]) -> dict[str, Any]:
    """Return the producers of the first partitions, those that wrote last first, and how many there are."""
    known = source.producers(names)
    rows = [(name.partition, one) for name, last in known.items() for one in last.producers]
    return {
        "producers": heapq.nlargest(_MOST_PRODUCERS, rows, key=lambda row: row[1].last_timestamp),
        "producers_count": len(rows),
        "producers_are_whole": all(last.is_whole for last in known.values()),
    }


def _plots(source: Source, names: list[TopicPartition], asked: Parameters) -> list[Svg]:
    """Return plots of the rate at which the first partitions grew, and, of a folder, of their size."""
    since, until = asked.time_ms("since"), asked.time_ms("until")
    if source.folder is not None:
        return growth_plots(source.folder, names, since, until)
    with source.admin() as admin:
        return asked_plots(admin.place, names, since, until)


ROUTES = [Route("/topics", _list), Route("/topics/{topic}", _topic)]
