"""`odradek topics`: lists the partitions of a log directory, one line each."""

from __future__ import annotations

from pathlib import Path

import click
from rich.filesize import decimal

from odradek.cli.app import ExitCode, report
from odradek.cli.options import FORMAT, Existing
from odradek.cli.record_json import to_json
from odradek.inspection.log_files import locate_log_directory
from odradek.inspection.partitions import PartitionSummary, TopicListing
from odradek.records.timestamps import iso_text

_COLUMNS = ("topic", "partition", "log_start_offset", "log_end_offset", "segments", "bytes")
_HEADINGS = ("TOPIC", "PARTITION", "LOG_START", "LOG_END", "SEGMENTS", "SIZE", "LAST_RECORD")


@click.command("topics")
@click.argument("directory", metavar="DIR", type=Existing(folder=True))
@FORMAT
def command(directory: Path, form: str) -> int:
    """List the partitions of a log directory: offsets, segments, size, the time of the last record.

    The log start offset is the first one that a consumer can read, the log end offset the next one to be written.
    Damage at the end of a segment, and files that cannot be read, are reported on stderr; the exit code is then 1, or 3
    if no segment can be read.

    Example: odradek topics /var/lib/kafka/data
    """
    listing = TopicListing(locate_log_directory(directory))
    summaries = list(listing.partitions())
    problems = [*(problem for summary in summaries for problem in summary.problems), *listing.problems]
    for problem in problems:
        place = "" if problem.position is None else f", position {problem.position}"
        report(f"{problem.path}{place}: {problem.reason}")
    if form == "jsonl":
        for summary in summaries:
            click.echo(to_json(_row(summary)))
    else:
        _show_table(summaries)
    if not problems:
        return ExitCode.CLEAN
    return ExitCode.FINDINGS if any(summary.readable for summary in summaries) else ExitCode.INPUT_OUTPUT


def _row(summary: PartitionSummary) -> dict[str, object]:
    topic, partition = summary.topic_partition
    offsets = (summary.log_start_offset, summary.log_end_offset)
    return dict(zip(_COLUMNS, (topic, partition, *offsets, summary.segments, summary.size_bytes), strict=True))


def _show_table(summaries: list[PartitionSummary]) -> None:
    table = [_HEADINGS, *map(_cells, summaries)]
    widths = [max(len(line[column]) for line in table) for column in range(len(_HEADINGS))]
    for line in table:
        cells = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
        cells[0] = line[0].ljust(widths[0])
        click.echo("  ".join(cells))
    topics = len({summary.topic_partition.topic for summary in summaries})
    segments = sum(summary.segments for summary in summaries)
    size = decimal(sum(summary.size_bytes for summary in summaries))
    total = (_count(topics, "topic"), _count(len(summaries), "partition"), _count(segments, "segment"), size)
    click.echo(f"\n{', '.join(total)}")


def _cells(summary: PartitionSummary) -> tuple[str, ...]:
    topic, partition = summary.topic_partition
    offsets = ("-" if offset is None else str(offset) for offset in (summary.log_start_offset, summary.log_end_offset))
    size = decimal(summary.size_bytes)
    return (topic, str(partition), *offsets, str(summary.segments), size, _moment(summary.last_timestamp))


def _moment(timestamp: int | None) -> str:
    if timestamp is None:
        return "-"
    return iso_text(timestamp, "seconds").replace("T", " ").replace("+00:00", "Z")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
