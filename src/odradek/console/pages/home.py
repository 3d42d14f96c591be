"""Home: how much there is, which groups are behind, and what is wrong."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from odradek.console.console import console_of, text_of
from odradek.console.drawing import drawn, largest_topics, levels, rates
from odradek.console.history import LAG, SIZE
from odradek.console.source import Source
from odradek.plots import Svg
from odradek.printable import size_text

_FIRST_SURVEY_S = 0.5
_SHOWN = 10


async def _home(request: Request) -> Response:
    console = console_of(request)
    return await console.page("home.html", lambda: _found(console.source))


def _found(source: Source) -> dict[str, Any]:
    topics, survey = source.topics(), source.survey(_FIRST_SURVEY_S)
    found: dict[str, Any] = {
        "topics": len(topics),
        "partitions": sum(map(len, topics.values())),
        "survey": survey,
        "survey_failure": (failure := source.survey_failure) and text_of(failure),
        "verified": source.verified,
        "plots": _plots(source),
    }
    if survey is not None:
        behind = sorted((group for group in survey.groups if group["lag"]), key=lambda group: -group["lag"])
        found |= {
            "size_bytes": sum(totals.size_bytes or 0 for totals in survey.topics.values()),
            "largest": largest_topics(survey.topics, _SHOWN),
            "behind": behind[:_SHOWN],
            "behind_count": len(behind),
            "problems": survey.problems[:_SHOWN],
        }
    return found


def _plots(source: Source) -> list[Svg]:
    """Return small plots of what was sampled over the last day."""
    totals = source.history.minutes(SIZE)
    return drawn(
        levels("Size of all topics", totals, size_text),
        rates("Offsets written per second", totals),
        levels("Lag of all groups", source.history.minutes(LAG)),
    )


ROUTES = [Route("/", _home)]
