"""`odradek explain`: where a record lies, what its bytes mean, and why a consumer is given it or not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from odradek.cli.app import ExitCode, report
from odradek.cli.options import NonEmptyPath
from odradek.inspection import Explanation, Field, IndexEntry, Transaction, Verdict, explain
from odradek.inspection.record_json import batch_fields, json_bytes, text_bytes, to_json
from odradek.printable import printable
from odradek.records.compression import Codec
from odradek.records.timestamps import iso_text

_LINE_BYTES = 8
_SHOWN_BYTES = 32


@click.command("explain")
@click.argument("path", metavar="PATH", type=NonEmptyPath(path_type=Path, readable=False))
@click.argument("offset", metavar="OFFSET", type=click.IntRange(min=0))
@click.option("--format", "form", type=click.Choice(["text", "jsonl"]), default="text", help="Text, or a JSON object.")
@click.option("--all-records", is_flag=True, help="The bytes of all records of the batch, not only of this one.")
@click.option("--full", is_flag=True, help="Every byte of long fields too, not only the first 32.")
def command(path: Path, offset: int, form: str, all_records: bool, full: bool) -> int:
    """Say where the record of an offset lies, what its bytes mean, and who is given it.

    PATH is the folder of a partition, a segment, or a log directory of a single partition. The answer names the
    segment, the batch, the entries of the indexes that lead there, the transaction, and whether a consumer is given
    the record. The bytes of the batch follow, each field with its name. The exit code is 1 if bytes that matter are
    damaged.

    Example: odradek explain /var/lib/kafka/data/events-0 4711
    """
    found = explain(path, offset)
    shown = [one for one in found.fields if all_records or one.record in (None, found.record_number)]
    if form == "jsonl":
        click.echo(to_json(_object(found, shown)))
    else:
        _show(found)
        if shown:
            click.echo()
            for line in _hexdump(shown, full=full):
                click.echo(line)
    for finding in found.findings:
        report(str(finding))
    return ExitCode.FINDINGS if found.findings else ExitCode.CLEAN


# -- text


def _show(found: Explanation) -> None:
    owner = found.topic_partition
    click.echo(f"{'' if owner is None else f'{printable(str(owner))} '}offset {found.offset}")
    for name, text in _lines(found):
        click.echo(f"  {name:<18}{printable(text)}")


def _lines(found: Explanation) -> Iterator[tuple[str, str]]:
    marks = [f"start {found.log_start_offset}", f"end {found.log_end_offset}"]
    if found.high_watermark is not None:
        marks.append(f"high watermark {found.high_watermark}")
    yield "log", ", ".join([*marks, f"last stable offset {found.last_stable_offset}"])
    if found.segment is not None:
        following = found.next_segment_base_offset
        end = "the last one" if following is None else f"the next one begins at {following}"
        yield "segment", f"{found.segment}: from offset {found.segment_base_offset} on, {end}"
    batch = found.batch
    if batch is not None:
        first = batch.last_offset if batch.magic < 2 else batch.base_offset
        offsets = f"offset {first}" if first == batch.last_offset else f"offsets {first} to {batch.last_offset}"
        parts = [f"position {batch.position}, {batch.size_bytes} bytes", offsets]
        if batch.records_count >= 0:
            parts.append(f"{batch.records_count} record{'' if batch.records_count == 1 else 's'}")
        parts.append(f"magic {batch.magic}")
        if batch.codec:
            parts.append(Codec(batch.codec).name.lower() if batch.codec in list(Codec) else f"codec {batch.codec}")
        if batch.has_producer_id:
            parts.append(f"producer {batch.producer_id} epoch {batch.producer_epoch}")
        yield "batch", ", ".join(parts)
    record = found.record
    if record is not None:
        time = "no timestamp" if record.timestamp is None else f"{record.timestamp_type} {iso_text(record.timestamp)}"
        sizes = ", ".join(
            f"{name} {'null' if data is None else f'{len(data)} bytes'}"
            for name, data in (("key", record.key), ("value", record.value))
        )
        yield "record", f"{time}, {sizes}, {len(record.headers)} headers"
    if found.segment is not None and found.scanned_bytes is not None:
        entry = found.offset_index_entry
        if entry is None:
            start = "no entry leads there: a look-up starts at the segment's start"
        else:
            start = f"entry {entry.number}, offset {entry.key} at position {entry.value}"
        yield "offset index", f"{start}, {found.scanned_bytes} bytes before the batch"
    if record is not None and record.timestamp is not None:
        entry = found.time_index_entry
        yield (
            "time index",
            "no entry leads there: a look-up starts at the segment's start"
            if entry is None
            else f"entry {entry.number}, timestamp {entry.key} at offset {entry.value}",
        )
    if found.transaction is not None:
        yield "transaction", _transaction(found.transaction)
    yield "read_uncommitted", _verdict(found.read_uncommitted)
    yield "read_committed", _verdict(found.read_committed)


def _transaction(transaction: Transaction) -> str:
    start = (
        "its first offset is gone" if transaction.first_offset is None else f"from offset {transaction.first_offset}"
    )
    parts = [f"producer {transaction.producer_id}", start]
    if transaction.marker_offset is None:
        return ", ".join([*parts, "open"])
    parts.append(f"{'aborted' if transaction.is_aborted else 'committed'} at offset {transaction.marker_offset}")
    if transaction.index_entry is not None:
        parts.append(f"entry {transaction.index_entry.number} of {transaction.index_entry.path.name}")
    return ", ".join(parts)


def _verdict(verdict: Verdict) -> str:
    given = "is given it" if verdict.is_given else f"is not given it ({verdict.reason})"
    return f"{given}: {verdict.text}" if verdict.text else given


def _hexdump(fields: Iterable[Field], *, full: bool) -> Iterator[str]:
    """Yield lines of some bytes each: the position, the bytes, the field and what it says."""
    was_decompressed = False
    for one in fields:
        if one.is_decompressed and not was_decompressed:
            yield "  after decompression:"
        was_decompressed = one.is_decompressed
        shown = one.data if full else one.data[:_SHOWN_BYTES]
        for start in range(0, max(len(shown), 1), _LINE_BYTES):
            part = shown[start : start + _LINE_BYTES].hex(" ")
            text = f"{one.name}{_meaning(one)}" if not start else ""
            yield f"{one.position + start:>10}  {part:<{3 * _LINE_BYTES - 1}}  {text}".rstrip()
        if len(shown) < len(one.data):
            yield f"{'':>10}  and {len(one.data) - len(shown)} bytes more"


def _meaning(one: Field) -> str:
    match one.value:
        case None:
            value = ""
        case int():
            value = f" = {one.value}"
        case data if one.note:
            value = f" = {len(data)} bytes"
        case data:
            value = f" = {text_bytes(data)}" if len(data) <= _SHOWN_BYTES else f" = {len(data)} bytes"
    return f"{value}  ({one.note})" if one.note else value


# -- JSON


def _object(found: Explanation, fields: list[Field]) -> dict[str, object]:
    owner, record = found.topic_partition, found.record
    return {
        "topic": None if owner is None else owner.topic,
        "partition": None if owner is None else owner.partition,
        "offset": found.offset,
        "log_start_offset": found.log_start_offset,
        "log_end_offset": found.log_end_offset,
        "high_watermark": found.high_watermark,
        "last_stable_offset": found.last_stable_offset,
        "segment": None if found.segment is None else str(found.segment),
        "batch": None if found.batch is None else batch_fields(found.batch),
        "timestamp": None if record is None else record.timestamp,
        "offset_index_entry": _entry(found.offset_index_entry, "offset", "position"),
        "scanned_bytes": found.scanned_bytes,
        "time_index_entry": _entry(found.time_index_entry, "timestamp", "offset"),
        "transaction": None
        if found.transaction is None
        else {
            "producer_id": found.transaction.producer_id,
            "first_offset": found.transaction.first_offset,
            "marker_offset": found.transaction.marker_offset,
            "is_aborted": found.transaction.is_aborted,
            "index_entry": _entry(found.transaction.index_entry, "producer_id", "last_offset"),
        },
        "read_uncommitted": _verdict_object(found.read_uncommitted),
        "read_committed": _verdict_object(found.read_committed),
        "fields": [
            {
                "position": one.position,
                "is_decompressed": one.is_decompressed,
                "bytes": one.data.hex(),
                "name": one.name,
                "value": json.loads(json_bytes(one.value)) if isinstance(one.value, bytes) else one.value,
                "note": one.note,
            }
            for one in fields
        ],
    }


def _entry(entry: IndexEntry | None, key: str, value: str) -> dict[str, object] | None:
    if entry is None:
        return None
    return {"file": str(entry.path), "number": entry.number, key: entry.key, value: entry.value}


def _verdict_object(verdict: Verdict) -> dict[str, object]:
    return {"is_given": verdict.is_given, "reason": verdict.reason, "text": verdict.text}
