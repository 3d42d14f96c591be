from collections.abc import Callable, Sequence

from typing_extensions import Buffer

VarColumn = tuple[int, Buffer | None, Buffer, Buffer]

class ColumnDecoder:
    batch: tuple[int, int, int, int, int]
    error: tuple[int, int, str]
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
        start_offset: int = 0,
        end_offset: int = ...,
        start_timestamp: int = ...,
        end_timestamp: int = ...,
        timestamp_scale: int = 1,
        aborted: Sequence[tuple[int, int, int]] = (),
        ordered: bool = False,
        contiguous: bool = False,
    ) -> None: ...
    def allow_gaps(self) -> None: ...
    def __len__(self) -> int: ...
    def decode(
        self, data: memoryview, position: int, end: int, decompress: Callable[..., memoryview]
    ) -> tuple[int, int]: ...
    def decode_payload(self, payload: Buffer) -> tuple[int, int]: ...
    def take(
        self,
    ) -> tuple[
        int,
        Buffer,
        Buffer,
        int,
        Buffer,
        int,
        VarColumn | None,
        VarColumn | None,
        Buffer | None,
        int,
        VarColumn | None,
        VarColumn | None,
        list[Buffer],
    ]: ...
