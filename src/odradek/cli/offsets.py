"""`odradek offsets`: shows and sets positions in any offset store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.options import FORMAT, Existing
from odradek.cli.record_json import to_json
from odradek.storage.names import TopicPartition, invalid_topic_name_reason

if TYPE_CHECKING:
    from odradek.offsets.store import Position

_COLUMNS = ("topic", "partition", "offset", "leader_epoch", "topic_id", "batch")


class _Place(click.ParamType[Any]):
    """`TOPIC-PARTITION=OFFSET`."""

    name = "TOPIC-PARTITION=OFFSET"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a partition and an offset."""
        match = re.fullmatch(r"(.+)-([0-9]{1,10})=([0-9]{1,18})", value, re.ASCII)
        if match is None:
            self.fail(f"{value!r} must have the form events-0=1200", param, ctx)
        wrong = invalid_topic_name_reason(match[1])
        if wrong is not None:
            self.fail(wrong, param, ctx)
        return TopicPartition(match[1], int(match[2])), int(match[3])


@click.group()
def command() -> None:
    """Show and set where readers keep their place.

    ADDRESS is the address of a store: file:///path/offsets.json, kafka://host:port/group, zookeeper://host:port/group
    or redis://host:port/db?group=name.

    Example: odradek offsets show file:offsets.json
    """


@command.command(short_help="List positions.")
@click.argument("address")
@FORMAT
def show(address: str, form: str) -> None:
    """List the positions at ADDRESS, a store or the checkpoint of a Spark stream.

    Example: odradek offsets show redis://localhost:6379/0?group=words
    """
    _print(_read(address), form)


@command.command("set", short_help="Set positions, forwards or back.")
@click.argument("address")
@click.argument("places", metavar="TOPIC-PARTITION=OFFSET...", nargs=-1, required=True, type=_Place())
@FORMAT
def set_positions(address: str, places: tuple[tuple[TopicPartition, int], ...], form: str) -> None:
    """Set positions at ADDRESS, forwards or back, and list the positions it then has.

    A position is the next offset to read: events-0=1200. A running reader of the store gets a conflict at its next
    commit, so stop it first. The other partitions keep their positions.

    Example: odradek offsets set file:offsets.json events-0=1200 events-1=900
    """
    from odradek.offsets.store import Position, open_store

    if len(dict(places)) < len(places):
        raise click.UsageError("a partition is named twice")
    with open_store(address) as store:
        stored = store.load()
        changed = {
            # The topic stays the same; no batch is known to end at the new offset.
            name: replace(stored.get(name, Position(offset)), offset=offset, leader_epoch=None, batch=None)
            for name, offset in places
        }
        _print(store.commit(changed, expected=stored), form)


@command.command(short_help="Copy positions from one store to another.")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--overwrite", is_flag=True, help="Also replace positions that TO has already.")
@FORMAT
def copy(source: str, target: str, overwrite: bool, form: str) -> None:
    """Copy the positions at FROM to the store at TO, and list the positions it then has.

    Example: odradek offsets copy file:offsets.json kafka://localhost:9092/words
    """
    _store(_read(source), target, overwrite, form)


@command.command("from-checkpoint", short_help="Copy the positions of a Spark stream to a store.")
@click.argument("checkpoint", type=Existing(folder=True))
@click.argument("address")
@click.option("--overwrite", is_flag=True, help="Also replace positions that ADDRESS has already.")
@FORMAT
def from_checkpoint(checkpoint: Path, address: str, overwrite: bool, form: str) -> None:
    """Copy the positions in the CHECKPOINT of a Spark stream to the store at ADDRESS.

    The positions are those after the last batch that is done.

    Example: odradek offsets from-checkpoint /data/checkpoint file:offsets.json
    """
    from odradek.offsets.spark_checkpoint import read_checkpoint

    _store(read_checkpoint(checkpoint), address, overwrite, form)


@command.command("to-starting-offsets", short_help="Print positions as Spark's option startingOffsets.")
@click.argument("address")
def to_starting_offsets(address: str) -> None:
    """Print the positions at ADDRESS, a store or a checkpoint, for Spark's option startingOffsets.

    Example: odradek offsets to-starting-offsets file:offsets.json
    """
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), position in sorted(_read(address).items()):
        topics.setdefault(topic, {})[str(partition)] = position.offset
    click.echo(to_json(topics))


def _read(address: str) -> Mapping[TopicPartition, Position]:
    from odradek.offsets.spark_checkpoint import read_checkpoint
    from odradek.offsets.store import open_store

    if Path(address).is_dir():
        return read_checkpoint(Path(address))
    with open_store(address) as store:
        return store.load()


def _store(positions: Mapping[TopicPartition, Position], address: str, overwrite: bool, form: str) -> None:
    from odradek.errors import OffsetStoreError
    from odradek.offsets.store import open_store

    with open_store(address) as store:
        stored = store.load()
        held = sorted(stored.keys() & positions.keys())
        if held and not overwrite:
            raise OffsetStoreError(f"{store.address} has a position of {held[0]} already (--overwrite replaces it)")
        _print(store.commit(positions, expected=stored), form)


def _print(positions: Mapping[TopicPartition, Position], form: str) -> None:
    rows = [
        dict(zip(_COLUMNS, (*name, held.offset, held.leader_epoch, held.topic_id, held.batch), strict=True))
        for name, held in sorted(positions.items())
    ]
    if form == "jsonl":
        for row in rows:
            click.echo(to_json(row))
        return
    # Columns without any value are left out.
    shown = [name for name in _COLUMNS if name in _COLUMNS[:3] or any(row[name] is not None for row in rows)]
    lines = [[name.upper() for name in shown]]
    lines.extend(["" if row[name] is None else str(row[name]) for name in shown] for row in rows)
    widths = [max(len(line[column]) for line in lines) for column in range(len(shown))]
    for line in lines:
        cells = [
            cell.rjust(width) if name in ("partition", "offset", "leader_epoch") else cell.ljust(width)
            for name, cell, width in zip(shown, line, widths, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())
