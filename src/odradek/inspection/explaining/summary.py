"""What `explain` finds, in words: a line a fact, and the bytes of a batch with their meaning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from odradek.inspection.decoding import internal_decode
from odradek.inspection.explaining.explanation import Explanation, Verdict
from odradek.inspection.explaining.fields import Field
from odradek.inspection.explaining.transaction_trace import Transaction
from odradek.inspection.record_json import text_bytes
from odradek.records.compression import Codec
from odradek.records.timestamps import iso_text

_LINE_BYTES = 8
_SHOWN_BYTES = 32


def summary_lines(found: Explanation) -> Iterator[tuple[str, str]]:
    """Yield what is known of an offset, each fact with its name."""
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
        for name, content in decoded_record(found).items():
            yield name, "null, a tombstone" if content is None else content
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


def decoded_record(found: Explanation) -> dict[str, str | None]:
    """Return key and value of a record of an internal topic as JSON; nothing of another one, or of a damaged one."""
    owner, record, batch = found.topic_partition, found.record, found.batch
    decode = None if owner is None else internal_decode(owner.topic)
    if decode is None or record is None or batch is None or batch.is_control:
        return {}
    key, value = decode(record)
    # What cannot be decoded stays as it is, and so does the key of a record of metadata.
    shown: dict[str, str | None] = {"key": key} if isinstance(key, str) else {}
    if isinstance(value, str) or (value is None and shown):
        shown["value"] = value
    return shown


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


def hexdump(fields: Iterable[Field], *, full: bool) -> Iterator[str]:
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
