"""A file of metadata batches, a segment or a snapshot, read in order and checked batch by batch.

    | batch at 0..9, epoch 3 | batch at 10..10, epoch 3 | batch at 11..15, epoch 4 | ...

The checksum of a batch covers neither its base offset nor its epoch. Here both can be checked nevertheless: the
metadata log is never compacted, so every batch begins where the previous one ended, and an epoch never decreases. A
file is read in parts, so that a file that is mostly a hole costs no memory.

Source in Kafka: `RecordsBatchReader`, `KafkaRaftClient.MAX_BATCH_SIZE_BYTES`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from odradek.closing import Closing
from odradek.errors import CorruptRecordError, FormatError, TruncatedBatchError
from odradek.records import Record, read_records, scan_batches
from odradek.records.header import LOG_OVERHEAD, BatchHeader, claimed_size
from odradek.records.resync import find_batch
from odradek.storage.formats.checkpoints import EpochEntry
from odradek.storage.regular_files import open_file, read_at

MAX_BATCH_BYTES = 8 << 20
"""Kafka writes no longer batch into the metadata log or a snapshot of it."""

_CHUNK_BYTES = 1 << 20
_SEARCH_BYTES = 32 << 20


class MetadataBatch(NamedTuple):
    """A batch.

    Attributes:
        position: Where it starts in the file.
        header: Its header, whose `position` is not that in the file.
        records: Its records.
    """

    position: int
    header: BatchHeader
    records: list[Record]


class BatchFile(Closing):
    """An iterator over the batches of a file, up to its end or to the first invalid batch.

    Args:
        path: The file.
        next_offset: The offset that its first batch begins with.
        epoch: The least epoch that its first batch may have.
        epochs: The epochs, and where they began; empty if they are not known.

    Attributes:
        path: The file.
        size: How many bytes it has.
        position: Where the next batch starts, or the invalid one.
        next_offset: The offset after the last batch.
        epoch: The epoch of the last batch.
        damage: Why the iterator stopped before the end; None if it did not.
        may_be_torn: Whether a crash may have left the damage: it is not a complete batch at a wrong place.

    Raises:
        FormatError: It is not a regular file, or the records of a complete batch cannot be read.
        FileNotFoundError: The file does not exist.
    """

    def __init__(self, path: Path, *, next_offset: int = 0, epoch: int = 0, epochs: Sequence[EpochEntry] = ()) -> None:
        self.path = path
        self.size = 0
        self.position = 0
        self.next_offset = next_offset
        self.epoch = epoch
        self.damage: FormatError | None = None
        self.may_be_torn = True
        self._epochs = {entry.epoch for entry in epochs}
        self._epochs_from = epochs[0].start_offset if epochs else 0
        self._file = open_file(path)
        self.size = os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __iter__(self) -> Iterator[MetadataBatch]:
        wanted = _CHUNK_BYTES
        while self.damage is None and self.position < self.size:
            start = self.position
            data = read_at(self._file, self.path, start, min(wanted, self.size - start))
            scan = scan_batches(data, path=self.path)
            for header in scan:
                self._check(header)
                if self.damage is not None:
                    return
                try:
                    batch = MetadataBatch(self.position, header, read_records(data, header))
                except FormatError as error:
                    raise FormatError(error.reason, path=self.path, position=self.position) from error
                self.position += header.size_bytes
                self.next_offset, self.epoch = header.next_offset, header.partition_leader_epoch
                yield batch
            wanted = _CHUNK_BYTES
            if scan.damage is not None:
                wanted = self._size_of_more(data, scan.position, scan.damage)
                if not wanted:
                    self.damage = type(scan.damage)(scan.damage.reason, path=self.path, position=self.position)
            elif len(data) < min(_CHUNK_BYTES, self.size - start):
                # The file has become shorter.
                self.size = start + len(data)

    def _size_of_more(self, data: bytes, position: int, damage: FormatError) -> int:
        """Return how many bytes must be read to complete a batch that the part read so far cuts; 0 if it cuts none."""
        left = self.size - self.position
        if not isinstance(damage, TruncatedBatchError) or len(data) - position >= left:
            return 0
        claimed = claimed_size(data, position)
        if len(data) - position < LOG_OVERHEAD:
            return _CHUNK_BYTES
        return 0 if claimed > min(left, MAX_BATCH_BYTES + LOG_OVERHEAD) else max(claimed, _CHUNK_BYTES)

    def _check(self, header: BatchHeader) -> None:
        expected, found = self.next_offset, header.base_offset
        if found != expected:
            reason = f"offset {found} follows {expected - 1}" if expected else f"the first offset is {found}, not 0"
            # If the start of a batch did not reach the disk, it reads as zeros, and no checksum covers its first bytes.
            torn = any(found == expected & ((1 << 8 * bytes_left) - 1) for bytes_left in range(8))
            self._refuse(reason, may_be_torn=torn and self.position + header.size_bytes == self.size)
        elif header.magic != 2:
            self._refuse(f"a message of magic {header.magic} among the metadata")
        elif header.partition_leader_epoch < self.epoch:
            self._refuse(f"epoch {header.partition_leader_epoch} follows epoch {self.epoch}")
        elif self._epochs and found >= self._epochs_from and header.partition_leader_epoch not in self._epochs:
            self._refuse(f"epoch {header.partition_leader_epoch} is not in leader-epoch-checkpoint")

    def _refuse(self, reason: str, *, may_be_torn: bool = False) -> None:
        self.damage = CorruptRecordError(reason, path=self.path, position=self.position)
        self.may_be_torn = may_be_torn

    def find_more(self) -> int | None:
        """Return where the next complete batch after the damage starts, or None."""
        position = self.position
        while position < self.size:
            data = read_at(self._file, self.path, position, _SEARCH_BYTES + MAX_BATCH_BYTES)
            zeros = len(data) - len(data.lstrip(b"\0"))
            # A hole is skipped at once; but offset and size, with which a batch starts, may begin with zeros.
            if zeros < len(data):
                found = find_batch(data, max(0, zeros - LOG_OVERHEAD), minimum_offset=self.next_offset)
                if found is not None:
                    return position + found
            position += _SEARCH_BYTES
        return None
