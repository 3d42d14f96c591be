"""`odradek groups`: lists, describes, resets and deletes the groups of a log directory or a broker."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import click

from odradek.arguments import is_broker
from odradek.cli.admin_options import ListByDefault, complete_groups, connected
from odradek.cli.group_listing import show_group
from odradek.cli.kio_import import import_kio
from odradek.cli.listing import show_rows
from odradek.cli.options import COMMAND_CONFIG, FOLDER_SOURCE, FORMAT, Name
from odradek.cli.record_options import PartitionFilter, partition_options
from odradek.cli.reset_options import TARGETS, print_resets, report_edges
from odradek.inspection.record_json import to_json

if TYPE_CHECKING:
    from odradek.admin.admin import Admin
    from odradek.places.resets import ResetTarget

GROUP_TYPES = ("classic", "consumer", "share", "streams")
GROUP_STATES = (
    "Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "NotReady", "Dead",
)  # fmt: skip


@click.group(cls=ListByDefault)
def command() -> None:
    """List, describe, reset and delete groups of every kind: classic, consumer, share and Streams groups.

    SOURCE is a log directory, or a broker: kafka://HOST:PORT. `odradek groups SOURCE` is `odradek groups list SOURCE`.
    The lag is the number of offsets from the committed one to the end of the partition.

    Example: odradek groups /var/lib/kafka/data
    """


@command.command("list", short_help="List groups.")
@FOLDER_SOURCE
@COMMAND_CONFIG
@click.option("--type", "types", type=click.Choice(GROUP_TYPES), multiple=True, help="Only groups of this type.")
@click.option(
    "--state",
    "states",
    type=click.Choice(GROUP_STATES, case_sensitive=False),
    multiple=True,
    help="Only groups in this state.",
)
@FORMAT
def list_groups(
    source: str, config: dict[str, str] | None, types: tuple[str, ...], states: tuple[str, ...], form: str
) -> None:
    """List the groups of SOURCE: type, state, number of members, lag over all partitions.

    Example: odradek groups list kafka://localhost:9092 --type share
    """
    from odradek.admin.group_rows import group_rows

    with _opened(source, config) as admin:
        described = [
            group
            for group in admin.describe_groups()
            if (not types or group.type in types) and (not states or group.state in states)
        ]
        rows = group_rows(admin, described)
    shown = [
        {
            **{name: row[name] for name in ("group", "type", "protocol_type", "state", "protocol", "lag")},
            "members": None if row["members"] is None else len(row["members"]),
        }
        for row in rows
    ]
    headings = ("GROUP", "TYPE", "STATE", "MEMBERS", "LAG")
    show_rows(form, shown, headings, lambda row: [row[name.lower()] for name in headings], left=frozenset({0, 1, 2}))


@command.command(short_help="Show offsets, lag and members.")
@FOLDER_SOURCE
@COMMAND_CONFIG
@click.argument("groups", metavar="[GROUP...]", nargs=-1, type=Name(), shell_complete=complete_groups)
@FORMAT
def describe(source: str, config: dict[str, str] | None, groups: tuple[str, ...], form: str) -> None:
    """Show groups, all if none is named: the offset and the lag of each partition, and the members.

    Example: odradek groups describe /var/lib/kafka/data words
    """
    from odradek.admin.group_rows import group_rows

    with _opened(source, config) as admin:
        rows = group_rows(admin, admin.describe_groups(list(dict.fromkeys(groups)) or None))
    for number, row in enumerate(rows):
        if form == "jsonl":
            click.echo(to_json(row))
        else:
            if number:
                click.echo()
            show_group(row)


@command.command(short_help="Set the offsets of a group.")
@FOLDER_SOURCE
@click.argument("group", metavar="GROUP", type=Name(), shell_complete=complete_groups)
@TARGETS
@partition_options
@click.option("--dry-run", is_flag=True, help="Show how offsets would change, and change none.")
@click.option("--force", is_flag=True, help="In a folder, remove the members that the group had at its broker's end.")
@COMMAND_CONFIG
@FORMAT
def reset(
    source: str,
    group: str,
    targets: list[ResetTarget],
    wanted: PartitionFilter,
    dry_run: bool,
    force: bool,
    config: dict[str, str] | None,
    form: str,
) -> None:
    """Set the offsets of a GROUP, of any kind, and list what has become of them.

    A group that has members is refused. Of a share group the start offsets are set: all records from there on are
    delivered again.

    Example: odradek groups reset kafka://localhost:9092 words --to-earliest --topic events --dry-run
    """
    from odradek.places.resets import plan_group_resets

    if len(targets) != 1:
        raise click.UsageError("give one of the options that say where to: --to-earliest, --to-latest ...")
    with _opened(source, config) as admin:
        (described,) = admin.describe_groups([group])
        planned = plan_group_resets(admin.place, described, targets[0], wanted.topics, wanted.partitions)
        if not dry_run:
            admin.reset_offsets(described, {name: one.after for name, one in planned.items()}, force=force)
    report_edges(planned)
    print_resets(planned, form)


@command.command(short_help="Delete groups.")
@FOLDER_SOURCE
@COMMAND_CONFIG
@click.argument("groups", metavar="GROUP...", nargs=-1, required=True, type=Name(), shell_complete=complete_groups)
@click.option("--force", is_flag=True, help="In a folder, also groups that had members when their broker stopped.")
def delete(source: str, config: dict[str, str] | None, groups: tuple[str, ...], *, force: bool) -> None:
    """Delete groups with their offsets. A group that has members is refused.

    Example: odradek groups delete kafka://localhost:9092 words
    """
    with connected(source, config) as admin:
        admin.delete_groups(groups, force=force)


def _opened(source: str, config: dict[str, str] | None) -> AbstractContextManager[Admin]:
    if is_broker(source):
        import_kio()
    return connected(source, config)
