"""Values that several commands take on their command line."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from odradek.arguments import split_host_port
from odradek.records.timestamps import bound_ms, iso_text

F = TypeVar("F", bound=Callable[..., Any])

FORMAT = click.option(
    "--format", "form", type=click.Choice(["text", "jsonl"]), default="text", help="A table, or JSON lines."
)


class _Whole(click.ParamType[int]):
    """A whole number, in the digits of ASCII."""

    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        if not re.fullmatch("[+-]?[0-9]+", str(value)):
            self.fail(f"{value!r} is not a whole number", param, ctx)
        return super().convert(value, param, ctx)


class Number(_Whole, click.IntRange):
    """A whole number, from 0 on unless another range is given."""

    def __init__(self, low: int = 0, high: int | None = None) -> None:
        super().__init__(low, high)


class Name(click.ParamType[str]):
    """A text that is not empty, as a variable that is not set would make it."""

    def __init__(self, name: str = "NAME") -> None:
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text."""
        if not value:
            self.fail("it is empty", param, ctx)
        return str(value)


class Pair(click.ParamType[tuple[str, str]]):
    """Two texts with an equals sign between them.

    Args:
        name: What they are: `NAME=VALUE`.
        is_whole: Whether the second one may not be empty either.
    """

    def __init__(self, name: str = "NAME=VALUE", *, is_whole: bool = False) -> None:
        self.name = name
        self._is_whole = is_whole

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return both."""
        first, equals, second = value.partition("=")
        if not equals or not first.strip() or (self._is_whole and not second):
            self.fail(f"{value!r} must have the form {self.name}", param, ctx)
        return first.strip(), second


class HostPort(click.ParamType[tuple[str, int]]):
    """A host and a port.

    Args:
        listens: Whether it is one to listen at: without a host, at all addresses.
    """

    name = "HOST:PORT"

    def __init__(self, *, listens: bool = False) -> None:
        self._listens = listens

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Return both; the host may have brackets, as that of IPv6 has."""
        found = split_host_port(value)
        if found is None or not (found[0] or self._listens):
            self.fail(f"{value!r} is not HOST:PORT", param, ctx)
        return found


def pairs(*flags: str, help: str, type: Pair | None = None) -> Callable[[F], F]:  # noqa: A002 - as click calls them
    """Return an option that may be given many times, each time with another name; the command gets a dict."""

    def merged(ctx: click.Context, param: click.Parameter, given: tuple[tuple[str, str], ...]) -> dict[str, str]:
        found = dict(given)
        if len(found) < len(given):
            names = [name for name, _ in given]
            twice = next(name for name in names if names.count(name) > 1)
            raise click.BadParameter(f"{twice} is given twice", ctx, param)
        return found

    return click.option(*flags, multiple=True, type=type or Pair(), callback=merged, help=help)


class NonEmptyPath(click.Path):
    """A path. An empty one (from a variable that is not set) is refused, and not taken for the working directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if not os.fspath(value):
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


PATHS = click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=NonEmptyPath(readable=False))


COMPRESSION = click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    help="How batches are compressed.",
)


class Existing(NonEmptyPath):
    """A file or a folder that exists. If it does not, that is an OSError (exit code 3), not a usage error.

    Args:
        folder: Whether it is a folder.
    """

    def __init__(self, *, folder: bool) -> None:
        # `file_okay` and `dir_okay` are for completion. Whether the path can be read shows when it is read.
        super().__init__(path_type=Path, file_okay=not folder, dir_okay=folder, readable=False)
        self._folder = folder

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path.

        Raises:
            OSError: The path does not exist, or is of the other kind; the error names it.
        """
        is_folder = Path(value).stat() and Path(value).is_dir()
        if value and is_folder != self._folder:
            number = errno.EISDIR if is_folder else errno.ENOTDIR
            raise OSError(number, os.strerror(number), str(value))
        return super().convert(value, param, ctx)


FILE = Existing(folder=False)
FOLDER = Existing(folder=True)
PATH_OR_STREAM = NonEmptyPath(path_type=Path, allow_dash=True)
ADOPT = click.option(
    "--adopt", is_flag=True, help="Make a log directory of a folder of partitions without meta.properties."
)


class SourceType(NonEmptyPath):
    """A path, or the address of a broker; whether there is such a thing shows when it is opened.

    Args:
        folder: Whether a path is that of a folder; for completion.
    """

    name = "SOURCE"

    def __init__(self, *, folder: bool = False) -> None:
        super().__init__(file_okay=not folder, readable=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return it as text."""
        if not value:
            self.fail("the path is empty", param, ctx)
        return str(value)


COMMAND_CONFIG = click.option(
    "--command-config",
    metavar="FILE",
    type=Existing(folder=False),
    help="Settings for kafka://, as Kafka's own tools take them (security.protocol, sasl.jaas.config, ...).",
)


def read_config(command_config: Path | None) -> dict[str, str] | None:
    """Return the settings in the file of `--command-config`; None if it was not given."""
    if command_config is None:
        return None
    from odradek.sources.address import read_command_config

    return read_command_config(command_config)


class OffsetRangeType(click.ParamType[Any]):
    """`A:B`, half-open; either end may be missing. `A` alone is one offset."""

    name = "A:B"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a pair of offsets or None."""
        if not isinstance(value, str):
            return value
        first, separator, last = value.partition(":")
        try:
            start = int(first) if first else None
            end = int(last) if last else None
        except ValueError:
            self.fail(f"{value!r} must have the form A:B, two offsets", param, ctx)
        if not separator:
            if start is None:
                self.fail("an empty range", param, ctx)
            end = start + 1
        if min(start or 0, end or 0) < 0:
            self.fail(f"{value!r} has a negative offset", param, ctx)
        if start is not None and end is not None and end < start:
            self.fail(f"{value!r} ends before it begins", param, ctx)
        return start, end


class Timestamp(click.ParamType[Any]):
    """Milliseconds since the epoch, or a date or time of ISO 8601; UTC if it has no time zone.

    Eight digits that may be a date are refused.
    """

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return milliseconds."""
        if not isinstance(value, str):
            return value
        # Python takes it for a date, Kafka's tools take it for milliseconds.
        if re.fullmatch("[0-9]{8}", value) and (day := _date(value)) is not None:
            self.fail(f"{value!r} may be {day} or {iso_text(int(value))}: write the one that is meant", param, ctx)
        try:
            return bound_ms(int(value))
        except ValueError:
            pass
        try:
            # As in Kafka's tools, a time without a zone is UTC.
            time = datetime.fromisoformat(value)
            return bound_ms(time if time.tzinfo is not None else time.replace(tzinfo=UTC))
        except ValueError:
            self.fail(f"{value!r} is neither milliseconds nor a time such as 2026-11-01T12:00:00", param, ctx)


def _date(digits: str) -> date | None:
    try:
        return date.fromisoformat(digits)
    except ValueError:
        return None
