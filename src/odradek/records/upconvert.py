"""Turns batches of the old formats into v2 batches, for readers that know only these.

    | v1 | v1 | v0 | wrapper (v1, gzip) | v2 |     ->     | v2: three records | v2 (gzip) | v2, as it was |

The records keep their offsets, timestamps and codec. A wrapper becomes one batch, plain messages become one together.

Apache Kafka has no such conversion; brokers before 4.0 had the opposite one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from odradek.errors import TruncatedBatchError
from odradek.records.batch import read_records
from odradek.records.builder import build_batch
from odradek.records.header import BatchHeader
from odradek.records.kernels.objects import Record
from odradek.records.scan import scan_batches

_MOST_RECORDS = 10_000


def to_v2(data: bytes) -> bytes:
    """Return batches in format v2; a batch at the end that is cut short is left out.

    Args:
        data: The batches.

    Raises:
        CorruptRecordError: A batch is damaged.
    """
    scan = scan_batches(data, check_crc=True)
    headers = list(scan)
    if scan.damage is not None and not isinstance(scan.damage, TruncatedBatchError):
        raise scan.damage
    return b"".join(_converted(data, headers))


def _kind(header: BatchHeader) -> tuple[int, ...]:
    """Return what batches have in common that may become one."""
    if header.magic == 2 or header.codec:
        return (header.position,)
    # A v2 batch that a broker stamped has one time for all of its records.
    stamped = header.timestamp_type == "LogAppendTime"
    return (-1, stamped, header.max_timestamp if stamped else -1)


def _converted(data: bytes, headers: list[BatchHeader]) -> Iterator[bytes]:
    for _, group in groupby(headers, key=_kind):
        batches = list(group)
        if batches[0].magic == 2:
            yield data[batches[0].position : batches[0].end_position]
            continue
        records = [record for header in batches for record in read_records(data, header)]
        for at in range(0, len(records), _MOST_RECORDS):
            yield _built(records[at : at + _MOST_RECORDS], batches[0])


def _built(records: list[Record], header: BatchHeader) -> bytes:
    stamped = header.timestamp_type == "LogAppendTime"
    times = [record.timestamp for record in records if record.timestamp is not None]
    return build_batch(
        records,
        keep_offsets=True,
        codec=header.codec,
        timestamp_type="LogAppendTime" if stamped else "CreateTime",
        append_time_ms=max(times, default=-1) if stamped else None,
    )
