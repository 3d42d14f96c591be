"""The sinks of a job: Parquet, a table on the terminal, topics, and those that a function or Spark writes.

    [[sink]]                             [[sink]]
    type = "python"                      type = "jdbc"                      # or "delta", "iceberg"
    function = "ledger:store"            url = "jdbc:postgresql://host/db"
    positions = "ledger:positions"       table = "sales"
    view = "sales"                       view = "sales"

On the left a sink of a Python function, on the right one of Spark: their keys are read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from odradek.errors import JobError
from odradek.spark.pipeline.folder_uri import FolderUri
from odradek.spark.pipeline.functions import FunctionName
from odradek.spark.pipeline.job_table import Table
from odradek.spark.pipeline.value_format import RECORDS_VIEW
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC

LETTERS_VIEW = "odradek_dead_letters"
"""The view of the records that are sent to the dead letters."""
IS_INTERNAL = "is internal, and only coordinators write to it"
"""Why no sink writes to a topic, after its name."""
ORIGIN_COLUMNS = ("topic", "partition", "offset")
"""The columns that say which record of the source a row comes from."""
TOPIC_SINK_COLUMNS = (*ORIGIN_COLUMNS, "value")
"""The columns that a topic sink needs in its view."""
SPARK_SINKS = ("jdbc", "delta", "iceberg")


@dataclass(frozen=True)
class ParquetSinkSpec:
    """A folder of Parquet files.

    Attributes:
        path: The folder, of this machine or of another file system.
        view: The view that is written.
        name: The name of a view over all that the folder holds, for the sinks after it.
        merge: A query over `name`, which is then what the folder holds and the view's new rows together: its result
            replaces what the folder holds. So a running total costs what its result takes, not what was ever read.
        partition_by: The columns whose values are folders, the outermost first. `date` of a view without such a column
            is the date of its `timestamp` in UTC.
        compression: The codec of Parquet's pages.
        on_held: What to do if the folder holds records of a partition for which the offset store has no position:
            `error`, or `skip` what is held.
    """

    path: Path | FolderUri
    view: str = RECORDS_VIEW
    name: str | None = None
    merge: str | None = None
    partition_by: tuple[str, ...] = ()
    compression: str = "zstd"
    on_held: str = "error"

    @property
    def description(self) -> str:
        """What the sink is, for errors."""
        return f"parquet {self.path}"


@dataclass(frozen=True)
class ConsoleSinkSpec:
    """A table on the terminal.

    Attributes:
        sql: The query whose rows are shown.
        rows: The most rows that are shown.
        title: The title of the table.
    """

    sql: str
    rows: int = 20
    title: str | None = None


@dataclass(frozen=True)
class TopicSinkSpec:
    """A topic of a broker or of a log directory, or several.

    Attributes:
        topic: The target topic; it must exist. None if a column of the view says it for each record.
        kafka: Kafka's settings for the broker, including `bootstrap.servers`; empty for a log directory.
        view: The view that is forwarded. It needs the source's `topic`, `partition` and `offset`, and `value`; it may
            have `key`, `headers` and `timestamp`.
        partition_by: `source`: the source's partition, modulo the number of the target's partitions; `key`: as Kafka's
            producer does.
        compression: The codec of the batches.
        transactional_id: The prefix of the transactional ids, and of the groups of the same names that hold the
            positions; by default the job's name and the topic, or `*` if a column says the topic. No other sink of any
            job may use it.
        on_held: What to do if transactions under these ids have forwarded records of a partition for which the offset
            store has no position: `error`, `skip` them, or `replay` them.
        on_invalid: What to do with a record that the target does not take for its size, its timestamp or a missing key:
            `error`, which forwards those before it; `skip` it; or `dead-letter`, which sends it to another topic.
        dead_letter_topic: That topic, of the same broker.
        topic_column: The column of the view that says the target topic; by default the source's topic.
        partition_column: The column of the view that says the target partition; where it is null, `partition_by` does.
        position_topic: If a column says the topic: the topic under which the positions are kept.
        path: The log directory; None for a broker.
    """

    topic: str | None
    kafka: Mapping[str, str]
    view: str = RECORDS_VIEW
    partition_by: str = "source"
    compression: str = "none"
    transactional_id: str | None = None
    on_held: str = "error"
    on_invalid: str = "error"
    dead_letter_topic: str | None = None
    topic_column: str = "topic"
    partition_column: str | None = None
    position_topic: str = CONSUMER_OFFSETS_TOPIC
    path: Path | None = None

    @property
    def is_of_letters(self) -> bool:
        """Whether it takes the job's dead letters."""
        return self.view == LETTERS_VIEW

    @property
    def topics(self) -> str:
        """Where its rows go, for people."""
        return f"topic {self.topic}" if self.topic is not None else f"topics by {self.topic_column}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that its view must have."""
        routing = (self.topic_column if self.topic is None else None, self.partition_column)
        return (*TOPIC_SINK_COLUMNS, *(name for name in routing if name and name not in TOPIC_SINK_COLUMNS))


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
    view: str = RECORDS_VIEW
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


SinkSpec = ParquetSinkSpec | ConsoleSinkSpec | TopicSinkSpec | PythonSinkSpec | SparkSinkSpec


def read_python_sink(entry: Table, folder: Path) -> PythonSinkSpec:
    """Read a sink of type `python`.

    Raises:
        JobError: A key is wrong.
    """
    function = FunctionName.parse(entry.need("function", str), entry.key("function"), folder)
    positions = entry.take("positions", str)
    spec = entry.fill(
        PythonSinkSpec,
        function=function,
        positions=None if positions is None else FunctionName.parse(positions, entry.key("positions"), folder),
    )
    if spec.on_held not in ("error", "skip"):
        raise JobError(f"error or skip, not {spec.on_held!r}", entry.key("on_held"))
    return spec


def read_spark_sink(entry: Table, kind: str, folder: Path) -> SparkSinkSpec:
    """Read a sink that Spark writes.

    Raises:
        JobError: A key is wrong.
    """
    view = entry.take("view", str, RECORDS_VIEW)
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
