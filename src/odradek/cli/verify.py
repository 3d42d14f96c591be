"""`odradek verify`: whether the files of a log can be believed."""

from __future__ import annotations

import json

import click

from odradek.cli.app import ExitCode, describe, printable, report
from odradek.cli.log_files import expand
from odradek.cli.verification import Finding, Verification


@click.command("verify")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--format", "form", type=click.Choice(["text", "jsonl"]), default="text", help="How findings are printed."
)
@click.option("--records", is_flag=True, help="Decode every record too, not only the checksums of the batches.")
def command(paths: tuple[str, ...], form: str, records: bool) -> int:
    """Verify the files of a log: checksums, order, gaps, indexes against segments, snapshots and checkpoints.

    PATH is what it is for dump. Findings go to stdout, a line each; the exit code is 1 where there are any.
    """
    code = ExitCode.CLEAN

    def found(finding: Finding) -> None:
        nonlocal code
        code = max(code, ExitCode.FINDINGS)
        if form == "text":
            click.echo(printable(str(finding)))
            return
        fields = {"file": str(finding.path), "position": finding.position, "kind": finding.kind}
        click.echo(json.dumps(fields | {"reason": finding.reason}, separators=(",", ":")))

    verification = Verification(found, decode=records)
    for file in expand(paths):
        try:
            if isinstance(file, OSError):
                raise file
            verification.file(file)
        except BrokenPipeError:
            raise
        except OSError as error:
            report(describe(error))
            code = ExitCode.INPUT_OUTPUT
    if form == "text":
        verdict = "clean" if code is ExitCode.CLEAN else "not clean"
        click.echo(f"{verification.files} files, {verification.batches} batches: {verdict}", err=True)
    return code
