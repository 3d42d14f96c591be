"""`odradek topics`: lists, describes, creates, alters and deletes topics of a log directory or a broker."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import click

from odradek.arguments import is_broker
from odradek.cli.admin_options import ListByDefault, complete_topics, connected
from odradek.cli.app import ExitCode, code_of, report
from odradek.cli.listing import counted, show_line, show_table
from odradek.cli.options import ADOPT, COMMAND_CONFIG, FOLDER, FOLDER_SOURCE, FORMAT, Integer, Name, Number, pairs
from odradek.cli.progress import progress
from odradek.cli.reset_options import TARGETS, print_resets, report_edges
from odradek.errors import OffsetOutOfRangeError
from odradek.inspection.log_files import locate_log_directory
from odradek.inspection.partitions import PartitionSummary, TopicListing
from odradek.inspection.record_json import to_json
from odradek.printable import size_text
from odradek.records.timestamps import iso_text
from odradek.storage.names import TopicPartition, is_internal

if TYPE_CHECKING:
    from odradek.kafka.topics import Bounds, TopicDescription
    from odradek.places.resets import ResetTarget

_COLUMNS = ("topic", "partition", "log_start_offset", "log_end_offset", "segments", "bytes")
_HEADINGS = ("TOPIC", "PARTITION", "LOG_START", "LOG_END", "SEGMENTS", "SIZE", "LAST_RECORD")
_DESCRIBED = ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "LOG_START", "LOG_END")

_CONFIG = pairs("--config", "settings", help="A setting of the topic; may be given many times.")
_TOPIC = click.argument("topic", type=Name(), shell_complete=complete_topics)


@click.group(cls=ListByDefault)
def command() -> None:
    """List, describe, create, alter and delete topics, and delete their records.

    SOURCE is a log directory, or a broker: kafka://HOST:PORT. `odradek topics SOURCE` is `odradek topics list SOURCE`.
    A folder is changed under its lock, so not while a broker runs on it.

    Example: odradek topics /var/lib/kafka/data
    """


@command.command("list", short_help="List the partitions.")
@FOLDER_SOURCE
@COMMAND_CONFIG
@click.option("--internal", is_flag=True, help="A line for each partition of Kafka's own topics, too.")
@FORMAT
def list_partitions(source: str, config: dict[str, str] | None, internal: bool, form: str) -> int:
    """List the partitions of SOURCE: offsets, segments, size, the time of the last record.

    The log start offset is the first one that a consumer can read, the log end offset the next one to be written. In
    the table a topic of Kafka's own, such as __consumer_offsets, has one line.
    Damage at the end of a segment, and files that cannot be read, are reported on stderr; the exit code is then 1, or 3
    if no segment can be read.

    Example: odradek topics list kafka://localhost:9092
    """
    if is_broker(source):
        from odradek.admin.broker import BrokerAdmin

        with connected(source, config) as admin:
            assert isinstance(admin, BrokerAdmin)
            summaries = admin.summaries()
        unread = [summary.topic_partition for summary in summaries if not summary.readable]
        for name in unread:
            report(f"{source}: {name}: its broker cannot read it (KAFKA_STORAGE_ERROR)")
        _show_partitions(summaries, form, internal=internal)
        return ExitCode.FINDINGS if unread else ExitCode.CLEAN
    listing = TopicListing(locate_log_directory(FOLDER.convert(source, None, None)))
    with progress("topics"):
        summaries = list(listing.partitions())
    problems = [*(problem for summary in summaries for problem in summary.problems), *listing.problems]
    for problem in problems:
        place = "" if problem.position is None else f", position {problem.position}"
        report(f"{problem.path}{place}: {problem.reason}")
    _show_partitions(summaries, form, internal=internal)
    return code_of(problems)


@command.command(short_help="Show settings and partitions.")
@FOLDER_SOURCE
@COMMAND_CONFIG
@click.argument("topics", metavar="[TOPIC...]", nargs=-1, type=Name(), shell_complete=complete_topics)
@FORMAT
def describe(source: str, config: dict[str, str] | None, topics: tuple[str, ...], form: str) -> None:
    """Show topics, all if none is named: id, settings, and the leader and replicas of each partition.

    Example: odradek topics describe /var/lib/kafka/data events
    """
    with connected(source, config) as admin:
        described = admin.place.describe(topics or None)
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
@FOLDER_SOURCE
@COMMAND_CONFIG
@_TOPIC
@click.option("--partitions", type=Integer(), help="The number of partitions; in a folder 1 without it.")
@click.option("--replication-factor", type=Integer(), help="The number of replicas; in a folder always 1.")
@_CONFIG
@click.option("--if-not-exists", is_flag=True, help="Do nothing if there is such a topic.")
@ADOPT
def create(
    source: str,
    config: dict[str, str] | None,
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    settings: dict[str, str],
    if_not_exists: bool,
    adopt: bool,
) -> None:
    """Create TOPIC. An empty folder becomes a log directory; one that is missing is created.

    Example: odradek topics create data events --partitions 3 --config retention.ms=-1
    """
    from odradek.errors import BrokerError, TopicExistsError

    with connected(source, config, adopt=adopt, create=True) as admin:
        try:
            admin.create_topic(topic, partitions, settings, replication_factor)
        except BrokerError as error:
            if not if_not_exists or error.error_code != TopicExistsError.error_code:
                raise


@command.command(short_help="Change settings, add partitions.")
@FOLDER_SOURCE
@COMMAND_CONFIG
@_TOPIC
@_CONFIG
@click.option("--delete-config", type=Name(), multiple=True, help="Reset a setting to its default.")
@click.option("--partitions", type=Integer(), help="Add partitions, up to this number.")
@ADOPT
def alter(
    source: str,
    config: dict[str, str] | None,
    topic: str,
    settings: dict[str, str],
    delete_config: tuple[str, ...],
    partitions: int | None,
    adopt: bool,
) -> None:
    """Change the settings of TOPIC, or add partitions to it. Settings are changed first.

    Example: odradek topics alter data events --config retention.ms=86400000 --delete-config cleanup.policy
    """
    changes: dict[str, str | None] = {**dict.fromkeys(delete_config), **settings}
    if len(changes) < len(settings) + len(delete_config):
        raise click.UsageError("a setting is named twice")
    if not changes and partitions is None:
        raise click.UsageError("nothing is to be changed: give --config, --delete-config or --partitions")
    with connected(source, config, adopt=adopt) as admin:
        if changes:
            admin.alter_topic_config(topic, changes)
        if partitions is not None:
            admin.create_partitions(topic, partitions)


@command.command(short_help="Delete topics.")
@FOLDER_SOURCE
@COMMAND_CONFIG
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, type=Name(), shell_complete=complete_topics)
@ADOPT
def delete(source: str, config: dict[str, str] | None, topics: tuple[str, ...], adopt: bool) -> None:
    """Delete topics with their records, at once and without asking; groups lose their offsets of them.

    Example: odradek topics delete kafka://localhost:9092 events
    """
    with connected(source, config, adopt=adopt) as admin:
        admin.delete_topics(topics)


@command.command("delete-records", short_help="Delete the records before an offset or a time.")
@FOLDER_SOURCE
@COMMAND_CONFIG
@_TOPIC
@click.option("--partition", "partitions", type=Number(), multiple=True, help="Only this one; may be given many times.")
@TARGETS
@click.option("--dry-run", is_flag=True, help="Show where the partitions would start, and delete nothing.")
@ADOPT
@FORMAT
def delete_records(
    source: str,
    config: dict[str, str] | None,
    topic: str,
    partitions: tuple[int, ...],
    targets: list[ResetTarget],
    dry_run: bool,
    adopt: bool,
    form: str,
) -> None:
    """Move the log start offset of each partition of TOPIC; the records before it are deleted for good.

    It only moves forwards: --to-latest deletes all records, --shift N the first N offsets of each partition. Where a
    partition ends before the offset of --to-offset, nothing is deleted.

    Example: odradek topics delete-records kafka://localhost:9092 events --to-time 2026-11-01 --dry-run
    """
    from odradek.places.resets import ToOffset, plan_resets

    if len(targets) != 1:
        raise click.UsageError("give one of the options that say where to: --to-latest, --to-offset ...")
    with connected(source, config, adopt=adopt) as admin:
        bounds = admin.bounds(admin.place.choose([topic], partitions or None))
        starts = {name: found.start_offset for name, found in bounds.items()}
        planned = plan_resets(admin.place, starts, starts, targets[0])
        for name, one in planned.items():
            # All of its records would be gone, where one digit too many is more likely.
            if isinstance(targets[0], ToOffset) and one.wanted > one.bounds.end_offset:
                raise OffsetOutOfRangeError(one.wanted, one.bounds.start_offset, one.bounds.end_offset, log=str(name))
        if not dry_run:
            admin.delete_records({name: one.after for name, one in planned.items()})
    report_edges(planned)
    print_resets(planned, form)


def _show_partitions(summaries: list[PartitionSummary], form: str, *, internal: bool) -> None:
    if form == "jsonl":
        for summary in summaries:
            click.echo(to_json(_row(summary)))
        return
    rows: list[Sequence[object]] = [_HEADINGS]
    for name, group in groupby(summaries, lambda summary: summary.topic_partition.topic):
        of_topic = list(group)
        if is_internal(name) and len(of_topic) > 1 and not internal:
            rows.append(_topic_cells(name, of_topic))
        else:
            rows.extend(map(_cells, of_topic))
    show_table(rows)
    topics = len({summary.topic_partition.topic for summary in summaries})
    size = size_text(sum(summary.size_bytes for summary in summaries))
    total = [counted(topics, "topic"), counted(len(summaries), "partition"), size]
    if all(summary.segments is not None for summary in summaries):
        total.insert(2, counted(sum(summary.segments or 0 for summary in summaries), "segment"))
    click.echo(f"\n{', '.join(total)}")


def _row(summary: PartitionSummary) -> dict[str, object]:
    topic, partition = summary.topic_partition
    offsets = (summary.log_start_offset, summary.log_end_offset)
    return dict(zip(_COLUMNS, (topic, partition, *offsets, summary.segments, summary.size_bytes), strict=True))


def _cells(summary: PartitionSummary) -> Sequence[object]:
    known = (summary.log_start_offset, summary.log_end_offset, summary.segments)
    return (*summary.topic_partition, *known, size_text(summary.size_bytes), _moment(summary.last_timestamp))


def _topic_cells(topic: str, partitions: Sequence[PartitionSummary]) -> Sequence[object]:
    """Return one line for all partitions of a topic."""
    numbers = [summary.topic_partition.partition for summary in partitions]
    segments = [summary.segments for summary in partitions]
    total = None if None in segments else sum(filter(None, segments))
    size = size_text(sum(summary.size_bytes for summary in partitions))
    last = max(-1 if summary.last_timestamp is None else summary.last_timestamp for summary in partitions)
    return (topic, f"{min(numbers)}-{max(numbers)}", None, None, total, size, _moment(None if last < 0 else last))


def _moment(timestamp: int | None) -> str | None:
    if timestamp is None:
        return None
    return iso_text(timestamp, "seconds").replace("T", " ").replace("+00:00", "Z")


def _topic_json(topic: TopicDescription, bounds: dict[TopicPartition, Bounds]) -> dict[str, object]:
    partitions = []
    for number, part in topic.partitions.items():
        start, end = bounds.get(TopicPartition(topic.name, number), (None, None))[:2]
        fields = {"partition": number, **part._asdict(), "log_start_offset": start, "log_end_offset": end}
        partitions.append(fields)
    return {"topic": topic.name, "topic_id": topic.topic_id, "config": dict(topic.config), "partitions": partitions}


def _show_topic(topic: TopicDescription, bounds: dict[TopicPartition, Bounds]) -> None:
    show_line(f"{topic.name}  id {topic.topic_id or '-'}  {counted(len(topic.partitions), 'partition')}")
    for name, value in sorted(topic.config.items()):
        show_line(f"  {name}={value}")
    lines: list[Sequence[object]] = [_DESCRIBED]
    for number, part in topic.partitions.items():
        leader = None if part.leader < 0 else part.leader
        replicas = (",".join(map(str, nodes)) or None for nodes in (part.replicas, part.isr))
        offsets = bounds.get(TopicPartition(topic.name, number), (None, None))[:2]
        lines.append((number, leader, part.leader_epoch, *replicas, *offsets))
    show_table(lines, left=frozenset())
