"""The application: its routes, the login, and what becomes of errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from odradek.console.console import FOLDER, Console, console_of, status_of, text_of
from odradek.console.forms import read_form, set_cookie
from odradek.console.guard import Guard
from odradek.console.options import ConsoleOptions
from odradek.console.pages import ROUTES, resets
from odradek.console.sessions import COOKIE, Sessions
from odradek.console.source import Source
from odradek.errors import OdradekError
from odradek.printable import logger, printable

_STATIC = FOLDER / "static"
_WRONG_PASSWORD_S = 1.0
_MOST_LOGINS = 8
_MOST_LOGINS_OF_ADDRESS = 2

_log = logger(__name__)


def create_app(options: ConsoleOptions) -> Starlette:
    """Return a console's application; it closes what it shows when it ends.

    Raises:
        OdradekError: There is no such folder, or no broker answers.
        OSError: The folder does not exist.
    """
    console = Console(options, Source(options), Sessions(options.password))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        console.source.start()
        yield
        await anyio.to_thread.run_sync(console.close)

    app = Starlette(
        routes=[
            *ROUTES,
            *(resets.ROUTES if options.writes else ()),
            Route("/login", _login_page),
            Route("/login", _log_in, methods=["POST"]),
            Route("/logout", _log_out, methods=["POST"]),
            Mount("/static", StaticFiles(directory=_STATIC)),
        ],
        middleware=[Middleware(Guard, sessions=console.sessions, hosts=options.hosts)],
        exception_handlers={
            HTTPException: _refused,
            OdradekError: _failed,
            OSError: _failed,
            Exception: _broken,
        },
        lifespan=lifespan,
    )
    app.state.console = console
    return app


# -- logging in


async def _login_page(request: Request) -> Response:
    console = console_of(request)
    return HTMLResponse(console.render("login.html", {"is_wrong": False}))


async def _log_in(request: Request) -> Response:
    console = console_of(request)
    password = (await read_form(request)).get("password", "")
    waiting, address = console.logins, request.client.host if request.client else ""
    # Before it is compared: the answer to one that is refused says nothing about it.
    if waiting.total() >= _MOST_LOGINS or waiting[address] >= _MOST_LOGINS_OF_ADDRESS:
        raise HTTPException(429, "Too many wrong passwords: try again in some seconds.")
    token = console.sessions.log_in(password)
    if token is None:
        waiting[address] += 1
        try:
            # Nobody tries thousands of passwords.
            await asyncio.sleep(_WRONG_PASSWORD_S)
        finally:
            waiting.subtract([address])
            if not waiting[address]:
                del waiting[address]
        return HTMLResponse(console.render("login.html", {"is_wrong": True}), 403)
    answer = RedirectResponse("/", 303)
    set_cookie(request, answer, token)
    return answer


async def _log_out(request: Request) -> Response:
    console_of(request).sessions.log_out(request.cookies.get(COOKIE))
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


# -- errors


def _error_page(request: Request, status: int, text: str) -> Response:
    page = console_of(request).render("error.html", {"status": status, "text": printable(text[:2000])})
    return HTMLResponse(page, status)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error_page(
        request, error.status_code, "There is no such page." if error.status_code == 404 else error.detail
    )


async def _failed(request: Request, error: Exception) -> Response:
    return _error_page(request, status_of(error), text_of(error))


async def _broken(request: Request, error: Exception) -> Response:
    _log.error("%s %s", request.method, request.url.path, exc_info=error)
    return _error_page(request, 500, "This page cannot be shown: the log of the console says why.")
