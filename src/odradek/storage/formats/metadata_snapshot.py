"""A snapshot of the metadata log, and `bootstrap.checkpoint`, which has the same form (KIP-630).

    control batch   SnapshotHeader [KRaftVersion KRaftVoters]        offset 0
    data batches    metadata records
    control batch   SnapshotFooter                                   without it the file is incomplete

A snapshot is in the metadata partition's folder, named by the offset and epoch that it reaches. `bootstrap.checkpoint`
is in the log directory and holds the records that a controller first writes into an empty log.

Source in Kafka: `RecordsSnapshotWriter`, `BootstrapDirectory`, `BatchFileWriter`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from odradek.errors import FormatError
from odradek.messages.metadata.control_records import (
    KRaftVersion,
    KRaftVoters,
    MetadataControlRecord,
    SnapshotFooter,
    SnapshotHeader,
    Voter,
    control_records,
    encode_control_record,
)
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.records.timestamps import now_ms
from odradek.storage.files import FILES, FileSystem, write_atomically
from odradek.storage.formats.metadata_batches import BatchFile

BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
SNAPSHOT_EPOCH = 0
MAX_BATCH_RECORDS = 1_000
_BATCH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a snapshot holds.

    Attributes:
        header: Its first record.
        batches: The metadata records, as bytes: for each batch its position in the file, and its records.
        voters: The voters, if it names them.
    """

    header: SnapshotHeader
    batches: tuple[tuple[int, tuple[bytes | None, ...]], ...]
    voters: tuple[Voter, ...] = ()

    @property
    def values(self) -> tuple[bytes | None, ...]:
        """The metadata records, as bytes."""
        return tuple(value for _, values in self.batches for value in values)


def read_snapshot(path: Path) -> Snapshot:
    """Read a snapshot or `bootstrap.checkpoint`.

    Raises:
        FormatError: It is damaged, or incomplete: without its header or its footer.
        FileNotFoundError: The file does not exist.
    """
    first: SnapshotHeader | None = None
    batches: list[tuple[int, tuple[bytes | None, ...]]] = []
    voters: tuple[Voter, ...] = ()
    ended = False
    position, epoch = 0, None
    with BatchFile(path) as file:
        for position, header, records in file:
            epoch = header.partition_leader_epoch if epoch is None else epoch
            if ended or header.partition_leader_epoch != epoch:
                raise FormatError("a snapshot is of one epoch and ends with its footer", path=path, position=position)
            if not header.is_control:
                batches.append((position, tuple(record.value for record in records)))
            for record, control in control_records(records, path, position) if header.is_control else ():
                ended = isinstance(control, SnapshotFooter)
                if isinstance(control, KRaftVoters):
                    voters = control.voters
                elif isinstance(control, SnapshotHeader) and record.offset == 0:
                    first = control
            if first is None:
                break
        if file.damage is not None:
            raise file.damage
    if first is None or not ended:
        reason = "a snapshot begins with a header" if first is None else "a snapshot ends with a footer"
        raise FormatError(reason, path=path, position=position)
    return Snapshot(first, tuple(batches), voters)


class EncodedBatches:
    """The data batches of a snapshot that is written again and again, each time with more records at its end."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[list[bytes | None], bytes]] = {}

    def encode(self, values: list[bytes | None], offset: int) -> bytes:
        """Return the batch of some records from an offset on; one that is as it was the last time is not made again."""
        known = self._known.get(offset)
        if known is None or known[0] != values:
            now = now_ms()
            records = [Record(None, value, timestamp=now) for value in values]
            batch = build_batch(records, base_offset=offset, partition_leader_epoch=SNAPSHOT_EPOCH)
            known = self._known[offset] = values, batch
        return known[1]


def format_snapshot(
    values: Iterable[bytes | None],
    *,
    voters: Sequence[Voter] = (),
    logged_ms: int = 0,
    encoded: EncodedBatches | None = None,
) -> bytes:
    """Return a snapshot's bytes.

    Args:
        values: The metadata records.
        voters: The voters; if there are any, `kraft.version` is 1.
        logged_ms: When the last record that it covers was appended, in ms; 0 for `bootstrap.checkpoint`.
        encoded: The batches as they were the last time.
    """
    now = now_ms()

    def control(offset: int, *decoded: MetadataControlRecord) -> bytes:
        records = [Record(*encode_control_record(record), timestamp=now) for record in decoded]
        return build_batch(records, base_offset=offset, partition_leader_epoch=SNAPSHOT_EPOCH, is_control=True)

    encoded = encoded or EncodedBatches()
    first = (SnapshotHeader(last_contained_log_timestamp=logged_ms),)
    quorum = (KRaftVersion(), KRaftVoters(voters=tuple(voters))) if voters else ()
    blocks = [control(0, *first, *quorum)]
    offset = len(first) + len(quorum)
    for part in _batches(list(values)):
        blocks.append(encoded.encode(part, offset))
        offset += len(part)
    blocks.append(control(offset, SnapshotFooter()))
    return b"".join(blocks)


def _batches(values: list[bytes | None]) -> Iterator[list[bytes | None]]:
    """Yield the values of each batch: not too many, and not too long."""
    first = 0
    while first < len(values):
        part = values[first : first + MAX_BATCH_RECORDS]
        while len(part) > 1 and sum(len(value or b"") for value in part) > _BATCH_BYTES:
            part = part[: len(part) // 2]
        yield part
        first += len(part)


def write_snapshot(
    path: Path,
    values: Iterable[bytes | None],
    *,
    voters: Sequence[Voter] = (),
    logged_ms: int = 0,
    encoded: EncodedBatches | None = None,
    files: FileSystem = FILES,
) -> None:
    """Write a snapshot or `bootstrap.checkpoint` in one step."""
    write_atomically(path, format_snapshot(values, voters=voters, logged_ms=logged_ms, encoded=encoded), files)
