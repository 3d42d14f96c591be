"""Stands before every page: who may ask, from where, and what browsers may do with the answer.

    Host, Origin, Sec-Fetch-Site    no other site leads here, but for a link that a reader follows (`odradek.web`)
    cookie                          of a reader who has given the password, if there is one
    answers                         no script or style but the console's own, no frames, no copies in caches

The pages for logging in are for everybody, and so are style sheets.
"""

from __future__ import annotations

from collections.abc import Collection

from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse

from odradek.console.sessions import COOKIE, Sessions
from odradek.web import READING, SEND_TIMEOUT_S, App, Message, PlainAnswer, SiteGuard

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # A stricter one would make the Origin of the console's own forms "null".
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard(SiteGuard):
    """Lets requests through to an application, or refuses them.

    Args:
        app: The application.
        sessions: The readers who are logged in.
        hosts: Names by which browsers may call the console.
        send_timeout_s: How long a browser may take for a part of an answer.
    """

    def __init__(
        self, app: App, sessions: Sessions, hosts: Collection[str], send_timeout_s: float = SEND_TIMEOUT_S
    ) -> None:
        headers = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
        super().__init__(app, hosts, has_cookies=True, headers=headers, send_timeout_s=send_timeout_s)
        self._sessions = sessions

    def refusal(self, scope: Message) -> App | None:
        """Return what asks for the password, unless it was given or is not needed."""
        path: str = scope["path"]
        connection = HTTPConnection(scope)
        if path == "/login" or path.startswith("/static/") or self._sessions.knows(connection.cookies.get(COOKIE)):
            return None
        if scope["method"] in READING and connection.headers.get("sec-fetch-dest", "document") == "document":
            return RedirectResponse("/login", 303)
        return PlainAnswer(401, "Log in first.\n")
