"""`odradek replay`: writes the records of a folder or a broker into another folder or broker."""

from __future__ import annotations

import math
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from odradek.cli.app import ExitCode, describe, report
from odradek.cli.listing import counted
from odradek.cli.options import COMMAND_CONFIG, COMPRESSION, SOURCE, TO, Name, Pair, pairs
from odradek.cli.progress import progress
from odradek.cli.record_options import PartitionFilter, opened, partition_options
from odradek.printable import printable

_MOST_A_SECOND = 1e15
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Rate(click.ParamType[Any]):
    """A number of records a second, or of bytes if it has a unit."""

    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the records and the bytes a second, one of them None."""
        match = re.fullmatch(r"(?P<number>[0-9]+(\.[0-9]+)?)((?P<unit>[KMG]?)(?P<bytes>B))?", value)
        if match is None or not 0 < float(match["number"]) <= _MOST_A_SECOND:
            self.fail(f"{value!r} is neither records a second (5000) nor bytes (10MB)", param, ctx)
        number = float(match["number"])
        return (None, number * _UNITS[match["unit"]]) if match["bytes"] else (number, None)


class Times(click.FloatRange):
    """How many times as fast."""

    name = "TIMES"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


@click.command("replay")
@SOURCE
@TO
@partition_options
@pairs("--map", "names", type=Pair("OLD=NEW", is_whole=True), help="Call topic OLD NEW there; more than once.")
@click.option("--rate", type=Rate(), help="At most so many records a second, or bytes: 5000, 10MB.")
@click.option(
    "--pace", type=Times(0, _MOST_A_SECOND, min_open=True), help="As fast as the timestamps go (1.0), or 2 times."
)
@click.option("--uncommitted", is_flag=True, help="Also records of aborted and undecided transactions.")
@click.option("--no-groups", is_flag=True, help="Leave out the positions of groups.")
@click.option("--name", type=Name(), help="The name of this replay, if the one that is made of SOURCE will not do.")
@COMPRESSION
@COMMAND_CONFIG
def command(
    source: str,
    target: str,
    wanted: PartitionFilter,
    names: dict[str, str],
    rate: tuple[float | None, float | None] | None,
    pace: float | None,
    uncommitted: bool,
    no_groups: bool,
    name: str | None,
    compression: str | None,
    config: dict[str, str] | None,
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
    from odradek.transfer.pacing import Pace

    records, size_bytes = rate or (None, None)
    return run_replay(
        source,
        target,
        config,
        wanted,
        compression=compression,
        isolation="read_uncommitted" if uncommitted else "read_committed",
        pace=Pace(records=records, size_bytes=size_bytes, speed=pace),
        names=names,
        groups=not no_groups,
        name=name,
    )


def run_replay(
    source: str,
    target: str,
    config: dict[str, str] | None,
    wanted: PartitionFilter,
    *,
    compression: str | None = None,
    **options: Any,
) -> int:
    """Replay with a progress bar, and say what was done; the options are those of `Replay`."""
    from odradek.arguments import is_broker
    from odradek.records.compression import CODECS
    from odradek.storage.directory.surrounding import check_outside
    from odradek.transfer.opening import open_target
    from odradek.transfer.replay import Replay, names_there

    if not is_broker(source) and not is_broker(target):
        check_outside(Path(target), Path(source))
    with ExitStack() as stack:
        records, chosen = stack.enter_context(opened(source, config, wanted))
        names_there(chosen, options.get("names", {}))  # before the target is made
        into = stack.enter_context(open_target(target, config, codec=CODECS[compression or "none"]))
        replay = Replay(records, into, chosen, **options)
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
    for error in done.damaged:
        report(f"{describe(error)}: replayed up to there")
    written = f"{counted(done.records, 'record')}, {counted(done.positions, 'position')}"
    report(f"{written} of groups written to {printable(into.address)}")
    return ExitCode.FINDINGS if done.lost or done.left or done.damaged else ExitCode.CLEAN
