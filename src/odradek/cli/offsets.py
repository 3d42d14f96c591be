"""`odradek offsets`: shows, sets and removes positions in any offset store."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.app import report
from odradek.cli.listing import show_table
from odradek.cli.options import FORMAT, Existing, NonEmptyPath, SourceType, Timestamp
from odradek.cli.progress import progress
from odradek.inspection.record_json import to_json
from odradek.storage.names import TopicPartition, invalid_topic_name_reason

if TYPE_CHECKING:
    from odradek.offsets.resets import Reset, ResetTarget
    from odradek.offsets.store import OffsetStore, Position

_PLAN = NonEmptyPath(path_type=Path, allow_dash=True)
_COLUMNS = ("topic", "partition", "offset", "leader_epoch", "topic_id", "batch")


class _Partition(click.ParamType[Any]):
    """`TOPIC-PARTITION`."""

    name = "TOPIC-PARTITION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a partition."""
        match = re.fullmatch(r"(.+)-([0-9]{1,10})", value, re.ASCII)
        if match is None:
            self.fail(f"{value!r} must have the form events-0", param, ctx)
        return TopicPartition(match[1], int(match[2]))


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
    """Show, set and remove where readers keep their place.

    ADDRESS is the address of a store: file:///path/offsets.json, folder:///path/of/logs?group=name (a log
    directory), kafka://host:port/group, zookeeper://host:port/group or redis://host:port/db?group=name.

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
@click.argument("places", metavar="[TOPIC-PARTITION=OFFSET...]", nargs=-1, type=_Place())
@click.option("--to-earliest", is_flag=True, help="To the log start offset.")
@click.option("--to-latest", is_flag=True, help="To the log end offset.")
@click.option("--to-offset", metavar="N", type=click.IntRange(0), help="To this offset.")
@click.option("--to-time", type=Timestamp(), help="To the first record at or after a time, or to the end.")
@click.option("--shift", metavar="N", type=int, help="By so many offsets: on, or back if it is negative.")
@click.option("--from-file", "plan", type=_PLAN, metavar="FILE", help="To the offsets that --export printed.")
@click.option("--export", is_flag=True, help="Print CSV, as kafka-consumer-groups does: topic,partition,offset.")
@click.option("--topic", "topics", multiple=True, help="Only this topic; without it, all that have a position.")
@click.option("--partition", "partitions", metavar="N", multiple=True, type=click.IntRange(0), help="Only this one.")
@click.option(
    "--source", metavar="SOURCE", type=SourceType(folder=True), help="Where the topics are, if ADDRESS does not say so."
)
@click.option("--dry-run", is_flag=True, help="Show how positions would change, and change none.")
@click.option("--force", is_flag=True, help="In a folder, remove the members that the group had at its broker's end.")
@FORMAT
def set_positions(
    address: str,
    places: tuple[tuple[TopicPartition, int], ...],
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_time: int | None,
    shift: int | None,
    plan: Path | None,
    export: bool,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    source: str | None,
    dry_run: bool,
    force: bool,
    form: str,
) -> None:
    """Set positions at ADDRESS, forwards or back, and list what has become of them.

    A position is the next offset to read: events-0=1200, or where one of the options leads to. Those are relative to
    what SOURCE holds, a log directory or a broker, and no position is set outside of that; a store in a broker or in a
    log directory is its own SOURCE. The other partitions keep their positions. A running reader of the store gets a
    conflict at its next commit, so stop it first; a group of a broker that has members is refused.

    Example: odradek offsets set kafka://localhost:9092/words --shift -100 --topic events --dry-run
    """
    from odradek.offsets import resets
    from odradek.offsets.reset_plan import write_plan
    from odradek.offsets.store import source_of

    if export and form != "text":
        raise click.UsageError("--export prints CSV: leave out --format")
    if len(dict(places)) < len(places):
        raise click.UsageError("a partition is named twice")
    wanted = dict(places)
    given: list[resets.ResetTarget] = []
    if places:
        given.append(resets.ToPlaces(wanted))
    if plan is not None:
        if places or topics or partitions:
            raise click.UsageError("--from-file itself names the partitions")
        wanted = _read_plan(plan, address)
        # As Kafka's tool, which sets none outside of the log.
        source = source or source_of(address)
        given.append(resets.ToPlaces(wanted))
    if to_earliest:
        given.append(resets.ToEarliest())
    if to_latest:
        given.append(resets.ToLatest())
    if to_offset is not None:
        given.append(resets.ToOffset(to_offset))
    if to_time is not None:
        given.append(resets.ToTime(to_time))
    if shift is not None:
        given.append(resets.Shift(shift))
    if len(given) != 1:
        raise click.UsageError("give either TOPIC-PARTITION=OFFSET, or one of the options that say where to")
    if places and (topics or partitions):
        raise click.UsageError("--topic and --partition are for the options that say where to")
    if wanted and source is None and not dry_run:
        with progress("offsets"), _open(address, force) as store:
            stored = store.load()
            changed = {name: _moved(stored.get(name), offset) for name, offset in wanted.items()}
            committed = store.commit(changed, expected=stored)
        if export:
            click.echo(write_plan(wanted), nl=False)
        else:
            _print(committed, form)
        return
    _reset(address, given[0], wanted, topics, partitions, source, dry_run, force, "csv" if export else form)


def _read_plan(path: Path, address: str) -> dict[TopicPartition, int]:
    from odradek.errors import OffsetStoreError
    from odradek.offsets.reset_plan import read_plan
    from odradek.offsets.store import group_of

    name = "stdin" if str(path) == "-" else str(path)
    try:
        with sys.stdin if str(path) == "-" else path.open(encoding="utf-8", newline="") as lines:
            return read_plan(lines, name, group_of(address))
    except UnicodeDecodeError as error:
        raise OffsetStoreError(f"{name}: it is not UTF-8") from error


def _open(address: str, force: bool) -> OffsetStore:
    """Open a store; with `force` that of a log directory, which then takes positions of a group with members."""
    from odradek.offsets.folder import FolderOffsetStore
    from odradek.offsets.store import open_store

    store = open_store(address)
    if force:
        if not isinstance(store, FolderOffsetStore):
            store.close()
            raise click.UsageError("--force is for a log directory: folder:///path?group=name")
        store.force = True
    return store


def _moved(position: Position | None, offset: int) -> Position:
    from odradek.offsets.store import Position

    # The topic stays the same; no batch is known to end at the new offset.
    return Position(offset) if position is None else replace(position, offset=offset, leader_epoch=None, batch=None)


def _reset(
    address: str,
    to: ResetTarget,
    places: Mapping[TopicPartition, int],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    source: str | None,
    dry_run: bool,
    force: bool,
    form: str,
) -> None:
    from odradek.errors import OffsetStoreError
    from odradek.offsets.resets import plan_resets
    from odradek.offsets.store import source_of
    from odradek.sources.source import open_source

    at = source or source_of(address)
    if at is None:
        raise click.UsageError(f"{address} does not say where the topics are: name it with --source")
    with progress("offsets"), _open(address, force) as store, open_source(at) as records:
        stored = store.load()
        if places:
            names = list(places)
        elif topics:
            names = records.choose(topics, partitions or None)
        else:
            names = [name for name in stored if not partitions or name.partition in partitions]
        if not names:
            raise OffsetStoreError(f"{store.address} has no such position: name topics with --topic")
        planned = plan_resets(records, stored, names, to)
        if not dry_run:
            changed = {name: _moved(stored.get(name), reset.after) for name, reset in planned.items()}
            store.commit(changed, expected=stored)
    for name, reset in planned.items():
        if reset.wanted != reset.after:
            edge = "before the log start" if reset.wanted < reset.after else "beyond the log end"
            report(f"{name}: {reset.wanted} is {edge} offset, {reset.after}")
    _print_resets(planned, form)


def _print_resets(planned: Mapping[TopicPartition, Reset], form: str) -> None:
    from odradek.offsets.reset_plan import write_plan

    if form == "csv":
        click.echo(write_plan({name: reset.after for name, reset in planned.items()}), nl=False)
        return
    if form == "jsonl":
        for name, reset in planned.items():
            fields = {"topic": name.topic, "partition": name.partition, "before": reset.before, "after": reset.after}
            click.echo(to_json(fields))
        return
    lines: list[tuple[str, ...]] = [("TOPIC", "PARTITION", "BEFORE", "AFTER", "LOG_START", "LOG_END")]
    for name, reset in planned.items():
        before = "-" if reset.before is None else str(reset.before)
        lines.append((name.topic, str(name.partition), before, str(reset.after), *map(str, reset.bounds)))
    show_table(lines)


@command.command(short_help="Remove positions.")
@click.argument("address")
@click.argument("partitions", metavar="[TOPIC-PARTITION...]", nargs=-1, type=_Partition())
@click.option("--topic", "topics", multiple=True, help="All positions of this topic.")
@click.option("--all", "everything", is_flag=True, help="All positions.")
@FORMAT
def delete(
    address: str, partitions: tuple[TopicPartition, ...], topics: tuple[str, ...], everything: bool, form: str
) -> None:
    """Remove positions at ADDRESS, and list those that are left.

    A reader then starts in these partitions as if it had never read them, as after a topic was deleted and created
    again. A running reader of the store gets a conflict at its next commit, so stop it first.

    Example: odradek offsets delete redis://localhost:6379/0?group=words --topic events
    """
    from odradek.errors import OffsetStoreError
    from odradek.offsets.store import open_store

    if everything == bool(partitions or topics):
        raise click.UsageError("say which positions: TOPIC-PARTITION or --topic, or --all")
    with progress("offsets"), open_store(address) as store:
        stored = store.load()
        gone = [name for name in stored if everything or name in partitions or name.topic in topics]
        missing = {str(name) for name in partitions if name not in stored}
        missing.update(topic for topic in topics if not any(name.topic == topic for name in stored))
        if missing:
            raise OffsetStoreError(f"{store.address} has no position of {', '.join(sorted(missing))}")
        _print(store.delete(gone, expected=stored) if gone else stored, form)


@command.command(short_help="Copy positions from one store to another.")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--overwrite", is_flag=True, help="Also replace positions that TO has already.")
@FORMAT
def copy(source: str, target: str, overwrite: bool, form: str) -> None:
    """Copy the positions at FROM to the store at TO, and list the positions it then has.

    FROM may also be a key of Redis that holds ranges of offsets: redis://host:port/db?list=KEY.

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
    if "list=" in address:
        from odradek.offsets.redis_ranges import is_list_of_ranges, read_ranges

        if is_list_of_ranges(address):
            return read_ranges(address)
    with progress("offsets"), open_store(address) as store:
        return store.load()


def _store(positions: Mapping[TopicPartition, Position], address: str, overwrite: bool, form: str) -> None:
    from odradek.errors import OffsetStoreError
    from odradek.offsets.store import open_store

    with progress("offsets"), open_store(address) as store:
        stored = store.load()
        held = sorted(stored.keys() & positions.keys())
        if held and not overwrite:
            raise OffsetStoreError(f"{store.address} has a position of {held[0]} already (--overwrite replaces it)")
        committed = store.commit(positions, expected=stored)
    _print(committed, form)


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
