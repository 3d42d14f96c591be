"""`.txnindex`: the aborted transactions whose ABORT marker is in this segment.

    | version: int16 = 0 | producer_id: int64 | first_offset: int64 | last_offset: int64 | last_stable_offset: int64 |

34 bytes an entry, in the order of the markers. `last_offset` is that of the marker; the data may be in earlier
segments. `last_stable_offset` is that after the abort: the first offset of the oldest other open transaction, or the
offset after the marker. Once an entry's last stable offset is at or above an offset, no later entry concerns records
below it. The file exists only if it has an entry; bytes after the last whole entry are ignored.

Source in Kafka: `TransactionIndex`, `AbortedTxn`.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from odradek.errors import CorruptIndexError, LogError
from odradek.storage.files import FILES, Buffer, FileSystem
from odradek.storage.regular_files import read_file

ENTRY = struct.Struct(">hqqqq")
"""An entry: the version, the producer id, the first and the last offset, and the last stable offset."""
_VERSION = 0
_MAX_BYTES = 1 << 30
"""Far more than a segment can have markers."""


class AbortedTransaction(NamedTuple):
    """A transaction of one producer that was aborted."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def parse_transaction_index(data: Buffer, *, path: Path | None = None) -> list[AbortedTransaction]:
    """Read the entries of a transaction index.

    Raises:
        CorruptIndexError: An entry's version is unknown.
    """
    entries = []
    for position in range(0, len(data) - ENTRY.size + 1, ENTRY.size):
        version, *fields = ENTRY.unpack_from(data, position)
        if version >> 8 > _VERSION:
            raise CorruptIndexError(f"version {version} is unknown", path=path, position=position)
        entries.append(AbortedTransaction(*fields))
    return entries


def format_transaction(transaction: AbortedTransaction) -> bytes:
    """Return the bytes of an entry."""
    return ENTRY.pack(_VERSION, *transaction)


class TransactionIndex:
    """A transaction index, read as a whole; a missing file is an index without entries.

    Attributes:
        path: The file.
        base_offset: The segment's base offset.
        transactions: The entries.
        is_as_written: Whether the bytes are those that Kafka writes; Kafka checks only a part of the version.
    """

    def __init__(self, path: Path, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.is_as_written = True
        self.transactions: list[AbortedTransaction] = []
        self.refresh()

    @classmethod
    def of(cls, path: Path, base_offset: int, transactions: list[AbortedTransaction]) -> TransactionIndex:
        """Return an index whose entries are known already."""
        index = TransactionIndex.__new__(TransactionIndex)
        index.path, index.base_offset, index.transactions = path, base_offset, transactions
        index.is_as_written = True
        return index

    def refresh(self) -> None:
        """Read the file again."""
        try:
            data = read_file(self.path, _MAX_BYTES)
        except FileNotFoundError:
            data = b""
        self.transactions = parse_transaction_index(data, path=self.path)
        self.is_as_written = data.startswith(b"".join(map(format_transaction, self.transactions)))

    def check(self) -> None:
        """Compare the entries with the segment and with each other.

        Raises:
            CorruptIndexError: A marker is before the segment, or not after the previous one.
        """
        last_offset = self.base_offset - 1
        for number, transaction in enumerate(self.transactions):
            if transaction.last_offset <= last_offset:
                raise CorruptIndexError(
                    f"the marker at {transaction.last_offset} is not above {last_offset}",
                    path=self.path,
                    position=number * ENTRY.size,
                )
            last_offset = transaction.last_offset


class WritableTransactionIndex(TransactionIndex):
    """A transaction index that grows with its segment; the file is made with its first entry."""

    def __init__(self, path: Path, base_offset: int, files: FileSystem = FILES) -> None:
        super().__init__(path, base_offset)
        self._files = files
        self._file = files.open(path) if path.exists() else None

    def append(self, transaction: AbortedTransaction) -> None:
        """Add an entry.

        Raises:
            LogError: Its marker is not after the last one.
        """
        if self.transactions and transaction.last_offset <= self.transactions[-1].last_offset:
            raise LogError(
                f"{self.path}: the marker at {transaction.last_offset} is not above {self.transactions[-1].last_offset}"
            )
        if self._file is None:
            self._file = self._files.open(self.path)
        self._file.write_at(len(self.transactions) * ENTRY.size, format_transaction(transaction))
        self.transactions.append(transaction)

    def go_back(self, count: int) -> None:
        """Keep only the first entries: the others were written for an append that was not completed."""
        del self.transactions[count:]
        if self._file is not None and self._file.size > count * ENTRY.size:
            self._file.truncate(count * ENTRY.size)

    def sync(self) -> None:
        """Return when the entries are on the disk."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
