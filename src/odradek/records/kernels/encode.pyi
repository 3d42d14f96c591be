from typing_extensions import Buffer

from odradek.records.kernels.objects import Record
from odradek.records.kernels.rows import Rows

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
    def encode_all(self, rows: Rows, max_bytes: int) -> bytearray: ...
    def encode_plain(self, records: list[Record], timestamp: int, max_bytes: int) -> bytearray | None: ...

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
