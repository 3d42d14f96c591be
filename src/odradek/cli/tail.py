"""`odradek tail`: the last records of each partition, and those that come."""

from __future__ import annotations

import select
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import click

from odradek.cli.app import ExitCode, report
from odradek.cli.options import COMMAND_CONFIG, Number, SourceType
from odradek.cli.progress import progress
from odradek.cli.record_options import (
    BASE64,
    KEY,
    READ_COMMITTED,
    SINCE,
    PartitionFilter,
    decode_values,
    partition_options,
    record_format,
    value_options,
)
from odradek.cli.streams import ReaderGoneError
from odradek.inspection.record_lines import RecordLines
from odradek.inspection.record_template import writer_of
from odradek.inspection.selection import DumpSelection
from odradek.records.isolation import Isolation
from odradek.sources.tail import Choice, Tail, TailedRecord
from odradek.storage.names import TopicPartition

if TYPE_CHECKING:
    from odradek.inspection.decoding import ValueDecoder
    from odradek.inspection.record_json import RecordWriter


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
@click.option("-n", "--lines", "count", type=Number(), help="How many; 10, or with --since all.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@partition_options
@SINCE
@KEY
@READ_COMMITTED
@record_format("text", "jsonl")
@BASE64
@value_options
@COMMAND_CONFIG
def command(
    sources: tuple[str, ...],
    count: int | None,
    follow: bool,
    wanted: PartitionFilter,
    since: int | None,
    key: str | None,
    isolation: Isolation,
    form: str,
    base64: bool,
    values: ValueDecoder | None,
    config: dict[str, str] | None,
) -> int:
    """Show the last records of each partition, in the order of their times.

    A SOURCE is a file, the folder of a partition, a log directory, or a broker:
    kafka://[user:password@]HOST:PORT[,HOST:PORT][/TOPIC]. With -f it goes on with what is written, by whatever program:
    over new segments, through compaction, in partitions and topics that appear. Kafka's internal topics are shown only
    if they are named. Damage is reported on stderr and stepped over.

    Example: odradek tail -f -n 0 /var/lib/kafka/data --topic 'events-*'
    """
    if count is not None and since is not None:
        raise click.UsageError("give -n or --since: where to begin")
    out = sys.stdout.buffer
    code = ExitCode.CLEAN

    def note(text: str) -> None:
        nonlocal code
        code = ExitCode.FINDINGS
        report(text)

    @lru_cache(maxsize=4096)
    def writer(owner: TopicPartition) -> RecordWriter:
        return writer_of(form)(form, owner, base64=base64, decode=decode_values(values, owner, note))

    takes = RecordLines("text", None, selection=DumpSelection(since=since), key=key).takes

    def write(records: list[TailedRecord]) -> None:
        out.write(b"".join([writer(owner)(record) for owner, record in records if takes(record)]))

    choice = Choice(wanted.topics, wanted.partitions, isolation)
    with progress("connecting"):
        tail = Tail(sources, choice, report=note, follows=follow, config=config)
    with tail:
        if not follow:
            wanted.check(tail.partitions, sources)
        if since is None:
            write(tail.last(10 if count is None else count))
        else:
            for records in tail.since(since):
                write(records)
        if follow:
            has_reader = _has_reader()
            for records in tail.follow():
                write(records)
                out.flush()
                if not has_reader():
                    raise ReaderGoneError
    return code
