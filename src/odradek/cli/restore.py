"""`odradek restore`: puts a backup back, into a log directory or a broker."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from odradek.cli.app import ExitCode, report
from odradek.cli.options import NonEmptyPath
from odradek.cli.progress import progress
from odradek.cli.streams import writing_to
from odradek.inspection.backups.restoring import restore
from odradek.inspection.backups.run import is_backup
from odradek.inspection.backups.targets import BackupTarget
from odradek.printable import printable
from odradek.sources.source import is_broker


@click.command("restore")
@click.argument("source", metavar="BACKUP", type=NonEmptyPath(allow_dash=True, path_type=Path))
@click.argument("directory", metavar="[DIR]", required=False, type=NonEmptyPath(path_type=Path))
@click.option("--to", "target", type=NonEmptyPath(), help="A broker, kafka://HOST:PORT, in the place of DIR.")
def command(source: Path, directory: Path | None, target: str | None) -> int:
    """Write BACKUP, a folder or a tar archive (- is stdin), into a new log directory DIR.

    DIR must not exist, or be empty. All of it is copied, so the backup stays as it is whatever a broker does to DIR.

    With --to, the records of BACKUP, a folder, go into a broker that runs, as by odradek replay.

    Example: odradek restore /backup/kafka /var/lib/kafka/data
    """
    if (directory is None) == (target is None):
        raise click.UsageError("name either DIR or --to")
    if str(source) != "-":
        source.stat()  # a backup that is missing is an input error, whatever else is wrong
    if target is not None:
        from odradek.cli.replay import run_replay

        if not is_broker(target) or not is_backup(source):
            raise click.UsageError("--to takes the folder of a backup into kafka://HOST:PORT")
        return run_replay(str(source), target)
    assert directory is not None
    watched: list[tuple[int, BackupTarget]] = []
    total, done = lambda: sum(size for size, _ in watched), lambda: sum(to.copied_bytes for _, to in watched)
    with writing_to(directory), progress("restore", total, done):
        size_bytes = restore(
            sys.stdin.buffer if str(source) == "-" else source,
            directory,
            watch=lambda size, to: watched.append((size, to)),
        )
    report(f"{size_bytes} bytes written to {printable(str(directory))}")
    return ExitCode.CLEAN
