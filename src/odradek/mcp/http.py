"""The tools over HTTP, for callers on this machine, or for those who have the token.

    Host              one of the names of the server: else a page could reach it by a name of its own (DNS rebinding)
    Origin            none, or the server's own: else a page of another site could send requests
    Authorization     Bearer TOKEN, wherever there is a token; addresses other than loopback need one

All three are checked before anything else of a request is looked at, on every path (`odradek.web`).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from typing import Any

from mcp.server.transport_security import TransportSecuritySettings

from odradek.cross_site import is_loopback
from odradek.errors import OptionError
from odradek.mcp.server import create_server
from odradek.mcp.tool import Served
from odradek.web import App, Message, PlainAnswer, SiteGuard, listen, server_of, url_of

PATH = "/mcp"
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_LONGEST_REQUEST = 1 << 20
_MOST_SESSIONS = 64
_MOST_CONNECTIONS = 128
_IDLE_S = 600.0
_END_S = 1


def names_of(host: str, port: int, others: Iterable[str]) -> frozenset[str]:
    """Return what the Host header of a request may say.

    Args:
        host: Where the server listens.
        port: Its port.
        others: Other names that it has: of a proxy before it, say, with a port if that is another one.
    """
    hosts = list(others)
    if is_loopback(host):
        hosts += _LOOPBACK
    elif host not in ("", "0.0.0.0", "::"):  # noqa: S104 - these are no names of a server
        hosts.append(f"[{host}]" if ":" in host else host)
    names = set()
    for one in hosts:
        has_port = one.rpartition(":")[2].isdecimal() and not one.endswith("]")
        names.update([one.lower()] if has_port else [f"{one.lower()}:{port}"])
        if not has_port and port in (80, 443):
            names.add(one.lower())
    return frozenset(names)


class Guard(SiteGuard):
    """Lets only those requests pass to an application that may.

    Args:
        app: The application.
        names: What the Host header may say.
        token: What callers have to know; None for nothing.
    """

    def __init__(self, app: App, names: frozenset[str], token: str | None) -> None:
        super().__init__(app, names, only_names=True)
        self._token = token

    def refusal(self, scope: Message) -> App | None:
        """Return what asks for the token, unless it was given or is not needed."""
        logins = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
        if self._token is None or (
            len(logins) == 1 and hmac.compare_digest(logins[0], f"Bearer {self._token}".encode())
        ):
            return None
        text = "a token is needed: Authorization: Bearer TOKEN\n"
        return PlainAnswer(401, text, (b"www-authenticate", b"Bearer"))


def create_app(served: Served, names: frozenset[str], token: str | None) -> Guard:
    """Return the tools as an application of ASGI; it belongs to one event loop."""
    app: Any = create_server(served).streamable_http_app(
        streamable_http_path=PATH,
        # The guard has the same rules, and more.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        max_request_body_size=_LONGEST_REQUEST,
        max_sessions=_MOST_SESSIONS,
        session_idle_timeout=_IDLE_S,
    )
    return Guard(app, names, token)


async def serve_http(
    served: Served,
    host: str,
    port: int,
    others: Iterable[str],
    token: str | None,
    started: Callable[[str], None],
) -> None:
    """Serve by HTTP until a signal ends it.

    Args:
        served: What is served.
        host: Where to listen.
        port: The port; 0 for any.
        others: Other names of the server.
        token: What callers have to know; None for nothing.
        started: Called with the URL, once callers can connect.

    Raises:
        OptionError: The address is reached by others, and there is no token.
        LogError: It cannot listen there.
    """
    if token is None and not is_loopback(host):
        raise OptionError(f"{host or 'all addresses'}: others can reach it, so callers need a token")
    with listen(host, port) as listening:
        app = create_app(served, names_of(host, listening.getsockname()[1], others), token)
        started(url_of(listening) + PATH)
        await server_of(app, connections=_MOST_CONNECTIONS, end_s=_END_S).serve(sockets=[listening])
