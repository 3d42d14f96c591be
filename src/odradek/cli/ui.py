"""`odradek ui`: a log directory or a broker in the browser."""

from __future__ import annotations

import logging
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from odradek.arguments import is_broker
from odradek.cli.app import UI_PASSWORD_VARIABLE, describe, report
from odradek.cli.kio_import import import_kio
from odradek.cli.options import COMMAND_CONFIG, FILE, FOLDER, PATH_OR_STREAM, Name, NonEmptyPath, Number, SourceType
from odradek.cli.passwords import read_password
from odradek.cli.record_options import REDACT, value_options
from odradek.cross_site import is_loopback
from odradek.errors import OdradekError

if TYPE_CHECKING:
    from odradek.inspection.decoding import ValueDecoder

_MAX_PORT = 65535


@click.command("ui")
@click.argument("place", type=SourceType("PLACE", folder=True))
@click.option("--host", type=Name("ADDRESS"), default="127.0.0.1", help="The address to listen at; 127.0.0.1.")
@click.option("--port", type=Number(0, _MAX_PORT), default=8080, help="The port; 8080. 0 takes one that is free.")
@click.option("--allow-host", "hosts", type=Name(), multiple=True, help="A name that browsers may call it by, too.")
@click.option("--pipeline", "pipelines", type=FILE, multiple=True, help="Also show the jobs of FILE.")
@click.option("--history", type=NonEmptyPath(path_type=Path), help="Keep sizes and lags of the last day in a file.")
@click.option("--password-file", type=PATH_OR_STREAM, help="Ask readers for the password in a file; '-' is stdin.")
@click.option("--write", "writes", is_flag=True, help="Let readers set the positions of groups.")
@REDACT
@value_options
@COMMAND_CONFIG
def command(
    place: str,
    host: str,
    port: int,
    hosts: tuple[str, ...],
    pipelines: tuple[Path, ...],
    history: Path | None,
    password_file: Path | None,
    writes: bool,
    redact: tuple[str, ...],
    values: ValueDecoder | None,
    config: dict[str, str] | None,
) -> None:
    """Look at a log directory or a broker in the browser: topics, records, groups, transactions, files.

    PLACE is a log directory, or a broker: kafka://HOST:PORT. Nothing is written without --write. At other addresses
    than this machine's own (--host) readers are asked for a password: that of --password-file or of
    ODRADEK_UI_PASSWORD, or one that is asked for here.

    Example: odradek ui /var/lib/kafka/data --port 8080
    """
    if is_broker(place):
        import_kio()
    else:
        FOLDER.convert(place, None, None)
    # Stderr gets what a page cannot show.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("odradek: %(message)s"))
    logging.getLogger("odradek.console").addHandler(handler)
    password = _password(password_file, host)
    from odradek.console.options import ConsoleOptions
    from odradek.console.server import serve

    looks = tuple(partial(_jobs, file) for file in pipelines)
    names = frozenset({host, *hosts})
    options = ConsoleOptions(place, config or {}, redact, values, password, names, writes, history, looks)
    serve(options, host, port, lambda address: report(f"the console is at {address}, Ctrl-C ends it"))


def _jobs(file: Path) -> list[dict[str, Any]]:
    """Return the status of a file's jobs; the file is read again each time, and Spark is not started."""
    try:
        # Imported here: the packages of pipelines take 50 MB, and few consoles show pipelines.
        from odradek.cli.pipeline_report import status_fields
        from odradek.spark.pipeline.job import JobFile
        from odradek.spark.pipeline.status import job_status

        jobs = JobFile.read(file).jobs
    except (OdradekError, OSError, ImportError) as error:
        return [{"name": file.name, "file": str(file), "failure": describe(error)}]
    found: list[dict[str, Any]] = []
    for job in jobs:
        fields: dict[str, Any] = {"name": job.name, "file": str(file), "failure": None}
        try:
            status = job_status(job)
        except (OdradekError, OSError, ImportError) as error:
            found.append(fields | {"failure": describe(error)})
            continue
        letters = None if job.dead_letters is None else job.dead_letters.topic
        found.append(fields | status_fields(status) | {"dead_letters": letters, "is_well": status.is_well})
    return found


def _password(path: Path | None, host: str) -> str | None:
    """Return what readers are asked for, or None."""
    password = os.environ.get(UI_PASSWORD_VARIABLE)
    if path is not None or (password is None and not is_loopback(host)):
        advice = f"give --password-file, or set {UI_PASSWORD_VARIABLE}"
        password = read_password(path, advice=advice)
    if password == "":
        raise click.UsageError("the password of the console is empty")
    return password
