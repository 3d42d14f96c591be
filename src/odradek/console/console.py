"""What all pages share: what is shown, who is logged in, the templates, and what errors say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from odradek.admin.admin import GroupIdNotFoundError
from odradek.console import text_filters
from odradek.console.background import Background
from odradek.console.options import ConsoleOptions
from odradek.console.sessions import Sessions
from odradek.console.source import Source
from odradek.console.work import Work
from odradek.errors import (
    BrokerError,
    BrokerUnavailableError,
    OffsetOutOfRangeError,
    OffsetStoreError,
    OptionError,
    UnknownTopicOrPartitionError,
)
from odradek.printable import printable
from odradek.version import VERSION

_HAS_MEMBERS = (25, 68)
"""The error codes of a broker that sets no positions of a group with members: UNKNOWN_MEMBER_ID, NON_EMPTY_GROUP."""
_JOBS_S = 5.0
_CLOSE_S = 1.0

FOLDER = Path(__file__).parent
"""Where templates and style sheets are."""


@dataclass
class Console:
    """What the pages share; it belongs to one event loop, and `source` to any thread.

    Attributes:
        options: How the console is run.
        source: What it shows.
        sessions: Who is logged in.
        work: Runs what reads.
        templates: The pages' templates, which escape what they are given.
        logins: How many wrong passwords wait for their answer, by the address that they came from.
        pipelines: How far jobs are.
    """

    options: ConsoleOptions
    source: Source
    sessions: Sessions
    work: Work = field(default_factory=Work)
    templates: Environment = field(init=False)
    logins: Counter[str] = field(default_factory=Counter)
    pipelines: Background[list[Mapping[str, Any]]] = field(init=False)

    def __post_init__(self) -> None:
        self.pipelines = Background(self._jobs, "odradek-pipelines", _JOBS_S)
        self.templates = Environment(
            autoescape=True,
            auto_reload=False,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            loader=FileSystemLoader(FOLDER / "templates"),
        )
        self.templates.filters |= text_filters.FILTERS
        self.templates.globals |= {
            "address": printable(self.source.address),
            "is_folder": self.source.folder is not None,
            "has_pipelines": bool(self.options.pipelines),
            "has_password": self.sessions.has_password,
            "writes": self.options.writes,
            "version": VERSION,
        }

    def _jobs(self) -> list[Mapping[str, Any]]:
        return [job for look in self.options.pipelines for job in look()]

    def close(self) -> None:
        """Close what is shown."""
        self.pipelines.close(_CLOSE_S)
        self.source.close()

    def render(self, template: str, context: Mapping[str, Any]) -> str:
        """Return a page. Any thread may call it."""
        return self.templates.get_template(template).render(context)

    async def page(self, template: str, make: Callable[[], Mapping[str, Any]], status: int = 200) -> HTMLResponse:
        """Answer with a page; what it shows is found, and the page made, in another thread."""
        return HTMLResponse(await self.work.run(lambda: self.render(template, make())), status)


def console_of(request: Request) -> Console:
    """Return what the pages share."""
    console: Console = request.app.state.console
    return console


def status_of(error: Exception) -> int:
    """Return the status of an answer that an error makes."""
    match error:
        case UnknownTopicOrPartitionError() | OffsetOutOfRangeError() | FileNotFoundError():
            return 404
        case OptionError() | OffsetStoreError():
            return 400
        case GroupIdNotFoundError():
            return 410
        case BrokerError() if error.error_code in _HAS_MEMBERS:
            return 409
        case BrokerUnavailableError():
            return 503
    return 500


def text_of(error: Exception) -> str:
    """Return what an error says."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__
