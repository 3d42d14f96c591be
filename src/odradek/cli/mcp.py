"""`odradek mcp`: serves tools for agents over a folder or a broker."""

from __future__ import annotations

import os

import click

from odradek.cli.app import MCP_TOKEN_VARIABLE, report
from odradek.cli.options import COMMAND_CONFIG, HostPort, Name, Number, SourceType
from odradek.cli.record_options import REDACT
from odradek.cli.streams import stdin


@click.command("mcp")
@click.argument("place", type=SourceType("PLACE"))
@click.option("--http", "address", type=HostPort(listens=True), help="Serve by HTTP here, not on stdin and stdout.")
@click.option("--allow-host", "names", type=Name(), multiple=True, help="With --http: another name of the server.")
@click.option("--time-limit", "time_limit_s", type=Number(1, 600), default=10, help="Seconds that a call may read; 10.")
@REDACT
@COMMAND_CONFIG
def command(
    place: str,
    address: tuple[str, int] | None,
    names: tuple[str, ...],
    time_limit_s: int,
    redact: tuple[str, ...],
    config: dict[str, str] | None,
) -> None:
    """Serve read-only tools over PLACE, by the Model Context Protocol: on stdin and stdout, or by HTTP.

    PLACE is a log directory, the folder of a partition, or a broker: kafka://HOST:PORT. Nothing is changed, and no file
    of the folder is written. By HTTP the token in ODRADEK_MCP_TOKEN is asked for if there is one; an address that
    others can reach needs it. --redact leaves out parts of records, as dump does, from searches too.

    Example: odradek mcp /var/lib/kafka/data
    """
    import anyio

    from odradek.mcp.server import serve_stdio
    from odradek.mcp.tool import Served
    from odradek.places.opening import open_place

    if names and address is None:
        raise click.UsageError("--allow-host is for --http")
    with open_place(place, config) as opened:
        # Whether it can be opened, and a broker answers, shows now, not to the first agent.
        opened.partitions()
    served = Served(place, config, redact, float(time_limit_s))
    if address is None:
        # Without one, the server would not say what is wrong.
        stdin()
        anyio.run(serve_stdio, served)
        return
    from odradek.mcp.http import serve_http

    token = os.environ.get(MCP_TOKEN_VARIABLE) or None
    anyio.run(serve_http, served, *address, names, token, lambda url: report(f"tools at {url}"))
