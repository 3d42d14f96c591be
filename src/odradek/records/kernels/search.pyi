from collections.abc import Iterable, Sequence

from typing_extensions import Buffer

from odradek.records.kernels.batches import BatchTable
from odradek.records.kernels.blocks import Block
from odradek.records.kernels.walk import BatchWalk, SectionOpener

class Texts:
    ends: Block
    data: Block
    count: int
    def __len__(self) -> int: ...
    def of(self, number: int) -> list[str]: ...
    def verdicts(self, bits: Buffer, offset: int) -> bytearray: ...

class RecordSearch(BatchWalk):
    def __init__(
        self,
        open_section: SectionOpener,
        literals: Iterable[tuple[bytes, bool]],
        in_key: bool,
        in_value: bool,
        in_headers: bool,
        inverts: bool = False,
        gathers: bool = False,
        ascii_only: bool = False,
        start_offset: int = 0,
        end_offset: int = ...,
        start_timestamp: int = ...,
        end_timestamp: int = ...,
        aborted: Sequence[tuple[int, int, int]] = (),
    ) -> None: ...
    def search(self, table: BatchTable, first: int, data: Buffer, origin: int = 0) -> tuple[int, int]: ...
    def take(self) -> tuple[Block, Texts | None]: ...

def chosen(marks: Buffer, verdicts: Buffer, inverts: bool) -> Block: ...
