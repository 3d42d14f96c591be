"""Serves a console by HTTP, until a signal ends it."""

from __future__ import annotations

from collections.abc import Callable

from odradek.console.app import create_app
from odradek.console.options import ConsoleOptions
from odradek.web import listen, server_of, url_of

_MOST_CONNECTIONS = 512
_END_S = 3


def serve(options: ConsoleOptions, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve a console.

    Args:
        options: What it shows.
        host: The address that it listens at.
        port: The port; 0 for any that is free.
        ready: Is told the console's address once browsers can connect.

    Raises:
        LogError: The address is taken or is not this machine's, or what it shows cannot be opened.
        OSError: There is no such folder.
    """
    with listen(host, port) as listening:
        app = create_app(options)
        ready(f"{url_of(listening)}/")
        server_of(app, connections=_MOST_CONNECTIONS, end_s=_END_S).run(sockets=[listening])
