from typing_extensions import Buffer

from odradek.records.kernels.batches import BatchTable
from odradek.records.kernels.objects import Record

class RefusedRecord:
    index: int
    kind: int
    timestamp: int | None

class CheckedRecords:
    max_timestamp: int
    is_sequential: bool
    is_plain: bool
    refused_count: int
    refused: list[RefusedRecord]
    is_timestamp_refused: bool
    largest_bytes: int

class BrokenRecords:
    index: int
    position: int
    reason: str

def check_records(
    data: Buffer,
    position: int,
    end: int,
    records_count: int,
    base_timestamp: int,
    append_timestamp: int | None,
    stamp: bool,
    lowest: int,
    highest: int,
    key_required: bool,
) -> CheckedRecords | BrokenRecords: ...
def check_messages(data: Buffer, magic: int, check_crc: bool) -> tuple[int, int, int] | None: ...
def accept_batch(
    data: Buffer,
    max_bytes: int,
    lowest: int,
    highest: int,
    key_required: bool,
    base_offset: int,
    leader_epoch: int,
) -> BatchTable | None: ...
def judge_records(
    records: list[Record], is_append_time: bool, stamp: bool, lowest: int, highest: int, key_required: bool
) -> tuple[int, list[RefusedRecord], bool]: ...
