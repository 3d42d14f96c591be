"""`odradek backup`: copies a log directory while a broker continues to write it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from odradek.cli.app import ExitCode, report
from odradek.cli.listing import counted
from odradek.cli.options import FOLDER, PATH_OR_STREAM
from odradek.cli.progress import progress
from odradek.cli.streams import writing_to
from odradek.inspection.backups.run import backup
from odradek.inspection.backups.targets import BackupTarget
from odradek.printable import printable


@click.command("backup")
@click.argument("source", metavar="DIR", type=FOLDER)
@click.argument("target", type=PATH_OR_STREAM)
@click.option("--copy", is_flag=True, help="Copy every segment; no hard links to those of DIR.")
def command(source: Path, target: Path, *, copy: bool) -> int:
    """Copy the log directory DIR into the folder TARGET, or as a tar archive to stdout (-).

    A broker may go on writing DIR, which is neither locked nor changed. The copy is consistent: groups' positions,
    transactions, topics and settings fit the records. Segments that will not change any more become hard links, if
    TARGET is on the same file system.

    If TARGET is an earlier backup, it is replaced when the new one is complete, and files that are the same are used
    again.

    Example: odradek backup /var/lib/kafka/data /backup/kafka
    """
    size = 0
    writing: list[BackupTarget] = []

    def watch(size_bytes: int, to: BackupTarget) -> None:
        nonlocal size
        size = size_bytes
        writing.append(to)

    def done() -> int:
        return sum(to.copied_bytes + to.linked_bytes for to in writing)

    is_archive = str(target) == "-"
    if is_archive and sys.stdout.isatty():
        raise click.UsageError("an archive is not written to a terminal: redirect stdout")
    with writing_to(target), progress("backup", lambda: size, done):
        result = backup(source, sys.stdout.buffer if is_archive else target, links=not copy, watch=watch)
    name = "stdout" if is_archive else printable(str(target))
    linked = f", {result.linked_bytes:,} of them by links" if result.linked_bytes else ""
    partitions = counted(result.partitions, "partition")
    report(f"{partitions}, {result.size_bytes:,} bytes of segments written to {name}{linked}")
    return ExitCode.CLEAN
