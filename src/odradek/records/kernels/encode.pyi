from collections.abc import Iterable, Sequence

from typing_extensions import Buffer

from odradek.records.kernels.objects import Record

BytesColumn = tuple[str, int, Buffer | None, Buffer | None, Sequence[Buffer | None]]
Integers = tuple[int, Buffer]
Headers = tuple[int, BytesColumn, BytesColumn, tuple[str, int, Buffer | None, Buffer | None]]

class Rows:
    count: int

class ObjectRows(Rows):
    def __init__(self, records: Iterable[Record], keep_offsets: bool) -> None: ...

class ColumnRows(Rows):
    def __init__(
        self,
        count: int,
        key: BytesColumn | None,
        value: BytesColumn | None,
        timestamps: Integers | None = None,
        offsets: Integers | None = None,
        headers: Headers | None = None,
    ) -> None: ...

class BatchEncoder:
    ended: int
    def __init__(
        self,
        attributes: int,
        append_timestamp: int,
        delete_horizon_ms: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        partition_leader_epoch: int,
    ) -> None: ...
    def encode(
        self,
        rows: Rows,
        start: int,
        base_offset: int | None,
        first_offset: int,
        max_batches: int,
        max_records: int,
        max_bytes: int,
        max_output: int,
    ) -> tuple[bytes, int, int]: ...

def seal(header: bytes, payload: Buffer) -> bytes: ...
def assign(
    data: Buffer,
    position: int,
    size_bytes: int,
    base_offset: int,
    partition_leader_epoch: int,
    attributes: int,
    max_timestamp: int,
) -> int: ...
