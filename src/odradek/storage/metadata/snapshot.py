"""A snapshot of the metadata log, and `bootstrap.checkpoint`, which has the same form (KIP-630).

    control batch   SnapshotHeader [KRaftVersion KRaftVoters]        offset 0
    data batches    metadata records
    control batch   SnapshotFooter                                   without it the file is not whole

A snapshot lies in the metadata partition's folder and is named by the offset and epoch that it reaches;
`bootstrap.checkpoint` lies in the log directory and holds what a controller writes first into an empty log.

Source in Kafka: `RecordsSnapshotWriter`, `BootstrapDirectory`, `BatchFileWriter`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from odradek.errors import FormatError
from odradek.records import Record, read_records, scan_batches
from odradek.records.builder import build_batch
from odradek.storage.files import FILES, FileSystem, write_atomically
from odradek.storage.metadata.control import (
    KRaftVersion,
    KRaftVoters,
    MetadataControlRecord,
    SnapshotFooter,
    SnapshotHeader,
    Voter,
    decode_control_record,
    encode_control_record,
)

BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
SNAPSHOT_EPOCH = 0
MAX_BATCH_RECORDS = 10_000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a snapshot holds.

    Attributes:
        header: Its first record.
        values: The metadata records, as bytes.
        voters: The voters, where it names them.
    """

    header: SnapshotHeader
    values: tuple[bytes | None, ...]
    voters: tuple[Voter, ...] = ()


def read_snapshot(path: Path) -> Snapshot:
    """Read a snapshot or `bootstrap.checkpoint`.

    Raises:
        FormatError: It is damaged or not whole.
    """
    data = path.read_bytes()
    scan = scan_batches(data, path=path)
    controls: list[MetadataControlRecord] = []
    values: list[bytes | None] = []
    for header in scan:
        records = read_records(data, header)
        if header.is_control:
            controls += filter(None, map(decode_control_record, records))
        else:
            values += [record.value for record in records]
    if scan.damage is not None:
        raise scan.damage
    if not controls or not isinstance(controls[0], SnapshotHeader) or not isinstance(controls[-1], SnapshotFooter):
        raise FormatError("a snapshot is from its header to its footer", path=path)
    voters = [control.voters for control in controls if isinstance(control, KRaftVoters)]
    return Snapshot(controls[0], tuple(values), voters[-1] if voters else ())


def format_snapshot(values: Iterable[bytes | None], *, voters: Sequence[Voter] = (), logged_ms: int = 0) -> bytes:
    """Return a snapshot's bytes.

    Args:
        values: The metadata records.
        voters: The voters; where there are any, `kraft.version` is 1.
        logged_ms: When the last record that it covers was appended; 0 for `bootstrap.checkpoint`.
    """
    now = time.time_ns() // 1_000_000
    offset = 0
    blocks = []

    def add(records: list[Record], *, is_control: bool) -> None:
        nonlocal offset
        blocks.append(
            build_batch(records, base_offset=offset, partition_leader_epoch=SNAPSHOT_EPOCH, is_control=is_control)
        )
        offset += len(records)

    def control(*decoded: MetadataControlRecord) -> None:
        add([Record(*encode_control_record(record), timestamp=now) for record in decoded], is_control=True)

    quorum = (KRaftVersion(), KRaftVoters(voters=tuple(voters))) if voters else ()
    control(SnapshotHeader(last_contained_log_timestamp=logged_ms), *quorum)
    data = [Record(None, value, timestamp=now) for value in values]
    for start in range(0, len(data), MAX_BATCH_RECORDS):
        add(data[start : start + MAX_BATCH_RECORDS], is_control=False)
    control(SnapshotFooter())
    return b"".join(blocks)


def write_snapshot(
    path: Path,
    values: Iterable[bytes | None],
    *,
    voters: Sequence[Voter] = (),
    logged_ms: int = 0,
    files: FileSystem = FILES,
) -> None:
    """Write a snapshot or `bootstrap.checkpoint` in one step."""
    write_atomically(path, format_snapshot(values, voters=voters, logged_ms=logged_ms), files)
