"""A partition's folder as the cleaner is shown it: whoever appends to it is the test."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from odradek.records.header import BatchHeader
from odradek.records.scan import scan_batches
from odradek.storage.files import FILES, FileSystem
from odradek.storage.formats.transaction_index import AbortedTransaction, WritableTransactionIndex
from odradek.storage.log.cleaning_turn import CleaningTurn
from odradek.storage.log.transactions import Transactions
from odradek.storage.names import LOG_SUFFIX, TopicPartition, segment_file_name
from odradek.storage.producers.producer_state import read_marker
from odradek.storage.producers.producer_state_manager import LastRecord, ProducerStateManager
from odradek.storage.segment.open_segments import OpenSegments
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.segment_swap import SegmentSwap
from odradek.storage.topic_config import TopicConfig

COMPACT = TopicConfig(cleanup_policy=("compact",))


class FolderLog:
    """Segments in a folder, a state of producers, and the swap."""

    def __init__(self, path: Path, config: TopicConfig = COMPACT, files: FileSystem = FILES) -> None:
        path.mkdir(parents=True, exist_ok=True)
        topic, _, partition = path.name.rpartition("-")
        self.topic_partition = TopicPartition(topic, int(partition))
        self.path = path
        self.config = config
        self.log_start_offset = 0
        self.producers = ProducerStateManager(path, producer_id_expiration_ms=1 << 62)
        self.deleted: list[Path] = []
        self.cleaning = CleaningTurn()
        self._files = files
        self._opened = OpenSegments()
        self.refresh()

    def refresh(self) -> None:
        bases = sorted(int(path.stem) for path in self.path.glob("*" + LOG_SUFFIX))
        self._segments = [Segment(self.path, base, self._opened) for base in bases]

    @property
    def segments(self) -> Sequence[Segment]:
        return list(self._segments)

    @property
    def log_end_offset(self) -> int:
        return self._segments[-1].end().next_offset

    @property
    def last_stable_offset(self) -> int:
        return self.producers.last_stable_offset(self.log_end_offset)

    def last_records(self) -> Mapping[int, LastRecord]:
        return self.producers.last_records()

    def replace_segments(self, new_base_offset: int, old: Sequence[Segment]) -> None:
        swap = SegmentSwap(self.path, [new_base_offset], [segment.base_offset for segment in old], self._files)
        swap.run()
        self.deleted += swap.deleted
        self.refresh()

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        return Transactions(self.path).aborted(self._segments, start_offset, end_offset)

    def write(self, base_offset: int, *batches: bytes, modified_ms: int | None = None) -> None:
        """Write a segment, with its transaction index, and let the producers know of it."""
        path = self.path / segment_file_name(base_offset, LOG_SUFFIX)
        data = b"".join(batches)
        path.write_bytes(data)
        index = WritableTransactionIndex(path.with_suffix(".txnindex"), base_offset)
        for header in scan_batches(data):
            for aborted in self.producers.replay(header, read_marker(data, header) if header.is_control else None):
                index.append(aborted)
        index.close()
        self._files.set_modified_ms(path, int(time.time() * 1000) if modified_ms is None else modified_ms)
        self.refresh()

    def headers(self) -> list[BatchHeader]:
        found: list[BatchHeader] = []
        for segment in self._segments:
            scan = scan_batches(segment.data)
            found += scan
            assert scan.damage is None
        return found
