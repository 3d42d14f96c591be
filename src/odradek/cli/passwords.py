"""Passwords: never in an argument, which every user of the machine may read."""

from __future__ import annotations

from pathlib import Path

import click

from odradek.cli.streams import stdin
from odradek.errors import OptionError

_MOST_CHARACTERS = 1 << 16


def read_password(path: Path | None, *, advice: str = "give --password-file, '-' for stdin") -> str:
    """Return the password: of a file, of stdin, or as somebody types it, twice.

    Args:
        path: The file; `-` is stdin. None asks at the terminal.
        advice: What to do if there is no terminal.
    """
    if path is None:
        if not stdin().isatty():
            raise click.UsageError(f"there is no terminal to ask for the password: {advice}")
        try:
            return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
        except UnicodeDecodeError:
            # The error itself would show a part of it.
            raise OptionError("the password is not UTF-8") from None
    name = "stdin" if str(path) == "-" else str(path)
    try:
        with stdin() if str(path) == "-" else path.open(encoding="utf-8") as lines:
            # A file without an end is not read to it.
            text = lines.read(_MOST_CHARACTERS + 2)
    except UnicodeDecodeError:
        raise OptionError(f"{name}: it is not UTF-8") from None
    # Editors and `echo` end a line.
    password = text.removesuffix("\n").removesuffix("\r")
    if len(password) > _MOST_CHARACTERS:
        raise OptionError(f"{name}: a password has at most {_MOST_CHARACTERS} characters")
    return password
