"""Sinks that a function or Spark writes: their keys in a job's file.

[[sink]]                             [[sink]]
type = "python"                      type = "jdbc"                      # or "delta", "iceberg"
function = "ledger:store"            url = "jdbc:postgresql://host/db"
positions = "ledger:positions"       table = "sales"
view = "sales"                       view = "sales"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from odradek.errors import JobError
from odradek.spark.pipeline.functions import FunctionName
from odradek.spark.pipeline.job_table import Table

SPARK_SINKS = ("jdbc", "delta", "iceberg")


@dataclass(frozen=True)
class PythonSinkSpec:
    """A Python function that stores the rows of each batch.

    Attributes:
        function: Called with the view's DataFrame and a `SinkBatch`. What it stores must be durable when it returns.
        view: The view.
        positions: Returns what the function has stored: the next offset of each partition, by (topic, partition).
            With it every record is given once; without it, a batch that was interrupted is given again.
        on_held: What to do if it has stored records of a partition for which the offset store has no position: `error`,
            or `skip` them.
    """

    function: FunctionName
    view: str
    positions: FunctionName | None = None
    on_held: str = "error"


@dataclass(frozen=True)
class SparkSinkSpec:
    """A table that Spark appends to, at least once: a batch that was interrupted is appended again.

    Attributes:
        format: `jdbc`, `delta` or `iceberg`.
        view: The view.
        table: The table; None for a folder.
        path: The folder of a Delta table; None for a table of the catalog.
        options: The options of Spark's writer.
    """

    format: str
    view: str
    table: str | None = None
    path: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


def read_python_sink(entry: Table, folder: Path, default_view: str) -> PythonSinkSpec:
    """Read a sink of type `python`.

    Raises:
        JobError: A key is wrong.
    """
    function = FunctionName.parse(entry.need("function", str), entry.key("function"), folder)
    positions = entry.take("positions", str)
    on_held = entry.take("on_held", str, "error")
    if on_held not in ("error", "skip"):
        raise JobError(f"error or skip, not {on_held!r}", entry.key("on_held"))
    return PythonSinkSpec(
        function,
        entry.take("view", str, default_view),
        None if positions is None else FunctionName.parse(positions, entry.key("positions"), folder),
        on_held,
    )


def read_spark_sink(entry: Table, kind: str, folder: Path, default_view: str) -> SparkSinkSpec:
    """Read a sink that Spark writes.

    Raises:
        JobError: A key is wrong.
    """
    view = entry.take("view", str, default_view)
    if kind == "jdbc":
        url, table = entry.need("url", str), entry.need("table", str)
        if not url.startswith("jdbc:"):
            raise JobError(f"jdbc:DATABASE://HOST/..., not {url!r}", entry.key("url"))
        return SparkSinkSpec(kind, view, table, None, {"url": url, **entry.table("options").texts()})
    if kind == "iceberg":
        return SparkSinkSpec(kind, view, entry.need("table", str), None, entry.table("options").texts())
    table, path = entry.take("table", str), entry.take("path", str)
    if (table is None) is (path is None):
        raise JobError("give one of table and path", entry.key("table"))
    if path is not None and "://" not in path:
        path = str((folder / path).resolve())
    return SparkSinkSpec(kind, view, table, path, entry.table("options").texts())
