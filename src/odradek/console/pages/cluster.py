"""The cluster: its nodes and their settings, ACLs and users."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from odradek.console.console import console_of
from odradek.console.parameters import Parameters
from odradek.console.source import Source

_MOST_SHOWN = 1000


async def _cluster(request: Request) -> Response:
    console, asked = console_of(request), Parameters(request.query_params)
    return await console.page("cluster.html", lambda: _described(console.source, asked))


def _described(source: Source, asked: Parameters) -> dict[str, Any]:
    found, words = source.cluster(), asked.text("q")
    settings = [one for one in found.settings if words.lower() in one.name.lower()]
    return {
        "cluster": found,
        "words": words,
        "settings": settings[:_MOST_SHOWN],
        "settings_count": len(settings),
        "acls": found.acls[:_MOST_SHOWN],
        "users": found.users[:_MOST_SHOWN],
    }


ROUTES = [Route("/cluster", _cluster)]
