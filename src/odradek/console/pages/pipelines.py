"""The jobs of pipelines: lag, rate, the last batch, and the records that they refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from odradek.console.console import Console, console_of
from odradek.console.drawing import drawn, levels, rates
from odradek.console.source import Source
from odradek.minutes import MINUTE_MS, Minute

_FIRST_LOOK_S = 3.0
_MOST_JOBS = 100
_MOST_PARTITIONS = 500
_MINUTES = 10


async def _pipelines(request: Request) -> Response:
    console = console_of(request)
    return await console.page("pipelines.html", lambda: _found(console))


def _found(console: Console) -> dict[str, Any]:
    if not console.options.pipelines:
        raise HTTPException(404)
    jobs = console.pipelines.get(_FIRST_LOOK_S)
    topics = console.source.topics()
    return {
        "found_ms": console.pipelines.found_ms,
        "jobs": None if jobs is None else [_shown(console.source, topics, job) for job in jobs[:_MOST_JOBS]],
        "left_out": max(0, len(jobs or ()) - _MOST_JOBS),
        # The error of a sink or a function may quote the record.
        "hides_errors": bool(console.options.redact),
    }


def _shown(source: Source, topics: Mapping[str, list[int]], job: Mapping[str, Any]) -> dict[str, Any]:
    if job["failure"] is not None:
        return dict(job)
    minutes = [Minute(one["time_ms"] // MINUTE_MS, one["lag"], one["offsets"]) for one in job["history"]]
    letters = job["dead_letters"]
    is_here = letters in topics
    return {
        **job,
        "plots": drawn(levels("Lag", minutes), rates("Offsets per second", minutes)),
        "minutes": [one for one in job["history"] if one["offsets"]][: -_MINUTES - 1 : -1],
        "partitions": job["partitions"][:_MOST_PARTITIONS],
        "partitions_count": len(job["partitions"]),
        "letters": source.totals({letters: topics[letters]})[letters].offsets if is_here else None,
        "letters_are_here": is_here,
    }


ROUTES = [Route("/pipelines", _pipelines)]
