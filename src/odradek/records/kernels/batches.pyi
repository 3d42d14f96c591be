from typing_extensions import Buffer

from odradek.records.header import BatchHeader

class BatchTable:
    stop: int
    stop_position: int
    stop_offset: int
    def __len__(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    def header(self, index: int) -> BatchHeader: ...
    def headers(self) -> list[BatchHeader]: ...
    def trusted_end(self, end: int, trusted: int) -> tuple[int, int]: ...

def walk_batches(
    data: Buffer,
    position: int,
    end: int,
    limit: int,
    check_crc: bool,
    origin: int = 0,
    next_offset: int = -1,
    transactional: bool = False,
) -> BatchTable: ...
def number_batches(batches: bytearray, base_offset: int, leader_epoch: int) -> BatchTable: ...
