from collections.abc import Iterable

from typing_extensions import Buffer

from odradek.records.header import BatchHeader
from odradek.records.kernels.offset_map import OffsetMap
from odradek.records.kernels.segment_output import SegmentOutput

class BatchFilter(SegmentOutput):
    bytes_read: int
    records_read: int
    records_kept: int
    records_without_key: int
    def __init__(
        self,
        offset_map: OffsetMap,
        base_offset: int,
        now_ms: int,
        delete_retention_ms: int,
        end_of_round: int,
        kept_offsets: Iterable[int],
        index_interval_bytes: int,
    ) -> None: ...
    def run(self, data: Buffer, position: int, end: int, max_output: int) -> tuple[int, int]: ...
    @property
    def batch(self) -> BatchHeader: ...
    def filter_batch(
        self,
        data: Buffer,
        records: Buffer | None,
        discard: bool,
        keep_empty: bool,
        ends_empty_transaction: bool,
    ) -> int: ...
    def rebuilt(self) -> bytes: ...
    def count(self, bytes_read: int, records_read: int, records_kept: int, without_key: int) -> None: ...
