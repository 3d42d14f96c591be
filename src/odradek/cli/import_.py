"""`odradek import`: writes records from files into a folder or a broker."""

from __future__ import annotations

from pathlib import Path

import click

from odradek.cli.app import ExitCode, report
from odradek.cli.listing import counted
from odradek.cli.options import COMMAND_CONFIG, COMPRESSION, FORMATS, PATH_OR_STREAM, TO, Name, Number, form
from odradek.cli.progress import progress
from odradek.cli.streams import stdin
from odradek.errors import FormatError


@click.command("import")
@click.argument("source", metavar="FILE|DIR|-", type=PATH_OR_STREAM)
@TO
@form(*FORMATS, default=None, help="By the file's name if left out; of stdin, jsonl.")
@click.option("--topic", type=Name(), help="The topic that all records go to, whatever they name.")
@click.option(
    "--key-field", type=Name(), help="For JSON of other programs: this field is the key, and the line the value."
)
@click.option(
    "--name", type=Name(), help="The name under which a broker keeps how far this import is; by the path if left out."
)
@COMPRESSION
@click.option("--threads", type=Number(1), default=1, help="How many partitions of an export at a time.")
@COMMAND_CONFIG
def command(
    source: Path,
    target: str,
    form: str | None,
    topic: str | None,
    key_field: str | None,
    name: str | None,
    compression: str | None,
    threads: int,
    config: dict[str, str] | None,
) -> int:
    """Write the records of FILE, of the files of DIR, or of stdin into a log directory or a broker.

    It takes what `odradek export` and `odradek dump --format jsonl` write. Topics and partitions that are missing are
    created. A log directory gets each record with its offset; a broker gives new ones.

    An import of records that have offsets can be interrupted at any moment: when the same command is run again, it goes
    on, and no record is written twice.

    Example: odradek import exported --to kafka://localhost:9092
    """
    from odradek.records.compression import CODECS
    from odradek.transfer.importing import Import
    from odradek.transfer.opening import open_target

    given = stdin().buffer if str(source) == "-" else None
    if given is None:
        source.stat()  # before the target is created
    with open_target(target, config, codec=CODECS[compression or "none"]) as opened:
        job = Import(opened, topic=topic, name=name, key_field=key_field)
        try:
            with progress("import", lambda: job.expected_offsets, job.done_offsets, "records"):
                if given is not None:
                    done = job.from_stream(given, form or "jsonl", "stdin")
                else:
                    done = job.from_path(source, form, threads=threads)
        except KeyboardInterrupt:
            report(f"{job.report.records:,} records are imported: the same command goes on after them")
            raise
        except FormatError:
            report(f"{job.report.records:,} records are imported, those before the error")
            raise
    for place, start, end in done.gaps:
        report(f"{place}: no file has the offsets {start} to {end - 1}")
    skipped = f", {done.skipped:,} were there already" if done.skipped else ""
    report(f"{counted(done.records, 'record')} imported{skipped}")
    return ExitCode.FINDINGS if done.gaps else ExitCode.CLEAN
