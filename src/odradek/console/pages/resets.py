"""The reset of a group's positions, as a preview showed it.

    GET  /group/reset    the form        its token belongs to the browser's cookie
    POST /group/reset    the preview     its form has the plan and a digest; the console keeps nothing
    POST /group/set      the reset       or a new preview, if the plan would now change something else

These addresses exist only with `--write`.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from odradek.admin.admin import Admin
from odradek.console.console import Console, console_of
from odradek.console.forms import read_form, set_cookie
from odradek.console.parameters import MAX_OFFSET, Parameters
from odradek.console.sessions import COOKIE
from odradek.errors import OptionError
from odradek.inspection.group_description import GroupDescription
from odradek.places.resets import (
    Reset,
    ResetTarget,
    Shift,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToPlaces,
    ToTime,
    group_positions,
    plan_group_resets,
    plan_resets,
    read_plan,
    write_plan,
)
from odradek.printable import logger
from odradek.storage.names import TopicPartition

TARGETS = {
    "earliest": "the log start",
    "latest": "the log end",
    "offset": "an offset",
    "time": "a time",
    "shift": "forwards or back by a number of offsets",
}
_MOST_PARTITIONS = 2000
_MOST_SHOWN = 500
_LARGEST_PLAN_BYTES = 1 << 20
_STALE = "The form is not of this browser, or the console was restarted: open it again."

_Plan = Mapping[TopicPartition, Reset]

_log = logger(__name__)


async def _form(request: Request) -> Response:
    console, asked = console_of(request), Parameters(request.query_params)
    token = request.cookies.get(COOKIE) or console.sessions.new_token()

    def make() -> dict[str, Any]:
        with console.source.admin() as admin:
            group = _group(admin, asked.text("id"))
            topics = sorted({name.topic for name in group_positions(admin.place, group)})
        return _context(console, token, group) | {"topics": topics}

    answer = await console.page("reset_form.html", make)
    if not request.cookies.get(COOKIE):
        set_cookie(request, answer, token)
    return answer


async def _preview(request: Request) -> Response:
    console, token, form = await _checked(request)

    def make() -> dict[str, Any]:
        asked = Parameters(form)
        with console.source.admin() as admin:
            admin.place.refresh()
            group = _group(admin, unquote(asked.text("id")))
            topic, numbers = asked.text("topic"), _partitions(asked)
            planned = plan_group_resets(admin.place, group, _target(asked), [topic] if topic else (), numbers)
        return _previewed(console, token, group, planned, asked.flag("force"))

    return await console.page("reset.html", make)


async def _set(request: Request) -> Response:
    console, token, form = await _checked(request)
    asked = Parameters(form)

    def make() -> dict[str, Any]:
        wanted, force = read_plan(io.StringIO(form.get("plan", "")), "the plan"), asked.flag("force")
        with console.source.admin() as admin:
            admin.place.refresh()
            group = _group(admin, unquote(asked.text("id")))
            stored = group_positions(admin.place, group)
            planned = plan_resets(admin.place, stored, wanted, ToPlaces(wanted))
            context = _previewed(console, token, group, planned, force)
            if not context["can_be_set"] or context["digest"] != asked.text("digest"):
                return context | {"has_moved": True}
            try:
                admin.reset_offsets(group, wanted, force=force)
            finally:
                console.source.forget()
        return context | {"is_done": True}

    context = await console.work.run(make)
    if context["is_done"]:
        whose = request.client.host if request.client else "?"
        _log.warning("%s set positions of group %s in %d partitions", whose, context["id"], context["count"])
    return HTMLResponse(console.render("reset.html", context), 409 if context["has_moved"] else 200)


async def _checked(request: Request) -> tuple[Console, str, QueryParams]:
    """Return the console, the browser's token, and its form.

    Raises:
        HTTPException: The form was made for another browser.
    """
    console, token = console_of(request), request.cookies.get(COOKIE)
    form = await read_form(request, _LARGEST_PLAN_BYTES)
    if token is None or not console.sessions.is_form_of(form.get("token", ""), token):
        raise HTTPException(403, _STALE)
    return console, token, form


def _group(admin: Admin, group_id: str) -> GroupDescription:
    # Forms carry it quoted: browsers write a line end of a field in another way, which may be another group's id.
    if not group_id:
        raise OptionError("id: name a group")
    (group,) = admin.describe_groups([group_id])
    return group


def _target(asked: Parameters) -> ResetTarget:
    make: Callable[[int], ResetTarget]
    match asked.choice("to", tuple(TARGETS)):
        case "earliest":
            return ToEarliest()
        case "latest":
            return ToLatest()
        case "time":
            value, make = asked.time_ms("value"), ToTime
        case "offset":
            value, make = asked.optional("value"), ToOffset
        case _:
            value, make = asked.optional("value", -MAX_OFFSET), Shift
    if value is None:
        raise OptionError("value: say which offset, time or number")
    return make(value)


def _partitions(asked: Parameters) -> list[int]:
    text = asked.text("partitions")
    if not re.fullmatch(r"[0-9, ]*", text) or any(len(number) > 10 for number in re.findall("[0-9]+", text)):
        raise OptionError(f"partitions must be numbers and commas, not {text!r}")
    return [int(number) for number in re.findall("[0-9]+", text)]


def _context(console: Console, token: str, group: GroupDescription) -> dict[str, Any]:
    return {
        "id": group.group_id,
        "group": group,
        "token": console.sessions.form_token(token),
        "targets": list(TARGETS.items()),
    }


def _previewed(console: Console, token: str, group: GroupDescription, planned: _Plan, force: bool) -> dict[str, Any]:
    """Return the context of a preview and of its form.

    Raises:
        OptionError: There are too many partitions for a form.
    """
    if len(planned) > _MOST_PARTITIONS:
        raise OptionError(
            f"{len(planned):,} partitions are too many for this page: choose a topic or partitions, or run "
            f'"odradek groups reset"'
        )
    changes = [(*name, one.before, one.after) for name, one in sorted(planned.items())]
    # With `force` they are removed.
    members = sorted(member.member_id for member in group.members or ())
    offsets = {name: one.after for name, one in planned.items()}
    return _context(console, token, group) | {
        "rows": sorted(planned.items())[:_MOST_SHOWN],
        "count": len(planned),
        "changed": sum(one.before != one.after for one in planned.values()),
        "unread": sum(one.bounds.end_offset - one.after for one in planned.values()),
        "plan": write_plan(offsets),
        "digest": hashlib.sha256(json.dumps([group.group_id, group.type, members, changes]).encode()).hexdigest(),
        "force": force,
        "can_be_set": not group.members or (force and console.source.folder is not None),
        "has_moved": False,
        "is_done": False,
    }


ROUTES = [
    Route("/group/reset", _form),
    Route("/group/reset", _preview, methods=["POST"]),
    Route("/group/set", _set, methods=["POST"]),
]
