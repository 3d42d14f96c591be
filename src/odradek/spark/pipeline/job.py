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

Paths are relative to the file. An unknown key is an error. `job_reader` reads it, and `job_file` a file with several.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.errors import JobError, OptionError
from odradek.records.compression import CODECS
from odradek.records.timestamps import bound_ms
from odradek.spark.options import SourceOptions, nearest
from odradek.spark.pipeline.folder_uri import FolderUri, overlap
from odradek.spark.pipeline.functions import FunctionName
from odradek.spark.pipeline.sink_specs import PythonSinkSpec, SparkSinkSpec
from odradek.spark.pipeline.state_spec import WATERMARK_KEY, StateSpec
from odradek.spark.pipeline.value_format import ValueFormat
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC

RECORDS_VIEW = "records"
ORIGIN_COLUMNS = ("topic", "partition", "offset")
"""The columns that say which record of the source a row comes from."""
TOPIC_SINK_COLUMNS = (*ORIGIN_COLUMNS, "value")
"""The columns that a topic sink needs in its view."""
PARTITION_COLUMNS = {"topic": "topic", "date": "timestamp"}
"""What the folders of a Parquet sink may be partitioned by, and the column that each needs."""
DEFAULT_NAME = "odradek"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PARQUET_CODECS = ("none", "snappy", "gzip", "brotli", "lz4", "zstd")
_MOST_ROWS = 1_000_000
"""The most rows that a console sink shows; all of them are in the driver's memory."""
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
        path: The folder, of this machine or of another file system.
        view: The view that is written.
        name: The name of a view over all that the folder holds, for the sinks after it.
        merge: A query over `name`, which is then what the folder holds and the view's new rows together: its result
            replaces what the folder holds. So a running total costs what its result takes, not what was ever read.
        partition_by: `topic`, `date` or both, as folders; the view must have `topic` and `timestamp` respectively.
        compression: The codec of Parquet's pages.
        on_held: What to do if the folder holds records of a partition for which the offset store has no position:
            `error`, or `skip` what is held.
    """

    path: Path | FolderUri
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
        state: The state that Spark keeps from batch to batch; None for none.
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
    state: StateSpec | None = None

    def __post_init__(self) -> None:
        if not self.sinks:
            raise JobError("a job without a sink does nothing", "sink")
        if not self.name:
            raise JobError("a name that is not empty", "name")
        if not (type(self.reset) is int and self.reset >= 0) and self.reset not in ("earliest", "latest", "none"):
            raise JobError(f"earliest, latest, none or a time in ms, not {self.reset!r}", "offsets.reset")
        if isinstance(self.reset, int):
            try:
                bound_ms(self.reset)  # warns of seconds
            except OptionError as error:
                raise JobError(str(error), "offsets.reset") from error
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
        if self.state is not None:
            self._check_state(self.state)
        if self.max_offsets_per_batch is not None and self.max_offsets_per_batch < 1:
            raise JobError(f"at least 1, not {self.max_offsets_per_batch}", "trigger.max_offsets_per_batch")
        if self.trigger_interval_ms is not None and self.trigger_interval_ms < 1:
            raise JobError("at least 1ms", "trigger.interval")
        self._check_targets(self.source_options())

    def _check_identities(self) -> None:
        """Refuse sinks that would mistake each other's records for their own."""
        ids: set[str] = set()
        paths: list[Path | FolderUri] = []
        functions: set[FunctionName] = set()
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
                source = self.source.get("path")
                here = sink.path if isinstance(sink.path, Path) else None
                if source is not None and here is not None and here.is_relative_to(Path(source).resolve()):
                    # A broker that starts on a log directory refuses folders that are no partitions.
                    raise JobError(f"sink: {sink.path} is, or lies in, the log directory that the source reads")
                for path in paths:
                    if overlap(sink.path, path):
                        raise JobError(f"sink: {sink.path} and {path}: two sinks cannot write to one folder")
                paths.append(sink.path)
            elif isinstance(sink, PythonSinkSpec) and sink.positions is not None:
                if sink.positions in functions:
                    raise JobError(f"sink: two sinks cannot have one function for their positions: {sink.positions}")
                functions.add(sink.positions)

    def _check_targets(self, source: SourceOptions) -> None:
        """Refuse sinks that forward records to where the source finds them again."""
        for number, sink in enumerate(self.sinks):
            if not isinstance(sink, TopicSinkSpec) or not _is_place_of(source, sink):
                continue
            told = "each record would be forwarded again and again"
            if sink.topic is None and sink.topic_column == "topic":
                key = f"sink[{number}].topic_column"
                raise JobError(f"the topic of each record is the one that the source reads it from: {told}", key)
            # A partition that is not assigned may be meant.
            topic = sink.topic if source.partitions is None or sink.partition_column is None else None
            for name, target in (("topic", topic), ("dead_letter_topic", sink.dead_letter_topic)):
                if target is not None and source.wants(target):
                    raise JobError(f"the source reads the topic {target}: {told}", f"sink[{number}].{name}")

    def _check_state(self, state: StateSpec) -> None:
        """Refuse what a job with state cannot do."""
        if not self.transforms:
            raise JobError("there is no transform that state could be kept for", "state")
        source = self.source.get("path")
        if source is not None and state.path.is_relative_to(Path(source).resolve()):
            # As for sinks: a broker would not start on it.
            raise JobError(f"{state.path} is, or lies in, the log directory that the source reads", "state.path")
        names = [transform.view for transform in self.transforms]
        if state.view is not None and state.view not in names:
            raise JobError(f"no transform has the view {state.view!r}{nearest(state.view, names)}", "state.view")
        streaming, later = self.stateful_transforms()
        views = [RECORDS_VIEW, *(transform.view for transform in streaming)]
        if state.watermark is not None and state.watermark.view not in views:
            raise JobError(
                f"there is no view {state.watermark.view!r} up to {views[-1]}{nearest(state.watermark.view, views)}",
                WATERMARK_KEY,
            )
        told = f"is of the stream, and only {views[-1]} and the views after it are there in each batch"
        there = [views[-1]]
        for transform in later:
            if transform.python is not None and transform.input not in there:
                number = self.transforms.index(transform)
                raise JobError(f"the view {transform.input} {told}", f"transform[{number}].input")
            there.append(transform.view)
        for number, sink in enumerate(self.sinks):
            key = f"sink[{number}]"
            if isinstance(sink, TopicSinkSpec):
                raise JobError(
                    "a topic sink forwards each record by its offset, and the rows of a job with state are not of one "
                    "record: write them to Parquet or by a Python function",
                    f"{key}.type",
                )
            if isinstance(sink, ConsoleSinkSpec):
                continue
            if sink.view not in there:
                raise JobError(f"the view {sink.view} {told}", f"{key}.view")
            if isinstance(sink, ParquetSinkSpec) and overlap(sink.path, state.path):
                raise JobError(f"the sink {sink.path} and the state {state.path} need a folder each", f"{key}.path")
            if not isinstance(sink, SparkSinkSpec) and sink.on_held != "error":
                raise JobError("a job with state cannot pass over what a sink holds", f"{key}.on_held")

    def stateful_transforms(self) -> tuple[tuple[Transform, ...], tuple[Transform, ...]]:
        """Return the transforms that are Spark's streaming query, for a job with state, and those of each batch."""
        assert self.state is not None
        names = [transform.view for transform in self.transforms]
        end = len(names) if self.state.view is None else names.index(self.state.view) + 1
        return self.transforms[:end], self.transforms[end:]

    def transactional_id(self, sink: TopicSinkSpec) -> str:
        """Return the prefix of a sink's transactional ids."""
        return "-".join(self.owner(sink))

    def owner(self, sink: TopicSinkSpec) -> tuple[str, ...]:
        """Return whose a sink's positions are: the job's name and the topic, or the sink's own `transactional_id`.

        Joined by dashes they are the prefix of the transactional ids, which may be that of another job too.
        """
        if sink.transactional_id is not None:
            return (sink.transactional_id,)
        # No topic is called `*`.
        return self.name, sink.topic or "*"

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
            # The message names the option, if the error is about one, and may go on with one that is meant.
            told = str(error).partition("did you mean")[0]
            named = next((name for name in self.source if re.search(rf"(?i)\b{re.escape(name)}\b", told)), None)
            raise JobError(str(error), f"source.{named}" if named else "source") from error

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Job:
        """Read the job of a TOML file that has one.

        Raises:
            JobError: The file cannot be read, or does not describe a job that can run, or has several.
        """
        from odradek.spark.pipeline.job_file import JobFile

        return JobFile.read(path).only()

    @classmethod
    def read_all(cls, path: str | os.PathLike[str]) -> list[Job]:
        """Read the jobs of a TOML file: those of its `[[job]]`, or, if there are none, the one that it is.

        Raises:
            JobError: The file cannot be read, or one of its jobs cannot run, or two of them would do each other harm.
        """
        from odradek.spark.pipeline.job_file import JobFile

        return list(JobFile.read(path).jobs)

    @classmethod
    def parse(cls, text: str, folder: Path) -> Job:
        """Read the job of a text in TOML.

        Args:
            text: The text.
            folder: What its paths are relative to.

        Raises:
            JobError: The text does not describe a job that can run, or describes several.
        """
        from odradek.spark.pipeline.job_file import JobFile

        return JobFile.parse(text, folder).only()


def _is_place_of(source: SourceOptions, sink: TopicSinkSpec) -> bool:
    """Whether a sink has the folder of the source, or one of its broker's addresses."""
    if source.path is not None:
        return sink.path is not None and sink.path.resolve() == Path(source.path.removeprefix("file:")).resolve()
    servers, others = (kafka.get("bootstrap.servers", "").split(",") for kafka in (source.kafka, sink.kafka))
    return not {server.strip() for server in servers if server.strip()}.isdisjoint(other.strip() for other in others)


def _is_taken(name: str, views: set[str]) -> bool:
    # Spark's names are not case-sensitive.
    return name.lower() in {view.lower() for view in views}


def _check_sink(sink: SinkSpec, key: str, views: set[str]) -> None:
    """Fail if a sink contradicts itself or the views before it; add its own view, if it has one, to those."""
    if isinstance(sink, ConsoleSinkSpec):
        if not 0 <= sink.rows <= _MOST_ROWS:
            raise JobError(f"a number of rows from 0 to {_MOST_ROWS:,}, not {sink.rows}", f"{key}.rows")
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
    known = list(PARTITION_COLUMNS)
    for number, column in enumerate(sink.partition_by):
        if column not in known or column in sink.partition_by[:number]:
            raise JobError(f"topic, date or both, not {list(sink.partition_by)!r:.100}", f"{key}.partition_by")
