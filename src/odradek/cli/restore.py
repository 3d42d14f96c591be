"""`odradek restore`: puts a backup back, into a log directory or a broker."""

from __future__ import annotations

from pathlib import Path

import click

from odradek.arguments import is_broker
from odradek.cli.app import ExitCode, report
from odradek.cli.options import COMMAND_CONFIG, NEW_PATH, PATH_OR_STREAM, SourceType
from odradek.cli.progress import progress
from odradek.cli.streams import stdin, writing_to
from odradek.inspection.backups.restoring import restore
from odradek.inspection.backups.run import is_backup
from odradek.inspection.backups.targets import BackupTarget
from odradek.printable import printable


@click.command("restore")
@click.argument("source", metavar="BACKUP", type=PATH_OR_STREAM)
@click.argument("directory", metavar="[DIR]", required=False, type=NEW_PATH)
@click.option("--to", "target", type=SourceType("BROKER"), help="A broker, kafka://HOST:PORT, instead of DIR.")
@COMMAND_CONFIG
def command(source: Path, directory: Path | None, target: str | None, config: dict[str, str] | None) -> int:
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
        from odradek.cli.record_options import PartitionFilter
        from odradek.cli.replay import run_replay

        if not is_broker(target) or not is_backup(source):
            raise click.UsageError("--to takes the folder of a backup into kafka://HOST:PORT")
        return run_replay(str(source), target, config, PartitionFilter())
    assert directory is not None
    watched: list[tuple[int, BackupTarget]] = []
    total, done = lambda: sum(size for size, _ in watched), lambda: sum(to.copied_bytes for _, to in watched)
    with writing_to(directory), progress("restore", total, done):
        size_bytes = restore(
            stdin().buffer if str(source) == "-" else source,
            directory,
            watch=lambda size, to: watched.append((size, to)),
        )
    report(f"{size_bytes:,} bytes written to {printable(str(directory))}")
    return ExitCode.CLEAN
