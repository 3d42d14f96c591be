"""`odradek salvage`: makes a sound log directory from a damaged one."""

from __future__ import annotations

import os
from pathlib import Path

import click

from odradek.cli.app import ExitCode, report
from odradek.cli.options import Existing, NonEmptyPath
from odradek.cli.progress import progress, total_size
from odradek.inspection import Loss, SalvagedLog, SalvageReport, salvage
from odradek.inspection.log_files import LogFile, expand
from odradek.inspection.record_json import to_json
from odradek.inspection.salvaging.run import incomplete_path
from odradek.printable import printable


@click.command("salvage")
@click.argument("source", metavar="SRC", type=Existing(folder=True))
@click.argument("target", metavar="DST", type=NonEmptyPath(path_type=Path))
@click.option("--format", "form", type=click.Choice(["text", "jsonl"]), default="text", help="How losses are printed.")
def command(source: Path, target: Path, form: str) -> int:
    """Write what is sound in SRC into a new log directory DST.

    SRC is a log directory or the folder of a partition, and is only read. Every batch with a valid checksum keeps its
    offset; indexes are rebuilt. Losses go to stdout, one line each; the exit code is 1 if there are any. A file that
    cannot be read is left out, and named on stderr.

    DST.incomplete is written first, and renamed when it is complete.

    Example: odradek salvage /mnt/broken-disk/kafka rescued
    """
    work = incomplete_path(target)
    was_there = os.path.lexists(work)
    begun: list[SalvagedLog] = []
    try:
        with progress("salvage", lambda: _source_size(source), lambda: sum(log.size_bytes for log in begun)):
            salvaged = salvage(source, target, watch=begun.append)
    except BaseException:
        if not was_there and os.path.lexists(work):
            report(f"{work} is not whole: the salvage has not ended")
        raise
    _show(salvaged, jsonl=form == "jsonl")
    if form == "text":
        count = f"{len(salvaged.logs)} partitions, {salvaged.batches} batches"
        click.echo(f"{count} written to {printable(str(target))}", err=True)
    return ExitCode.CLEAN if salvaged.is_clean else ExitCode.FINDINGS


def _source_size(source: Path) -> int:
    return total_size(file.path for file in expand([str(source)]) if isinstance(file, LogFile) and file.is_segment)


def _show(salvaged: SalvageReport, *, jsonl: bool) -> None:
    for log in salvaged.logs:
        for loss in log.losses:
            click.echo(_json(loss) if jsonl else printable(str(loss)))
        for finding in log.mended:
            report(f"{finding.path}: position {finding.position}: {finding.reason}: put right")
        for producer_id, offset in log.open_transactions.items():
            report(f"{log.path}: the transaction of producer {producer_id} from offset {offset} on has no marker")
    for finding in [*(finding for log in salvaged.logs for finding in log.left_out), *salvaged.left_out]:
        report(f"{finding.path}: {finding.reason}: left out")


def _json(loss: Loss) -> str:
    fields: dict[str, object] = {"file": str(loss.path), "position": loss.position}
    fields |= {"size_bytes": loss.size_bytes, "start_offset": loss.start_offset}
    fields |= {"end_offset": loss.end_offset, "reason": loss.reason}
    return to_json(fields)
