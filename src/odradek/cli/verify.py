"""`odradek verify`: verifies the files of a log."""

from __future__ import annotations

import click

from odradek.cli.app import ExitCode, describe, report
from odradek.cli.options import PATHS
from odradek.cli.progress import progress, total_size
from odradek.inspection import Finding, FindingKind, UnknownPathError, repair
from odradek.inspection.log_files import LogFile, expand, locate_all
from odradek.inspection.record_json import to_json
from odradek.inspection.verification.run import Verification
from odradek.printable import printable


@click.command("verify")
@PATHS
@click.option(
    "--format", "form", type=click.Choice(["text", "jsonl"]), default="text", help="How findings are printed."
)
@click.option("--records", is_flag=True, help="Decode every record too, not only the checksums of the batches.")
@click.option("--repair", "repairs", is_flag=True, help="Make indexes and the like again; batches are never changed.")
@click.option("--dry-run", is_flag=True, help="With --repair: only say what would be done.")
def command(paths: tuple[str, ...], form: str, records: bool, repairs: bool, dry_run: bool) -> int:
    """Verify the files of a log: checksums, order, gaps, and all other files against the batches.

    PATH is the same as for dump. Findings go to stdout, one line each; the exit code is 1 if there are any, and 3 if
    something cannot be read. With --repair, PATH is a log directory or the folder of a partition that no program has
    open for writing: files that follow from the batches are made again, and the exit code is 1 if findings are left.

    Example: odradek verify --records /var/lib/kafka/data
    """
    if dry_run and not repairs:
        raise click.UsageError("--dry-run needs --repair")
    if repairs:
        return _repair(paths, decode=records, dry_run=dry_run, jsonl=form == "jsonl")
    verification = Verification(decode=records)
    with progress("verify", lambda: _size(paths), lambda: verification.read_bytes):
        code = _verify(paths, verification, jsonl=form == "jsonl")
    if form == "text":
        verdict = "clean" if code is ExitCode.CLEAN else "not clean"
        click.echo(f"{verification.files} files, {verification.batches} batches: {verdict}", err=True)
    return code


def _size(paths: tuple[str, ...]) -> int:
    return total_size(file.path for file in expand(paths) if isinstance(file, LogFile) and file.is_segment)


def _verify(paths: tuple[str, ...], verification: Verification, *, jsonl: bool) -> ExitCode:
    code = ExitCode.CLEAN
    for located in locate_all(paths):
        if isinstance(located, UnknownPathError):
            report(describe(located))
            code = ExitCode.INPUT_OUTPUT
            continue
        for finding in verification.findings(located):
            code = max(code, _tell(finding, jsonl=jsonl))
    return code


def _repair(paths: tuple[str, ...], *, decode: bool, dry_run: bool, jsonl: bool) -> ExitCode:
    code, made, left = ExitCode.CLEAN, 0, 0
    what = "to be made again" if dry_run else "made again"
    for path in paths:
        done = repair(path, decode=decode, dry_run=dry_run)
        for one in done.repairs:
            if jsonl:
                click.echo(to_json({"file": str(one.path), "repair": what, "reason": one.reason}))
            else:
                click.echo(printable(f"{one.path}: {what}: {one.reason}"))
            code = max(code, ExitCode.FINDINGS) if dry_run else code
        for finding in done.left:
            code = max(code, _tell(finding, jsonl=jsonl))
        made, left = made + len(done.repairs), left + len(done.left)
    if not jsonl:
        files, findings = ("file" if made == 1 else "files"), ("finding" if left == 1 else "findings")
        click.echo(f"{made} {files} {what}, {left} {findings} left", err=True)
    return code


def _tell(finding: Finding, *, jsonl: bool) -> ExitCode:
    """Print a finding, and return the exit code that it makes."""
    if finding.kind is FindingKind.UNREADABLE:
        report(f"{finding.path}: {finding.reason}")
        return ExitCode.INPUT_OUTPUT
    if jsonl:
        fields = {"file": str(finding.path), "position": finding.position, "kind": finding.kind}
        click.echo(to_json(fields | {"reason": finding.reason}))
    else:
        click.echo(printable(str(finding)))
    return ExitCode.FINDINGS
