"""The rows that a topic sink forwards, to a broker or into a folder: which ones, in which order, and refused ones."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructType

from odradek.errors import SinkError
from odradek.offsets.store import Position
from odradek.places.writing import RefusedRow
from odradek.spark.pipeline.lineage import origin_columns
from odradek.spark.pipeline.sink import check_same_topic
from odradek.spark.pipeline.sink_specs import ORIGIN_COLUMNS, TopicSinkSpec
from odradek.spark.pipeline.topic_routing import SinkRouter, without_negatives
from odradek.spark.ranges import OffsetRange
from odradek.storage.names import TopicPartition

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
DEAD_LETTER_HEADER = "__odradek.errors."
CONTENT_COLUMNS = ("key", "value", "headers", "timestamp")
_PLAN_NODE = re.compile(r"^[\s:+|-]*(?:\*\(\d+\) )?(\w+)", re.MULTILINE)
"""The nodes of a plan as Spark prints it, one on each line: `   +- *(1) Project [topic#1]`."""
_STAYING = frozenset(
    {
        "ArrowEvalPython",
        "BatchEvalPython",
        "BatchScan",
        "Filter",
        "Generate",
        "InMemoryRelation",
        "InMemoryTableScan",
        "Project",
        "Sort",
    }
)
"""The nodes of a plan that leave each row in the task that read it, and in its order."""
_INTEGERS = ("integer", "long", "short", "byte")
_BYTES = ("binary", "string")
_TYPES = {
    "key": _BYTES,
    "value": _BYTES,
    "timestamp": ("timestamp", "timestamp_ntz", *_INTEGERS),
}


def forwarded(spark: SparkSession, spec: TopicSinkSpec, description: str, *, is_by_record: bool) -> DataFrame:
    """Return the rows that a topic sink forwards, with the columns that it needs.

    Args:
        spark: The session, in which the view is defined.
        spec: The sink.
        description: What the sink is, for errors.
        is_by_record: Whether the view is known to have the source's own topic, partition and offset.

    Raises:
        SinkError: The view lacks a column.
    """
    frame = spark.table(spec.view)
    missing = [name for name in spec.columns if name not in frame.columns]
    if missing:
        raise SinkError(f"{description}: the view {spec.view} has no column {missing[0]}")
    _check_types(frame.schema, spec, description)
    made = [] if is_by_record else sorted(set(ORIGIN_COLUMNS) - origin_columns(frame))
    if made:
        raise SinkError(
            f"{description}: the column {made[0]} of the view {spec.view} is not the source's, which the sink needs to "
            "know what it has forwarded: select the source's column, and give yours another name (which topic_column "
            "or partition_column can name)"
        )
    return frame.select(*spec.columns, *(name for name in ("key", "headers", "timestamp") if name in frame.columns))


def _check_types(schema: StructType, spec: TopicSinkSpec, description: str) -> None:
    wanted: dict[str, tuple[str, ...]] = dict(_TYPES)
    if spec.topic is None:
        wanted[spec.topic_column] = ("string",)
    if spec.partition_column is not None:
        wanted[spec.partition_column] = _INTEGERS
    for field in schema.fields:
        kinds = wanted.get(field.name, ())
        if kinds and field.dataType.typeName() not in (*kinds, "void"):
            raise SinkError(
                f"{description}: the column {field.name} of the view {spec.view} is {field.dataType.simpleString()}; "
                f"it must be {' or '.join(kinds)}"
            )
        if field.name == "headers" and not _are_headers(field.dataType):
            raise SinkError(
                f"{description}: the column headers of the view {spec.view} is {field.dataType.simpleString()}; it "
                "must be array<struct<key: string, value: binary>> or map<string, binary>"
            )


def _are_headers(kind: DataType) -> bool:
    if isinstance(kind, NullType):
        return True
    pair: dict[str, DataType] = {}
    if isinstance(kind, MapType):
        pair = {"key": kind.keyType, "value": kind.valueType}
    elif isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType):
        pair = {field.name: field.dataType for field in kind.elementType.fields}
    return pair.keys() == {"key", "value"} and all(part.typeName() in (*_BYTES, "void") for part in pair.values())


def by_partition(frame: DataFrame) -> DataFrame:
    """Bring the rows of each source partition into one task, in order, unless they already are."""
    nodes = Counter(plan_nodes(frame))
    if nodes["BatchScan"] == 1 and nodes.keys() <= _STAYING:
        # There is one split for each partition, and one task for each split.
        return frame
    return frame.repartition("topic", "partition").sortWithinPartitions(*ORIGIN_COLUMNS)


def plan_nodes(frame: DataFrame) -> list[str]:
    """Return the names of the nodes of a plan, each before those that it takes its rows from."""
    return _PLAN_NODE.findall(frame._jdf.queryExecution().executedPlan().toString())


def dead_letters(rows: pa.RecordBatch, reasons: Sequence[str]) -> pa.RecordBatch:
    """Return records with where they come from, and why they were refused, as headers.

    What no record can hold is dropped: a timestamp before 1970, a null header, and the name of a header without one.
    """
    held = rows.column("headers").to_pylist() if "headers" in rows.schema.names else [None] * rows.num_rows
    origins = zip(*(rows.column(name).to_pylist() for name in ORIGIN_COLUMNS), reasons, strict=True)
    headers = [
        [
            *_headers(before or ()),
            *(
                {"key": DEAD_LETTER_HEADER + name, "value": str(value).encode()}
                for name, value in zip((*ORIGIN_COLUMNS, "message"), origin, strict=True)
            ),
        ]
        for before, origin in zip(held, origins, strict=True)
    ]
    kept = [name for name in rows.schema.names if name not in (*ORIGIN_COLUMNS, "headers")]
    columns = [without_negatives(rows.column(name)) if name == "timestamp" else rows.column(name) for name in kept]
    return pa.record_batch([*columns, pa.array(headers, _HEADERS)], names=[*kept, "headers"])


def _headers(held: Iterable[Mapping[str, Any] | tuple[str, Any] | None]) -> Iterator[dict[str, Any]]:
    """Yield headers, of a list of structs or of a map."""
    for header in held:
        if header is not None:
            key, value = header if isinstance(header, tuple) else (header["key"], header["value"])
            yield {"key": key or "", "value": value}


def first_offset(
    spec: TopicSinkSpec,
    holder: str,
    wanted: OffsetRange,
    held: Position | None,
    topic_id: str | None,
    stored: int | None,
) -> int:
    """Return from which offset on a range is still to be forwarded.

    Args:
        spec: The sink.
        holder: A description of it, for errors.
        wanted: The range.
        held: The position that the sink's last transaction committed, with the offsets of letters as its note.
        topic_id: The current id of the source's topic.
        stored: Below which offset the offset store says that everything is done; None if it says nothing.

    Raises:
        SinkError: The position is of another topic of that name, or below what the offset store says is done.
    """
    source, start, _ = wanted
    if held is None:
        return start
    check_same_topic(holder, source, held, topic_id)
    # Records between the stored position and the range were lost, and failOnDataLoss=false skips them.
    stored = start if stored is None else stored
    if held.offset < stored:
        raise SinkError(
            f"{holder}: {source} is forwarded up to offset {held.offset}, and the offset store says that everything "
            f"below {stored} is done: set the store back to {held.offset}"
        )
    # Since a crash other records may fail, so what has a letter is known by more than a position.
    return start if spec.is_of_letters and held.note is not None else max(start, held.offset)


class Refusals:
    """What becomes of the rows of one source partition that no target takes, in a transaction.

    Args:
        spec: The sink.
        router: Where its rows go.
        source: The partition.
        write: Writes rows to a target in the transaction; returns those that it does not take.
        held: The position that the sink's last transaction committed, with the offsets of letters as its note.
        start_offset: Where the range begins.

    Attributes:
        refused: How many records the target refused, which were skipped or went to the dead letter topic.
        invalid: The offset of the first record that is an error, and why; the transaction is to be aborted then.
    """

    def __init__(
        self,
        spec: TopicSinkSpec,
        router: SinkRouter,
        source: TopicPartition,
        write: Callable[[TopicPartition, pa.RecordBatch], list[RefusedRow]],
        held: Position | None,
        start_offset: int,
    ) -> None:
        self._spec = spec
        self._router = router
        self._source = source
        self._write = write
        self._sent: set[int] | None = None
        if spec.is_of_letters:
            letters = parse_offsets(None if held is None else held.note)
            self._sent = {offset for offset in letters if offset >= start_offset}
        self.refused = 0
        self.invalid: tuple[int, str] | None = None

    def unsent(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that have no letter yet; from now on they have one."""
        if self._sent is not None:
            rows = without(rows, self._sent)
            self._sent.update(rows.column("offset").to_pylist())
        return rows

    def refuse(self, rows: pa.RecordBatch, reasons: Mapping[int, str]) -> None:
        """Handle rows that no target takes as the job says.

        Args:
            rows: The rows.
            reasons: The numbers of those that are refused, and why.
        """
        if not reasons:
            return
        offsets, numbers = rows.column("offset"), sorted(reasons)
        topic = self._spec.dead_letter_topic
        if self._spec.on_invalid == "error":
            self._fail(offsets[numbers[0]].as_py(), reasons[numbers[0]])
            return
        if topic is not None:
            letters = dead_letters(rows.take(pa.array(numbers, pa.int64())), [reasons[row] for row in numbers])
            for row, reason in self._write(self._router.same_partition(topic, self._source.partition), letters):
                told = f"{reasons[numbers[row]]}; and the topic {topic} does not take it: {reason}"
                self._fail(offsets[numbers[row]].as_py(), told)
                return
        self.refused += len(reasons)

    def _fail(self, offset: int, reason: str) -> None:
        found = (offset, reason)
        self.invalid = min(found, self.invalid or found)

    @property
    def letters(self) -> str | None:
        """The offsets of records that have a letter, as they are kept with the position."""
        return None if self._sent is None else format_offsets(self._sent)


def not_taken(holder: str, invalid: Mapping[TopicPartition, tuple[int, str]]) -> SinkError:
    """Return the error for the first record of each source partition that is one."""
    source, (offset, reason) = min(invalid.items())
    return SinkError(
        f"{holder} does not take the record at offset {offset} of {source}: {reason}. What was before it is forwarded. "
        'Change the topic, or say what becomes of such records: on_invalid = "skip" or "dead-letter" (of dead letters '
        "that are sent back: --skip-invalid)"
    )


def format_offsets(offsets: Collection[int]) -> str:
    """Return offsets as short text: a broker takes 4,096 characters with the position that they are kept beside.

    The gaps between them are packed with their first bytes first, which are mostly zero: 3,800 characters for a
    thousand offsets among a billion.
    """
    gaps = [end - start for start, end in pairwise([0, *sorted(offsets)])]
    data = struct.pack(f">{len(gaps)}Q", *gaps)
    return base64.b85encode(zlib.compress(b"".join(data[at::8] for at in range(8)), 9)).decode()


def parse_offsets(text: str | None) -> Iterator[int]:
    """Yield the offsets of such text; none of None."""
    data = zlib.decompress(base64.b85decode(text)) if text else b""
    count = len(data) // 8
    gaps = zip(*(data[at * count : (at + 1) * count] for at in range(8)), strict=True)
    return accumulate(int.from_bytes(gap, "big") for gap in gaps)


def without(rows: pa.RecordBatch, offsets: Collection[int]) -> pa.RecordBatch:
    """Return the rows that are not at these offsets."""
    return rows.filter(pc.invert(pc.is_in(rows.column("offset"), pa.array(offsets, pa.int64()))))


def source_runs(batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Cut a batch of rows wherever the source partition changes."""
    if not batch.num_rows:
        return
    topics, partitions = batch.column("topic"), batch.column("partition")
    if topics.null_count or partitions.null_count or batch.column("offset").null_count:
        raise SinkError("a row has no topic, partition or offset of the source: an outer join made it, say")
    start = 0
    while start < batch.num_rows:
        name = TopicPartition(topics[start].as_py(), partitions[start].as_py())
        rest = batch.slice(start)
        same = pc.and_(pc.equal(rest.column("topic"), name.topic), pc.equal(rest.column("partition"), name.partition))
        border = pc.index(same, False).as_py()
        length = rest.num_rows if border < 0 else border
        yield name, batch.slice(start, length)
        start += length
