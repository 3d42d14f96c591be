from collections.abc import Collection, Sequence

from typing_extensions import Buffer

from odradek.records.kernels.batches import BatchTable
from odradek.records.kernels.blocks import Block
from odradek.records.kernels.rows import Rows
from odradek.records.kernels.walk import BatchWalk, SectionOpener

def json_line(data: Buffer) -> str | None: ...

class LineFormatter(BatchWalk):
    limit: int
    is_full: bool
    def __init__(
        self,
        open_section: SectionOpener,
        form: str,
        head: bytes,
        base64: bool = False,
        start_offset: int = 0,
        end_offset: int = ...,
        start_timestamp: int = ...,
        end_timestamp: int = ...,
        aborted: Sequence[tuple[int, int, int]] = (),
        key_pattern: bytes | None = None,
        limit: int = ...,
        redact: Collection[str] = (),
        is_deep: bool = True,
        prints_data: bool = True,
        skips_metadata: bool = False,
        one_by_one: bool = False,
        max_bytes: int = 1 << 20,
        json_values: bool = False,
    ) -> None: ...
    def format(
        self, table: BatchTable, first: int, data: Buffer, origin: int = 0, marks: Buffer | None = None
    ) -> tuple[int, int]: ...
    def format_rows(self, rows: Rows, kinds: Buffer, first: int) -> int: ...
    def takes(self, offset: int, timestamp: int | None, key: bytes | None) -> bool: ...
    def add(self, line: bytes) -> None: ...
    def take(self) -> Block: ...
