"""`odradek salvage`: makes a sound log directory from a damaged one."""

from __future__ import annotations

import os
from pathlib import Path

import click

from odradek.cli.app import ExitCode, code_of, report
from odradek.cli.listing import counted, show
from odradek.cli.options import FOLDER, FORMAT, NEW_PATH
from odradek.cli.progress import progress, total_size
from odradek.inspection import Finding, Loss, SalvagedLog, SalvageReport, salvage
from odradek.inspection.log_files import LogFile, expand
from odradek.inspection.salvaging.run import incomplete_path
from odradek.printable import printable
from odradek.storage.formats.meta_properties import META_PROPERTIES


@click.command("salvage")
@click.argument("source", metavar="SRC", type=FOLDER)
@click.argument("target", metavar="DST", type=NEW_PATH)
@FORMAT
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
    left_out = _show(salvaged, form)
    for finding in salvaged.unserved:
        report(f"{finding.path}: {finding.reason}")
    if (made := salvaged.identity) is not None:
        whose = f"node {made.node_id}, cluster {made.cluster_id}, which is new"
        report(f"{target} has a new {META_PROPERTIES}, as there was none: {whose}")
    elif not (target / META_PROPERTIES).exists():
        report(f"{target} has no {META_PROPERTIES}: to go on with it, run odradek serve --adopt {target}")
    if form == "text":
        count = f"{counted(len(salvaged.logs), 'partition')}, {counted(salvaged.batches, 'batch')}"
        click.echo(f"{count} written to {printable(str(target))}", err=True)
    return ExitCode.CLEAN if salvaged.is_clean else max(code_of(left_out), ExitCode.FINDINGS)


def _source_size(source: Path) -> int:
    return total_size(file.path for file in expand([str(source)]) if isinstance(file, LogFile) and file.is_segment)


def _show(salvaged: SalvageReport, form: str) -> list[Finding]:
    """Print the losses; return what could not be read."""
    for log in salvaged.logs:
        for loss in log.losses:
            show(form, _fields(loss), str(loss))
        for finding in log.mended:
            report(f"{finding.path}: position {finding.position}: {finding.reason}: put right")
        for producer_id, offset in log.open_transactions.items():
            report(f"{log.path}: the transaction of producer {producer_id} from offset {offset} on has no marker")
    left_out = [*(finding for log in salvaged.logs for finding in log.left_out), *salvaged.left_out]
    for finding in left_out:
        report(f"{finding.path}: {finding.reason}: left out")
    return left_out


def _fields(loss: Loss) -> dict[str, object]:
    names = ("position", "size_bytes", "start_offset", "end_offset", "reason")
    return {"file": str(loss.path), **{name: getattr(loss, name) for name in names}}
