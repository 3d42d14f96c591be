"""`odradek replay`: writes the records of a folder or a broker into another folder or broker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from odradek.cli.app import ExitCode, report
from odradek.cli.options import COMMAND_CONFIG, COMPRESSION, NonEmptyPath, read_config
from odradek.cli.progress import progress
from odradek.cli.record_options import partition_options
from odradek.printable import printable

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Rate(click.ParamType[Any]):
    """So many records a second, or with a unit so many bytes."""

    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the records and the bytes a second, one of them None."""
        match = re.fullmatch(r"(?P<number>[0-9]+(\.[0-9]+)?)((?P<unit>[KMG]?)(?P<bytes>B))?", value)
        if match is None or float(match["number"]) <= 0:
            self.fail(f"{value!r} is neither records a second (5000) nor bytes (10MB)", param, ctx)
        number = float(match["number"])
        return (None, number * _UNITS[match["unit"]]) if match["bytes"] else (number, None)


class Renaming(click.ParamType[Any]):
    """`OLD=NEW`."""

    name = "OLD=NEW"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return both names."""
        old, _, new = value.partition("=")
        if not old or not new:
            self.fail(f"{value!r} must have the form OLD=NEW", param, ctx)
        return old, new


@click.command("replay")
@click.argument("source", metavar="SOURCE", type=NonEmptyPath(readable=False))
@click.option("--to", "target", required=True, type=NonEmptyPath(), help="DIR, or kafka://HOST:PORT.")
@partition_options
@click.option("--map", "names", multiple=True, type=Renaming(), help="Call topic OLD NEW there; more than once.")
@click.option("--rate", type=Rate(), help="At most so many records a second, or bytes: 5000, 10MB.")
@click.option("--pace", type=click.FloatRange(0, min_open=True), help="As fast as the timestamps go (1.0), or 2 times.")
@click.option("--uncommitted", is_flag=True, help="Also records of aborted and undecided transactions.")
@click.option("--no-groups", is_flag=True, help="Leave out the positions of groups.")
@click.option("--name", help="The name of this replay, if the one that is made of SOURCE will not do.")
@COMPRESSION
@COMMAND_CONFIG
def command(
    source: str,
    target: str,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    names: tuple[tuple[str, str], ...],
    rate: tuple[float | None, float | None] | None,
    pace: float | None,
    uncommitted: bool,
    no_groups: bool,
    name: str | None,
    compression: str,
    command_config: Path | None,
) -> int:
    """Write the records of SOURCE into the log directory DIR or into a broker.

    SOURCE is a segment, the folder of a partition, a log directory, or kafka://[user:password@]HOST:PORT[/TOPIC].
    Records keep their keys, headers, timestamps and partitions; topics are created with their settings, and the
    positions of groups go with them. Topics that are internal to Kafka are left out.

    It can be interrupted at any moment. The same command goes on, and later replays what is new.

    Example: odradek replay /var/lib/kafka/data --to kafka://localhost:9092 --topic events
    """
    if rate is not None and pace is not None:
        raise click.UsageError("--rate and --pace cannot be combined")
    options: dict[str, Any] = {"names": dict(names), "groups": not no_groups, "name": name}
    return run_replay(
        source,
        target,
        topics,
        partitions,
        rate=rate,
        speed=pace,
        uncommitted=uncommitted,
        compression=compression,
        config=read_config(command_config),
        options=options,
    )


def run_replay(
    source: str,
    target: str,
    topics: tuple[str, ...] = (),
    partitions: tuple[int, ...] = (),
    *,
    rate: tuple[float | None, float | None] | None = None,
    speed: float | None = None,
    uncommitted: bool = False,
    compression: str = "none",
    config: dict[str, str] | None = None,
    options: dict[str, Any] | None = None,
) -> int:
    """Replay with a progress bar, and say what was done."""
    from odradek.records.compression import CODECS
    from odradek.sources.source import open_source
    from odradek.transfer.pacing import Pace
    from odradek.transfer.replay import Replay
    from odradek.transfer.target import open_target

    records, size_bytes = rate or (None, None)
    with open_source(source, config) as opened, open_target(target, config, codec=CODECS[compression]) as into:
        replay = Replay(
            opened,
            into,
            opened.choose(topics or None, partitions or None),
            isolation="read_uncommitted" if uncommitted else "read_committed",
            pace=Pace(records=records, size_bytes=size_bytes, speed=speed),
            **(options or {}),
        )
        try:
            with progress("replay", replay.total_offsets, lambda: replay.report.records, "records"):
                done = replay.run()
        except KeyboardInterrupt:
            report("the same command goes on from here")
            raise
    for partition, start, end in done.lost:
        report(f"{partition}: offsets {start} to {end - 1} were deleted before they were replayed")
    for group, partition, reason in done.left:
        report(f"{group}: its position in {partition} was not set: {reason}")
    report(f"{done.records} records, {done.positions} positions of groups written to {printable(into.address)}")
    return ExitCode.FINDINGS if done.lost or done.left else ExitCode.CLEAN
