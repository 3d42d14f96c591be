from collections.abc import Iterable

from typing_extensions import Buffer

class Record:
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int | None
    offset: int | None
    timestamp_type: str | None
    def __init__(
        self,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp: int | None = None,
        offset: int | None = None,
        timestamp_type: str | None = None,
    ) -> None: ...
    def __hash__(self) -> int: ...

def decode_records(
    data: Buffer,
    position: int,
    end: int,
    records_count: int,
    base_offset: int,
    base_timestamp: int,
    append_timestamp: int | None,
    timestamp_type: str | None,
) -> list[Record] | tuple[int, str]: ...
