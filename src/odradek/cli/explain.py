"""`odradek explain`: where a record lies, what its bytes mean, and why a consumer is given it or not."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import click

from odradek.cli.app import ExitCode, report
from odradek.cli.options import FORMAT, NonEmptyPath, Number
from odradek.inspection import Explanation, Field, IndexEntry, Reason, Verdict, explain
from odradek.inspection.explaining.summary import decoded_record, hexdump, summary_lines
from odradek.inspection.record_json import batch_fields, json_bytes, to_json
from odradek.printable import printable


@click.command("explain")
@click.argument("path", type=NonEmptyPath(path_type=Path, readable=False))
@click.argument("offset", type=Number())
@FORMAT
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
    shown = found.all_fields() if all_records else found.own_fields
    if form == "jsonl":
        click.echo(to_json(_object(found, shown)))
    else:
        _show(found)
        if found.batch is not None:
            click.echo()
        for line in hexdump(shown, full=full):
            click.echo(line)
    for finding in found.findings:
        report(str(finding))
    if found.read_uncommitted.reason == Reason.BEYOND_LOG_END:
        held = f"which holds [{found.log_start_offset}, {found.log_end_offset})"
        report(f"{path}: offset {offset} is beyond the end of the log, {held}")
        return ExitCode.INPUT_OUTPUT
    return ExitCode.FINDINGS if found.findings else ExitCode.CLEAN


# -- text


def _show(found: Explanation) -> None:
    owner = found.topic_partition
    click.echo(f"{'' if owner is None else f'{printable(str(owner))} '}offset {found.offset}")
    for name, text in summary_lines(found):
        click.echo(f"  {name:<18}{printable(text)}")


# -- JSON


def _object(found: Explanation, fields: Iterable[Field]) -> dict[str, object]:
    owner, record, decoded = found.topic_partition, found.record, decoded_record(found)
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
        "decoded": {name: None if text is None else json.loads(text) for name, text in decoded.items()} or None,
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
