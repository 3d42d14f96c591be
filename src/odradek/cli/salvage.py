"""`odradek salvage`: a sound log directory out of a damaged one."""

from __future__ import annotations

import json
from pathlib import Path

import click

from odradek.cli.app import ExitCode, printable, report
from odradek.inspection.log_files import is_partition_directory, partition_directories
from odradek.errors import FormatError, LogError
from odradek.storage.salvage import SalvagedLog, salvage_partition, salvage_root


@click.command("salvage")
@click.argument("source", metavar="SRC", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("target", metavar="DST", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(["text", "jsonl"]), default="text", help="How losses are printed.")
def command(source: Path, target: Path, form: str) -> int:
    """Write what is sound in SRC into a new log directory DST.

    SRC is a log directory or the folder of a partition, and is only read. Every batch whose checksum holds keeps its
    offset; indexes are made anew. What is lost goes to stdout, a line each; the exit code is 1 where something is.
    A checkpoint that cannot be read is left out, and named on stderr.
    """
    if target.exists() and any(target.iterdir()):
        raise LogError(f"{target} is not empty")
    partitions = [source] if is_partition_directory(source) else partition_directories(source)
    if not partitions:
        raise LogError(f"{source} is neither a log directory nor the folder of a partition")
    target.mkdir(parents=True, exist_ok=True)
    code = ExitCode.CLEAN
    batches = 0
    left_out: list[FormatError] = []
    for partition in partitions:
        salvaged = salvage_partition(partition, target)
        batches += salvaged.batches
        left_out += salvaged.left_out
        if salvaged.losses:
            code = ExitCode.FINDINGS
            _show(salvaged, jsonl=form == "jsonl")
    if partitions != [source]:
        left_out += salvage_root(source, target)
    for error in left_out:
        code = ExitCode.FINDINGS
        report(f"{error}: the file is left out")
    if form == "text":
        click.echo(f"{len(partitions)} partitions, {batches} batches written to {printable(str(target))}", err=True)
    return code


def _show(salvaged: SalvagedLog, *, jsonl: bool) -> None:
    for loss in salvaged.losses:
        if jsonl:
            fields: dict[str, object] = {"file": str(loss.path), "position": loss.position}
            fields |= {"size_bytes": loss.size_bytes, "start_offset": loss.start_offset}
            fields |= {"end_offset": loss.end_offset, "reason": loss.reason}
            click.echo(json.dumps(fields, separators=(",", ":")))
        else:
            click.echo(printable(str(loss)))
    for producer_id, offset in salvaged.open_transactions.items():
        report(f"{salvaged.path}: the transaction of producer {producer_id} from offset {offset} on has no marker")
