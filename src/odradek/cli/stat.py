"""`odradek stat`: how much there is in logs, of what kind, and when it was written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from odradek.cli.app import code_of, report
from odradek.cli.listing import counted, show_table
from odradek.cli.options import COMMAND_CONFIG, FORMAT, SOURCE
from odradek.cli.progress import progress
from odradek.cli.record_options import PartitionFilter, partition_options
from odradek.inspection.record_json import to_json
from odradek.inspection.statistics.log_statistics import LargeRecord, LogStatistics
from odradek.printable import printable, size_text
from odradek.records.timestamps import iso_text
from odradek.sources.statistics import StatisticsRun

_COLUMNS = ("PARTITION", "START", "END", "RECORDS", "BATCHES", "SIZE", "RECORDS/S", "LATE", "GAPS", "KEYS")


@click.command("stat")
@SOURCE
@partition_options
@click.option("--records", is_flag=True, help="Read the records too: compression, largest records, different keys.")
@FORMAT
@COMMAND_CONFIG
def command(
    source: str,
    wanted: PartitionFilter,
    records: bool,
    form: str,
    config: dict[str, str] | None,
) -> int:
    """Say how much there is in logs, of what kind, and when it was written.

    SOURCE is a log directory, the folder of a partition, a segment, or a broker: kafka://HOST:PORT. For each topic:
    bytes, records, batches and their sizes, codecs, rates, timestamps out of order, gaps in the offsets. This takes the
    headers of the batches only; with --records also how well batches are compressed, the largest records and how many
    different keys there are. Damage is reported on stderr; the exit code is then 1.

    Example: odradek stat /var/lib/kafka/data --topic events
    """
    topics, partitions = wanted.topics or None, wanted.partitions or None
    with progress("connecting"):
        run = StatisticsRun(source, topics=topics, partitions=partitions, decode=records, config=config)
    wanted.check(run.partitions, [source])
    logs: list[LogStatistics] = []
    with progress("stat", lambda: run.total_bytes, lambda: run.read_bytes):
        for topic, group in _by_topic(run.logs()):
            if form == "jsonl":
                for log in group:
                    click.echo(to_json(_object(log)))
                click.echo(to_json(_object(topic)))
            else:
                _show(topic, group, is_first=not logs)
            logs += group
    findings = [finding for log in logs for finding in log.findings]
    for finding in findings:
        report(str(finding))
    return code_of(findings)


def _by_topic(logs: Iterable[LogStatistics]) -> Iterator[tuple[LogStatistics, list[LogStatistics]]]:
    """Yield each topic with its partitions, as soon as these are done."""
    topic: LogStatistics | None = None
    group: list[LogStatistics] = []
    for log in logs:
        if topic is not None and topic.topic != log.topic:
            yield topic, group
            topic, group = None, []
        if topic is None:
            topic = LogStatistics(log.topic, None, partitions=0)
        topic.merge(log)
        group.append(log)
    if topic is not None:
        yield topic, group


# -- text


def _show(topic: LogStatistics, logs: list[LogStatistics], *, is_first: bool) -> None:
    if not is_first:
        click.echo()
    counts = [
        counted(topic.partitions, "partition"),
        counted(topic.records, "record"),
        counted(topic.batches, "batch"),
        size_text(topic.size_bytes),
    ]
    click.echo(f"{printable(topic.topic)}: {', '.join(counts)}")
    for name, text in _lines(topic):
        click.echo(f"  {name:<13}{printable(text)}")
    table = [_COLUMNS, *map(_cells, logs)]
    if topic.content is None:
        table = [line[:-1] for line in table]
    show_table(table, left=frozenset(), indent="  ")


def _lines(topic: LogStatistics) -> Iterator[tuple[str, str]]:
    if topic.least_timestamp is not None and topic.greatest_timestamp is not None:
        times = f"{iso_text(topic.least_timestamp, 'seconds')} to {iso_text(topic.greatest_timestamp, 'seconds')}"
        yield "time", times
        if topic.duration_s > 0:
            per_second = topic.records / topic.duration_s, topic.size_bytes / topic.duration_s
            mean = f"{_rate(per_second[0])} records/s, {_byte_rate(per_second[1])}"
            width_s = topic.timeline.width_ms / 1000
            peak = max(topic.timeline.stretches, key=lambda stretch: stretch.size_bytes)
            most = f"{_rate(peak.records / width_s)} records/s, {_byte_rate(peak.size_bytes / width_s)}"
            yield "rate", f"{mean} on average; most {most} at {iso_text(peak.start_ms, 'seconds')}"
    if topic.batches:
        codecs = []
        for name, use in sorted(topic.codecs.items(), key=lambda item: -item[1].size_bytes):
            ratio = "" if use.ratio is None or name == "none" else f", {use.ratio:.1f} times smaller"
            codecs.append(f"{name} {100 * use.size_bytes / topic.size_bytes:.0f} % of the bytes{ratio}")
        yield "codecs", "; ".join(codecs)
        mean_batch = size_text(topic.size_bytes // topic.batches)
        half, most = (size_text(topic.size_quantile(part)) for part in (0.5, 0.99))
        sizes = [f"{_about(topic.records / topic.batches)} records, {mean_batch} on average"]
        sizes.append(f"half up to {half}, 99 % up to {most}")
        sizes.append(f"largest {_large(topic.largest_batch)}")
        yield "batches", "; ".join(sizes)
    content = topic.content
    if content is not None and content.records:
        average = (content.key_bytes + content.value_bytes) // content.records
        yield "records", f"{size_text(average)} of key and value on average; largest {_large(content.largest[0])}"
        nulls = f"{content.null_keys:,} records have none; {content.null_values:,} have no value"
        yield "keys", f"about {content.distinct_keys:,} different ones; {nulls}"
        if content.late_records:
            yield (
                "out of order",
                f"{counted(content.late_records, 'record')}, by up to {content.latest_ms / 1000:.3g} s",
            )
    elif content is None and topic.late_batches:
        late = counted(topic.late_batches, "batch")
        yield "out of order", f"{late}, by up to {topic.latest_ms / 1000:.3g} s"
    if topic.missing_offsets:
        yield "gaps", f"{topic.gaps:,} between batches; {counted(topic.missing_offsets, 'offset')} without a record"


def _cells(log: LogStatistics) -> tuple[str, ...]:
    content = log.content
    rate = _rate(log.records / log.duration_s) if log.duration_s > 0 else "-"
    offsets = ("-" if offset is None else str(offset) for offset in (log.start_offset, log.end_offset))
    late = log.late_batches if content is None else content.late_records
    keys = "-" if content is None else str(content.distinct_keys)
    counts = (str(log.records), str(log.batches), size_text(log.size_bytes), rate, str(late), str(log.gaps), keys)
    return (str(log.partition), *offsets, *counts)


def _large(large: LargeRecord | None) -> str:
    if large is None:
        return "-"
    return f"{size_text(large.size_bytes)} at {large.topic_partition} offset {large.offset}"


def _about(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}"


def _rate(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _byte_rate(number: float) -> str:
    return f"{size_text(round(number))}/s" if number >= 10 else f"{number:.2g} bytes/s"


# -- JSON


def _object(log: LogStatistics) -> dict[str, object]:
    content, duration_s = log.content, log.duration_s
    fields: dict[str, object] = {
        "topic": log.topic,
        "partition": log.partition,
        "partitions": log.partitions,
        "start_offset": log.start_offset,
        "end_offset": log.end_offset,
        "segments": log.segments,
        "records": log.records,
        "batches": log.batches,
        "control_batches": log.control_batches,
        "bytes": log.size_bytes,
        "least_timestamp": log.least_timestamp,
        "greatest_timestamp": log.greatest_timestamp,
        "records_per_second": round(log.records / duration_s, 3) if duration_s else None,
        "bytes_per_second": round(log.size_bytes / duration_s, 3) if duration_s else None,
        "codecs": {
            name: {
                "batches": use.batches,
                "bytes": use.size_bytes,
                "ratio": None if use.ratio is None else round(use.ratio, 3),
            }
            for name, use in sorted(log.codecs.items())
        },
        "batch_bytes": {"p50": log.size_quantile(0.5), "p99": log.size_quantile(0.99), "max": _size(log.largest_batch)},
        "late_batches": log.late_batches,
        "latest_ms": log.latest_ms,
        "gaps": log.gaps,
        "missing_offsets": log.missing_offsets,
        "stretch_ms": log.timeline.width_ms,
        "stretches": [list(stretch) for stretch in log.timeline.stretches],
    }
    if content is not None:
        fields |= {
            "distinct_keys": content.distinct_keys,
            "null_keys": content.null_keys,
            "null_values": content.null_values,
            "key_bytes": content.key_bytes,
            "value_bytes": content.value_bytes,
            "late_records": content.late_records,
            "largest_records": [
                {"partition": large.topic_partition.partition, "offset": large.offset, "bytes": large.size_bytes}
                for large in content.largest
            ],
        }
    return fields


def _size(large: LargeRecord | None) -> int:
    return 0 if large is None else large.size_bytes
