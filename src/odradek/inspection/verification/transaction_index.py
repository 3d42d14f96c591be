"""Checks a transaction index against the transactions that the batches of the log give, field by field.

    .log        | 90: data of 7 | 95: data of 9 | 100: ABORT of 7 | ...
    .txnindex   producer 7, first offset 90, last offset 100, last stable offset 95

Every ABORT marker that ends a transaction with records must have an entry, or readers are given aborted records. If
batches of a transaction are gone (the head of the log was deleted, the log was compacted, bytes are damaged), an entry
may name offsets that were not seen.

Source in Kafka: `TransactionIndex`, `UnifiedLog.append`, `CleanedTransactionMetadata`.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.errors import FormatError
from odradek.inspection.entry_listing import read_transaction_index
from odradek.inspection.finding import Finding, FindingKind, dangling, unreadable
from odradek.inspection.indexes import index_path
from odradek.inspection.log_files import FileKind, LogFile
from odradek.inspection.verification.producer_ledger import EndedTransaction, ProducerLedger
from odradek.records import BatchHeader
from odradek.storage import names
from odradek.storage.formats.transaction_index import AbortedTransaction, parse_transaction_index

_ENTRY_BYTES = 34


class StableOffsetDoubts:
    """Entries whose last stable offset is where a transaction begins that is first seen after their marker.

    A replica appends many batches at a time. A transaction that begins in the same append is already open when Kafka
    looks at the marker. No later transaction may be named.
    """

    def __init__(self) -> None:
        self._open: dict[int, list[tuple[int, Finding]]] = {}

    def add(self, entry: AbortedTransaction, finding: Finding) -> None:
        """Keep a finding until the batch at the entry's last stable offset has been seen."""
        self._open.setdefault(entry.last_stable_offset, []).append((entry.producer_id, finding))

    def batch(self, header: BatchHeader) -> None:
        """Take the next batch."""
        if self._open and header.base_offset in self._open and header.is_transactional and not header.is_control:
            kept = [one for one in self._open.pop(header.base_offset) if one[0] == header.producer_id]
            if kept:
                self._open[header.base_offset] = kept

    def findings(self) -> Iterator[Finding]:
        """Yield the findings that were not explained by the end of the log."""
        for found in self._open.values():
            for _, finding in found:
                yield finding


class TransactionIndexCheck:
    """Is given the markers of a segment, and what was lost between its batches, then asked what is wrong."""

    def __init__(self, file: LogFile, ledger: ProducerLedger, doubts: StableOffsetDoubts) -> None:
        path = index_path(file.path, file.base_offset, names.TRANSACTION_INDEX_SUFFIX)
        self._file = LogFile(path, FileKind.TRANSACTION_INDEX, file.base_offset)
        self._ledger = ledger
        self._doubts = doubts
        self._found: list[Finding] = []
        self._entries: dict[int, tuple[int, AbortedTransaction]] = {}
        self._missing: list[EndedTransaction] = []
        self._lost: list[range] = []
        self._lost_from: int | None = None
        self._is_known = True
        self._wrong: set[int] = set()
        self._last_number = -1
        self._odd_bytes = 0
        self._count = 0
        for number, entry in enumerate(self._read()):
            self._count += 1
            if entry.last_offset in self._entries:
                self._add(number, f"the marker at offset {entry.last_offset} has an entry already")
            else:
                self._entries[entry.last_offset] = number, entry

    def _read(self) -> list[AbortedTransaction]:
        try:
            data = read_transaction_index(self._file)
            entries = parse_transaction_index(data, path=self._file.path)
            for number in range(len(entries)):
                # Kafka looks only at the first byte, but always writes version 0.
                if any(data[number * _ENTRY_BYTES : number * _ENTRY_BYTES + 2]):
                    self._add(number, "its version is not 0")
            self._odd_bytes = len(data) % _ENTRY_BYTES
        except FileNotFoundError:
            self._found += dangling(self._file.path)
            self._is_known = not self._found
        except FormatError as error:
            self._found.append(Finding(self._file.path, error.position, FindingKind.INDEX, error.reason))
            self._is_known = False
        except OSError as error:
            self._found.append(unreadable(self._file.path, error))
            self._is_known = False
        else:
            return entries
        return []

    def _add(self, number: int, reason: str) -> None:
        # Each entry gets one finding, however much of it is wrong.
        if number not in self._wrong:
            self._wrong.add(number)
            self._found.append(self._finding(number, reason))

    def _finding(self, number: int, reason: str) -> Finding:
        return Finding(self._file.path, number * _ENTRY_BYTES, FindingKind.INDEX, f"entry {number}: {reason}")

    def reach(self, offset: int) -> None:
        """Note where the next batch begins."""
        if self._lost_from is not None:
            self._lost.append(range(self._lost_from, max(offset, self._lost_from)))
            self._lost_from = None

    def lost(self) -> None:
        """Note bytes that may have held any batches."""
        if self._lost_from is None:
            self._lost_from = self._ledger.next_offset

    def ended(self, ended: EndedTransaction) -> None:
        """Take a marker."""
        if not ended.is_abort or not self._is_known:
            return
        number, entry = self._entries.get(ended.marker_offset, (0, None))
        if entry is None or entry.producer_id != ended.producer_id:
            if ended.first_offset is not None and ended.has_records:
                self._missing.append(ended)
            return
        del self._entries[ended.marker_offset]
        reason = self._first_offset_reason(entry, ended)
        if number < self._last_number:
            reason = f"the marker at offset {ended.marker_offset} is above those of later entries"
        self._last_number = max(self._last_number, number)
        if reason is not None:
            self._add(number, reason)
            return
        stable = ended.marker_offset + 1 if ended.open_since is None else ended.open_since
        if entry.last_stable_offset == stable or 0 <= entry.last_stable_offset < min(stable, self._ledger.known_from):
            return
        stable_reason = f"the last stable offset after it is {stable}, not {entry.last_stable_offset}"
        if ended.open_since is None and entry.last_stable_offset > stable and number not in self._wrong:
            self._doubts.add(entry, self._finding(number, stable_reason))
        else:
            self._add(number, stable_reason)

    def _first_offset_reason(self, entry: AbortedTransaction, ended: EndedTransaction) -> str | None:
        if entry.first_offset == ended.first_offset:
            return None
        latest = self._ledger.known_from if ended.first_offset is None else ended.first_offset
        if 0 <= entry.first_offset < min(latest, self._ledger.known_from):
            return None
        if ended.first_offset is None:
            return f"no batch of producer {entry.producer_id} is at offset {entry.first_offset}"
        return f"the transaction begins at offset {ended.first_offset}, not at {entry.first_offset}"

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong, after the last batch."""
        unmatched = 0
        for offset, (number, entry) in self._entries.items():
            if any(offset in lost for lost in self._lost):
                continue
            unmatched += 1
            if offset < self._ledger.next_offset:
                self._add(number, _without_marker(entry))
        # An entry with a wrong marker belongs to one of the markers that seem to have none.
        missing = self._still_missing()[unmatched:]
        if missing:
            first = missing[0]
            count = "an aborted transaction has" if len(missing) == 1 else f"{len(missing)} aborted transactions have"
            reason = (
                f"{count} no entry: producer {first.producer_id}, "
                f"offset {first.first_offset} to the ABORT marker at {first.marker_offset}"
            )
            self._found.append(Finding(self._file.path, None, FindingKind.INDEX, reason))
        elif self._odd_bytes:
            reason = f"{self._odd_bytes} bytes after the last entry"
            self._found.append(Finding(self._file.path, self._count * _ENTRY_BYTES, FindingKind.INDEX, reason))
        yield from self._found

    def beyond(self) -> list[Finding]:
        """Return the entries for offsets after the last batch: they are wrong, or the segment has lost its end."""
        if self._lost_from is not None:
            return []
        return [
            self._finding(number, _without_marker(entry))
            for offset, (number, entry) in self._entries.items()
            if offset >= self._ledger.next_offset and number not in self._wrong
        ]

    def _still_missing(self) -> list[EndedTransaction]:
        """Return the transactions that still have no entry: a writer adds it after the marker."""
        if not self._missing:
            return []
        try:
            entries = parse_transaction_index(read_transaction_index(self._file))
        except (FormatError, OSError):
            entries = []
        known = {(entry.producer_id, entry.last_offset) for entry in entries}
        return [ended for ended in self._missing if (ended.producer_id, ended.marker_offset) not in known]


def _without_marker(entry: AbortedTransaction) -> str:
    return f"producer {entry.producer_id} has no ABORT marker at offset {entry.last_offset}"
