"""`odradek verify`: verifies the files of a log."""

from __future__ import annotations

import click

from odradek.cli.app import ExitCode, code_of, describe, report
from odradek.cli.listing import counted, show
from odradek.cli.options import FORMAT, LOCAL_PATHS
from odradek.cli.progress import progress, total_size
from odradek.inspection import Finding, FindingKind, UnknownPathError, repair
from odradek.inspection.log_files import LogFile, expand, locate_all
from odradek.inspection.verification.run import Verification


@click.command("verify")
@LOCAL_PATHS
@FORMAT
@click.option("--records", is_flag=True, help="Decode every record too, not only the checksums of the batches.")
@click.option("--repair", "repairs", is_flag=True, help="Make indexes and the like again; batches are never changed.")
@click.option("--dry-run", is_flag=True, help="With --repair: only say what would be done.")
def command(paths: tuple[str, ...], form: str, records: bool, repairs: bool, dry_run: bool) -> int:
    """Verify the files of a log: checksums, order, gaps, and all other files against the batches.

    PATH is the same as for dump. Findings go to stdout, one line each; the exit code is 1 if there are any, and 3 if
    something cannot be read. With --repair, PATH is a log directory or the folder of a partition that no program has
    open for writing: files that follow from the batches are rebuilt, and the exit code is 1 if findings are left.

    Example: odradek verify --records /var/lib/kafka/data
    """
    if dry_run and not repairs:
        raise click.UsageError("--dry-run needs --repair")
    if repairs:
        return _repair(paths, form, decode=records, dry_run=dry_run)
    verification = Verification(decode=records)
    with progress("verify", lambda: _size(paths), lambda: verification.read_bytes):
        code = _verify(paths, verification, form)
    if form == "text":
        verdict = "clean" if code is ExitCode.CLEAN else "not clean"
        files, batches = counted(verification.files, "file"), counted(verification.batches, "batch")
        click.echo(f"{files}, {batches}: {verdict}", err=True)
    return code


def _size(paths: tuple[str, ...]) -> int:
    return total_size(file.path for file in expand(paths) if isinstance(file, LogFile) and file.is_segment)


def _verify(paths: tuple[str, ...], verification: Verification, form: str) -> ExitCode:
    code = ExitCode.CLEAN
    for located in locate_all(paths):
        if isinstance(located, UnknownPathError):
            report(describe(located))
            code = ExitCode.INPUT_OUTPUT
            continue
        for finding in verification.findings(located):
            code = max(code, _print_finding(finding, form))
    return code


def _repair(paths: tuple[str, ...], form: str, *, decode: bool, dry_run: bool) -> ExitCode:
    code, made, left = ExitCode.CLEAN, 0, 0
    what = "to be made again" if dry_run else "made again"
    for path in paths:
        done = repair(path, decode=decode, dry_run=dry_run)
        for one in done.repairs:
            fields = {"file": str(one.path), "repair": what, "reason": one.reason}
            show(form, fields, f"{one.path}: {what}: {one.reason}")
            code = max(code, ExitCode.FINDINGS) if dry_run else code
        for finding in done.left:
            code = max(code, _print_finding(finding, form))
        made, left = made + len(done.repairs), left + len(done.left)
    if form == "text":
        click.echo(f"{counted(made, 'file')} {what}, {counted(left, 'finding')} left", err=True)
    return code


def _print_finding(finding: Finding, form: str) -> ExitCode:
    """Print a finding, and return the exit code that it makes."""
    if finding.kind is FindingKind.UNREADABLE:
        report(f"{finding.path}: {finding.reason}")
    else:
        fields = {"file": str(finding.path), "position": finding.position, "kind": finding.kind}
        show(form, fields | {"reason": finding.reason}, str(finding))
    return code_of([finding])
