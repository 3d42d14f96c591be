"""What the maintenance of a log directory does to one log: retention, silent producers, deleted files, wrong indexes.

Retention moves the log start offset under the LOG lock alone. The segments below it are removed afterwards, under all
locks of the log, when the cleaner has given way.

Source in Kafka: `UnifiedLog.deleteOldSegments`, `ProducerStateManager.removeExpiredProducers`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from operator import attrgetter
from weakref import WeakSet

from odradek.storage.log.log_parts import LogParts
from odradek.storage.log.recovery import write_transaction_index
from odradek.storage.log.retention import Deletion
from odradek.storage.log.transactions import Transactions, rebuilt_index
from odradek.storage.segment.segment import Segment

_BASE_OFFSET = attrgetter("base_offset")


class Upkeep:
    """The upkeep of one log. Any thread may call any method, without a lock of the log.

    Args:
        parts: The parts of the log.
        start_moved: Brings a new log start offset to the disk, and wakes readers.
    """

    def __init__(self, parts: LogParts, start_moved: Callable[[], None]) -> None:
        self._parts = parts
        self._start_moved = start_moved

    def delete_old_segments(self) -> list[Deletion]:
        """Delete the segments that are due; return which, and why.

        Raises:
            LogError: The log is closed, or this is a fork of the process that opened it.
            LogOfflineError: The disk failed, now or before.
        """
        parts, guard = self._parts, self._parts.guard
        guard.check_entry()
        with guard.lock:
            guard.check_usable()
            found = parts.head.retire(parts.config, parts.clock())
        if found:
            # Only some of the renames may reach the disk: the rest of the deleted head must not reappear.
            self._start_moved()
            guard.run_alone(self._remove_segments)
        return found

    def _remove_segments(self) -> None:
        parts = self._parts
        parts.guard.check_usable()
        parts.head.remove_segments(parts.clock() + parts.config.file_delete_delay_ms)

    @property
    def has_deleted_files(self) -> bool:
        """Whether there are files of deleted segments; without a lock, as it is at some time."""
        return len(self._parts.local.deleted) > 0

    def remove_deleted_files(self) -> None:
        """Unlink the files of deleted segments whose `file.delete.delay.ms` has passed."""
        parts, guard = self._parts, self._parts.guard
        guard.check_entry()
        with guard.lock:
            if len(parts.local.deleted) and guard.is_changeable:
                parts.local.deleted.run(parts.clock())

    def expire_producers(self) -> None:
        """Forget the producers that have been silent for `producer.id.expiration.ms`."""
        parts, guard = self._parts, self._parts.guard
        guard.check_entry()
        with guard.lock:
            if guard.is_changeable:
                guard.check_usable()
                parts.local.producers.remove_expired(parts.clock())


class TransactionIndexRepair:
    """The repair of one log's transaction indexes, once for each segment. Any thread may call it, without a lock.

    Those that differ from the batches of their segment are rewritten: a Kafka that takes over relies on them, while no
    answer of this library does.

    Args:
        parts: The parts of the log.
        transactions: What their batches say.
    """

    def __init__(self, parts: LogParts, transactions: Transactions) -> None:
        self._parts = parts
        self._transactions = transactions
        self._checked: WeakSet[Segment] = WeakSet()

    def check(self, start_offset: int, end_offset: int) -> None:
        """Check the sealed segments that hold a range of offsets."""
        local, guard = self._parts.local, self._parts.guard
        segments = local.segments
        first = max(0, bisect_right(segments, start_offset, key=_BASE_OFFSET) - 1)
        for number in range(first, len(segments) - 1):
            segment = segments[number]
            if segment.base_offset >= end_offset:
                break
            if segment in self._checked:
                continue
            known = self._transactions.of_segment(segments, number)
            with guard.lock:
                if guard.is_changeable and segment in local.segments:
                    rebuilt = rebuilt_index(segment, known, was_compacted=self._parts.was_compacted)
                    if rebuilt is not None:
                        path = segment.transaction_index_path
                        write_transaction_index(path, *rebuilt, self._parts.report, guard.disk)
            self._checked.add(segment)
