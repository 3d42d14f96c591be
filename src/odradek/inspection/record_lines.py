"""Records as lines of text, JSON or CSV, at compiled speed.

    lines = RecordLines("jsonl", TopicPartition("events", 0))
    for table in scan_batches(data).tables():
        for block in lines.table(table, data):
            out.write(block)
    out.write(lines.rest())

The kernel writes the lines of a batch; control batches and records that are decoded go through Python, by
`odradek.inspection.record_json`, which writes the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from odradek.buffers import Buffer
from odradek.errors import FormatError
from odradek.inspection.record_json import Decode, head
from odradek.inspection.record_template import is_template, writer_of
from odradek.inspection.selection import NO_END, DumpSelection
from odradek.records import BatchHeader, Record
from odradek.records.batch import each_record
from odradek.records.kernels.batches import BatchTable
from odradek.records.kernels.lines import LineFormatter
from odradek.records.large_section import open_section
from odradek.records.scan import Status
from odradek.storage.names import TopicPartition

NO_LIMIT = NO_END


def _refuse(header: BatchHeader, error: FormatError) -> None:
    raise error


class RecordLines:
    """The records of one partition as lines. It belongs to one thread at a time.

    Args:
        form: `text`, `jsonl`, `csv` (without `CSV_HEADING`), or a template, whose records are written one by one.
        owner: The partition; None if it is not known.
        selection: Which records, by offset and time.
        base64: Whether every byte string is written as base64.
        control: Whether control records are written too.
        key: Only records with such a key: `*` is any text, `?` one character, each only itself after a backslash.
        limit: How many records at most.
        redact: What is left out: `key`, `value`, `headers`.
        decode: What replaces keys and values; such records are written one by one, and take no marks.
        json_values: Whether values are JSON, and written as they stand; `decode` is then for batches with others.
        report: Called with a batch whose records cannot be read, and why. Without it the error is raised.
        block_bytes: About how many bytes a block has.

    Attributes:
        limit: How many records more may be written.
    """

    def __init__(
        self,
        form: str,
        owner: TopicPartition | None,
        *,
        selection: DumpSelection | None = None,
        base64: bool = False,
        control: bool = False,
        key: str | None = None,
        limit: int = NO_LIMIT,
        redact: Collection[str] = (),
        decode: Decode | None = None,
        json_values: bool = False,
        report: Callable[[BatchHeader, FormatError], None] = _refuse,
        block_bytes: int = 1 << 20,
    ) -> None:
        selection = selection or DumpSelection()
        self._line = writer_of(form)(form, owner, base64=base64, redact=redact, decode=decode)
        if by_template := is_template(form):
            form, json_values = "text", False
        self._control = control
        self._report = report
        self._formatter = LineFormatter(
            open_section,
            form,
            head(form, owner).encode(),
            base64,
            *selection.bounds,
            (),
            None if key is None else key.encode("utf-8", "surrogateescape"),
            limit,
            redact,
            one_by_one=by_template or (decode is not None and not json_values),
            max_bytes=block_bytes,
            json_values=json_values,
        )

    @property
    def limit(self) -> int:
        """How many records more may be written."""
        return self._formatter.limit

    def takes(self, record: Record) -> bool:
        """Whether a record is selected, by its offset, time and key; it then counts towards the limit."""
        return record.offset is not None and bool(self._formatter.takes(record.offset, record.timestamp, record.key))

    def table(
        self, table: BatchTable, data: Buffer, origin: int = 0, *, marks: Buffer | None = None
    ) -> Iterator[Buffer]:
        """Yield the lines of batches whose headers were read, and whose checksums were verified.

        They come as blocks that are not changed any more. What does not fill a block stays until the next table, or
        `rest`.

        Args:
            table: The headers.
            data: The bytes.
            origin: The position that `data` starts at.
            marks: Only the records with these marks: int64, rising (see `odradek.records.kernels.search`). None: all.
        """
        formatter, index = self._formatter, 0
        while index < len(table):
            status, index = formatter.format(table, index, data, origin, marks)
            if status == Status.BAD_RECORD:
                yield from self._one_by_one(table.header(index), data, origin)
                index += 1
            if formatter.is_full:
                yield formatter.take()
            if status in (Status.OK, Status.END):
                return

    def _one_by_one(self, header: BatchHeader, data: Buffer, origin: int) -> Iterator[Buffer]:
        formatter = self._formatter
        if header.is_control and not self._control:
            return
        try:
            for record in each_record(data, header, origin=origin):
                if self.takes(record):
                    formatter.add(self._line(record, control=header.is_control))
                    if formatter.is_full:
                        yield formatter.take()
        except FormatError as error:
            self._report(header, error)

    def rest(self) -> Buffer:
        """Return the lines that are left."""
        return self._formatter.take()
