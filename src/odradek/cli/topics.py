"""`odradek topics`: lists, describes, creates, alters and deletes topics of a log directory or a broker."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.filesize import decimal

from odradek.cli.admin_options import (
    ListByDefault,
    Setting,
    complete_topics,
    connect,
    source_and_config,
)
from odradek.cli.app import ExitCode, report
from odradek.cli.listing import counted, show_table
from odradek.cli.options import FORMAT
from odradek.cli.progress import progress
from odradek.inspection.log_files import locate_log_directory
from odradek.inspection.partitions import PartitionSummary, TopicListing
from odradek.inspection.record_json import to_json
from odradek.records.timestamps import iso_text
from odradek.sources.source import is_broker
from odradek.storage.names import TopicPartition

if TYPE_CHECKING:
    from odradek.admin.admin import PartitionDescription, TopicDescription
    from odradek.sources.source import Bounds

_COLUMNS = ("topic", "partition", "log_start_offset", "log_end_offset", "segments", "bytes")
_HEADINGS = ("TOPIC", "PARTITION", "LOG_START", "LOG_END", "SEGMENTS", "SIZE", "LAST_RECORD")
_DESCRIBED = ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "LOG_START", "LOG_END")

_CONFIG = click.option(
    "--config", "config", multiple=True, type=Setting(), help="A setting of the topic; may be given many times."
)
_TOPIC = click.argument("topic", shell_complete=complete_topics)


@click.group(cls=ListByDefault)
def command() -> None:
    """List, describe, create, alter and delete topics.

    SOURCE is a log directory, or a broker: kafka://HOST:PORT. `odradek topics SOURCE` is `odradek topics list SOURCE`.
    A folder is changed under its lock, so not while a broker runs on it.

    Example: odradek topics /var/lib/kafka/data
    """


@command.command("list", short_help="List the partitions.")
@source_and_config
@FORMAT
def list_partitions(source: str, command_config: Path | None, form: str) -> int:
    """List the partitions of SOURCE: offsets, segments, size, the time of the last record.

    The log start offset is the first one that a consumer can read, the log end offset the next one to be written.
    Damage at the end of a segment, and files that cannot be read, are reported on stderr; the exit code is then 1, or 3
    if no segment can be read.

    Example: odradek topics list kafka://localhost:9092
    """
    if is_broker(source):
        from odradek.admin.broker import BrokerAdmin

        with progress("topics"), connect(source, command_config) as admin:
            assert isinstance(admin, BrokerAdmin)
            found = admin.summaries()
        _show_partitions(found, form)
        return ExitCode.CLEAN
    directory = Path(source)
    if directory.stat() and not directory.is_dir():
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), source)
    listing = TopicListing(locate_log_directory(directory))
    with progress("topics"):
        summaries = list(listing.partitions())
    problems = [*(problem for summary in summaries for problem in summary.problems), *listing.problems]
    for problem in problems:
        place = "" if problem.position is None else f", position {problem.position}"
        report(f"{problem.path}{place}: {problem.reason}")
    _show_partitions(summaries, form)
    if not problems:
        return ExitCode.CLEAN
    return ExitCode.FINDINGS if any(summary.readable for summary in summaries) else ExitCode.INPUT_OUTPUT


@command.command(short_help="Show settings and partitions.")
@source_and_config
@click.argument("topics", metavar="[TOPIC...]", nargs=-1, shell_complete=complete_topics)
@FORMAT
def describe(source: str, command_config: Path | None, topics: tuple[str, ...], form: str) -> None:
    """Show topics, all if none is named: id, settings, and who has which partition.

    Example: odradek topics describe /var/lib/kafka/data events
    """
    with progress("topics"), connect(source, command_config) as admin:
        described = admin.describe_topics(topics or None)
        names = [TopicPartition(topic.name, number) for topic in described for number in topic.partitions]
        bounds = admin.bounds(names)
    for number, topic in enumerate(described):
        if form == "jsonl":
            click.echo(to_json(_topic_json(topic, bounds)))
        else:
            if number:
                click.echo()
            _show_topic(topic, bounds)


@command.command(short_help="Create a topic.")
@source_and_config
@_TOPIC
@click.option("--partitions", metavar="N", type=int, help="The number of partitions; in a folder 1 without it.")
@click.option("--replication-factor", metavar="N", type=int, help="The number of replicas; in a folder always 1.")
@_CONFIG
@click.option("--if-not-exists", is_flag=True, help="Do nothing if there is such a topic.")
def create(
    source: str,
    command_config: Path | None,
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    config: tuple[tuple[str, str], ...],
    if_not_exists: bool,
) -> None:
    """Create TOPIC. An empty folder becomes a log directory.

    Example: odradek topics create data events --partitions 3 --config retention.ms=-1
    """
    from odradek.errors import BrokerError, TopicExistsError

    with progress("topics"), connect(source, command_config) as admin:
        try:
            admin.create_topic(topic, partitions, dict(config), replication_factor)
        except BrokerError as error:
            if not if_not_exists or error.error_code != TopicExistsError.error_code:
                raise


@command.command(short_help="Change settings, add partitions.")
@source_and_config
@_TOPIC
@_CONFIG
@click.option("--delete-config", metavar="NAME", multiple=True, help="Reset a setting to its default.")
@click.option("--partitions", metavar="N", type=int, help="Add partitions, up to this number.")
def alter(
    source: str,
    command_config: Path | None,
    topic: str,
    config: tuple[tuple[str, str], ...],
    delete_config: tuple[str, ...],
    partitions: int | None,
) -> None:
    """Change the settings of TOPIC, or add partitions to it. Settings are changed first.

    Example: odradek topics alter data events --config retention.ms=86400000 --delete-config cleanup.policy
    """
    changes: dict[str, str | None] = {**dict.fromkeys(delete_config), **dict(config)}
    if len(changes) < len(config) + len(delete_config):
        raise click.UsageError("a setting is named twice")
    if not changes and partitions is None:
        raise click.UsageError("nothing is to be changed: give --config, --delete-config or --partitions")
    with progress("topics"), connect(source, command_config) as admin:
        if changes:
            admin.alter_topic_config(topic, changes)
        if partitions is not None:
            admin.create_partitions(topic, partitions)


@command.command(short_help="Delete topics.")
@source_and_config
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topics)
def delete(source: str, command_config: Path | None, topics: tuple[str, ...]) -> None:
    """Delete topics with their records, at once and without asking; groups lose their offsets of them.

    Example: odradek topics delete kafka://localhost:9092 events
    """
    with progress("topics"), connect(source, command_config) as admin:
        admin.delete_topics(topics)


def _show_partitions(summaries: list[PartitionSummary], form: str) -> None:
    if form == "jsonl":
        for summary in summaries:
            click.echo(to_json(_row(summary)))
        return
    show_table([_HEADINGS, *map(_cells, summaries)])
    topics = len({summary.topic_partition.topic for summary in summaries})
    size = decimal(sum(summary.size_bytes for summary in summaries))
    total = [counted(topics, "topic"), counted(len(summaries), "partition"), size]
    if all(summary.segments is not None for summary in summaries):
        total.insert(2, counted(sum(summary.segments or 0 for summary in summaries), "segment"))
    click.echo(f"\n{', '.join(total)}")


def _row(summary: PartitionSummary) -> dict[str, object]:
    topic, partition = summary.topic_partition
    offsets = (summary.log_start_offset, summary.log_end_offset)
    return dict(zip(_COLUMNS, (topic, partition, *offsets, summary.segments, summary.size_bytes), strict=True))


def _cells(summary: PartitionSummary) -> tuple[str, ...]:
    topic, partition = summary.topic_partition
    numbers = (summary.log_start_offset, summary.log_end_offset, summary.segments)
    known = ("-" if number is None else str(number) for number in numbers)
    return (topic, str(partition), *known, decimal(summary.size_bytes), _moment(summary.last_timestamp))


def _moment(timestamp: int | None) -> str:
    if timestamp is None:
        return "-"
    return iso_text(timestamp, "seconds").replace("T", " ").replace("+00:00", "Z")


def _topic_json(topic: TopicDescription, bounds: dict[TopicPartition, Bounds]) -> dict[str, object]:
    partitions = []
    for number, part in topic.partitions.items():
        start, end = bounds.get(TopicPartition(topic.name, number), (None, None))
        fields = {"partition": number, **part._asdict(), "log_start_offset": start, "log_end_offset": end}
        partitions.append(fields)
    return {"topic": topic.name, "topic_id": topic.topic_id, "config": dict(topic.config), "partitions": partitions}


def _show_topic(topic: TopicDescription, bounds: dict[TopicPartition, Bounds]) -> None:
    click.echo(f"{topic.name}  id {topic.topic_id or '-'}  {counted(len(topic.partitions), 'partition')}")
    for name, value in sorted(topic.config.items()):
        click.echo(f"  {name}={value}")
    lines: list[tuple[str, ...]] = [_DESCRIBED]
    for number, part in topic.partitions.items():
        lines.append(_described_cells(number, part, bounds.get(TopicPartition(topic.name, number))))
    show_table(lines, left=frozenset())


def _described_cells(number: int, part: PartitionDescription, bounds: Bounds | None) -> tuple[str, ...]:
    leader = "-" if part.leader < 0 else str(part.leader)
    offsets = ("-", "-") if bounds is None else (str(bounds.start_offset), str(bounds.end_offset))
    return (
        str(number),
        leader,
        str(part.leader_epoch),
        ",".join(map(str, part.replicas)) or "-",
        ",".join(map(str, part.isr)) or "-",
        *offsets,
    )
