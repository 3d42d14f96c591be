"""The rows that a topic sink forwards, to a broker or into a folder: which ones, in which order, and refused ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from odradek.errors import SinkError
from odradek.spark.pipeline.batch import Batch
from odradek.spark.pipeline.job import ORIGIN_COLUMNS, TopicSinkSpec
from odradek.spark.pipeline.lineage import origin_columns
from odradek.spark.pipeline.topic_routing import without_negatives
from odradek.storage.names import TopicPartition

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_DEAD_LETTER_HEADER = "__odradek.errors."
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
_TYPES = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array", "map"),
    "timestamp": ("timestamp", "timestamp_ntz", *_INTEGERS),
}


def forwarded(batch: Batch, spec: TopicSinkSpec, description: str, *, is_by_record: bool) -> DataFrame:
    """Return the rows that a topic sink forwards, with the columns that it needs.

    Args:
        batch: The batch.
        spec: The sink.
        description: What the sink is, for errors.
        is_by_record: Whether the view is known to have the source's own topic, partition and offset.

    Raises:
        SinkError: The view lacks a column.
    """
    frame = batch.spark.table(spec.view)
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


def by_partition(frame: DataFrame) -> DataFrame:
    """Bring the rows of each source partition into one task, in order, unless they already are."""
    nodes = Counter(_PLAN_NODE.findall(frame._jdf.queryExecution().executedPlan().toString()))
    if nodes["BatchScan"] == 1 and nodes.keys() <= _STAYING:
        # There is one split for each partition, and one task for each split.
        return frame
    return frame.repartition("topic", "partition").sortWithinPartitions(*ORIGIN_COLUMNS)


def dead_letters(rows: pa.RecordBatch, reasons: Sequence[str]) -> pa.RecordBatch:
    """Return records with where they come from, and why they were refused, as headers.

    What no record can hold is left out: a timestamp before 1970, a header that is null, the name of one that has none.
    """
    held = rows.column("headers").to_pylist() if "headers" in rows.schema.names else [None] * rows.num_rows
    origins = zip(*(rows.column(name).to_pylist() for name in ORIGIN_COLUMNS), reasons, strict=True)
    headers = [
        [
            *_headers(before or ()),
            *(
                {"key": _DEAD_LETTER_HEADER + name, "value": str(value).encode()}
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
