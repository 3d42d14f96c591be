"""`odradek serve`: runs a broker over a log directory."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.kio_import import import_kio
from odradek.cli.options import Existing, NonEmptyPath
from odradek.printable import logger, printable

if TYPE_CHECKING:
    from odradek.broker.server import Server
    from odradek.broker.service import HostPort
    from odradek.testing.control_server import ControlServer

_DEFAULT_LISTENERS = "PLAINTEXT://127.0.0.1:9092"
_LEVELS = ("debug", "info", "warning", "error")


def _settings(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{one!r} must have the form NAME=VALUE", ctx, param)
        settings[name.strip()] = value.strip()
    return settings


@click.command("serve")
@click.argument("directory", metavar="[DIR]", required=False, type=NonEmptyPath(file_okay=False))
@click.option("--listeners", metavar="NAME://HOST:PORT,...", help="Where clients connect to.")
@click.option("--advertised-listeners", metavar="NAME://HOST:PORT,...", help="What clients are told to connect to.")
@click.option("--config", "file", metavar="FILE", type=Existing(folder=False), help="A server.properties.")
@click.option("--set", "settings", metavar="NAME=VALUE", multiple=True, callback=_settings, help="A setting by name.")
@click.option("--metrics", metavar="HOST:PORT", help="Serve /metrics and /healthz by HTTP.")
@click.option("--control", metavar="HOST:PORT", help="For tests: serve faults, time and requests by HTTP.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="Lines for people or programs.")
@click.option("--log-level", type=click.Choice(_LEVELS), default="info", help="The least that is logged.")
def command(
    directory: str | None,
    listeners: str | None,
    advertised_listeners: str | None,
    file: Path | None,
    settings: dict[str, str],
    metrics: str | None,
    control: str | None,
    log_format: str,
    log_level: str,
) -> None:
    """Run a broker of one node over a log directory: Kafka's clients connect to it as to Apache Kafka.

    The directory is created if it is missing; without DIR, log.dirs of the settings names it. Settings have Kafka's
    names. SIGTERM, SIGINT and SIGHUP stop it in order, a second one at once.

    Example: odradek serve data --listeners PLAINTEXT://127.0.0.1:9092
    """
    import_kio()
    from odradek.broker.service import address, log_dirs, read_properties, serve

    _log(log_format, log_level)
    config = {} if file is None else read_properties(file)
    if listeners is not None:
        config["listeners"] = listeners
    if advertised_listeners is not None:
        config["advertised.listeners"] = advertised_listeners
    config |= settings
    config.setdefault("listeners", _DEFAULT_LISTENERS)
    paths = [directory] if directory is not None else log_dirs(config)
    if not paths:
        raise click.UsageError("name the log directory, or log.dirs in the settings")
    companion = partial(_companion, None if control is None else address(control, "control"))
    asyncio.run(
        serve(paths, config, metrics=None if metrics is None else address(metrics, "metrics"), companion=companion)
    )


def _companion(control: HostPort | None, server: Server) -> AbstractContextManager[object]:
    # Modules and what the broker has loaded are never freed: without them a full collection is 15 to 20 ms shorter.
    gc.freeze()
    return nullcontext() if control is None else _controlled(control, server)


def _controlled(where: HostPort, server: Server) -> ControlServer:
    from odradek.broker.config import address_text
    from odradek.errors import LogError
    from odradek.testing.broker_control import BrokerControl, calls_on
    from odradek.testing.control_server import ControlServer

    try:
        made = ControlServer(BrokerControl(server, calls_on(asyncio.get_running_loop())), *where)
    except OSError as error:
        raise LogError(f"the control cannot listen at {where.host}:{where.port}: {error.strerror}") from error
    logger(__name__).info("control at http://%s", address_text(*made.address))
    return made


class _Formatter(logging.Formatter):
    def formatException(self, ei: Any) -> str:  # noqa: N802 - its name in the standard library
        """Return a traceback; its lines begin with a blank, so that none looks like another line of the log."""
        return " " + printable(super().formatException(ei), kept="\n").replace("\n", "\n ")


class _JsonLines(_Formatter):
    """A log line as a JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class _Lines(_Formatter):
    """A log line as text."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        text = f"{_time(record)} {record.levelname:<7} {record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _log(form: str, level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if form == "json" else _Lines())
    ours = logging.getLogger("odradek")
    ours.handlers[:] = [handler]
    ours.setLevel(level.upper())
    ours.propagate = False
