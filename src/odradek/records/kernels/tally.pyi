from typing_extensions import Buffer

from odradek.records.kernels.batches import BatchTable

class BatchTally:
    batches: int
    size_bytes: int
    records: int
    control_batches: int
    start_offset: int
    next_offset: int
    gaps: int
    missing_offsets: int
    late_batches: int
    latest_ms: int
    least_timestamp: int
    greatest_timestamp: int
    largest_bytes: int
    largest_offset: int
    @property
    def codec_batches(self) -> list[int]: ...
    @property
    def codec_bytes(self) -> list[int]: ...
    @property
    def size_classes(self) -> list[int]: ...
    def begin(self, offset: int) -> None: ...
    def add(self, table: BatchTable, width_ms: int) -> list[tuple[int, int, int]]: ...

class RecordTally:
    records: int
    null_keys: int
    null_values: int
    key_bytes: int
    value_bytes: int
    late_records: int
    latest_ms: int
    @property
    def registers(self) -> bytes: ...
    @property
    def largest(self) -> list[tuple[int, int]]: ...
    def add_message(self, key: bytes | None, value_size: int, size: int, offset: int, timestamp: int) -> None: ...
    def add(
        self,
        data: Buffer,
        position: int,
        end: int,
        records_count: int,
        base_offset: int,
        base_timestamp: int,
        append_timestamp: int,
    ) -> str | None: ...
