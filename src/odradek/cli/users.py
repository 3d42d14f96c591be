"""`odradek users`: the users of a log directory who log in by SCRAM, while no broker runs on it."""

from __future__ import annotations

from pathlib import Path

import click

from odradek.cli.admin_options import ListByDefault
from odradek.cli.listing import show_rows
from odradek.cli.options import FOLDER, FORMAT, PATH_OR_STREAM, Name, Number
from odradek.cli.passwords import read_password
from odradek.cli.progress import progress
from odradek.coordination.scram.credentials import (
    MAX_ITERATIONS,
    MECHANISMS,
    MECHANISMS_BY_TYPE,
    MIN_ITERATIONS,
)

_HEADINGS = ("USER", "MECHANISM", "ITERATIONS")

_DIR = click.argument("directory", metavar="DIR", type=FOLDER)
_USER = click.argument("user", type=Name())
_MECHANISMS = click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(list(MECHANISMS)),
    multiple=True,
    default=list(MECHANISMS),
    help="One of the mechanisms only; may be given twice.",
)


@click.group(cls=ListByDefault)
def command() -> None:
    """List, add and remove users who log in by SCRAM.

    They are in the metadata of a log directory, as Apache Kafka keeps them: salted and hashed. DIR is changed under its
    lock, so not while a broker runs on it; kafka-configs changes the users of a running broker. `odradek users DIR` is
    `odradek users list DIR`.

    Example: odradek users /var/lib/kafka/data
    """


@command.command("list", short_help="List the users.")
@_DIR
@FORMAT
def list_users(directory: Path, form: str) -> None:
    """List the users of DIR, and by which mechanisms they log in.

    Example: odradek users list /var/lib/kafka/data
    """
    from odradek.admin.users import scram_credentials

    with progress("users"):
        found = scram_credentials(directory)
    rows = [
        {"user": one.name, "mechanism": MECHANISMS_BY_TYPE[one.mechanism].name, "iterations": one.iterations}
        for one in found
    ]
    show_rows(form, rows, _HEADINGS, lambda row: list(row.values()), left=frozenset({0, 1}))


@command.command(short_help="Add a user, or change its password.")
@_DIR
@_USER
@_MECHANISMS
@click.option(
    "--iterations",
    type=Number(MIN_ITERATIONS, MAX_ITERATIONS),
    default=MIN_ITERATIONS,
    help=f"How often the password is hashed, at most {MAX_ITERATIONS}.",
    show_default=True,
)
@click.option("--password-file", type=PATH_OR_STREAM, help="Read the password from a file; '-' is stdin.")
def add(directory: Path, user: str, mechanisms: tuple[str, ...], iterations: int, password_file: Path | None) -> None:
    """Add USER to DIR, or change its password, which is asked for. An empty folder becomes a log directory.

    Example: odradek users add /var/lib/kafka/data alice
    """
    from odradek.admin.users import add_user

    password = read_password(password_file)
    with progress("users"):
        add_user(directory, user, password, list(dict.fromkeys(mechanisms)), iterations)


@command.command(short_help="Remove a user.")
@_DIR
@_USER
@_MECHANISMS
def remove(directory: Path, user: str, mechanisms: tuple[str, ...]) -> None:
    """Remove what USER logs in with from DIR.

    Example: odradek users remove /var/lib/kafka/data alice
    """
    from odradek.admin.users import remove_user

    with progress("users"):
        remove_user(directory, user, list(dict.fromkeys(mechanisms)))
