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
from pathlib import Path
from typing import NamedTuple, TypeAlias

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

SNAPSHOT_EPOCH = 0
MAX_BATCH_RECORDS = 1_000
_BATCH_BYTES = 1 << 20
_BASE_OFFSET_BYTES = 8

Block: TypeAlias = tuple[bytes | None, ...]
"""Metadata records, as bytes, that are encoded together."""


class Snapshot(NamedTuple):
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


class EncodedBlocks:
    """The data batches of a snapshot that is written again and again: a block that has not changed is kept."""

    def __init__(self) -> None:
        self._known: dict[Block, list[tuple[int, bytes]]] = {}

    def encode(self, blocks: Iterable[Block]) -> Iterator[tuple[int, bytes]]:
        """Yield the batches of some blocks, with base offset 0, and the number of records in each."""
        known, self._known = self._known, {}
        for block in blocks:
            made = known.get(block)
            self._known[block] = made = list(_batches(block)) if made is None else made
            yield from made


def _batches(values: Block) -> Iterator[tuple[int, bytes]]:
    """Yield batches of values, not too many and not too long, with the number of values in each."""
    now = now_ms()
    first = 0
    while first < len(values):
        part = values[first : first + MAX_BATCH_RECORDS]
        while len(part) > 1 and sum(len(value or b"") for value in part) > _BATCH_BYTES:
            part = part[: len(part) // 2]
        records = [Record(None, value, timestamp=now) for value in part]
        yield len(part), build_batch(records, partition_leader_epoch=SNAPSHOT_EPOCH)
        first += len(part)


def format_blocks(
    blocks: Iterable[Block], encoded: EncodedBlocks, *, voters: Sequence[Voter] = (), logged_ms: int = 0
) -> bytes:
    """Return a snapshot's bytes; see `format_snapshot`.

    Args:
        blocks: The metadata records, block by block.
        encoded: The blocks as they were the last time.
        voters: The voters.
        logged_ms: When the last record was appended.
    """
    now = now_ms()

    def control(offset: int, *decoded: MetadataControlRecord) -> bytes:
        records = [Record(*encode_control_record(record), timestamp=now) for record in decoded]
        return build_batch(records, base_offset=offset, partition_leader_epoch=SNAPSHOT_EPOCH, is_control=True)

    first = (SnapshotHeader(last_contained_log_timestamp=logged_ms),)
    quorum = (KRaftVersion(), KRaftVoters(voters=tuple(voters))) if voters else ()
    batches = [control(0, *first, *quorum)]
    offset = len(first) + len(quorum)
    for count, batch in encoded.encode(blocks):
        # No checksum covers the base offset, so a batch may move.
        batches += offset.to_bytes(_BASE_OFFSET_BYTES, "big"), batch[_BASE_OFFSET_BYTES:]
        offset += count
    batches.append(control(offset, SnapshotFooter()))
    return b"".join(batches)


def format_snapshot(values: Iterable[bytes | None], *, voters: Sequence[Voter] = (), logged_ms: int = 0) -> bytes:
    """Return a snapshot's bytes.

    Args:
        values: The metadata records.
        voters: The voters; if there are any, `kraft.version` is 1.
        logged_ms: When the last record that it covers was appended, in ms; 0 for `bootstrap.checkpoint`.
    """
    return format_blocks([tuple(values)], EncodedBlocks(), voters=voters, logged_ms=logged_ms)


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
