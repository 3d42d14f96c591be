"""`odradek serve`: runs a broker over a log directory."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any

import click

from odradek.arguments import is_broker
from odradek.cli.app import TOKEN_VARIABLE
from odradek.cli.kio_import import import_kio
from odradek.cli.options import ADOPT, FILE, HostPort, NonEmptyPath, pairs
from odradek.printable import logger, printable

if TYPE_CHECKING:
    from odradek.broker.server import Server
    from odradek.testing.control_server import ControlServer

_DEFAULT_LISTENERS = "PLAINTEXT://127.0.0.1:9092"
_LEVELS = ("debug", "info", "warning", "error")
_LOAD_AFTER_S = 0.5


@click.command("serve")
@click.argument("directory", metavar="[DIR]", required=False, type=NonEmptyPath(file_okay=False))
@click.option("--listeners", metavar="NAME://HOST:PORT,...", help="Where clients connect to.")
@click.option("--advertised-listeners", metavar="NAME://HOST:PORT,...", help="The addresses that clients connect to.")
@click.option("--config", "file", type=FILE, help="A server.properties.")
@pairs("--set", "settings", help="A setting by name.")
@ADOPT
@click.option("--strict", is_flag=True, help="Do not start if that would cut off or set aside records.")
@click.option("--allow-unsecured-tokens", is_flag=True, help="Let OAUTHBEARER take tokens that anybody can make.")
@click.option("--metrics", type=HostPort(listens=True), help="Serve /metrics and /healthz by HTTP.")
@click.option("--control", type=HostPort(listens=True), help="For tests: serve faults, time and requests by HTTP.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="Lines for people or programs.")
@click.option("--log-level", type=click.Choice(_LEVELS), default="info", help="The least that is logged.")
def command(
    directory: str | None,
    listeners: str | None,
    advertised_listeners: str | None,
    file: Path | None,
    settings: dict[str, str],
    adopt: bool,
    strict: bool,
    allow_unsecured_tokens: bool,
    metrics: tuple[str, int] | None,
    control: tuple[str, int] | None,
    log_format: str,
    log_level: str,
) -> None:
    """Run a broker of one node over a log directory: Kafka's clients connect to it as to Apache Kafka.

    The directory is created if it is missing; without DIR, log.dirs of the settings names it. Settings have Kafka's
    names. SIGTERM, SIGINT and SIGHUP stop it in order, a second one at once.

    Example: odradek serve data --listeners PLAINTEXT://127.0.0.1:9092
    """
    if directory is not None and is_broker(directory):
        raise click.UsageError("DIR is a folder, which a broker is to serve, and not the address of a broker")
    import_kio()
    from odradek.broker.config import is_secret
    from odradek.broker.config_providers import resolved
    from odradek.broker.service import log_dirs, serve
    from odradek.storage.formats.meta_properties import read_properties

    _log(log_format, log_level)
    config = {} if file is None else read_properties(file)
    if listeners is not None:
        config["listeners"] = listeners
    if advertised_listeners is not None:
        config["advertised.listeners"] = advertised_listeners
    for name, value in settings.items():
        if is_secret(name) and "${" not in value:
            reason = "is a secret, and other users of this machine can read the arguments of a program"
            raise click.UsageError(
                f"{name} {reason}: write it into the file of --config, or refer to it by ${{file:...}}"
            )
    config |= {name: value.strip() for name, value in settings.items()}
    config = resolved(config, os.environ)
    config.setdefault("listeners", _DEFAULT_LISTENERS)
    paths = [directory] if directory is not None else log_dirs(config)
    if not paths:
        raise click.UsageError("name the log directory, or log.dirs in the settings")
    asyncio.run(
        serve(
            paths,
            config,
            adopt=adopt,
            strict=strict,
            unsecured_tokens=allow_unsecured_tokens,
            metrics=metrics,
            companion=partial(_companion, control),
        )
    )


def _companion(control: tuple[str, int] | None, server: Server) -> AbstractContextManager[object]:
    from odradek.broker.api import load_apis

    # Modules and what the broker has loaded are never freed: without them a full collection is 15 to 20 ms shorter.
    gc.freeze()
    # Later clients need not wait for imports: up to a quarter of a second for one from a slow disk. Who connects at
    # once waits only for what it asks for.
    loading = Timer(_LOAD_AFTER_S, load_apis)
    loading.daemon = True
    loading.start()
    return nullcontext() if control is None else _controlled(control, server)


def _controlled(where: tuple[str, int], server: Server) -> ControlServer:
    from odradek.broker.config import address_text
    from odradek.errors import LogError
    from odradek.testing.broker_control import BrokerControl, calls_on
    from odradek.testing.control_server import ControlServer

    try:
        control = BrokerControl(server, calls_on(asyncio.get_running_loop()))
        made = ControlServer(control, *where, token=os.environ.get(TOKEN_VARIABLE))
    except OSError as error:
        raise LogError(f"the control cannot listen at {address_text(*where)}: {error.strerror}") from error
    token = f"that of {TOKEN_VARIABLE}" if os.environ.get(TOKEN_VARIABLE) else made.token
    logger(__name__).info("control at http://%s with the token %s", address_text(*made.address), token)
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
