"""The arguments and options of the commands: an idea has one name, one type and one piece of code.

The name of a type is what the help calls the value: `--partition N`. Options that belong together reach a command as
one value: `--topic` and `--partition` as a `PartitionFilter`, `--command-config FILE` as the settings in the file.
"""

from __future__ import annotations

import errno
import functools
import io
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from odradek.arguments import split_host_port
from odradek.errors import OptionError
from odradek.records.timestamps import typed_bound_ms

F = TypeVar("F", bound=Callable[..., Any])

MAX_OFFSET = (1 << 63) - 1
_HOST_AND_PORT = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*:[0-9]{2,5}")


def bundled(name: str, make: Callable[..., Any], *options: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that adds options, and gives a command what is made of them.

    Args:
        name: The command's parameter.
        make: Makes its value of what the options are given, by their names.
        options: The options, in the order of the help.
    """
    bare: Any = functools.partial(make)
    for option in options:
        option(bare)
    names = [parameter.name for parameter in bare.__click_params__]

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def command(**given: Any) -> Any:
            made = make(**{part: given.pop(part) for part in names})
            return function(**given, **{name: made})

        decorated: Any = command
        for option in reversed(options):
            decorated = option(decorated)
        found: F = decorated
        return found

    return decorate


# -- types


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


class Integer(_Whole, click.types.IntParamType):
    """A whole number; what it is for says which are taken."""


COUNT = Number(0, MAX_OFFSET)
"""A number of records."""


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
        if "://" in value or "@" in value:
            # What is before the @ may be a password.
            self.fail(f"'{value.rpartition('@')[2].rpartition('://')[2]}' is to stand alone, as HOST:PORT", param, ctx)
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
    """A path. An empty one (from a variable that is not set) is refused, and not taken for the working directory.

    With a `path_type` it is no address of a broker either.
    """

    def __init__(self, **of_click: Any) -> None:
        super().__init__(**of_click)
        self.name = "FILE" if not self.dir_okay else "DIR" if not self.file_okay else "PATH"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if not os.fspath(value):
            self.fail("the path is empty", param, ctx)
        _check_scheme(str(value))
        if self.type is not None:
            self.check_no_broker(value, param, ctx)
        return super().convert(value, param, ctx)

    def check_no_broker(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> None:
        """Refuse the address of a broker; as a path it would be made, or printed with the password in it."""
        from odradek.arguments import is_broker

        if is_broker(value) and not Path(value).exists():
            wanted = "folder" if not self.file_okay else "file" if not self.dir_okay else "file or a folder"
            self.fail(f"a {wanted} is wanted here, not a broker", param, ctx)


def _check_scheme(value: str) -> None:
    """Refuse an address of an unknown kind; as a path, it would be one that is missing, or that is made."""
    scheme, separator, _ = value.partition("://")
    if separator and scheme.isalnum() and scheme.lower() != "kafka" and not Path(value).exists():
        raise click.UsageError(f"{scheme}:// is no address here: give a path, or kafka://HOST:PORT for a broker")
    if _HOST_AND_PORT.fullmatch(value) and not Path(value).exists():
        raise click.UsageError(f"{value} is no path here: did you mean kafka://{value}? (If it is a folder: ./{value})")
    if value.startswith("file:") and not separator and not Path(value).exists():
        raise click.UsageError(f"{value} is no address here: give the path itself, {value.removeprefix('file:')}")


NEW_PATH = NonEmptyPath(path_type=Path)
NEW_FILE = NonEmptyPath(path_type=Path, dir_okay=False)
PATH_OR_STREAM = NonEmptyPath(path_type=Path, allow_dash=True)


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
        self.check_no_broker(value, param, ctx)
        is_folder = Path(value).stat() and Path(value).is_dir()
        if value and is_folder != self._folder:
            number = errno.EISDIR if is_folder else errno.ENOTDIR
            raise OSError(number, os.strerror(number), str(value))
        return super().convert(value, param, ctx)


FILE = Existing(folder=False)
FOLDER = Existing(folder=True)


class SettingsFile(Existing):
    """A file of settings, as Kafka's own tools take it."""

    def __init__(self) -> None:
        super().__init__(folder=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the settings, a dict."""
        from odradek.storage.formats.meta_properties import read_properties

        return read_properties(super().convert(value, param, ctx))


class SourceType(NonEmptyPath):
    """A path, or the address of a broker; whether there is such a thing shows when it is opened.

    Args:
        name: What the help calls it.
        folder: Whether a path is that of a folder; for completion.
    """

    def __init__(self, name: str = "SOURCE", *, folder: bool = False) -> None:
        super().__init__(file_okay=not folder, readable=False)
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return it as text."""
        if not value:
            self.fail("the path is empty", param, ctx)
        _check_scheme(str(value))
        return str(value)


class OffsetRangeType(click.ParamType[Any]):
    """`A:B`, half-open; either end may be missing. `A` alone is one offset."""

    name = "A:B"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a pair of offsets or None."""
        if not isinstance(value, str):
            return value
        first, separator, last = value.partition(":")
        if not re.fullmatch("-?[0-9]*:?-?[0-9]*", value):
            self.fail(f"{value!r} must have the form A:B, two offsets", param, ctx)
        start, end = (int(part) if part else None for part in (first, last))
        if not separator:
            if start is None:
                self.fail("an empty range", param, ctx)
            end = start + 1
        if min(start or 0, end or 0) < 0:
            self.fail(f"{value!r} has a negative offset", param, ctx)
        if max(start or 0, end or 0) > MAX_OFFSET:
            self.fail(f"{value!r} is beyond {MAX_OFFSET}, where offsets end", param, ctx)
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
        try:
            return typed_bound_ms(value)
        except OptionError as error:
            self.fail(str(error), param, ctx)


# -- arguments and options


SOURCE = click.argument("source", type=SourceType())
FOLDER_SOURCE = click.argument("source", type=SourceType(folder=True))
PATHS = click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=SourceType())
LOCAL_PATHS = click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=NonEmptyPath(readable=False, path_type=str)
)
"""Paths of files and folders only, and no broker."""

TO = click.option(
    "--to", "target", required=True, type=SourceType("TARGET"), help="A log directory, or kafka://HOST:PORT."
)
COMMAND_CONFIG = click.option(
    "--command-config",
    "config",
    type=SettingsFile(),
    help="Settings for kafka://, as Kafka's own tools take them (security.protocol, sasl.jaas.config, ...).",
)
ADOPT = click.option(
    "--adopt", is_flag=True, help="Make a log directory of a folder of partitions without meta.properties."
)
COMPRESSION = click.option(
    "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), help="How batches are compressed."
)


def form(*forms: str, help: str, default: str | None = "text") -> Callable[[F], F]:  # noqa: A002 - as click calls it
    """Return the option `--format`, which a command gets as `form`."""
    choice = click.Choice(forms)
    return click.option("--format", "form", type=choice, default=default, help=help, callback=_for_programs)


def _for_programs(ctx: click.Context, param: click.Parameter, form: str | None) -> str | None:
    """Let what programs read be UTF-8, whatever the terminal's encoding: JSON and CSV do not have our escapes."""
    if form in ("jsonl", "csv") and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors=sys.stdout.errors)
    return form


FORMATS = ("parquet", "arrow", "jsonl", "csv")
"""The formats of files with records."""

FORMAT = form("text", "jsonl", help="Text, or JSON lines.")
