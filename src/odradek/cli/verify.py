"""`odradek verify`: whether the files of a log can be believed."""

from __future__ import annotations

import json

import click

from odradek.cli.app import ExitCode, describe, printable, report
from odradek.cli.options import PATHS
from odradek.inspection import Finding, FindingKind, UnknownPathError
from odradek.inspection.log_files import locate_all
from odradek.inspection.verification.run import Verification


@click.command("verify")
@PATHS
@click.option(
    "--format", "form", type=click.Choice(["text", "jsonl"]), default="text", help="How findings are printed."
)
@click.option("--records", is_flag=True, help="Decode every record too, not only the checksums of the batches.")
def command(paths: tuple[str, ...], form: str, records: bool) -> int:
    """Verify the files of a log: checksums, order, gaps, and everything beside the batches against the batches.

    PATH is what it is for dump. Findings go to stdout, a line each; the exit code is 1 where there are any, and 3 where
    something cannot be read.
    """
    code = ExitCode.CLEAN
    verification = Verification(decode=records)
    for located in locate_all(paths):
        if isinstance(located, UnknownPathError):
            report(describe(located))
            code = ExitCode.INPUT_OUTPUT
            continue
        for finding in verification.findings(located):
            if finding.kind is FindingKind.UNREADABLE:
                report(f"{finding.path}: {finding.reason}")
                code = ExitCode.INPUT_OUTPUT
            else:
                _show(finding, jsonl=form == "jsonl")
                code = max(code, ExitCode.FINDINGS)
    if form == "text":
        verdict = "clean" if code is ExitCode.CLEAN else "not clean"
        click.echo(f"{verification.files} files, {verification.batches} batches: {verdict}", err=True)
    return code


def _show(finding: Finding, *, jsonl: bool) -> None:
    if not jsonl:
        click.echo(printable(str(finding)))
        return
    fields = {"file": str(finding.path), "position": finding.position, "kind": finding.kind}
    click.echo(json.dumps(fields | {"reason": finding.reason}, separators=(",", ":")))
