"""`odradek offsets`: shows, sets and removes positions in any offset store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from odradek.arguments import is_broker
from odradek.cli.listing import show_rows
from odradek.cli.options import (
    COMMAND_CONFIG,
    FOLDER,
    FORMAT,
    PATH_OR_STREAM,
    Name,
    SourceType,
)
from odradek.cli.partition_places import PartitionName
from odradek.cli.progress import progress
from odradek.cli.record_options import PartitionFilter, partition_options
from odradek.cli.reset_options import TARGETS, print_resets, report_edges
from odradek.cli.streams import stdin
from odradek.errors import OffsetStoreError, OptionError
from odradek.inspection.record_json import to_json
from odradek.storage.names import TopicPartition

if TYPE_CHECKING:
    from odradek.offsets.store import OffsetStore, Position, Positions
    from odradek.places.place import Place
    from odradek.places.resets import Reset, ResetTarget

_ADDRESS = click.argument("address", type=Name())
_COLUMNS = ("topic", "partition", "offset", "leader_epoch", "topic_id", "batch")


@click.group()
def command() -> None:
    """Show, set and remove where readers keep their place.

    ADDRESS is the address of a store: file:///path/offsets.json, folder:///path/of/logs?group=name (a log
    directory), kafka://host:port/group, zookeeper://host:port/group or redis://host:port/db?group=name.

    Example: odradek offsets show file:offsets.json
    """


@command.command(short_help="List positions.")
@_ADDRESS
@COMMAND_CONFIG
@FORMAT
def show(address: str, config: dict[str, str] | None, form: str) -> None:
    """List the positions at ADDRESS, a store or the checkpoint of a Spark stream.

    Example: odradek offsets show redis://localhost:6379/0?group=words
    """
    _print(_read(address, config), form)


@command.command("set", short_help="Set positions, forwards or back.")
@_ADDRESS
@click.argument("places", metavar="[TOPIC-PARTITION=OFFSET...]", nargs=-1, type=PartitionName(has_offset=True))
@TARGETS
@click.option("--from-file", "plan", type=PATH_OR_STREAM, help="To the offsets that --export printed.")
@click.option("--export", is_flag=True, help="Print CSV, as kafka-consumer-groups does: topic,partition,offset.")
@partition_options
@click.option("--source", type=SourceType(folder=True), help="Where the topics are, if ADDRESS does not say so.")
@click.option("--dry-run", is_flag=True, help="Show how positions would change, and change none.")
@click.option("--force", is_flag=True, help="In a folder, remove the members that the group had at its broker's end.")
@COMMAND_CONFIG
@FORMAT
def set_positions(
    address: str,
    places: tuple[tuple[TopicPartition, int], ...],
    targets: list[ResetTarget],
    plan: Path | None,
    export: bool,
    wanted: PartitionFilter,
    source: str | None,
    dry_run: bool,
    force: bool,
    config: dict[str, str] | None,
    form: str,
) -> None:
    """Set positions at ADDRESS, forwards or back, and list what has become of them.

    A position is the next offset to read: events-0=1200, or where one of the options leads to. Those are relative to
    what SOURCE holds, a log directory or a broker, and no position is set outside of that; a store in a broker or in a
    log directory is its own SOURCE. The other partitions keep their positions. A running reader of the store gets a
    conflict at its next commit, so stop it first; a group of a broker that has members is refused.

    Example: odradek offsets set kafka://localhost:9092/words --shift -100 --topic events --dry-run
    """
    from odradek.offsets.store import source_of
    from odradek.places.opening import open_place
    from odradek.places.resets import ToPlaces, plan_resets, write_plan

    if export and form != "text":
        raise click.UsageError("--export prints CSV: leave out --format")
    given = dict(places)
    if len(given) < len(places):
        raise click.UsageError("a partition is named twice")
    if bool(places) + (plan is not None) + len(targets) != 1:
        raise click.UsageError("give either TOPIC-PARTITION=OFFSET, or one of the options that say where to")
    if (places or plan is not None) and wanted != PartitionFilter():
        raise click.UsageError("--topic and --partition are for the options that say where to")
    at = source or source_of(address)
    if plan is not None:
        given = _read_plan(plan, address)
        # As Kafka's tool, which sets none outside of the log.
        source = at
    sets_as_given = bool(given) and source is None and not dry_run
    if at is None and not sets_as_given:
        raise click.UsageError(f"{address} does not say where the topics are: name it with --source")
    planned: Mapping[TopicPartition, Reset] = {}
    with progress("offsets"), _open(address, config, force=force) as store:
        stored = store.load()
        if at is not None and not sets_as_given:
            with open_place(at, config) as records:
                names = list(given) or _chosen(records, stored, wanted)
                if not names:
                    raise OffsetStoreError(f"{store.address} has no such position: name topics with --topic")
                positions = {name: position.offset for name, position in stored.items()}
                planned = plan_resets(records, positions, names, ToPlaces(given) if given else targets[0])
            given = {name: reset.after for name, reset in planned.items()}
        if not dry_run:
            changed = {name: _moved(stored.get(name), offset) for name, offset in given.items()}
            stored = store.commit(changed, expected=stored)
    report_edges(planned)
    if export:
        click.echo(write_plan(given), nl=False)
    elif sets_as_given:
        _print(stored, form)
    else:
        print_resets(planned, form)


def _chosen(records: Place, stored: Positions, wanted: PartitionFilter) -> list[TopicPartition]:
    if wanted.topics:
        return records.choose(wanted.topics, wanted.partitions or None)
    return [name for name in stored if wanted.takes(name)]


def _read_plan(path: Path, address: str) -> dict[TopicPartition, int]:
    from odradek.offsets.store import group_of
    from odradek.places.resets import read_plan

    name = "stdin" if str(path) == "-" else str(path)
    try:
        with stdin() if str(path) == "-" else path.open(encoding="utf-8", newline="") as lines:
            return read_plan(lines, name, group_of(address))
    except UnicodeDecodeError as error:
        raise OffsetStoreError(f"{name}: it is not UTF-8") from error


def _open(address: str, config: Mapping[str, str] | None, *, force: bool = False) -> OffsetStore:
    """Open a store, that of a broker with settings; with `force` that of a folder, whose group may have had members."""
    from odradek.offsets.folder import FolderOffsetStore
    from odradek.offsets.store import open_store

    try:
        store = open_store(address, config if is_broker(address) else None)
    except OffsetStoreError as error:
        # It connects later: what is wrong is the address or a setting, or, without a colon, a checkpoint is missing.
        if ":" not in address or isinstance(error.__cause__, ImportError):
            raise
        raise OptionError(str(error)) from error
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


@command.command(short_help="Remove positions.")
@_ADDRESS
@click.argument("partitions", metavar="[TOPIC-PARTITION...]", nargs=-1, type=PartitionName())
@click.option("--topic", "topics", type=Name(), multiple=True, help="All positions of this topic.")
@click.option("--all", "everything", is_flag=True, help="All positions.")
@COMMAND_CONFIG
@FORMAT
def delete(
    address: str,
    partitions: tuple[TopicPartition, ...],
    topics: tuple[str, ...],
    everything: bool,
    config: dict[str, str] | None,
    form: str,
) -> None:
    """Remove positions at ADDRESS, and list those that are left.

    A reader then starts in these partitions as if it had never read them, as after a topic was deleted and created
    again. A running reader of the store gets a conflict at its next commit, so stop it first.

    Example: odradek offsets delete redis://localhost:6379/0?group=words --topic events
    """
    if everything == bool(partitions or topics):
        raise click.UsageError("say which positions: TOPIC-PARTITION or --topic, or --all")
    with progress("offsets"), _open(address, config) as store:
        stored = _loaded(store)
        gone = [name for name in stored if everything or name in partitions or name.topic in topics]
        missing = {str(name) for name in partitions if name not in stored}
        missing.update(topic for topic in topics if not any(name.topic == topic for name in stored))
        if missing:
            raise OffsetStoreError(f"{store.address} has no position of {', '.join(sorted(missing))}")
        _print(store.delete(gone, expected=stored) if gone else stored, form)


@command.command(short_help="Copy positions from one store to another.")
@click.argument("source", metavar="FROM", type=Name())
@click.argument("target", metavar="TO", type=Name())
@click.option("--overwrite", is_flag=True, help="Also replace positions that TO has already.")
@COMMAND_CONFIG
@FORMAT
def copy(source: str, target: str, overwrite: bool, config: dict[str, str] | None, form: str) -> None:
    """Copy the positions at FROM to the store at TO, and list the positions it then has.

    FROM may also be where an older program has kept them: redis://host:port/db?list=KEY (ranges),
    redis://host:port/db?hash=KEY&topic=TOPIC, zookeeper://host:port/?node=PATH&topic=TOPIC.

    Example: odradek offsets copy file:offsets.json kafka://localhost:9092/words
    """
    _store(_read(source, config), target, config, overwrite, form)


@command.command("from-checkpoint", short_help="Copy the positions of a Spark stream to a store.")
@click.argument("checkpoint", type=FOLDER)
@_ADDRESS
@click.option("--overwrite", is_flag=True, help="Also replace positions that ADDRESS has already.")
@COMMAND_CONFIG
@FORMAT
def from_checkpoint(checkpoint: Path, address: str, overwrite: bool, config: dict[str, str] | None, form: str) -> None:
    """Copy the positions in the CHECKPOINT of a Spark stream to the store at ADDRESS.

    The positions are those after the last batch that is done.

    Example: odradek offsets from-checkpoint /data/checkpoint file:offsets.json
    """
    from odradek.offsets.spark_checkpoint import read_checkpoint

    _store(read_checkpoint(checkpoint), address, config, overwrite, form)


@command.command("to-starting-offsets", short_help="Print positions as Spark's option startingOffsets.")
@_ADDRESS
@COMMAND_CONFIG
def to_starting_offsets(address: str, config: dict[str, str] | None) -> None:
    """Print the positions at ADDRESS, a store or a checkpoint, for Spark's option startingOffsets.

    Example: odradek offsets to-starting-offsets file:offsets.json
    """
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), position in sorted(_read(address, config).items()):
        topics.setdefault(topic, {})[str(partition)] = position.offset
    click.echo(to_json(topics))


def _read(address: str, config: Mapping[str, str] | None) -> Mapping[TopicPartition, Position]:
    from odradek.offsets.spark_checkpoint import read_checkpoint

    if Path(address).is_dir():
        return read_checkpoint(Path(address))
    with progress("offsets"), _open(address, config) as store:
        return _loaded(store)


def _loaded(store: OffsetStore) -> Positions:
    stored = store.load()
    # What only an older program has written has no version.
    if stored.version is None and not stored:
        raise OffsetStoreError(f"{store.address} has no positions: nothing is stored there")
    return stored


def _store(
    positions: Mapping[TopicPartition, Position],
    address: str,
    config: Mapping[str, str] | None,
    overwrite: bool,
    form: str,
) -> None:
    with progress("offsets"), _open(address, config) as store:
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
    # Columns without any value are left out.
    shown = [name for name in _COLUMNS if name in _COLUMNS[:3] or any(row[name] is not None for row in rows)]
    left = frozenset(column for column, name in enumerate(shown) if name in ("topic", "topic_id", "batch"))
    show_rows(form, rows, [name.upper() for name in shown], lambda row: [row[name] for name in shown], left=left)
