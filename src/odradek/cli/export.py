"""`odradek export`: writes the records of a folder or a broker into files."""

from __future__ import annotations

import sys
from dataclasses import astuple
from pathlib import Path

import click

from odradek.cli.app import ExitCode, describe, report
from odradek.cli.listing import counted
from odradek.cli.options import COMMAND_CONFIG, FORMATS, PATH_OR_STREAM, SOURCE, Number, form
from odradek.cli.progress import progress
from odradek.cli.record_options import (
    FAR_TIMESTAMPS,
    READ_COMMITTED,
    PartitionFilter,
    opened,
    partition_options,
    range_options,
)
from odradek.cli.streams import writing_to
from odradek.inspection.selection import DumpSelection
from odradek.printable import printable
from odradek.records.isolation import Isolation
from odradek.records.timestamps import OnFarTimestamps

_OF_OTHER_FILES = frozenset({".json", ".ndjson", ".txt", ".tsv", ".gz", ".zst", ".bz2", ".xz", ".zip", ".avro", ".orc"})


@click.command("export")
@SOURCE
@click.option("--to", "target", required=True, type=PATH_OR_STREAM, help="A folder or a file; - is stdout.")
@form(*FORMATS, default=None, help="By FILE's name if left out; of a DIR, parquet; of stdout, jsonl.")
@partition_options
@range_options
@READ_COMMITTED
@FAR_TIMESTAMPS
@click.option(
    "--partition-by",
    type=click.Choice(["partition", "topic", "date"]),
    default="partition",
    help="A folder for each partition, or only for each topic, or for each day (UTC).",
)
@click.option("--file-bytes", type=Number(1), default=128 << 20, help="About how large a file in DIR becomes.")
@click.option("--threads", type=Number(1), help="How many partitions at a time; as many as cores if left out.")
@COMMAND_CONFIG
def command(
    source: str,
    target: Path,
    form: str | None,
    wanted: PartitionFilter,
    selection: DumpSelection,
    isolation: Isolation,
    far_timestamps: OnFarTimestamps,
    partition_by: str,
    file_bytes: int,
    threads: int | None,
    config: dict[str, str] | None,
) -> int:
    """Write the records of SOURCE into files: Parquet, Arrow, JSON lines or CSV.

    SOURCE is a segment, the folder of a partition, a log directory, or kafka://[user:password@]HOST:PORT[/TOPIC].
    Topics that are internal to Kafka are exported only if they are named.

    A DIR gets many files. An export into it can be interrupted at any moment, and goes on when the same command is run
    again; later that command exports what is new. A FILE holds all records, and appears when it is whole; - is stdout.

    Example: odradek export /var/lib/kafka/data --to exported --topic events
    """
    from odradek.transfer.export import Export, Selection
    from odradek.transfer.record_files import STREAMS, format_of

    is_stdout = str(target) == "-"
    # A pipe or a device.
    is_stream = is_stdout or (target.exists() and not target.is_dir() and not target.is_file())
    one_file = is_stream or (format_of(target) is not None and not target.is_dir())
    if not one_file and target.suffix in _OF_OTHER_FILES and not target.exists():
        named = printable(str(target))
        raise click.UsageError(
            f"{named}: the name of a FILE ends with .{', .'.join(FORMATS)}; a DIR like that must exist"
        )
    form = form or (format_of(target) if one_file else "parquet") or "jsonl"
    if is_stream and form not in STREAMS:
        raise click.UsageError(f"{form} cannot be written to a pipe: use --format {' or '.join(STREAMS)}")
    if one_file and partition_by != "partition":
        raise click.UsageError("--partition-by is for a DIR")
    with opened(source, config, wanted) as (records, chosen):
        start, end, since, until = astuple(selection)
        export = Export(records, chosen, Selection(start, end, since, until, isolation), far_timestamps)
        try:
            with writing_to(target), progress("export", export.total_offsets, lambda: export.report.offsets, "records"):
                if is_stdout:
                    done = export.to_stream(sys.stdout.buffer, form)
                elif one_file:
                    done = export.to_file(target, form)
                else:
                    done = export.to_folder(
                        target, form, partition_by=partition_by, file_bytes=file_bytes, threads=threads
                    )
        except KeyboardInterrupt:
            if not one_file:
                report(f"{counted(export.report.records, 'record')} exported: the same command goes on after them")
            raise
        finally:
            export.far_timestamps.warn()
    for name, start, end in done.lost:
        report(f"{name}: offsets {start} to {end - 1} were deleted before they were exported")
    for error in done.damaged:
        report(f"{describe(error)}: exported up to there")
    if not is_stdout:
        report(f"{counted(done.records, 'record')}, {counted(done.files, 'file')} written to {printable(str(target))}")
    return ExitCode.FINDINGS if done.lost or done.damaged else ExitCode.CLEAN
