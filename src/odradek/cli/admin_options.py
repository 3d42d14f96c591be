"""The options of the commands on topics and groups, and how they reach a log directory or a broker."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from odradek.cli.options import COMMAND_CONFIG, SourceType, read_config
from odradek.sources.source import is_broker

if TYPE_CHECKING:
    from odradek.admin.admin import Admin

F = TypeVar("F", bound=Callable[..., Any])

_COMPLETION_TIMEOUT_MS = "500"


class ListByDefault(click.Group):
    """A group of commands whose `list` may be left out: `odradek topics DIR` is `odradek topics list DIR`.

    A folder that has the name of one of the commands is given as `./create`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `list` before arguments that do not begin with a command."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["list", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the commands, and what `list` takes."""
        listing = self.commands["list"]
        given = next(parameter for parameter in listing.params if isinstance(parameter, click.Argument))
        return [*super().shell_complete(ctx, incomplete), *given.type.shell_complete(ctx, given, incomplete)]


class Setting(click.ParamType[Any]):
    """`NAME=VALUE`."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return both."""
        if not isinstance(value, str):
            pair: tuple[str, str] = value
            return pair
        name, separator, text = value.partition("=")
        if not separator or not name.strip():
            self.fail(f"{value!r} must have the form NAME=VALUE", param, ctx)
        return name.strip(), text


def complete_topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the topics that begin so, of the source that was given; none if it does not answer at once."""
    return _complete(ctx, incomplete, lambda admin: admin.topic_names())


def complete_groups(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the groups that begin so, of the source that was given; none if it does not answer at once."""
    return _complete(ctx, incomplete, lambda admin: [group.group_id for group in admin.describe_groups()])


def _complete(ctx: click.Context, incomplete: str, names: Callable[[Admin], list[str]]) -> list[str]:
    from odradek.admin.admin import open_admin

    source = ctx.params.get("source")
    if not source:
        return []
    # A completion cannot show an error.
    with suppress(Exception):
        config = None
        if is_broker(source):
            path = ctx.params.get("command_config")
            settings = read_config(None if path is None else Path(path)) or {}
            config = {**settings, "default.api.timeout.ms": _COMPLETION_TIMEOUT_MS}
        with open_admin(source, config) as admin:
            return [name for name in names(admin) if name.startswith(incomplete)]
    return []


def source_and_config(function: F) -> F:
    """Add the argument SOURCE and the option `--command-config`."""
    return click.argument("source", metavar="SOURCE", type=SourceType(folder=True))(COMMAND_CONFIG(function))


def connect(source: str, command_config: Path | None) -> Admin:
    """Open a source; a context manager."""
    from odradek.admin.admin import open_admin

    return open_admin(source, read_config(command_config))
