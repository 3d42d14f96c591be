"""`odradek topics`: what a log directory holds, a line a partition."""

from __future__ import annotations

import json
from pathlib import Path

import click

from odradek.cli.app import ExitCode, report
from odradek.inspection.log_files import locate_log_directory
from odradek.storage.directory.log_directory import LogDirectory

_COLUMNS = ("topic", "partition", "log_start_offset", "log_end_offset", "segments", "bytes")


@click.command("topics")
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--format", "form", type=click.Choice(["text", "jsonl"]), default="text", help="A table, or JSON lines.")
def command(directory: Path, form: str) -> int:
    """List the partitions of a log directory: offsets, segments and bytes.

    The log start offset is the first one that a consumer may be given, the log end offset the next one to be written.
    A log whose end is damaged is reported on stderr; the exit code is then 1.
    """
    code = ExitCode.CLEAN
    rows = []
    locate_log_directory(directory)
    with LogDirectory(directory) as logs:
        for log in logs:
            topic, partition = log.topic_partition
            values = (topic, partition, log.log_start_offset, log.log_end_offset, len(log.segments), log.size_bytes)
            rows.append(dict(zip(_COLUMNS, values, strict=True)))
            for damage in log.damage:
                report(str(damage))
                code = ExitCode.FINDINGS
        for problem in logs.problems:
            report(str(problem))
            code = ExitCode.FINDINGS
    if form == "jsonl":
        for row in rows:
            click.echo(json.dumps(row, separators=(",", ":")))
        return code
    table = [[name.upper() for name in _COLUMNS], *([str(row[name]) for name in _COLUMNS] for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(_COLUMNS))]
    for line in table:
        cells = [
            line[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
        ]
        click.echo("  ".join(cells))
    return code
