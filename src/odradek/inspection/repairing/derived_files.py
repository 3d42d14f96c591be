"""The content of the files that follow from the batches of a log, as Kafka makes them again when it recovers a log.

    .log  ->  .index, .timeindex        an entry every N bytes
          ->  .txnindex                 each ABORT marker
          ->  .snapshot                 the producers at an offset
          ->  leader-epoch-checkpoint   where each epoch begins

Source in Kafka: `LogSegment.recover`, `UnifiedLog.rebuildProducerState`, `LeaderEpochFileCache`.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from odradek.inspection.live_segments import LiveSegment
from odradek.records import scan_batches
from odradek.storage import names
from odradek.storage.files import UnsyncedFileSystem
from odradek.storage.formats.checkpoints import EpochEntry, format_leader_epochs
from odradek.storage.formats.offset_index import WritableOffsetIndex
from odradek.storage.formats.producer_snapshot import format_snapshot
from odradek.storage.formats.time_index import WritableTimeIndex
from odradek.storage.formats.transaction_index import format_transaction
from odradek.storage.log.read_only_log import ReadOnlyLog
from odradek.storage.log.transactions import Transactions, rebuilt_index
from odradek.storage.producers.producer_state import read_marker
from odradek.storage.producers.producer_state_manager import ProducerStateManager
from odradek.storage.segment.batch_reader import mapped
from odradek.storage.segment.index_builder import IndexBuilder


def index_content(segment: LiveSegment, interval_bytes: int) -> dict[str, bytes]:
    """Return the offset index and the time index of a segment, by their suffixes.

    Raises:
        FormatError: The segment is damaged.
        LogError: Its offsets go back, so that no index can hold them.
        OSError: It cannot be read.
    """
    offsets = WritableOffsetIndex.in_memory(segment.path.with_suffix(names.INDEX_SUFFIX), segment.base_offset)
    times = WritableTimeIndex.in_memory(segment.path.with_suffix(names.TIME_INDEX_SUFFIX), segment.base_offset)
    builder = IndexBuilder(offsets, times, interval_bytes)
    with mapped(segment.path) as data:
        scan = scan_batches(data, path=segment.path)
        for header in scan:
            builder.add((header,))
        if scan.damage is not None:
            raise scan.damage
    builder.finish()
    return {names.INDEX_SUFFIX: bytes(offsets.entries), names.TIME_INDEX_SUFFIX: bytes(times.entries)}


def transaction_index_content(folder: Path, base_offset: int, *, was_compacted: bool) -> bytes | None:
    """Return the transaction index of a segment; None if the present one is right.

    Args:
        folder: The partition's folder.
        base_offset: That of the segment.
        was_compacted: Whether the first data of a transaction may be gone, which the present index may still have.

    Raises:
        FormatError: A marker is damaged.
        OSError: The segment cannot be read.
    """
    with ReadOnlyLog(folder) as log:
        segments = log.segments
        number = [segment.base_offset for segment in segments].index(base_offset)
        known = Transactions(folder).of_segment(segments, number)
        rebuilt = rebuilt_index(segments[number], known, was_compacted=was_compacted)
    return None if rebuilt is None else b"".join(map(format_transaction, rebuilt[0]))


def snapshot_content(segments: Sequence[LiveSegment], offset: int, good: Collection[int]) -> bytes:
    """Return the producer snapshot of an offset.

    Args:
        segments: All segments of the log, in order.
        offset: The offset.
        good: The offsets of the snapshots that are right; the batches after the last of them are replayed.

    Raises:
        BrokerError: A batch contradicts the state of its producer.
        FormatError: A batch is damaged.
        OSError: A file cannot be read.
    """
    with tempfile.TemporaryDirectory() as scratch:
        for known in good:
            if segments and known < offset:
                name = names.segment_file_name(known, names.SNAPSHOT_SUFFIX)
                shutil.copyfile(segments[0].path.with_name(name), Path(scratch) / name)
        producers = ProducerStateManager(Path(scratch), files=UnsyncedFileSystem())
        # No producer has expired at the beginning of time: when it did is not known.
        producers.truncate_and_reload(segments[0].base_offset if segments else 0, offset, 0)
        for segment, following in itertools.pairwise([*segments, None]):
            if segment is None or segment.base_offset >= offset:
                break
            if following is not None and following.base_offset <= producers.map_end_offset:
                continue
            with mapped(segment.path) as data:
                scan = scan_batches(data, path=segment.path)
                for header in scan:
                    if header.base_offset >= offset:
                        break
                    if header.has_producer_id and header.base_offset >= producers.map_end_offset:
                        producers.replay(header, read_marker(data, header) if header.is_control else None)
                if scan.damage is not None:
                    raise scan.damage
        return format_snapshot(state.to_snapshot() for state in producers.producers.values())


def leader_epoch_content(segments: Sequence[LiveSegment]) -> bytes:
    """Return the leader epochs of the batches.

    Raises:
        FormatError: A segment is damaged.
        OSError: A segment cannot be read.
    """
    entries: list[EpochEntry] = []
    for segment in segments:
        with mapped(segment.path) as data:
            scan = scan_batches(data, path=segment.path)
            for header in scan:
                epoch = header.partition_leader_epoch
                if header.magic == 2 and epoch >= 0 and (not entries or epoch > entries[-1].epoch):
                    entries.append(EpochEntry(epoch, header.base_offset))
            if scan.damage is not None:
                raise scan.damage
    return format_leader_epochs(entries)
