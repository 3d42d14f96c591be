"""Salvages one partition: every batch whose checksum holds, with its offset, and nothing else.

    source   | batch | damage ...... | batch | batch again | torn        read only
    target   | batch | batch |        .index .timeindex .txnindex rebuilt; what is between is reported as lost

Of segments that hold the same offsets each record is written once, see `overlaps`.

No checksum covers a base offset. If one is wrong and the right one can be told, it is corrected and reported; otherwise
the batch is lost. Producer snapshots are not copied: Kafka makes them again when it recovers the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from odradek.errors import FormatError, OdradekError
from odradek.inspection.finding import Finding, FindingKind, unreadable
from odradek.inspection.index_evidence import IndexEvidence
from odradek.inspection.live_segments import LiveSegment, live_segments
from odradek.inspection.log_files import QUORUM_STATE, PartitionFolder
from odradek.inspection.offset_order import OffsetOrder, SegmentPlace
from odradek.inspection.salvaging.chain_reader import ChainReader, UnreadableError, readable, sound_batches
from odradek.inspection.salvaging.copies import copy_files
from odradek.inspection.salvaging.overlaps import Chain, Kept, chains, with_replaced
from odradek.inspection.salvaging.placing import SoundBatch
from odradek.inspection.salvaging.report import Loss, SalvagedLog
from odradek.inspection.salvaging.rewriting import of_no_producer, rest_of
from odradek.inspection.surroundings import Surroundings
from odradek.records import BatchHeader, scan_batches
from odradek.records.control import ControlRecordType
from odradek.records.header import NO_PRODUCER_ID, NO_SEQUENCE
from odradek.storage.files import Buffer, FileSystem
from odradek.storage.formats.checkpoints import LEADER_EPOCH_CHECKPOINT, read_leader_epochs
from odradek.storage.formats.metadata_snapshot import read_snapshot
from odradek.storage.formats.offset_index import WritableOffsetIndex
from odradek.storage.formats.partition_metadata import PARTITION_METADATA, read_partition_metadata
from odradek.storage.formats.quorum_state import read_quorum_state
from odradek.storage.formats.time_index import WritableTimeIndex
from odradek.storage.formats.transaction_index import AbortedTransaction, WritableTransactionIndex
from odradek.storage.names import (
    CHECKPOINT_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from odradek.storage.producers.open_transactions import OpenTransactions
from odradek.storage.producers.producer_state import read_marker
from odradek.storage.segment.batch_reader import Damage
from odradek.storage.segment.index_builder import IndexBuilder
from odradek.storage.topic_config import TopicConfig

_READERS: dict[str, Callable[[Path], object]] = {
    PARTITION_METADATA: read_partition_metadata,
    LEADER_EPOCH_CHECKPOINT: read_leader_epochs,
    QUORUM_STATE: read_quorum_state,
}


_INDEX_INTERVAL_BYTES = TopicConfig().index_interval_bytes


class SalvagedSegment:
    """A new segment with the batches of a damaged one.

    Args:
        directory: The folder of the partition.
        base_offset: The segment's base offset.
        size_bytes: About how many bytes it will have.
        files: The file system to write through.
    """

    def __init__(self, directory: Path, base_offset: int, size_bytes: int, files: FileSystem) -> None:
        def name(suffix: str) -> Path:
            return directory / segment_file_name(base_offset, suffix)

        entries = size_bytes // _INDEX_INTERVAL_BYTES + 3
        self._log = files.open(name(LOG_SUFFIX))
        self._index = WritableOffsetIndex(name(INDEX_SUFFIX), base_offset, entries * 8, files)
        self._time_index = WritableTimeIndex(name(TIME_INDEX_SUFFIX), base_offset, entries * 12, files)
        self._transactions = WritableTransactionIndex(name(TRANSACTION_INDEX_SUFFIX), base_offset, files)
        self._builder = IndexBuilder(self._index, self._time_index, _INDEX_INTERVAL_BYTES)

    def append(self, batch: Buffer, header: BatchHeader) -> None:
        """Add a batch, whose bytes say what its header does."""
        self._builder.add((header,))
        self._log.write(batch)

    def aborted(self, transaction: AbortedTransaction) -> None:
        """Add a transaction that was aborted by the last batch."""
        self._transactions.append(transaction)

    def finish(self) -> None:
        """Bring all files to the disk, and close them."""
        self._builder.finish()
        for file in (self._log, self._index, self._time_index, self._transactions):
            file.sync()
        self.close()

    def close(self) -> None:
        """Close the files as they are."""
        for file in (self._log, self._index, self._time_index, self._transactions):
            file.close()


class PartitionSalvage:
    """The work on one partition.

    Args:
        folder: The partition; it is only read.
        surroundings: The log directory around it.
        directory: The folder to write into, which exists.
        result: Receives what becomes of the partition.
        files: The file system to write through.
    """

    def __init__(
        self,
        folder: PartitionFolder,
        surroundings: Surroundings,
        directory: Path,
        result: SalvagedLog,
        files: FileSystem,
    ) -> None:
        self._folder = folder
        self._directory = directory
        self._result = result
        self._files = files
        self._is_dense = not surroundings.may_have_gaps(folder.topic_partition)
        self._ends = surroundings.known_ends(folder)
        self._is_preallocated = surroundings.is_preallocated(folder.topic_partition)
        self._next_offset = 0
        self._expected: int | None = None
        self._after_loss = False
        self._pending: list[Damage] = []
        self._open = OpenTransactions()

    def run(self) -> None:
        """Write what is sound."""
        segments = self._segments()
        self._next_offset = segments[0].base_offset if segments else 0
        for chain in chains(segments, is_dense=self._is_dense):
            if not chain.is_in_order:
                self._chain(chain)
                continue
            (segment,) = chain.segments
            try:
                self._segment(segment.path, segment.base_offset, chain.following)
            except UnreadableError as error:
                self._unreadable(segment, chain.following, str(error))
        self._lost_before(None)
        if self._result.losses:
            self._result.open_transactions = self._open.first_offsets
        snapshots = [path.name for path in self._folder.path.glob(f"*{CHECKPOINT_SUFFIX}")]
        readers = _READERS | dict.fromkeys(snapshots, read_snapshot)
        self._result.left_out += copy_files(self._folder.path, self._directory, readers, self._files)
        self._files.sync_directory(self._directory)

    def _segments(self) -> list[LiveSegment]:
        path = self._folder.path
        try:
            return with_replaced(self._folder, live_segments(self._folder))
        except OdradekError as error:
            self._result.left_out.append(Finding(path, None, FindingKind.UNREADABLE, str(error)))
        except OSError as error:
            self._result.left_out.append(unreadable(path, error))
        return []

    def _unreadable(self, segment: LiveSegment, following: int | None, reason: str) -> None:
        self._pending.append(self._left_out(segment, reason))
        self._after_loss = True
        if following is not None:
            self._expected = following
        else:
            self._end_at(segment.base_offset)

    def _left_out(self, segment: LiveSegment, reason: str) -> Damage:
        try:
            size = segment.path.lstat().st_size
        except OSError:
            size = 0
        self._result.left_out.append(Finding(segment.path, None, FindingKind.UNREADABLE, reason))
        return Damage(segment.path, 0, size, reason)

    def _end_at(self, base_offset: int) -> None:
        """Write an empty last segment: it says where the log continues, even if there is no batch left."""
        SalvagedSegment(self._directory, base_offset, 0, self._files).finish()

    def _segment(self, path: Path, base_offset: int, following: int | None) -> None:
        place = SegmentPlace(path, base_offset, following, self._expected, self._after_loss, self._is_dense, self._ends)
        with readable(path) as data:
            evidence = IndexEvidence.beside(path, base_offset)
            order = OffsetOrder(place, evidence, data)
            view = memoryview(data)
            writer: SalvagedSegment | None = None
            try:
                for item in sound_batches(order, place, data, is_preallocated=self._is_preallocated):
                    if isinstance(item, Damage):
                        self._pending.append(item)
                        continue
                    header, misplaced = item
                    if not self._is_misplaced(path, header, base_offset, following):
                        self._lost_before(header.base_offset)
                        if writer is None:
                            writer = SalvagedSegment(self._directory, base_offset, len(data), self._files)
                        self._write(writer, path, view, header, misplaced)
                if writer is not None:
                    writer.finish()
                elif following is None:
                    self._end_at(base_offset)
            finally:
                view.release()
                evidence.close()
                if writer is not None:
                    writer.close()
        self._result.segments += 1
        self._expected, self._after_loss = order.end_offset, order.after_loss

    def _chain(self, chain: Chain) -> None:
        """Write what is sound in segments that hold offsets of each other, or whose batches are not in order."""
        reader = ChainReader(
            chain,
            is_dense=self._is_dense,
            ends=self._ends,
            is_preallocated=self._is_preallocated,
            leave_out=self._left_out,
        )
        with ExitStack() as stack:
            reader.read(stack)
            self._result.segments += reader.segments
            if reader.batches:
                self._lost_before(reader.batches[0].start)
            kept = self._write_in_order(chain, reader.views, reader.batches)
        for damage, batch in reader.misfits:
            self._lose(damage, batch.start, batch.end)
        for damage, start, end, is_exact in reader.lost:
            if not is_exact:
                start = kept.first_missing(start)
                if end is None or start < end:
                    self._lose(damage, start, end)
                continue
            # What the bytes at the end of a segment held, another one may have, too.
            if end is None and damage.path != chain.segments[-1].path:
                end = max(start, self._next_offset)
            elif end is None and chain.following is not None:
                end = max(start, chain.following)
            # Of bytes between two batches that follow each other nothing says what they held.
            if end is None or start >= end or not kept.covers(start, end):
                self._lose(damage, start, end)
        self._expected, self._after_loss = self._next_offset, bool(reader.lost or reader.misfits)

    def _write_in_order(self, chain: Chain, views: Sequence[memoryview], batches: Iterable[SoundBatch]) -> Kept:
        kept, size_bytes = Kept(), sum(map(len, views))
        bases = deque(segment.base_offset for segment in chain.segments)
        writer: SalvagedSegment | None = None
        try:
            for batch in batches:
                header, view, start = batch.header, views[batch.number], batch.start
                path = chain.segments[batch.number].path
                damage = Damage(path, header.position, header.size_bytes, "")
                if chain.following is not None and header.next_offset > chain.following:
                    reason = f"offset {header.last_offset} belongs in a later segment"
                    self._lose(damage._replace(reason=reason), start, header.next_offset)
                    continue
                if header.next_offset <= self._next_offset:
                    # A compacted copy has fewer records than the batch itself.
                    is_compacted = path.suffix == SWAP_SUFFIX
                    if header.records_count and header not in kept and not is_compacted:
                        self._lose_again(kept, view, header, damage, start)
                    continue
                written = header
                if start < self._next_offset:
                    self._lose_again(kept, view, header, damage, start)
                    start = self._next_offset
                    try:
                        rest = rest_of(view, header, start)
                    except (FormatError, ValueError) as error:
                        self._lose(damage._replace(reason=str(error)), start, header.next_offset)
                        continue
                    if not rest:
                        continue
                    view = memoryview(rest)
                    (written,) = scan_batches(rest)
                base_offset = None
                while bases and bases[0] <= start:
                    base_offset = bases.popleft()
                if writer is None or base_offset is not None:
                    if writer is not None:
                        writer.finish()
                    # No two segments of the target hold the same offsets.
                    base_offset = max(base_offset or 0, self._next_offset)
                    writer = SalvagedSegment(self._directory, base_offset, size_bytes, self._files)
                self._write(writer, path, view, written, batch.misplaced)
                kept.add(header, start, view, written)
            if writer is not None:
                writer.finish()
            last = chain.segments[-1].base_offset
            if chain.following is None and (writer is None or self._next_offset < last):
                self._end_at(last)
        finally:
            if writer is not None:
                writer.close()
        return kept

    def _lose_again(self, kept: Kept, view: memoryview, header: BatchHeader, damage: Damage, start: int) -> None:
        """Tell of records of a batch whose offsets others have already."""
        end = min(header.next_offset, self._next_offset)
        if not kept.has_records_of(view, header, start, end):
            reason = f"offsets {start} to {end - 1} again, with other records"
            self._lose(damage._replace(reason=reason), start, end)

    # -- what is written, and what is not

    def _is_misplaced(self, path: Path, header: BatchHeader, base_offset: int, following: int | None) -> bool:
        reason = None
        if header.last_offset < header.base_offset or header.base_offset < max(self._next_offset, base_offset):
            reason = f"offsets {header.base_offset} to {header.last_offset} again, {self._next_offset} comes next"
        elif following is not None and header.last_offset >= following:
            reason = f"offset {header.last_offset} belongs in the next segment"
        if reason is not None:
            self._pending.append(Damage(path, header.position, header.size_bytes, reason))
        return reason is not None

    def _write(
        self, writer: SalvagedSegment, path: Path, view: memoryview, header: BatchHeader, misplaced: Finding | None
    ) -> None:
        batch: Buffer = view[header.position : header.end_position]
        offset = header.base_offset.to_bytes(8, "big")
        if batch[:8] != offset:
            batch = offset + batch[8:]
            reason = f"it is negative: the base offset should be {header.base_offset}"
            self._result.mended.append(misplaced or Finding(path, header.position, FindingKind.ORDER, reason))
        since = self._open.left_by(header)
        if since is not None:
            producer = f"producer {header.producer_id}"
            reason = f"a batch of {producer} outside of its transaction, which is open since {since}"
            finding = Finding(path, header.position, FindingKind.CONTRADICTION, f"{reason}: written as of no producer")
            self._result.mended.append(finding)
            batch = of_no_producer(batch)
            header = header._replace(producer_id=NO_PRODUCER_ID, producer_epoch=-1, base_sequence=NO_SEQUENCE)
        writer.append(batch, header)
        self._follow_transactions(view, header, writer)
        self._next_offset = self._result.end_offset = header.next_offset
        self._result.batches += 1
        self._result.size_bytes += header.size_bytes

    def _lost_before(self, offset: int | None) -> None:
        for damage in self._pending:
            self._lose(damage, self._next_offset, offset)
        self._pending.clear()

    def _lose(self, damage: Damage, start_offset: int, end_offset: int | None) -> None:
        self._result.losses.append(
            Loss(damage.path, damage.position, damage.size_bytes, start_offset, end_offset, damage.reason)
        )

    def _follow_transactions(self, data: Buffer, header: BatchHeader, writer: SalvagedSegment) -> None:
        if not header.is_transactional:
            return
        if not header.is_control:
            self._open.data(header)
            return
        try:
            marker = read_marker(data, header)
        except FormatError:
            return
        if marker is None:
            return
        if marker.type is not ControlRecordType.ABORT:
            self._open.end(header)
        elif (transaction := self._open.abort(header)) is not None:
            writer.aborted(transaction)
