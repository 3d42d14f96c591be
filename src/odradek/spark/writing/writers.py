"""The writers that Spark calls: in a planning process, in each task, and in a process that commits.

    planner     the options and columns are checked, and whether the target can be reached
    tasks       `write`: rows of a task as Arrow batches -> a message
    driver      `commit` or `abort`, with the messages of all tasks; None for a task that failed

They share nothing but the messages.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from odradek.errors import OptionError
from odradek.spark.reasons import reasons_first
from odradek.spark.writing.epochs import PREFIX, Epoch, current_epoch, running_task
from odradek.spark.writing.folder_write import FolderWrite
from odradek.spark.writing.write_options import WriteOptions

_TEXT_OR_BYTES = ("string", "binary")
_TYPES = {
    "topic": ("string",),
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}


def check_columns(schema: StructType, topic: str | None) -> None:
    """Check the columns of the rows that are to be written: those of Spark's own Kafka sink, by name and type.

        key string or binary | value string or binary | topic string | partition int |
        headers array<struct<key: string, value: binary>>

    Only `value` must be there, and `topic` if no option says it. Other columns are ignored. The
    messages are those of Spark's `KafkaWriter`.

    Args:
        schema: The columns.
        topic: The topic of every row; then a column of that name is ignored.

    Raises:
        OptionError: A column is missing, is there twice, or has another type.
    """
    if twice := [name for name, times in Counter(schema.names).items() if times > 1]:
        # Spark's own sink takes the first; no rows of such columns come here.
        raise OptionError(f"more than one column is called {twice[0]!r}: select one of them, or give it another name")
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    if topic is None and "topic" not in found:
        raise OptionError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    if "value" not in found:
        raise OptionError("Required attribute 'value' not found")
    for name, kinds in _TYPES.items():
        if name == "topic" and topic is not None:
            continue
        if name in found and found[name] not in kinds:
            raise OptionError(
                f"{name} attribute unsupported type {found[name]}. {name} must be a(n) {' or '.join(kinds)}"
            )


class Write(Protocol):
    """A write to a folder or to a broker. It is sent to tasks."""

    def check(self) -> None:
        """Find out whether rows can be written at all."""

    def write(self, batches: Iterable[pa.RecordBatch], task: int, epoch: Epoch | None = None) -> WriterCommitMessage:
        """Write the rows of a task; of a stream with transactions, for this batch."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit what the tasks of a batch query wrote."""

    def commit_epoch(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit a batch of a stream, or what an earlier run of it wrote."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Drop what the tasks of a batch query wrote."""

    def abort_epoch(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Drop what the tasks of a stream wrote, unless the batch is committed."""


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """Return what writes the rows of a batch query.

    Raises:
        OptionError: The options or the columns are wrong.
        OdradekError: The target cannot be written.
    """
    if overwrite:
        raise OptionError(
            "Save mode Overwrite not allowed for Kafka. Allowed save modes are Append and ErrorIfExists (default). "
            'Of a source in Python, Spark takes only Append: mode("append")'
        )
    return BatchWriter(_checked(WriteOptions.parse(options), schema))


def stream_writer(options: Mapping[str, str], schema: StructType) -> DataSourceStreamArrowWriter:
    """Return what writes the micro-batches of a stream.

    Raises:
        OptionError: The options or the columns are wrong.
    """
    parsed = WriteOptions.parse(options, streaming=True)
    return StreamWriter(_checked(parsed, schema, streaming=True), is_transactional=parsed.is_transactional)


def _checked(options: WriteOptions, schema: StructType, *, streaming: bool = False) -> Write:
    check_columns(schema, options.topic)
    transactional_id = (options.transactional_id or "") if options.is_transactional else None
    if options.path is not None and options.staging_path is not None:
        return FolderWrite(options.path, options.topic, options.codec, options.staging_path, transactional_id)
    try:
        from odradek.kafka.settings import BrokerSettings
        from odradek.spark.writing.broker_write import BrokerWrite
    except ImportError as error:
        raise OptionError(f"kafka.bootstrap.servers: needs the extra odradek[kafka] ({error})") from error
    if transactional_id == "" and not streaming:
        transactional_id = f"{PREFIX}-{uuid.uuid4()}"
    return BrokerWrite(BrokerSettings.parse(options.kafka), options.topic, options.codec, transactional_id)


@reasons_first
class BatchWriter(DataSourceArrowWriter):
    """Writes the rows of a batch query.

    Args:
        write: Where to.
    """

    def __init__(self, write: Write) -> None:
        write.check()
        self._write = write

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of the running task."""
        return self._write.write(iterator, running_task())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit what all tasks wrote."""
        self._write.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop what the tasks wrote."""
        self._write.abort(messages)


@reasons_first
class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream. Spark makes one object to write each batch, and another to commit it.

    Args:
        write: Where to.
        is_transactional: Whether each batch is written once, whatever happens.
    """

    def __init__(self, write: Write, *, is_transactional: bool) -> None:
        self._write = write
        self._is_transactional = is_transactional

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of the running task."""
        return self._write.write(iterator, running_task(), current_epoch() if self._is_transactional else None)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit what all tasks wrote, unless the target holds the batch already."""
        self._write.commit_epoch(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Drop what the tasks wrote."""
        self._write.abort_epoch(messages)
