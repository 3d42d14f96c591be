from collections.abc import Callable, Iterator, Sequence

from typing_extensions import Buffer

from odradek.records.arrow_layout import Columns, RecordDefect
from odradek.records.header import BatchHeader
from odradek.records.large_section import Window

class ColumnDecoder:
    batch: BatchHeader
    error: RecordDefect
    expected_offset: int
    def __init__(
        self,
        wants_key: bool,
        wants_value: bool,
        wants_headers: bool,
        views: bool = False,
        check_crc: bool = True,
        include_control: bool = False,
        max_rows: int = 65536,
        max_bytes: int = 1 << 22,
        part_rows: int = 65536,
        part_bytes: int = 8 << 20,
        start_offset: int = 0,
        end_offset: int = ...,
        start_timestamp: int = ...,
        end_timestamp: int = ...,
        aborted: Sequence[tuple[int, int, int]] = (),
        ordered: bool = False,
        contiguous: bool = False,
    ) -> None: ...
    def expect(self, offset: int) -> None: ...
    def allow_gaps(self) -> None: ...
    def __len__(self) -> int: ...
    def decode(
        self, data: memoryview, position: int, end: int, decompress: Callable[..., memoryview]
    ) -> tuple[int, int]: ...
    def decode_windows(self, windows: Iterator[Window], inner_base: int) -> tuple[int, int]: ...
    def decode_payload(self, payload: Buffer) -> tuple[int, int]: ...
    def take(self) -> Columns: ...
