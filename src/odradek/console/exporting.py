"""Exports of records as JSON lines, CSV or Parquet, made in small parts, and without redacted content."""

from __future__ import annotations

import io
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from odradek.console.options import ConsoleOptions
from odradek.console.searching import Query, Search
from odradek.errors import LogError, TimestampOutOfRangeError
from odradek.inspection.decoding import Content, decode_of
from odradek.inspection.record_json import CSV_HEADING, LineWriter
from odradek.places.place import Place
from odradek.records import Record
from odradek.records.byte_text import text_or_base64
from odradek.records.timestamps import FIRST_MS, LAST_MS
from odradek.storage.names import TopicPartition

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

FORMATS = {
    "jsonl": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}
"""Maps each format, which is also the suffix of the file, to its media type."""

_BLOCK_BYTES = 1 << 16
_GROUP_BYTES = 8 << 20
_BATCH_BYTES = 1 << 20
_BATCH_ROWS = 1000
_STEP_S = 0.1


class Encoder(ABC):
    """Makes a file of records; one thread at a time."""

    @abstractmethod
    def add(self, name: TopicPartition, record: Record) -> None:
        """Add a record."""

    @abstractmethod
    def take(self) -> bytes:
        """Return the bytes that were added since the last call."""

    def finish(self) -> bytes:
        """Return the end of the file."""
        return self.take()

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """How many bytes `take` would return."""

    def drop(self) -> None:  # noqa: B027 - lines have nothing to do
        """Discard the rest of a file that is not finished."""


class _Lines(Encoder):
    def __init__(self, form: str, topic: str, options: ConsoleOptions) -> None:
        self._form = form
        self._redaction = options.redaction()
        self._decode = decode_of(topic, options.values, self._redaction.paths, lambda record, error: None)
        self._writers: dict[TopicPartition, LineWriter] = {}
        self._lines = [CSV_HEADING] if form == "csv" else []
        self._size = 0

    @property
    def size_bytes(self) -> int:
        return self._size

    def add(self, name: TopicPartition, record: Record) -> None:
        writer = self._writers.get(name)
        if writer is None:
            writer = LineWriter(self._form, name, redact=self._redaction.whole, decode=self._decode)
            self._writers[name] = writer
        self._lines.append(writer(record))
        self._size += len(self._lines[-1])

    def take(self) -> bytes:
        taken = b"".join(self._lines)
        self._lines, self._size = [], 0
        return taken


class _Grown(io.RawIOBase):
    """A file in memory whose new bytes are taken out."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0
        self.held = bytearray()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.taken + len(self.held)

    def write(self, data: ReadableBuffer) -> int:
        self.held += data
        return memoryview(data).nbytes


class _Parquet(Encoder):
    def __init__(self, options: ConsoleOptions) -> None:
        # Imported here: pyarrow takes half as much memory as the rest of the console.
        from odradek.columnar.row_files import ParquetWriter

        self._redaction = options.redaction()
        self._out = _Grown()
        self._writer = ParquetWriter(cast("BinaryIO", self._out), _GROUP_BYTES)
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        return len(self._out.held)

    def add(self, name: TopicPartition, record: Record) -> None:
        offset, timestamp = record.offset, record.timestamp
        if offset is not None and timestamp is not None and not FIRST_MS <= timestamp <= LAST_MS:
            raise TimestampOutOfRangeError(*name, offset, timestamp, option="export --far-timestamps")
        shown = self._redaction.row(name, record)
        key, value = _data(shown.key), _data(shown.value)
        headers = [{"key": _text(header), "value": data} for header, data in shown.headers]
        self._rows.append(
            {
                "topic": name.topic,
                "partition": name.partition,
                "offset": offset,
                "timestamp": timestamp,
                "timestamp_type": record.timestamp_type,
                "key": key,
                "value": value,
                "headers": headers,
            }
        )
        self._bytes += len(key or b"") + len(value or b"") + sum(len(data or b"") for _, data in shown.headers)
        if self._bytes >= _BATCH_BYTES or len(self._rows) >= _BATCH_ROWS:
            self._write()

    def _write(self) -> None:
        import pyarrow as pa

        from odradek.columnar.record_schema import SCHEMA

        self._writer.write(pa.RecordBatch.from_pylist(self._rows, schema=SCHEMA))
        self._rows, self._bytes = [], 0

    def take(self) -> bytes:
        taken = bytes(self._out.held)
        self._out.taken += len(taken)
        self._out.held.clear()
        return taken

    def finish(self) -> bytes:
        if self._rows:
            self._write()
        self._writer.finish()
        return self.take()

    def drop(self) -> None:
        self._writer.drop()


def _data(content: Content) -> bytes | None:
    return content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content


def _text(name: str) -> str:
    """Return the name of a header as files hold it."""
    return text_or_base64(name.encode("utf-8", "surrogateescape"))


def encoder_of(form: str, topic: str, options: ConsoleOptions) -> Encoder:
    """Return the encoder of a format.

    Raises:
        ModuleNotFoundError: The format needs a package that is not installed.
    """
    return _Parquet(options) if form == "parquet" else _Lines(form, topic, options)


def exported(place: Place, query: Query, options: ConsoleOptions, encoder: Encoder) -> Iterator[bytes]:
    """Yield the parts of a file with all records that a query finds; a part is empty while the search finds nothing.

    Raises:
        LogError: A record is damaged; the browser then reports that the file is not complete.
    """
    notes: list[str] = []
    sent_s = time.monotonic()
    try:
        for found in Search(place, query, options, notes.append).steps():
            if notes:
                yield encoder.take()
                raise LogError(f"the export ends at damage: {notes[0]}")
            if found is not None:
                encoder.add(*found)
                if encoder.size_bytes <= _BLOCK_BYTES:
                    continue
            elif time.monotonic() - sent_s < _STEP_S:
                continue
            sent_s = time.monotonic()
            yield encoder.take()
        yield encoder.finish()
    finally:
        encoder.drop()
