from collections.abc import Iterable, Sequence

from typing_extensions import Buffer

from odradek.records.kernels.objects import Record

BytesColumn = tuple[str, int, Buffer | None, Buffer | None, Sequence[Buffer | None]]
Integers = tuple[int, Buffer]
Headers = tuple[int, BytesColumn, BytesColumn, tuple[str, int, Buffer | None, Buffer | None]]

class Rows:
    count: int

class ObjectRows(Rows):
    has_timestamps: bool
    def __init__(self, records: Iterable[Record], keep_offsets: bool, default_timestamp: int = -1) -> None: ...

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
