from collections.abc import Iterable
from typing import Any

from typing_extensions import Buffer

from odradek.records.kernels.batches import BatchTable
from odradek.records.timestamps import Time

MOST_OBJECTS: int

class Record:
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int | None
    offset: int | None
    timestamp_type: str | None
    def __init__(
        self,
        key: Buffer | None = None,
        value: Buffer | None = None,
        headers: Iterable[tuple[str, Buffer | None]] = (),
        timestamp: Time | None = None,
        offset: int | None = None,
        timestamp_type: str | None = None,
    ) -> None: ...
    def __hash__(self) -> int: ...
    def _repr_html_(self) -> str: ...

def unchecked_record(
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
    timestamp: int | None,
    offset: int | None = None,
    timestamp_type: str | None = None,
) -> Record: ...
def are_records(items: list[Any]) -> bool: ...
def decode_records(
    data: Buffer,
    position: int,
    end: int,
    records_count: int,
    base_offset: int,
    base_timestamp: int,
    append_timestamp: int | None,
    timestamp_type: str | None,
    first: int = 0,
    most: int = ...,
    beyond: int = 0,
    resumes: bool = False,
) -> tuple[list[Record], int, str | None]: ...
def decode_run(
    table: BatchTable,
    number: int,
    data: Buffer,
    origin: int,
    next_offset: int,
    takes_transactions: bool,
    most: int,
) -> tuple[list[Record], int, int]: ...
