"""What the commands on topics and groups have in common: `list` by default, and completion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from odradek.arguments import is_broker
from odradek.cli.progress import progress

if TYPE_CHECKING:
    from odradek.admin.admin import Admin

_COMPLETION_TIMEOUT_MS = "500"


class ListByDefault(click.Group):
    """A group of commands whose `list` may be left out: `odradek topics DIR` is `odradek topics list DIR`.

    A folder that has the name of one of the commands is given as `./create`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `list` before arguments that do not begin with a command."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            near = get_close_matches(args[0], self.commands, n=1)
            if near and not Path(args[0]).exists():
                ctx.fail(f"No such command or folder {args[0]!r}. Did you mean {near[0]!r}?")
            args = ["list", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the commands, and what `list` takes."""
        listing = self.commands["list"]
        given = next(parameter for parameter in listing.params if isinstance(parameter, click.Argument))
        return [*super().shell_complete(ctx, incomplete), *given.type.shell_complete(ctx, given, incomplete)]


def complete_topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the topics that begin so, of the source that was given; none if it does not answer at once."""
    return _complete(ctx, incomplete, lambda admin: admin.topic_names())


def complete_groups(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the groups that begin so, of the source that was given; none if it does not answer at once."""
    return _complete(ctx, incomplete, lambda admin: [group.group_id for group in admin.describe_groups()])


def _complete(ctx: click.Context, incomplete: str, names: Callable[[Admin], list[str]]) -> list[str]:
    from odradek.admin.opening import open_admin

    source = ctx.params.get("source") or ctx.params.get("target")
    if not source:
        return []
    # A completion cannot show an error.
    with suppress(Exception):
        settings = ctx.params.get("config") or {}
        config = {**settings, "default.api.timeout.ms": _COMPLETION_TIMEOUT_MS} if is_broker(source) else None
        with open_admin(source, config) as admin:
            return [name for name in names(admin) if name.startswith(incomplete)]
    return []


@contextmanager
def connected(
    source: str, config: dict[str, str] | None, *, adopt: bool = False, create: bool = False
) -> Iterator[Admin]:
    """Open a log directory or a broker."""
    from odradek.admin.opening import open_admin

    with progress("connecting"), open_admin(source, config, adopt=adopt, create=create) as admin:
        yield admin
