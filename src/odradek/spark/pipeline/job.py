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
from odradek.spark.pipeline.job_table import Table
from odradek.storage.regular_files import read_file

RECORDS_VIEW = "records"
ORIGIN_COLUMNS = ("topic", "partition", "offset")
"""The columns that say which record of the source a row comes from."""
TOPIC_SINK_COLUMNS = (*ORIGIN_COLUMNS, "value")
"""The columns that a topic sink needs in its view."""
PARTITION_COLUMNS = {"topic": "topic", "date": "timestamp"}
"""What the folders of a Parquet sink may be partitioned by, and the column that each needs."""
DEFAULT_NAME = "odradek"
_LIMIT_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PARQUET_CODECS = ("none", "snappy", "gzip", "brotli", "lz4", "zstd")
_PLANNED_HERE = ("startingoffsets", "endingoffsets", "startingtimestamp", "endingtimestamp")


@dataclass(frozen=True)
class Transform:
    """A view: a name for what a query gives."""

    view: str
    sql: str


@dataclass(frozen=True)
class ParquetSinkSpec:
    """A folder of Parquet files.

    Attributes:
        path: The folder.
        view: The view that is written.
        name: The name of a view over all that the folder holds, for the sinks after it.
        partition_by: `topic`, `date` or both, as folders; the view must have `topic` and `timestamp` respectively.
        compression: The codec of Parquet's pages.
        on_held: What to do if the folder holds records of a partition for which the offset store has no position:
            `error`, or `skip` what is held.
    """

    path: Path
    view: str
    name: str | None = None
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
    """A topic of a broker.

    Attributes:
        topic: The target topic; it must exist.
        kafka: Kafka's settings for the broker, including `bootstrap.servers`.
        view: The view that is forwarded. It needs the source's `topic`, `partition` and `offset`, and `value`; it may
            have `key`, `headers` and `timestamp`.
        partition_by: `source`: the source's partition, modulo the number of the target's partitions; `key`: as Kafka's
            producer does.
        compression: The codec of the batches.
        transactional_id: The prefix of the transactional ids, and of the groups of the same names that hold the
            positions; by default the job's name and the topic. No other sink of any job may use it.
        on_held: What to do if transactions under these ids have forwarded records of a partition for which the offset
            store has no position: `error`, `skip` them, or `replay` them.
    """

    topic: str
    kafka: Mapping[str, str]
    view: str = RECORDS_VIEW
    partition_by: str = "source"
    compression: str = "none"
    transactional_id: str | None = None
    on_held: str = "error"


SinkSpec = ParquetSinkSpec | ConsoleSinkSpec | TopicSinkSpec


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

    def __post_init__(self) -> None:
        if not self.sinks:
            raise JobError("a job without a sink does nothing", "sink")
        if not (type(self.reset) is int and self.reset >= 0) and self.reset not in ("earliest", "latest", "none"):
            raise JobError(f"earliest, latest, none or a time in ms, not {self.reset!r}", "offsets.reset")
        if isinstance(self.reset, int):
            bound_ms(self.reset)  # warns of seconds
        views = {RECORDS_VIEW}
        for number, transform in enumerate(self.transforms):
            if transform.view in views or not _NAME.fullmatch(transform.view):
                raise JobError(f"{transform.view!r} is not a new name of a view", f"transform[{number}].view")
            views.add(transform.view)
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
        return sink.transactional_id or f"{self.name}-{sink.topic}"

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
            raise JobError(f"{path}: {error}") from error

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


def _check_sink(sink: SinkSpec, key: str, views: set[str]) -> None:
    """Fail if a sink contradicts itself or the views before it; add its own view, if it has one, to those."""
    if isinstance(sink, ConsoleSinkSpec):
        return
    if sink.view not in views:
        raise JobError(f"there is no view {sink.view!r}{nearest(sink.view, views)}", f"{key}.view")
    if isinstance(sink, TopicSinkSpec):
        if sink.on_held not in ("error", "skip", "replay"):
            raise JobError(f"error, skip or replay, not {sink.on_held!r}", f"{key}.on_held")
        if sink.partition_by not in ("source", "key"):
            raise JobError(f"source or key, not {sink.partition_by!r}", f"{key}.partition_by")
        if sink.compression not in CODECS:
            raise JobError(f"one of Kafka's codecs, not {sink.compression!r}", f"{key}.compression")
        return
    if sink.on_held not in ("error", "skip"):
        raise JobError(f"error or skip, not {sink.on_held!r}; to replay, give another path", f"{key}.on_held")
    if sink.name is not None and (sink.name in views or not _NAME.fullmatch(sink.name)):
        raise JobError(f"{sink.name!r} is not a new name of a view", f"{key}.name")
    if sink.compression.lower() not in _PARQUET_CODECS:
        raise JobError(f"one of {', '.join(_PARQUET_CODECS)}, not {sink.compression!r}", f"{key}.compression")
    wrong = [column for column in sink.partition_by if column not in PARTITION_COLUMNS]
    if wrong:
        raise JobError(f"topic and date, not {wrong[0]!r}", f"{key}.partition_by")


def _from_table(root: Table, folder: Path) -> Job:
    source = root.table("source").texts()
    if "path" in source:
        source["path"] = str(folder / _checked(source["path"], "source.path"))
    offsets = root.table("offsets")
    store = offsets.need("store", str)
    if store.startswith("file:") and not store.startswith("file:/"):
        store = (folder / _checked(store.removeprefix("file:"), "offsets.store")).resolve().as_uri()
    reset = offsets.take("reset", object, "earliest")
    trigger = root.table("trigger")
    spark = root.table("spark")
    transforms = []
    for entry in root.tables("transform"):
        transforms.append(Transform(entry.need("view", str), entry.need("sql", str)))
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
    )
    for table in (offsets, trigger, spark, root):
        table.end()
    return job


def _interval_ms(text: str | None) -> int | None:
    if text is None:
        return None
    interval_ms = parse_duration_ms(text)
    if interval_ms is None:
        raise JobError(f"a time such as 500ms, 5s or 1m, not {text!r}", "trigger.interval")
    return interval_ms


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
        spec = TopicSinkSpec(
            topic=entry.need("topic", str),
            kafka=entry.table("kafka").texts(),
            view=entry.take("view", str, RECORDS_VIEW),
            partition_by=entry.take("partition_by", str, "source"),
            compression=entry.take("compression", str, "none"),
            transactional_id=entry.take("transactional_id", str),
            on_held=entry.take("on_held", str, "error"),
        )
    else:
        known = ("parquet", "topic", "console")
        raise JobError(f"parquet, topic or console, not {kind!r}{nearest(kind, known)}", entry.key("type"))
    entry.end()
    return spec
