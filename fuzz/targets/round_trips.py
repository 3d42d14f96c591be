"""What is read is written again, and read again: by the builders, by columns, and by a leader's check."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from typing import Any

import pyarrow as pa

from decoders import LIMIT, sums_hold
from guard import GuardedMemory
from mutation import MAX_INPUT, mutate_batches
from odradek.columnar.encode import encode_batches
from odradek.columnar.record_schema import HEADERS_TYPE
from odradek.errors import BrokerError, FormatError
from odradek.records import BatchHeader, Record, read_records, scan_batches
from odradek.records.append.validator import AppendOrigin, AppendRules, validate_append
from odradek.records.builder import BatchOptions, build_batch
from odradek.records.compression import Codec, Decompressor
from seeds import messages, v2_batches
from targets import Target, dice

_memory = GuardedMemory(MAX_INPUT * 2)
_NUMBER = re.compile(r"-?[0-9]+")


def _attempt(make: Any, *errors: type[Exception]) -> Any:
    try:
        return make()
    except errors as error:
        return error


def _contents(records: Iterable[Record]) -> list[tuple[Any, ...]]:
    return [(r.key, r.value, r.headers, r.timestamp, r.offset) for r in records]


def _table(records: list[Record]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "key": pa.array([r.key for r in records], pa.binary()),
            "value": pa.array([r.value for r in records], pa.binary_view()),
            "headers": pa.array([[{"key": n, "value": v} for n, v in r.headers] for r in records], HEADERS_TYPE),
            "timestamp": pa.array([r.timestamp for r in records], pa.int64()),
            "offset": pa.array([r.offset for r in records], pa.int64()),
        }
    )


def _rebuild(records: list[Record], codec: int) -> None:
    options: dict[str, Any] = {"codec": codec, "keep_offsets": True}
    built = _attempt(lambda: build_batch(records, **options), ValueError)
    if isinstance(built, bytes):
        (header,) = scan_batches(built)
        assert _contents(read_records(built, header)) == _contents(records), "built again it differs"
    try:
        table = _table(records)
    except UnicodeEncodeError:  # a header's name that is no UTF-8 cannot be in a column
        return
    columns = _attempt(
        lambda: b"".join(
            encode_batches(table, BatchOptions(codec=codec), keep_offsets=True, max_batch_bytes=(1 << 31) - 1)
        ),
        ValueError,
    )
    if isinstance(built, bytes):
        assert columns == built, f"columns give other bytes: {columns!r}"
    elif isinstance(columns, bytes):
        assert "32 bits" in str(built), f"columns write what objects cannot: {built}"


def _append(data: memoryview, rng: Any, headers: list[BatchHeader]) -> str:
    rules = AppendRules(
        codec=rng.choice((None, *Codec)),
        compacted=rng.random() < 0.2,
        timestamp_type=rng.choice(("CreateTime", "LogAppendTime")),
        timestamp_after_max_ms=rng.choice((3_600_000, (1 << 63) - 1)),
        max_message_bytes=rng.choice((1 << 30, 1 << 30, 500)),
    )
    origin = rng.choice((AppendOrigin.CLIENT, AppendOrigin.COORDINATOR))
    now = 1_700_000_000_000
    base_offset = rng.choice((0, 1, 1 << 40, (1 << 62)))

    def validate(batch: Any) -> Any:
        return validate_append(
            batch, rules, base_offset=base_offset, partition_leader_epoch=7, now_ms=now, origin=origin,
            decompressor=Decompressor(LIMIT),
        )  # fmt: skip

    validated = _attempt(lambda: validate(data), BrokerError)
    in_place = _attempt(lambda: validate(bytearray(data)), BrokerError)
    if isinstance(validated, BrokerError):
        assert str(in_place) == str(validated), "memory that can be written to is refused for another reason"
        return str(validated)
    assert bytes(validated.data) == bytes(in_place.data), "memory that can be written to gives other bytes"
    batch = memoryview(bytes(validated.data))
    assert len(batch) == validated.header.size_bytes
    assert sums_hold(batch, validated.header), "a batch with a wrong checksum was let into the log"
    given = []
    for header in headers:
        given += read_records(data, header, limit=LIMIT)
    kept = read_records(batch, validated.header, limit=LIMIT)
    wanted = [
        (r.key, r.value, r.headers, now if rules.stamps else r.timestamp, base_offset + n) for n, r in enumerate(given)
    ]
    appended = _contents(kept)
    if not rules.stamps and headers[0].timestamp_type == "LogAppendTime":
        # As with Kafka, such a batch may pass, and then shows the timestamps that the producer's clock gave.
        wanted, appended = ([(*row[:3], None, row[4]) for row in rows] for rows in (wanted, appended))
    assert appended == wanted, f"what the leader appends differs from what it was sent: {appended!r}, {wanted!r}"
    assert validated.header.next_offset == base_offset + len(given), "offsets of other number than records"
    return "appended"


def _check(data: bytes) -> Hashable:
    view = _memory.place(data)
    rng = dice(data)
    scan = scan_batches(view)
    headers = []
    for header in scan:
        records = _attempt(lambda header=header: read_records(view, header, limit=LIMIT), FormatError)
        if isinstance(records, FormatError):
            break
        headers.append(header)
        if records and not header.is_control:
            _rebuild(records, rng.choice(list(Codec)))
    return _NUMBER.sub("#", _append(view, rng, headers)), len(headers)


TARGETS = [Target("round-trips", lambda: [*v2_batches(), *messages()], mutate_batches, _check)]
