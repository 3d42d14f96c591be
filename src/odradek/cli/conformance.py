"""`odradek conformance`: checks over the wire that a broker answers as Apache Kafka does."""

from __future__ import annotations

from collections.abc import Iterator

import click

from odradek.cli.app import ExitCode
from odradek.inspection.record_json import to_json
from odradek.printable import printable
from odradek.testing.conformance.suite import Result, checks, run


def _address(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, int]:
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter(f"{value!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


@click.command("conformance")
@click.argument("address", metavar="HOST:PORT", callback=_address)
@click.option("--check", "pattern", default="*", metavar="PATTERN", help="Only the checks with such a name: 'fetch*'.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each check.")
@click.option("--failed", "only_failed", is_flag=True, help="Print only the checks that failed.")
@click.option("--list", "only_list", is_flag=True, help="Print the checks and what they are about; run none.")
def command(address: tuple[str, int], pattern: str, as_json: bool, only_failed: bool, only_list: bool) -> int:
    """Check over the wire that the broker at HOST:PORT answers as Apache Kafka 4.3.1 does.

    The checks make topics, groups and transactional ids with random names; the topics are deleted. The exit code is 1
    if a check failed. A check that needs an API which the broker does not advertise is skipped.

    Example: odradek conformance localhost:9092 --failed
    """
    chosen = checks(pattern)
    if not chosen:
        raise click.BadParameter(f"no check matches {pattern!r}", param_hint="--check")
    if only_list:
        for one in chosen:
            _print({"name": one.name, "about": one.about}, as_json=as_json, text=f"{one.name}  {one.about}")
        return ExitCode.CLEAN
    counts = {"ok": 0, "failed": 0, "skipped": 0}
    for result in run(*address, chosen):
        counts[result.outcome] += 1
        if result.outcome == "failed" or not only_failed:
            _print(_fields(result), as_json=as_json, text=" ".join(_row(result)))
    if not as_json:
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
        yield f" {printable(result.reason)}"


def _print(fields: dict[str, object], *, as_json: bool, text: str) -> None:
    click.echo(to_json(fields) if as_json else text)
