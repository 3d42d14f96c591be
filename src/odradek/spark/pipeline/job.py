"""A job: what a pipeline reads, what it makes of it, where that goes, and where the reading position is kept.

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

Paths are relative to the file. A key that is not known is an error.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.errors import FormatError, OdradekError, OptionError
from odradek.records.compression import CODECS
from odradek.spark.options import SourceOptions
from odradek.storage.regular_files import read_file

RECORDS_VIEW = "records"
DEFAULT_NAME = "odradek"
_LIMIT_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PLANNED_HERE = ("startingoffsets", "endingoffsets", "startingtimestamp", "endingtimestamp")


class JobError(OdradekError):
    """A job that cannot be done as it is written; the text names the key."""


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
        view: What is written.
        name: A view of all that the folder holds, for the sinks after it.
        partition_by: `topic` and `date` (of `timestamp`), as folders; both need those columns in the view.
        compression: What Parquet's pages are compressed with.
        on_held: What to do where the folder holds records of a partition that the offset store has no position of:
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
        sql: What is shown.
        rows: The most rows of it.
        title: What stands above it.
    """

    sql: str
    rows: int = 20
    title: str | None = None


@dataclass(frozen=True)
class TopicSinkSpec:
    """A topic of a broker.

    Attributes:
        topic: Where records go; it must exist.
        kafka: How to reach the broker: Kafka's settings, `bootstrap.servers` among them.
        view: What is forwarded: `topic`, `partition` and `offset` of the source and `value`; `key`, `headers` and
            `timestamp` where the view has them.
        partition_by: `source`: the source's partition, modulo those that there are; `key`: as Kafka's producer does.
        compression: The codec of the batches.
        transactional_id: What the transactional ids begin with, and the groups of the same names that hold the
            positions; by default the job's name and the topic. No other sink of any job may have it.
        on_held: What to do where transactions under these ids have forwarded records of a partition that the offset
            store has no position of: `error`, `skip` them, or `replay` them.
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
    """Everything a pipeline needs to know.

    Attributes:
        source: The options of the source, by name.
        offset_store: The address of the offset store.
        sinks: Where the output goes, in order.
        name: What Spark calls the job.
        transforms: The views, in order.
        offset_store_options: More options of the store; secrets belong here.
        reset: Where a group without positions starts: `earliest`, `latest`, `none` (an error) or a time in ms.
        trigger_interval_ms: How often a batch starts; None: what is there now, then the end.
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
            raise JobError("sink: a job without a sink does nothing")
        if not (type(self.reset) is int and self.reset >= 0) and self.reset not in ("earliest", "latest", "none"):
            raise JobError(f"offsets.reset: earliest, latest, none or a time in ms, not {self.reset!r}")
        views = {RECORDS_VIEW}
        for transform in self.transforms:
            if transform.view in views or not _NAME.fullmatch(transform.view):
                raise JobError(f"transform: {transform.view!r} is not a new name of a view")
            views.add(transform.view)
        for sink in self.sinks:
            if not isinstance(sink, ConsoleSinkSpec) and sink.view not in views:
                raise JobError(f"sink: there is no view {sink.view!r}")
            if isinstance(sink, TopicSinkSpec):
                if sink.on_held not in ("error", "skip", "replay"):
                    raise JobError(f"sink.on_held: error, skip or replay, not {sink.on_held!r}")
                if sink.partition_by not in ("source", "key"):
                    raise JobError(f"sink.partition_by: source or key, not {sink.partition_by!r}")
                if sink.compression not in CODECS:
                    raise JobError(f"sink.compression: one of Kafka's codecs, not {sink.compression!r}")
            if isinstance(sink, ParquetSinkSpec):
                if sink.on_held not in ("error", "skip"):
                    raise JobError(f"sink.on_held: error or skip, not {sink.on_held!r}; to replay, give another path")
                if sink.name is not None and (sink.name in views or not _NAME.fullmatch(sink.name)):
                    raise JobError(f"sink: {sink.name!r} is not a new name of a view")
                wrong = [column for column in sink.partition_by if column not in ("topic", "date")]
                if wrong:
                    raise JobError(f"sink.partition_by: topic and date, not {wrong[0]!r}")
        self._check_identities()
        if self.max_offsets_per_batch is not None and self.max_offsets_per_batch < 1:
            raise JobError(f"trigger.max_offsets_per_batch: at least 1, not {self.max_offsets_per_batch}")
        if self.trigger_interval_ms is not None and self.trigger_interval_ms < 1:
            raise JobError("trigger.interval: at least 1ms")
        self.source_options()

    def _check_identities(self) -> None:
        """Refuse sinks that would take each other's records for their own."""
        ids: set[str] = set()
        paths: list[Path] = []
        for sink in self.sinks:
            if isinstance(sink, TopicSinkSpec):
                if sink.transactional_id is None and self.name == DEFAULT_NAME:
                    raise JobError(
                        f"name: a job that forwards to a topic needs a name of its own, not {DEFAULT_NAME!r}: its "
                        "transactions go by it"
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
        """Return what the transactional ids of a sink begin with."""
        return sink.transactional_id or f"{self.name}-{sink.topic}"

    def source_options(self) -> SourceOptions:
        """Check the options of the source.

        Raises:
            JobError: One of them is wrong, or is the pipeline's own to set.
        """
        for name in self.source:
            if name.lower().startswith(_PLANNED_HERE):
                raise JobError(f"source.{name}: the offset store says where to start; see offsets.reset")
        try:
            return SourceOptions.parse(self.source)
        except OptionError as error:
            raise JobError(f"source: {error}") from error

    @classmethod
    def read(cls, path: Path) -> Job:
        """Read a job from a TOML file.

        Raises:
            JobError: The file cannot be read, or says something that a job cannot do.
        """
        try:
            content = tomllib.loads(read_file(path, _LIMIT_BYTES).decode())
        except FormatError as error:
            raise JobError(f"{path}: {error.reason}") from error
        except OSError as error:
            raise JobError(f"{path}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise JobError(f"{path}: {error}") from error
        try:
            return _from_table(_Table("", content), path.absolute().parent)
        except JobError as error:
            raise JobError(f"{path}: {error}") from error


class _Table:
    """A table of the file whose keys are taken one by one; what nobody took is unknown."""

    def __init__(self, name: str, content: Mapping[str, Any]) -> None:
        self._name = name
        self._left = dict(content)

    def key(self, name: str) -> str:
        return f"{self._name}.{name}" if self._name else name

    def take(self, name: str, kind: type, default: Any = None) -> Any:
        value = self._left.pop(name, default)
        if value is not default and (not isinstance(value, kind) or isinstance(value, bool) != (kind is bool)):
            raise JobError(f"{self.key(name)}: expected {kind.__name__}, not {value!r:.100}")
        return value

    def need(self, name: str, kind: type) -> Any:
        value = self.take(name, kind)
        if value is None:
            raise JobError(f"{self.key(name)} is missing")
        return value

    def table(self, name: str) -> _Table:
        return _Table(self.key(name), self.take(name, dict, {}))

    def tables(self, name: str) -> list[_Table]:
        entries = self.take(name, list, [])
        if not all(isinstance(entry, dict) for entry in entries):
            raise JobError(f"{self.key(name)}: expected [[{self.key(name)}]]")
        return [_Table(f"{self.key(name)}[{number}]", entry) for number, entry in enumerate(entries)]

    def texts(self) -> dict[str, str]:
        """Take every key left, as Spark takes options: nested keys joined by dots, numbers and booleans as text."""
        left, self._left = self._left, {}
        return dict(_flat("", left))

    def end(self) -> None:
        if self._left:
            raise JobError(f"unknown key {self.key(min(self._left))}")


def _flat(prefix: str, content: Mapping[str, Any]) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name, value in content.items():
        if isinstance(value, dict):
            pairs.extend(_flat(f"{prefix}{name}.", value))
        else:
            pairs.append((prefix + name, str(value).lower() if isinstance(value, bool) else str(value)))
    return pairs


def _from_table(root: _Table, folder: Path) -> Job:
    source = root.table("source").texts()
    if "path" in source:
        source["path"] = str(folder / source["path"])
    offsets = root.table("offsets")
    store = offsets.need("store", str)
    if store.startswith("file:") and not store.startswith("file:/"):
        store = (folder / store.removeprefix("file:")).resolve().as_uri()
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
    match = re.fullmatch(r"(\d{1,9}) ?(ms|s|m)", text)
    if match is None:
        raise JobError(f"trigger.interval: a time such as 500ms, 5s or 1m, not {text!r}")
    return int(match[1]) * {"ms": 1, "s": 1000, "m": 60_000}[match[2]]


def _local_path(entry: _Table, folder: Path) -> Path:
    text: str = entry.need("path", str)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text) is not None:
        raise JobError(f"{entry.key('path')}: a folder of this machine's file system, not {text!r}")
    return (folder / text).resolve()


def _sink(entry: _Table, folder: Path) -> SinkSpec:
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
        raise JobError(f"{entry.key('type')}: parquet, topic or console, not {kind!r}")
    entry.end()
    return spec
