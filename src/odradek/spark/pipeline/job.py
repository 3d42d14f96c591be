"""A job: what a pipeline reads, the SQL over it, the sinks, and where the reading position is kept.

    name = "wordcount"

    [source]                                    # the options of format("odradek")
    path = "data"
    subscribe = "texts"

    [offsets]
    store = "file:offsets.json"                 # or kafka:// zookeeper:// redis://
    reset = "earliest"                          # where a group without positions starts

    [spark]
    master = "local[*]"

    [[transform]]                               # views, each over those before it; `records` is what was read
    view = "words"
    sql = "SELECT topic, partition, offset, explode(split(CAST(value AS STRING), ' ')) AS word FROM records"

    [[sink]]
    type = "parquet"
    view = "words"
    path = "words"

Paths are relative to the file. An unknown key is an error.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.arguments import checked_path
from odradek.errors import FormatError, JobError, OptionError
from odradek.records.compression import CODECS
from odradek.records.timestamps import bound_ms
from odradek.spark.options import SourceOptions, nearest, parse_duration_ms
from odradek.spark.pipeline.functions import FunctionName
from odradek.spark.pipeline.job_lines import JobLines
from odradek.spark.pipeline.job_table import Table
from odradek.spark.pipeline.sink_specs import (
    SPARK_SINKS,
    PythonSinkSpec,
    SparkSinkSpec,
    read_python_sink,
    read_spark_sink,
)
from odradek.spark.pipeline.value_format import ValueFormat, value_format
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC
from odradek.storage.regular_files import read_file

RECORDS_VIEW = "records"
ORIGIN_COLUMNS = ("topic", "partition", "offset")
"""The columns that say which record of the source a row comes from."""
TOPIC_SINK_COLUMNS = (*ORIGIN_COLUMNS, "value")
"""The columns that a topic sink needs in its view."""
PARTITION_COLUMNS = {"topic": "topic", "date": "timestamp"}
"""What the folders of a Parquet sink may be partitioned by, and the column that each needs."""
DEFAULT_NAME = "odradek"
_MAX_PORT = 65535
_LIMIT_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PARQUET_CODECS = ("none", "snappy", "gzip", "brotli", "lz4", "zstd")
_PLANNED_HERE = ("startingoffsets", "endingoffsets", "startingtimestamp", "endingtimestamp")


@dataclass(frozen=True)
class Transform:
    """A view: a name for what a query, or a Python function, gives.

    Attributes:
        view: The name.
        sql: The query; None if there is a function.
        python: The function: it takes a DataFrame, and returns one.
        input: The view that the function is given.
    """

    view: str
    sql: str | None = None
    python: FunctionName | None = None
    input: str = RECORDS_VIEW


@dataclass(frozen=True)
class Udf:
    """A Python function for SQL.

    Attributes:
        name: Its name in SQL.
        function: The function: a plain one, or one that is decorated with `udf`, `pandas_udf` or `arrow_udf`.
        returns: What it returns, as Spark's SQL writes types; None if the function says so itself.
    """

    name: str
    function: FunctionName
    returns: str | None = None


@dataclass(frozen=True)
class ParquetSinkSpec:
    """A folder of Parquet files.

    Attributes:
        path: The folder.
        view: The view that is written.
        name: The name of a view over all that the folder holds, for the sinks after it.
        merge: A query over `name`, which is then what the folder holds and the view's new rows together: its result
            replaces what the folder holds. So a running total costs what its result takes, not what was ever read.
        partition_by: `topic`, `date` or both, as folders; the view must have `topic` and `timestamp` respectively.
        compression: The codec of Parquet's pages.
        on_held: What to do if the folder holds records of a partition for which the offset store has no position:
            `error`, or `skip` what is held.
    """

    path: Path
    view: str
    name: str | None = None
    merge: str | None = None
    partition_by: tuple[str, ...] = ()
    compression: str = "zstd"
    on_held: str = "error"


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
    def columns(self) -> tuple[str, ...]:
        """The columns that its view must have."""
        routing = (self.topic_column if self.topic is None else None, self.partition_column)
        return (*TOPIC_SINK_COLUMNS, *(name for name in routing if name and name not in TOPIC_SINK_COLUMNS))


SinkSpec = ParquetSinkSpec | ConsoleSinkSpec | TopicSinkSpec | PythonSinkSpec | SparkSinkSpec


@dataclass(frozen=True)
class Job:
    """The description of a pipeline.

    Attributes:
        source: The options of the source, by name.
        offset_store: The address of the offset store.
        sinks: Where the output goes, in order.
        name: The job's name in Spark.
        transforms: The views, in order.
        offset_store_options: More options of the store, such as passwords.
        reset: Where a group without positions starts: `earliest`, `latest`, `none` (an error) or a time in ms.
        trigger_interval_ms: How often a batch starts; None reads what is there now, and then ends.
        max_offsets_per_batch: The most offsets of one batch.
        spark_master: Spark's master.
        spark_conf: Spark's settings.
        metrics: The host and the port at which a run serves `/metrics`; None for nowhere.
        udfs: Python functions for SQL.
        value: What the source's values are, for a column of typed values; None for none.
    """

    source: Mapping[str, str]
    offset_store: str
    sinks: tuple[SinkSpec, ...]
    name: str = DEFAULT_NAME
    transforms: tuple[Transform, ...] = ()
    offset_store_options: Mapping[str, Any] = field(default_factory=dict)
    reset: str | int = "earliest"
    trigger_interval_ms: int | None = None
    max_offsets_per_batch: int | None = None
    spark_master: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    metrics: tuple[str, int] | None = None
    udfs: tuple[Udf, ...] = ()
    value: ValueFormat | None = None

    def __post_init__(self) -> None:
        if not self.sinks:
            raise JobError("a job without a sink does nothing", "sink")
        if not (type(self.reset) is int and self.reset >= 0) and self.reset not in ("earliest", "latest", "none"):
            raise JobError(f"earliest, latest, none or a time in ms, not {self.reset!r}", "offsets.reset")
        if isinstance(self.reset, int):
            bound_ms(self.reset)  # warns of seconds
        views = {RECORDS_VIEW}
        for number, transform in enumerate(self.transforms):
            if _is_taken(transform.view, views) or not _NAME.fullmatch(transform.view):
                raise JobError(f"{transform.view!r} is not a new name of a view", f"transform[{number}].view")
            if (transform.sql is None) is (transform.python is None):
                raise JobError("give one of sql and python", f"transform[{number}]")
            if transform.input not in views:
                reason = f"there is no view {transform.input!r}{nearest(transform.input, views)}"
                raise JobError(reason, f"transform[{number}].input")
            views.add(transform.view)
        names: set[str] = set()
        for number, udf in enumerate(self.udfs):
            if udf.name.lower() in names or not _NAME.fullmatch(udf.name):
                raise JobError(f"{udf.name!r} is not a new name of a function", f"udf[{number}].name")
            names.add(udf.name.lower())
        for number, sink in enumerate(self.sinks):
            _check_sink(sink, f"sink[{number}]", views)
        self._check_identities()
        if self.max_offsets_per_batch is not None and self.max_offsets_per_batch < 1:
            raise JobError(f"at least 1, not {self.max_offsets_per_batch}", "trigger.max_offsets_per_batch")
        if self.trigger_interval_ms is not None and self.trigger_interval_ms < 1:
            raise JobError("at least 1ms", "trigger.interval")
        self.source_options()

    def _check_identities(self) -> None:
        """Refuse sinks that would mistake each other's records for their own."""
        ids: set[str] = set()
        paths: list[Path] = []
        for sink in self.sinks:
            if isinstance(sink, TopicSinkSpec):
                if sink.transactional_id is None and self.name == DEFAULT_NAME:
                    raise JobError(
                        f"a job that forwards to a topic needs a name of its own, not {DEFAULT_NAME!r}: its "
                        "transactions go by it",
                        "name",
                    )
                name = self.transactional_id(sink)
                if name in ids:
                    raise JobError(
                        f"sink: two sinks forward under the transactional id {name!r}: give one of them another "
                        "transactional_id"
                    )
                ids.add(name)
            elif isinstance(sink, ParquetSinkSpec):
                for path in paths:
                    if sink.path == path or sink.path in path.parents or path in sink.path.parents:
                        raise JobError(f"sink: {sink.path} and {path}: two sinks cannot write to one folder")
                paths.append(sink.path)

    def transactional_id(self, sink: TopicSinkSpec) -> str:
        """Return the prefix of a sink's transactional ids."""
        # No topic is called `*`.
        return sink.transactional_id or f"{self.name}-{sink.topic or '*'}"

    def source_options(self) -> SourceOptions:
        """Check the options of the source.

        Raises:
            JobError: An option is wrong, or only the pipeline may set it.
        """
        for name in self.source:
            if name.lower().startswith(_PLANNED_HERE):
                raise JobError("the offset store says where to start; see offsets.reset", f"source.{name}")
        try:
            return SourceOptions.parse(self.source)
        except OptionError as error:
            # The message names the option, if the error is about one.
            named = next((name for name in self.source if re.search(rf"(?i)\b{re.escape(name)}\b", str(error))), None)
            raise JobError(str(error), f"source.{named}" if named else "source") from error

    @classmethod
    def read(cls, path: Path) -> Job:
        """Read a job from a TOML file.

        Raises:
            JobError: The file cannot be read, or does not describe a job that can run.
        """
        try:
            text = read_job(path)
        except OSError as error:
            raise JobError(f"{path}: {error.strerror}") from error
        except FormatError as error:
            raise JobError(f"{path}: {error.reason}") from error
        try:
            return cls.parse(text, path.absolute().parent)
        except JobError as error:
            raise located(path, text, error) from error

    @classmethod
    def parse(cls, text: str, folder: Path, unknown: list[JobError] | None = None) -> Job:
        """Read a job from the text of a TOML file.

        Args:
            text: The text.
            folder: What its paths are relative to.
            unknown: Collects the errors of unknown keys; without it the first one is raised.

        Raises:
            JobError: The text does not describe a job that can run.
        """
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise JobError(str(error)) from error
        except RecursionError as error:
            raise JobError("nested too deeply to be read") from error
        return _from_table(Table("", content, unknown), folder)


def located(path: Path, text: str, error: JobError) -> JobError:
    """Return the error of a job with its file, and the line of its key.

    Args:
        path: The file.
        text: What the file holds.
        error: The error.
    """
    lines = JobLines(text)
    line = None if error.key is None else lines.line(error.key)
    in_query = re.search(r"\bline (\d+),? pos(?:ition)? \d+", error.reason)
    if error.key is not None and in_query is not None:
        # Spark counts the lines of the query.
        line = lines.text_line(error.key, int(in_query[1]))
    return JobError(f"{path}: line {line}: {error}" if line else f"{path}: {error}")


def read_job(path: Path) -> str:
    """Return the text of a job's file.

    Raises:
        FormatError: The path is not a file, or the file is far too long, or not UTF-8.
        OSError: The file cannot be read.
    """
    try:
        return read_file(path, _LIMIT_BYTES).decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"this is not UTF-8: {error.reason}", path=path, position=error.start) from error


def _is_taken(name: str, views: set[str]) -> bool:
    # Spark's names are not case-sensitive.
    return name.lower() in {view.lower() for view in views}


def _check_sink(sink: SinkSpec, key: str, views: set[str]) -> None:
    """Fail if a sink contradicts itself or the views before it; add its own view, if it has one, to those."""
    if isinstance(sink, ConsoleSinkSpec):
        return
    if sink.view not in views:
        raise JobError(f"there is no view {sink.view!r}{nearest(sink.view, views)}", f"{key}.view")
    if isinstance(sink, PythonSinkSpec | SparkSinkSpec):
        return
    if isinstance(sink, TopicSinkSpec):
        if sink.on_held not in ("error", "skip", "replay"):
            raise JobError(f"error, skip or replay, not {sink.on_held!r}", f"{key}.on_held")
        if sink.on_invalid not in ("error", "skip", "dead-letter"):
            raise JobError(f"error, skip or dead-letter, not {sink.on_invalid!r}", f"{key}.on_invalid")
        if (sink.dead_letter_topic is None) is (sink.on_invalid == "dead-letter"):
            raise JobError('a topic for on_invalid = "dead-letter", and for nothing else', f"{key}.dead_letter_topic")
        if sink.partition_by not in ("source", "key"):
            raise JobError(f"source or key, not {sink.partition_by!r}", f"{key}.partition_by")
        if sink.compression not in CODECS:
            raise JobError(f"one of Kafka's codecs, not {sink.compression!r}", f"{key}.compression")
        return
    if sink.on_held not in ("error", "skip"):
        raise JobError(f"error or skip, not {sink.on_held!r}; to replay, give another path", f"{key}.on_held")
    if sink.name is not None and (_is_taken(sink.name, views) or not _NAME.fullmatch(sink.name)):
        raise JobError(f"{sink.name!r} is not a new name of a view", f"{key}.name")
    if sink.merge is not None and sink.name is None:
        raise JobError("merge is a query over the sink's name: give it one", f"{key}.name")
    if sink.merge is not None and sink.partition_by:
        raise JobError("a folder whose rows are merged has no partitions", f"{key}.partition_by")
    if sink.compression.lower() not in _PARQUET_CODECS:
        raise JobError(f"one of {', '.join(_PARQUET_CODECS)}, not {sink.compression!r}", f"{key}.compression")
    wrong = [column for column in sink.partition_by if column not in PARTITION_COLUMNS]
    if wrong:
        raise JobError(f"topic and date, not {wrong[0]!r}", f"{key}.partition_by")


def _from_table(root: Table, folder: Path) -> Job:
    source_table = root.table("source")
    value = value_format(source_table.table("value"), folder)
    source = source_table.texts()
    if "path" in source:
        source["path"] = str(folder / _checked(source["path"], "source.path"))
    offsets = root.table("offsets")
    store = offsets.need("store", str)
    if store.startswith("file:") and not store.startswith("file:/"):
        store = (folder / _checked(store.removeprefix("file:"), "offsets.store")).resolve().as_uri()
    reset = offsets.take("reset", object, "earliest")
    trigger = root.table("trigger")
    spark = root.table("spark")
    metrics = root.table("metrics")
    transforms = []
    for entry in root.tables("transform"):
        view, sql, python = entry.need("view", str), entry.take("sql", str), _function(entry, "python", folder)
        given = {} if python is None else {"input": entry.take("input", str, RECORDS_VIEW)}
        transforms.append(Transform(view, sql, python, **given))
        entry.end()
    udfs = []
    for entry in root.tables("udf"):
        function = FunctionName.parse(entry.need("function", str), entry.key("function"), folder)
        udfs.append(Udf(entry.need("name", str), function, entry.take("returns", str)))
        entry.end()
    job = Job(
        name=root.take("name", str, DEFAULT_NAME),
        source=source,
        offset_store=store,
        offset_store_options=offsets.take("options", dict, {}),
        reset=reset,
        transforms=tuple(transforms),
        sinks=tuple(_sink(entry, folder) for entry in root.tables("sink")),
        trigger_interval_ms=_interval_ms(trigger.take("interval", str)),
        max_offsets_per_batch=trigger.take("max_offsets_per_batch", int),
        spark_master=spark.take("master", str),
        spark_conf=spark.table("conf").texts(),
        metrics=_host_port(metrics.take("listen", str), metrics.key("listen")),
        udfs=tuple(udfs),
        value=value,
    )
    for table in (offsets, trigger, spark, metrics, root):
        table.end()
    return job


def _function(entry: Table, name: str, folder: Path) -> FunctionName | None:
    text = entry.take(name, str)
    return None if text is None else FunctionName.parse(text, entry.key(name), folder)


def _interval_ms(text: str | None) -> int | None:
    if text is None:
        return None
    interval_ms = parse_duration_ms(text)
    if interval_ms is None:
        raise JobError(f"a time such as 500ms, 5s or 1m, not {text!r}", "trigger.interval")
    return interval_ms


def _host_port(text: str | None, key: str) -> tuple[str, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\s]*):(\d{1,5})", text)
    if match is None or int(match[2]) > _MAX_PORT:
        raise JobError(f"an address such as 127.0.0.1:9404, not {text!r}", key)
    return match[1].strip("[]"), int(match[2])


def _local_path(entry: Table, folder: Path) -> Path:
    text: str = entry.need("path", str)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text) is not None:
        raise JobError(f"{entry.key('path')}: a folder of this machine's file system, not {text!r}")
    return (folder / _checked(text, entry.key("path"))).resolve()


def _checked(path: str, key: str) -> Path:
    try:
        return checked_path("the path", path)
    except OptionError as error:
        raise JobError(str(error), key) from error


def _sink(entry: Table, folder: Path) -> SinkSpec:
    kind = entry.need("type", str)
    spec: SinkSpec
    if kind == "parquet":
        spec = ParquetSinkSpec(
            path=_local_path(entry, folder),
            view=entry.take("view", str, RECORDS_VIEW),
            name=entry.take("name", str),
            merge=entry.take("merge", str),
            partition_by=tuple(entry.take("partition_by", list, [])),
            compression=entry.take("compression", str, "zstd"),
            on_held=entry.take("on_held", str, "error"),
        )
    elif kind == "console":
        view = entry.take("view", str, RECORDS_VIEW)
        spec = ConsoleSinkSpec(
            sql=entry.take("sql", str, f"SELECT * FROM {view}"),  # noqa: S608 - the user's own SQL
            rows=entry.take("rows", int, 20),
            title=entry.take("title", str),
        )
    elif kind == "topic":
        topic, kafka = entry.take("topic", str), entry.table("kafka").texts()
        path = _local_path(entry, folder) if entry.has("path") else None
        if (path is None) is not ("bootstrap.servers" in kafka):
            raise JobError("give either path (a log directory) or kafka.bootstrap.servers", entry.key("kafka"))
        if path is not None and kafka:
            raise JobError("this is for a broker, and path is a folder: leave it out", entry.key(f"kafka.{min(kafka)}"))
        # Of no use beside a fixed topic.
        routing = {name: entry.take(name, str) for name in ("topic_column", "position_topic") if topic is None}
        spec = TopicSinkSpec(
            topic=topic,
            kafka=kafka,
            path=path,
            view=entry.take("view", str, RECORDS_VIEW),
            partition_by=entry.take("partition_by", str, "source"),
            compression=entry.take("compression", str, "none"),
            transactional_id=entry.take("transactional_id", str),
            on_held=entry.take("on_held", str, "error"),
            on_invalid=entry.take("on_invalid", str, "error"),
            dead_letter_topic=entry.take("dead_letter_topic", str),
            partition_column=entry.take("partition_column", str),
            **{name: value for name, value in routing.items() if value is not None},
        )
    elif kind == "python":
        spec = read_python_sink(entry, folder, RECORDS_VIEW)
    elif kind in SPARK_SINKS:
        spec = read_spark_sink(entry, kind, folder, RECORDS_VIEW)
    else:
        known = ("parquet", "topic", "console", "python", *SPARK_SINKS)
        raise JobError(f"one of {', '.join(known)}, not {kind!r}{nearest(kind, known)}", entry.key("type"))
    entry.end()
    return spec
