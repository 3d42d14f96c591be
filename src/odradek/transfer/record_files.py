"""Files of records in four formats, written and read as Arrow rows, with the names of headers as bytes.

    parquet   compressed with zstd; row groups of 32 MB at most, so that memory stays flat
    arrow     Arrow's IPC file format (Feather V2), compressed with zstd
    jsonl     a JSON object a line
    csv       with a heading

`odradek.transfer.record_text` has the form of a row in JSON lines and CSV.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from odradek.columnar.header_names import EXACT_SCHEMA, names_as_bytes, names_as_text
from odradek.columnar.record_schema import COLUMNS, SCHEMA
from odradek.columnar.row_files import ParquetWriter, RowWriter
from odradek.errors import FormatError, LogError
from odradek.inspection.record_json import CSV_HEADING
from odradek.transfer.record_text import RowLines, TextReader

_READ_ROWS = 1 << 14
_READ_BYTES = 4 << 20
_LINES = 1 << 12
_CSV_BLOCK_BYTES = 32 << 20
"""A record must fit into it: pyarrow parses CSV block by block."""


class _ParquetWriter(ParquetWriter):
    def write(self, rows: pa.RecordBatch) -> None:
        super().write(names_as_text(rows))


class _ArrowWriter(RowWriter):
    def __init__(self, out: BinaryIO) -> None:
        super().__init__(out)
        self._writer = pa.ipc.new_file(out, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd"))

    def write(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(names_as_text(rows))

    def finish(self) -> None:
        self._writer.close()


class _TextWriter(RowWriter):
    def __init__(self, out: BinaryIO, form: str, heading: bytes = b"") -> None:
        super().__init__(out)
        self._lines = RowLines(form)
        self._size = len(heading)
        out.write(heading)

    @property
    def size_bytes(self) -> int:
        return self._size

    def write(self, rows: pa.RecordBatch) -> None:
        for block in self._lines.lines(rows):
            self._size += self._out.write(block)

    def finish(self) -> None:
        """Do nothing: each line was written."""


_WRITERS: Mapping[str, Callable[[BinaryIO], RowWriter]] = {
    "parquet": _ParquetWriter,
    "arrow": _ArrowWriter,
    "jsonl": lambda out: _TextWriter(out, "jsonl"),
    "csv": lambda out: _TextWriter(out, "csv", CSV_HEADING),
}
FORMATS: tuple[str, ...] = tuple(_WRITERS)
"""The formats, which are also what the names of files end with."""

STREAMS = ("jsonl", "csv")
"""The formats that a pipe can hold."""


def row_writer(form: str, out: BinaryIO) -> RowWriter:
    """Return a writer of a format into a file."""
    return _WRITERS[form](out)


def format_of(path: Path) -> str | None:
    """Return the format that a file's name ends with, or None."""
    form = path.suffix.removeprefix(".")
    return form if form in _WRITERS else None


def read_rows(
    source: Path | BinaryIO, form: str, *, key_field: str | None = None, name: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, with the columns of `EXACT_SCHEMA`; one that the file lacks is null.

    Args:
        source: The file, or for the formats of `STREAMS` an open one.
        form: Its format.
        key_field: For JSON: see `TextReader`.
        name: What it is called in errors.

    Raises:
        FormatError: It is not of the format, or holds no records.
        OSError: It cannot be read.
    """
    where = str(source) if name is None else name
    if form in STREAMS:
        opened = source.open("rb") if isinstance(source, Path) else source
        try:
            yield from (_read_json if form == "jsonl" else _read_csv)(opened, TextReader(where, key_field), where)
        finally:
            if isinstance(source, Path):
                opened.close()
        return
    try:
        for batch in (_read_parquet if form == "parquet" else _read_arrow)(source):
            yield _normal(batch, where)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise FormatError(f"not records as {form}: {error}", path=where) from error


def _read_parquet(source: Any) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(source) as file:
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            rows = _READ_BYTES * group.num_rows // max(1, group.total_byte_size)
            yield from file.iter_batches(max(1, min(rows, _READ_ROWS)), row_groups=[number])


def _read_arrow(source: Any) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(source)) as file:
        reader = pa.ipc.open_file(file)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


def _normal(batch: pa.RecordBatch, where: str) -> pa.RecordBatch:
    names = batch.schema.names
    if not {"key", "value"} & set(names):
        raise FormatError("it has neither a column 'key' nor a column 'value'", path=where)
    for name in COLUMNS:
        if names.count(name) > 1:
            raise FormatError(f"it has more than one column '{name}'", path=where)
    if "headers" in names and (kind := str(batch.schema.field("headers").type)).startswith(
        ("list_view", "large_list_view")
    ):
        # Arrow's casts of these go wrong.
        raise FormatError(f"the column 'headers' is a {kind.partition('<')[0]}: write it as a list", path=where)
    is_exact = "headers" in names and _are_bytes(batch.schema.field("headers").type)
    schema = EXACT_SCHEMA if is_exact else SCHEMA
    arrays = [
        batch.column(field.name).cast(field.type) if field.name in names else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
    for name in ("partition", "offset", "timestamp"):
        least = pc.min(rows.column(name).cast(pa.int64())).as_py()
        if least is not None and least < 0:
            raise FormatError(f"a record's {name} is {least}", path=where)
    headers = pc.list_flatten(rows.column("headers"))
    if headers.null_count or headers.field("key").null_count:
        raise FormatError("a header has no name", path=where)
    return rows if is_exact else names_as_bytes(rows)


def _are_bytes(headers: pa.DataType) -> bool:
    """Whether headers of a file have names of bytes, as other programs may write them: these are what they are."""
    pair: Any = getattr(headers, "value_type", None)
    if not isinstance(pair, pa.StructType) or (place := pair.get_field_index("key")) < 0:
        return False
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    kind = pair.field(place).type
    named = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
    return any(of_kind(named) for of_kind in kinds)


def _read_json(file: BinaryIO, reader: TextReader, where: str) -> Iterator[pa.RecordBatch]:
    while lines := file.readlines(_READ_BYTES):
        yield reader.json_rows(lines)


def _read_csv(file: BinaryIO, reader: TextReader, where: str) -> Iterator[pa.RecordBatch]:
    first = file.readline()
    names = first.decode("utf-8", "replace").rstrip("\r\n").split(",")
    if not set(names) <= set(COLUMNS) or len(names) != len(set(names)) or not {"key", "value"} & set(names):
        raise LogError(f"{where}: the first line of CSV must name the columns, {CSV_HEADING.decode().strip()}")
    try:
        blocks = pacsv.open_csv(
            pa.PythonFile(file, "r"),
            read_options=pacsv.ReadOptions(column_names=names, block_size=_CSV_BLOCK_BYTES, use_threads=False),
            parse_options=pacsv.ParseOptions(newlines_in_values=True),
            convert_options=pacsv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        for block in blocks:
            columns = [
                block.column(names.index(name)).to_pylist() if name in names else itertools.repeat(None)
                for name in COLUMNS
            ]
            rows = zip(*columns, strict=False)
            while some := list(itertools.islice(rows, _LINES)):
                yield reader.csv_rows(some)
    except pa.ArrowInvalid as error:
        if "Empty CSV" not in str(error):
            raise FormatError(f"not CSV: {error}", path=where) from error
