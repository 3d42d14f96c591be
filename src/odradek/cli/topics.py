"""`odradek topics`: what a log directory holds, a line a partition."""

from __future__ import annotations

import json
from pathlib import Path

import click

from odradek.cli.app import ExitCode, report
from odradek.inspection.log_files import locate_log_directory
from odradek.inspection.partitions import PartitionSummary, TopicListing

_COLUMNS = ("topic", "partition", "log_start_offset", "log_end_offset", "segments", "bytes")


@click.command("topics")
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--format", "form", type=click.Choice(["text", "jsonl"]), default="text", help="A table, or JSON lines.")
def command(directory: Path, form: str) -> int:
    """List the partitions of a log directory: offsets, segments and bytes.

    The log start offset is the first one that a consumer may be given, the log end offset the next one to be written.
    What is damaged at the end of a segment, and what cannot be read, is reported on stderr; the exit code is then 1, or
    3 where no segment can be read.
    """
    listing = TopicListing(locate_log_directory(directory))
    summaries = list(listing.partitions())
    rows = [_row(summary) for summary in summaries]
    problems = [*(problem for summary in summaries for problem in summary.problems), *listing.problems]
    for problem in problems:
        place = "" if problem.position is None else f", position {problem.position}"
        report(f"{problem.path}{place}: {problem.reason}")
    if form == "jsonl":
        for row in rows:
            click.echo(json.dumps(row, separators=(",", ":")))
    else:
        _show_table(rows)
    if not problems:
        return ExitCode.CLEAN
    return ExitCode.FINDINGS if any(summary.readable for summary in summaries) else ExitCode.INPUT_OUTPUT


def _row(summary: PartitionSummary) -> dict[str, object]:
    topic, partition = summary.topic_partition
    offsets = (summary.log_start_offset, summary.log_end_offset)
    return dict(zip(_COLUMNS, (topic, partition, *offsets, summary.segments, summary.size_bytes), strict=True))


def _show_table(rows: list[dict[str, object]]) -> None:
    table = [[name.upper() for name in _COLUMNS]]
    table += [["-" if row[name] is None else str(row[name]) for name in _COLUMNS] for row in rows]
    widths = [max(len(line[column]) for line in table) for column in range(len(_COLUMNS))]
    for line in table:
        cells = [
            line[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
        ]
        click.echo("  ".join(cells))
