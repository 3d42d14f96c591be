from typing import Any

from odradek.records.kernels.batches import BatchTable

class Room:
    def __init__(self, segment_bytes: int, first_timestamp: int, segment_ms: int, base_offset: int) -> None: ...

class Written:
    position: int
    next_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    bytes_since_index_entry: int
    offset_entries: int
    time_entries: int
    transactions: tuple[Any, ...]
    def __init__(
        self,
        position: int,
        next_offset: int,
        max_timestamp: int,
        offset_of_max_timestamp: int,
        bytes_since_index_entry: int = 0,
        offset_entries: int = 0,
        time_entries: int = 0,
        transactions: tuple[Any, ...] = (),
    ) -> None: ...
    def fits(self, batches: BatchTable, room: Room) -> bool: ...
    def after(self, batches: BatchTable, index_interval_bytes: int) -> Written | None: ...
    def after_entry(
        self, batches: BatchTable, index_interval_bytes: int, last_indexed_timestamp: int
    ) -> Written | None: ...
