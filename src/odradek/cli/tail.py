"""`odradek tail`: the last records of each partition, and those that come."""

from __future__ import annotations

import select
import sys
from collections.abc import Callable
from functools import lru_cache, partial

import click

from odradek.cli.app import ExitCode, report
from odradek.cli.options import SourceType
from odradek.cli.record_options import output_options, partition_options
from odradek.cli.streams import ReaderGoneError
from odradek.errors import OptionError
from odradek.inspection.record_json import LineWriter
from odradek.sources.tail import Choice, Tail, TailedRecord


def _has_reader() -> Callable[[], bool]:
    """Return what tells whether somebody still reads stdout: no write fails while there is nothing to write."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return lambda: True
    return lambda: not any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


@click.command("tail")
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True, type=SourceType())
@click.option("-n", "--lines", "count", type=click.IntRange(0), default=10, metavar="N", help="How many; 10.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@partition_options
@click.option("--read-committed", is_flag=True, help="Neither aborted nor undecided transactions.")
@output_options
def command(
    sources: tuple[str, ...],
    count: int,
    follow: bool,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    read_committed: bool,
    form: str,
    byte_strings: str,
) -> int:
    """Show the last records of each partition, in the order of their times.

    A SOURCE is a file, the folder of a partition, a log directory, or a broker:
    kafka://[user:password@]HOST:PORT[,HOST:PORT][/TOPIC]. With -f it goes on with what is written, by whatever program:
    over new segments, through compaction, in partitions and topics that appear. Kafka's internal topics are shown only
    if they are named. Damage is reported on stderr and stepped over.

    Example: odradek tail -f -n 0 /var/lib/kafka/data --topic 'events-*'
    """
    out = sys.stdout.buffer
    code = ExitCode.CLEAN

    def note(text: str) -> None:
        nonlocal code
        code = ExitCode.FINDINGS
        report(text)

    writer = lru_cache(maxsize=4096)(partial(LineWriter, form, base64=byte_strings == "base64"))

    def write(records: list[TailedRecord]) -> None:
        out.write(b"".join([writer(owner)(record) for owner, record in records]))

    choice = Choice(topics, partitions, "read_committed" if read_committed else "read_uncommitted")
    try:
        tail = Tail(sources, choice, report=note, follows=follow)
    except OptionError as error:
        raise click.UsageError(str(error)) from error
    with tail:
        write(tail.last(count))
        if follow:
            has_reader = _has_reader()
            for records in tail.follow():
                write(records)
                out.flush()
                if not has_reader():
                    raise ReaderGoneError
    return code
