from typing_extensions import Buffer

from odradek.records.header import BatchHeader
from odradek.records.kernels.objects import Record

def floor_entry(data: Buffer, count: int, entry_size: int, column: int, key: bytes) -> int: ...
def surrounding_positions(data: Buffer, count: int, relative_offset: int) -> tuple[int, int, int]: ...
def find_batch(
    data: Buffer,
    origin: int,
    position: int,
    end: int,
    lowest_offset: int,
    offset: int,
    decodes: bool,
    takes_transactions: bool,
    verifies: bool = True,
) -> Record | BatchHeader | int | None: ...
def find_record(
    data: Buffer, position: int, end: int, records_count: int, offset_delta: int
) -> tuple[int, int] | None: ...
def whole_records(data: Buffer, end: int, is_v2: bool, most: int) -> tuple[int, int, int]: ...
