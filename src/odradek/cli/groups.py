"""`odradek groups`: lists, describes and deletes the groups of a log directory or a broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.admin_options import ListByDefault, complete_groups, connect, source_and_config
from odradek.cli.listing import show_table
from odradek.cli.options import FORMAT
from odradek.cli.progress import progress
from odradek.inspection.record_json import to_json
from odradek.printable import printable
from odradek.storage.names import TopicPartition

if TYPE_CHECKING:
    from odradek.inspection.groups import GroupDescription
    from odradek.sources.source import Bounds

_HEADINGS = ("GROUP", "TYPE", "STATE", "MEMBERS", "LAG")
_DESCRIBED = ("TOPIC", "PARTITION", "OFFSET", "LOG_END", "LAG", "MEMBER", "HOST", "CLIENT")
_TEXT_COLUMNS = frozenset({0, 5, 6, 7})


@click.group(cls=ListByDefault)
def command() -> None:
    """List, describe and delete groups.

    SOURCE is a log directory, or a broker: kafka://HOST:PORT. `odradek groups SOURCE` is `odradek groups list SOURCE`.
    The lag is the number of offsets from the committed one to the end of the partition.

    Example: odradek groups /var/lib/kafka/data
    """


@command.command("list", short_help="List groups.")
@source_and_config
@FORMAT
def list_groups(source: str, command_config: Path | None, form: str) -> None:
    """List the groups of SOURCE: type, state, number of members, lag over all partitions.

    Example: odradek groups list kafka://localhost:9092
    """
    rows = _rows(source, command_config, ())
    if form == "jsonl":
        for row in rows:
            offsets, members = row.pop("offsets"), row.pop("members")
            del offsets
            click.echo(to_json({**row, "members": None if members is None else len(members)}))
        return
    lines: list[tuple[str, ...]] = [_HEADINGS]
    for row in rows:
        members = "-" if row["members"] is None else str(len(row["members"]))
        lines.append((row["group"], row["type"], row["state"], members, _text(row["lag"])))
    show_table(lines, left=frozenset({0, 1, 2}))


@command.command(short_help="Show offsets, lag and members.")
@source_and_config
@click.argument("groups", metavar="[GROUP...]", nargs=-1, shell_complete=complete_groups)
@FORMAT
def describe(source: str, command_config: Path | None, groups: tuple[str, ...], form: str) -> None:
    """Show groups, all if none is named: the offset and the lag of each partition, and the member that has it.

    Example: odradek groups describe /var/lib/kafka/data words
    """
    for number, row in enumerate(_rows(source, command_config, groups)):
        if form == "jsonl":
            click.echo(to_json(row))
        else:
            if number:
                click.echo()
            _show(row)


@command.command(short_help="Delete groups.")
@source_and_config
@click.argument("groups", metavar="GROUP...", nargs=-1, required=True, shell_complete=complete_groups)
@click.option("--force", is_flag=True, help="In a folder, also groups that had members when their broker stopped.")
def delete(source: str, command_config: Path | None, groups: tuple[str, ...], *, force: bool) -> None:
    """Delete groups with their offsets. A group that has members is refused.

    Example: odradek groups delete kafka://localhost:9092 words
    """
    with progress("groups"), connect(source, command_config) as admin:
        admin.delete_groups(groups, force=force)


def _rows(source: str, command_config: Path | None, groups: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return what JSON lines have of each group."""
    with progress("groups"), connect(source, command_config) as admin:
        described = admin.describe_groups(groups or None)
        committed = admin.committed([group.group_id for group in described])
        partitions = {name for offsets in committed.values() for name in offsets}
        partitions.update(name for group in described for member in group.members or () for name in member.partitions)
        bounds = admin.bounds(partitions)
    return [_row(group, committed[group.group_id], bounds) for group in described]


def _row(
    group: GroupDescription, committed: dict[TopicPartition, int], bounds: dict[TopicPartition, Bounds]
) -> dict[str, Any]:
    given = {name for member in group.members or () for name in member.partitions}
    offsets = []
    for name in sorted(given | committed.keys()):
        offset, known = committed.get(name), bounds.get(name)
        end = None if known is None else known.end_offset
        lag = None if offset is None or end is None else max(0, end - offset)
        fields = {"topic": name.topic, "partition": name.partition, "offset": offset, "log_end_offset": end, "lag": lag}
        offsets.append(fields)
    members = [
        {**member._asdict(), "partitions": [list(name) for name in member.partitions]} for member in group.members or ()
    ]
    lags = [fields["lag"] for fields in offsets if fields["lag"] is not None]
    return {
        "group": group.group_id,
        "type": group.type,
        "protocol_type": group.protocol_type,
        "state": group.state,
        "protocol": group.protocol,
        "lag": sum(lags) if lags else None,
        "offsets": offsets,
        "members": None if group.members is None else members,
    }


def _show(row: dict[str, Any]) -> None:
    protocol = f", {row['protocol']}" if row["protocol"] else ""
    members = "" if row["members"] is None else f", {len(row['members'])} members"
    click.echo(printable(f"{row['group']}  {row['state']}, {row['type']}{protocol}{members}, lag {_text(row['lag'])}"))
    owners = {tuple(name): member for member in row["members"] or () for name in member["partitions"]}
    lines: list[tuple[str, ...]] = [_DESCRIBED]
    for fields in row["offsets"]:
        owner = owners.get((fields["topic"], fields["partition"]))
        member = ("-", "-", "-") if owner is None else (owner["member_id"], owner["client_host"], owner["client_id"])
        numbers = (fields[name] for name in ("offset", "log_end_offset", "lag"))
        lines.append((fields["topic"], str(fields["partition"]), *map(_text, numbers), *member))
    idle = [member for member in row["members"] or () if not member["partitions"]]
    lines.extend(
        ("-", "-", "-", "-", "-", member["member_id"], member["client_host"], member["client_id"]) for member in idle
    )
    if len(lines) > 1:
        show_table(lines, left=_TEXT_COLUMNS)


def _text(number: int | None) -> str:
    return "-" if number is None else str(number)
