"""Groups of every kind with their lag, and transactions."""

from __future__ import annotations

import heapq
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from odradek.admin.group_rows import owners_of
from odradek.console.console import console_of, text_of
from odradek.console.drawing import drawn, levels, rates
from odradek.console.history import GROUP, PARTITION
from odradek.console.parameters import Parameters
from odradek.console.source import Source
from odradek.errors import OptionError
from odradek.messages.coordinators.transaction_records import STATE_NAMES
from odradek.plots import Svg
from odradek.records.timestamps import now_ms
from odradek.sources.transactions import is_hanging, open_transactions, transaction_states
from odradek.storage.names import TopicPartition

_SURVEY_S = 5.0
_SORTS = ("lag", "name")
_MOST_LOGS = 200
_DRAWN = 6
_MOST_SHOWN = 500


async def _list(request: Request) -> Response:
    console, asked = console_of(request), Parameters(request.query_params)
    return await console.page("groups.html", lambda: _listed(console.source, asked))


def _listed(source: Source, asked: Parameters) -> dict[str, Any]:
    survey = source.survey(_SURVEY_S)
    words, sort = asked.text("q"), asked.choice("sort", _SORTS)
    groups = [] if survey is None else [one for one in survey.groups if words.lower() in one["group"].lower()]
    if sort == "lag":
        groups.sort(key=lambda group: -(group["lag"] or 0))
    shown, page, pages = asked.paged(groups)
    return {
        "survey": survey,
        "survey_failure": (failure := source.survey_failure) and text_of(failure),
        "groups": shown,
        "found": len(groups),
        "asked": asked,
        "words": words,
        "sort": sort,
        "page": page,
        "pages": pages,
    }


async def _group(request: Request) -> Response:
    console, asked = console_of(request), Parameters(request.query_params)
    return await console.page("group.html", lambda: _described(console.source, asked.text("id")))


def _described(source: Source, group_id: str) -> dict[str, Any]:
    if not group_id:
        raise OptionError("id: name a group")
    (group,) = source.groups([group_id])
    offsets = group["offsets"]
    return {
        "group": group,
        "offsets": offsets[:_MOST_SHOWN],
        "offsets_count": len(offsets),
        "owners": owners_of(group),
        "members": (group["members"] or [])[:_MOST_SHOWN],
        "members_count": len(group["members"] or ()),
        "plots": _plots(source, group),
    }


def _plots(source: Source, group: dict[str, Any]) -> list[Svg]:
    """Return plots of the lag over the last day: of the whole group, and of the partitions with the most lag."""
    minutes, group_id = source.history.minutes, group["group"]
    passed = minutes(GROUP, group_id)
    plots = [levels("Lag", passed), rates("Offsets passed per second", passed)]
    worst = heapq.nlargest(_DRAWN, group["offsets"], key=lambda one: one["lag"] or 0)
    for one in worst if len(group["offsets"]) > 1 else ():
        name = TopicPartition(one["topic"], one["partition"])
        plots.append(levels(f"Lag of {name}", minutes(PARTITION, group_id, *name)))
    return drawn(*plots)


async def _transactions(request: Request) -> Response:
    console, asked = console_of(request), Parameters(request.query_params)
    return await console.page("transactions.html", lambda: _open(console.source, asked.text("topic")))


def _open(source: Source, topic: str) -> dict[str, Any]:
    """Return the state of each transactional id, and what is open in their logs, and in those of one topic."""
    notes: list[str] = []
    numbers = source.numbers(topic) if topic else []
    with source.admin() as admin:
        place = admin.place
        states = transaction_states(place, notes.append)
        there = set(place.partitions())
        wanted = {name for state in states.values() for name in state.partitions if name in there}
        wanted |= {TopicPartition(topic, number) for number in numbers}
        logs = sorted(wanted)[:_MOST_LOGS]
        found = [one for name in logs for one in open_transactions(place, name)]
    by_producer = {state.producer_id: name for name, state in states.items()}
    now = now_ms()
    rows = []
    for one in found:
        transactional_id = by_producer.get(one.producer_id)
        state = None if transactional_id is None else states[transactional_id]
        rows.append((one, transactional_id, is_hanging(one.topic_partition, state, now)))
    return {
        "states": [(name, state, STATE_NAMES[state.state]) for name, state in list(states.items())[:_MOST_SHOWN]],
        "states_count": len(states),
        "open": rows[:_MOST_SHOWN],
        "open_count": len(rows),
        "left_out": len(wanted) - len(logs),
        "topic": topic,
        "notes": notes[:20],
    }


ROUTES = [Route("/groups", _list), Route("/group", _group), Route("/transactions", _transactions)]
