"""`odradek conformance`: checks over the wire that a broker answers as Apache Kafka does."""

from __future__ import annotations

import os
from collections.abc import Iterator

import click

from odradek.cli.app import TOKEN_VARIABLE, ExitCode
from odradek.cli.listing import show
from odradek.cli.options import FORMAT, HostPort
from odradek.testing.conformance.means import Means, advance_by, restart_by
from odradek.testing.conformance.suite import Result, checks, run


@click.command("conformance")
@click.argument("address", metavar="HOST:PORT", type=HostPort())
@click.option("--check", "pattern", default="*", metavar="PATTERN", help="Only the checks with such a name: 'fetch*'.")
@FORMAT
@click.option("--failed", "only_failed", is_flag=True, help="Print only the checks that failed.")
@click.option("--list", "only_list", is_flag=True, help="Print the checks and what they are about; run none.")
@click.option(
    "--control",
    type=HostPort(),
    help=f"Move the time of an `odradek serve` by its --control, with the token in {TOKEN_VARIABLE}.",
)
@click.option("--restart", metavar="COMMAND", help="Restart the broker by this command, for the checks that need it.")
@click.option("--wait", "waits", is_flag=True, help="Wait for what time brings, for minutes in all.")
def command(
    address: tuple[str, int],
    pattern: str,
    form: str,
    only_failed: bool,
    only_list: bool,
    control: tuple[str, int] | None,
    restart: str | None,
    waits: bool,
) -> int:
    """Check over the wire that the broker at HOST:PORT answers as Apache Kafka does.

    The checks make topics, groups and transactional ids with random names; the topics are deleted. The exit code is 1
    if a check failed. A check that needs an API which the broker does not advertise is skipped.

    Example: odradek conformance localhost:9092 --failed
    """
    chosen = checks(pattern)
    if not chosen:
        raise click.BadParameter(f"no check matches {pattern!r}", param_hint="--check")
    if only_list:
        for one in chosen:
            show(form, {"name": one.name, "about": one.about}, f"{one.name}  {one.about}")
        return ExitCode.CLEAN
    means = Means(
        advance=None if control is None else advance_by(*control, os.environ.get(TOKEN_VARIABLE, "")),
        restart=None if restart is None else restart_by(restart),
        waits=waits,
    )
    counts = {"ok": 0, "failed": 0, "skipped": 0}
    for result in run(*address, chosen, means):
        counts[result.outcome] += 1
        if result.outcome == "failed" or not only_failed:
            show(form, _fields(result), " ".join(_row(result)))
    if form == "text":
        click.echo(", ".join(f"{count} {outcome}" for outcome, count in counts.items()), err=True)
    return ExitCode.FINDINGS if counts["failed"] else ExitCode.CLEAN


def _fields(result: Result) -> dict[str, object]:
    return {
        "name": result.name,
        "outcome": result.outcome,
        "reason": result.reason,
        "time_ms": round(result.time_ms, 1),
    }


def _row(result: Result) -> Iterator[str]:
    yield f"{result.outcome:7}"
    yield f"{result.time_ms:8.1f} ms "
    yield result.name
    if result.reason:
        yield f" {result.reason}"
