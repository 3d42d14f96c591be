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

Paths are relative to the file. An unknown key is an error. `job_file` has the form of a file with several jobs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.arguments import checked_path, today
from odradek.errors import FormatError, JobError, OdradekError, OptionError
from odradek.offsets.store import NAMES, parse_address
from odradek.records.compression import CODECS
from odradek.records.timestamps import bound_ms
from odradek.spark.connect import NOT_BY_CONNECT, connect_key
from odradek.spark.options import SourceOptions, nearest
from odradek.spark.pipeline.folder_uri import FolderUri, overlap
from odradek.spark.pipeline.functions import FunctionName, Transform, Udf
from odradek.spark.pipeline.job_file import JobEntry, located, read_entries, read_job_text
from odradek.spark.pipeline.job_reader import DEFAULT_NAME
from odradek.spark.pipeline.restarts import Restart
from odradek.spark.pipeline.sink_specs import (
    IS_INTERNAL,
    ConsoleSinkSpec,
    ParquetSinkSpec,
    PythonSinkSpec,
    SinkSpec,
    SparkSinkSpec,
    TopicSinkSpec,
)
from odradek.spark.pipeline.state_spec import WATERMARK_KEY, StateSpec
from odradek.spark.pipeline.value_format import RECORDS_VIEW, ValueFormat
from odradek.storage.names import invalid_topic_name_reason, is_internal

_PORTS = {"kafka": "9092", "redis": "6379", "zookeeper": "2181"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PARQUET_CODECS = ("none", "snappy", "gzip", "brotli", "lz4", "zstd")
_MOST_ROWS = 1_000_000
"""The most rows that a console sink shows; all of them are in the driver's memory."""
_PLANNED_HERE = ("startingoffsets", "endingoffsets", "startingtimestamp", "endingtimestamp")


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
        history: The file that keeps the lag and the rate of the last day; by default with its state or its store.
        openlineage: Its `namespace`, and the `transport` of OpenLineage's client; None for no events.
        traces: The address that OpenTelemetry's traces are sent to; empty if the environment says it, None for none.
        udfs: Python functions for SQL.
        value: What the source's values are, for a column of typed values; None for none.
        state: The state that Spark keeps from batch to batch; None for none.
        restart: How often it is started again after a failure.
        on_invalid: What to do with a record for which a view fails: `error`, `skip` it, or `dead-letter`, which sends
            it to a topic.
        dead_letters: That topic.
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
    history: Path | None = None
    openlineage: Mapping[str, Any] | None = None
    traces: str | None = None
    udfs: tuple[Udf, ...] = ()
    value: ValueFormat | None = None
    state: StateSpec | None = None
    restart: Restart = field(default_factory=Restart)
    on_invalid: str = "error"
    dead_letters: TopicSinkSpec | None = None

    def __post_init__(self) -> None:
        if not self.sinks:
            raise JobError("a job without a sink does nothing", "sink")
        if not self.name:
            raise JobError("a name that is not empty", "name")
        if not self.name.isprintable():
            raise JobError("a name of characters that can be printed", "name")
        if not (type(self.reset) is int and self.reset >= 0) and self.reset not in ("earliest", "latest", "none"):
            told = f"earliest, latest, none or a time in ms, not {self.reset!r}{today(self.reset)}"
            raise JobError(told, "offsets.reset")
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
        self._check_invalid()
        if self.state is not None:
            self._check_state(self.state)
        if self.max_offsets_per_batch is not None and self.max_offsets_per_batch < 1:
            raise JobError(f"at least 1, not {self.max_offsets_per_batch}", "trigger.max_offsets_per_batch")
        if self.trigger_interval_ms is not None and self.trigger_interval_ms < 1:
            raise JobError("at least 1ms", "trigger.interval")
        if self.restart.attempts < 0:
            raise JobError(f"a number that is not negative, not {self.restart.attempts}", "restart.attempts")
        by_connect = connect_key(self.spark_master, self.spark_conf)
        if by_connect is not None:
            raise JobError(NOT_BY_CONNECT, by_connect)
        self._check_targets(self.source_options())

    def _check_invalid(self) -> None:
        """Refuse what cannot be done with records for which a view fails."""
        if self.on_invalid not in ("error", "skip", "dead-letter"):
            raise JobError(f"error, skip or dead-letter, not {self.on_invalid!r}", "on_invalid")
        if (self.dead_letters is None) is (self.on_invalid == "dead-letter"):
            raise JobError('a topic for on_invalid = "dead-letter", and for nothing else', "dead_letters")
        if self.dead_letters is not None:
            _check_topics(self.dead_letters, "dead_letters")
        if self.dead_letters is not None and self.name == DEFAULT_NAME:
            raise JobError(f"a job with dead letters needs a name of its own, not {DEFAULT_NAME!r}", "name")

    def _is_in_source(self, path: Path) -> bool:
        """Whether a folder is, or lies in, the log directory that the source reads."""
        source = self.source_options().path
        return source is not None and path.resolve().is_relative_to(Path(source).resolve())

    def _check_identities(self) -> None:
        """Refuse sinks that would mistake each other's records for their own."""
        ids = set() if self.dead_letters is None else {self.transactional_id(self.dead_letters)}
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
                if isinstance(sink.path, Path) and self._is_in_source(sink.path):
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
        letters = self.dead_letters
        if letters is not None and _is_place_of(source, letters) and source.wants(str(letters.topic)):
            raise JobError(f"the source reads the topic {letters.topic} itself", "dead_letters.topic")
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
        if self._is_in_source(state.path):
            # As for sinks: a broker would not start on it.
            raise JobError(f"{state.path} is, or lies in, the log directory that the source reads", "state.path")
        names = [transform.view for transform in self.transforms]
        if state.view is not None and state.view not in names:
            raise JobError(f"no transform has the view {state.view!r}{nearest(state.view, names)}", "state.view")
        streaming, later = self.stateful_transforms()
        functions = [transform.python for transform in streaming if transform.python is not None]
        if self.on_invalid != "error" and (functions or not (self.udfs or self.value)):
            there_is = f"; {functions[0]} sees more than one record" if functions else ", and this job has neither"
            raise JobError(
                f"a job with state can put aside what a udf or the decoder of source.value does not take{there_is}: "
                "let SQL give null instead of failing, such as by try_cast",
                "on_invalid",
            )
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
                raise JobError("a job with state cannot skip what a sink holds", f"{key}.on_held")

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
            # The message names the option, if the error is about one, and may then suggest another.
            told = str(error).partition("did you mean")[0]
            named = next((name for name in self.source if re.search(rf"(?i)\b{re.escape(name)}\b", told)), None)
            raise JobError(str(error), f"source.{named}" if named else "source") from error

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Job:
        """Read the job of a TOML file that has one.

        Raises:
            JobError: The file cannot be read, or does not describe a job that can run, or has several.
        """
        return JobFile.read(path).only()

    @classmethod
    def read_all(cls, path: str | os.PathLike[str]) -> list[Job]:
        """Read the jobs of a TOML file: those of its `[[job]]`, or, if there are none, the one that it is.

        Raises:
            JobError: The file cannot be read, or one of its jobs cannot run, or two of them would do each other harm.
        """
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
        return JobFile.parse(text, folder).only()


@dataclass(frozen=True)
class JobFile:
    """The jobs of a file, checked.

    Attributes:
        path: The file; None for a text.
        text: What it holds.
        entries: The jobs as the file has them.
        jobs: The jobs.
    """

    path: Path | None
    text: str
    entries: Sequence[JobEntry]
    jobs: Sequence[Job]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> JobFile:
        """Read a file.

        Raises:
            JobError: The file cannot be read, or one of its jobs cannot run, or two of them would do each other harm.
        """
        file = checked_path("path", path)
        try:
            text = read_job_text(file)
        except OSError as error:
            raise JobError(f"{file}: {error.strerror}") from error
        except FormatError as error:
            raise JobError(f"{file}: {error.reason}") from error
        return cls._of(file, text, file.absolute().parent)

    @classmethod
    def parse(cls, text: str, folder: Path) -> JobFile:
        """Read a text, whose paths are relative to a folder.

        Raises:
            JobError: As for `read`.
        """
        return cls._of(None, text, folder)

    @classmethod
    def _of(cls, path: Path | None, text: str, folder: Path) -> JobFile:
        entry: JobEntry | None = None
        jobs: list[Job] = []
        try:
            entries = read_entries(text)
            for entry in entries:
                jobs.append(Job(**entry.fields(folder)))  # noqa: PERF401 - an error is one of `entry`
            for number, error in clashes(jobs):
                entry = entries[number]
                raise error
        except JobError as error:
            if path is None and (entry is None or entry.number is None):
                raise
            raise located(path, text, entry, error) from error
        return cls(path, text, entries, jobs)

    def only(self) -> Job:
        """Return the one job.

        Raises:
            JobError: There are several.
        """
        if len(self.jobs) > 1:
            where = "" if self.path is None else f"{self.path}: "
            names = ", ".join(job.name for job in self.jobs)
            raise JobError(f"{where}there are {len(self.jobs)} jobs ({names}): Job.read_all reads them")
        return self.jobs[0]

    def picked(self, name: str) -> JobFile:
        """Return the file with no other job than the one of a name.

        Raises:
            LookupError: There is none.
        """
        for entry, job in zip(self.entries, self.jobs, strict=True):
            if job.name == name:
                return JobFile(self.path, self.text, [entry], [job])
        raise LookupError(f"there is no job {name!r}{nearest(name, [job.name for job in self.jobs])}")

    def located(self, number: int, error: JobError) -> JobError:
        """Return the error of a job with the file, the line of its key, and the job's name if there are several.

        Args:
            number: The job's number in `jobs`.
            error: The error.
        """
        return located(self.path, self.text, self.entries[number], error)


def clashes(jobs: Sequence[Job]) -> Iterator[tuple[int, JobError]]:
    """Find jobs that would take each other's work for their own; yields the number of the second one, and its error."""
    for number, job in enumerate(jobs):
        for other in jobs[:number]:
            for key, reason in _clashes(job, other):
                yield number, JobError(f"job {other.name} {reason}: each job needs its own", key)


def _clashes(job: Job, other: Job) -> Iterator[tuple[str, str]]:
    """Yield the keys whose values no two jobs may share, and what the error says about the other job."""
    if job.name == other.name:
        yield "name", "has this name"
    if _groups(job) & _groups(other):
        yield "offsets.store", "has this offset store, in whose address {name} may stand for a job's name"
    if job.history is not None and job.history == other.history:
        yield "metrics.history", "keeps its history here"
    ids = {other.transactional_id(sink) for sink in other.sinks if isinstance(sink, TopicSinkSpec)}
    paths = [sink.path for sink in other.sinks if isinstance(sink, ParquetSinkSpec)]
    functions = {sink.positions for sink in other.sinks if isinstance(sink, PythonSinkSpec)} - {None}
    if job.state is not None:
        taken = [*paths, *([other.state.path] if other.state is not None else [])]
        if any(overlap(job.state.path, path) for path in taken):
            yield "state.path", "has this folder, or one around it or in it"
    if other.state is not None:
        paths.append(other.state.path)
    for number, sink in enumerate(job.sinks):
        if isinstance(sink, TopicSinkSpec) and (name := job.transactional_id(sink)) in ids:
            yield f"sink[{number}].transactional_id", f"forwards under {name!r}"
        elif isinstance(sink, ParquetSinkSpec) and any(overlap(sink.path, path) for path in paths):
            yield f"sink[{number}].path", "writes to this folder, or to one around it or in it"
        elif isinstance(sink, PythonSinkSpec) and sink.positions in functions:
            yield f"sink[{number}].positions", "has this function"


def _groups(job: Job) -> set[tuple[str, ...]]:
    """Return what the positions of a job are kept under, at each of the hosts that its store names."""
    try:
        address = parse_address(job.offset_store, job.offset_store_options)
    except OdradekError:
        # Opening it reports what is wrong.
        return set()
    scheme = "redis" if address.scheme == "rediss" else address.scheme
    path = address.path.strip("/")
    if scheme in ("file", "folder"):
        path = str(Path(address.path).resolve())
    elif scheme == "redis":
        path = path or "0"
    hosts = [host if ":" in host else f"{host}:{_PORTS.get(scheme, '')}" for host in address.hosts.split(",")]
    names = [address.options.get(option, "") for option in NAMES]
    return {(scheme, host, path, *names) for host in hosts}


def _is_place_of(source: SourceOptions, sink: TopicSinkSpec) -> bool:
    """Whether a sink has the folder of the source, or one of its broker's addresses."""
    if source.path is not None:
        return sink.path is not None and sink.path.resolve() == Path(source.path).resolve()
    servers, others = (kafka.get("bootstrap.servers", "").split(",") for kafka in (source.kafka, sink.kafka))
    return not {server.strip() for server in servers if server.strip()}.isdisjoint(other.strip() for other in others)


def _is_taken(name: str, views: set[str]) -> bool:
    # Spark's names are not case-sensitive.
    return name.lower() in {view.lower() for view in views}


def _check_topics(sink: TopicSinkSpec, key: str) -> None:
    """Refuse topics that cannot be, internal ones, and letters among the records that they are about."""
    for option, topic in (
        ("topic", sink.topic),
        ("dead_letter_topic", sink.dead_letter_topic),
        ("position_topic", sink.position_topic),
    ):
        reason = None if topic is None else invalid_topic_name_reason(topic)
        if reason is not None:
            raise JobError(reason, f"{key}.{option}")
        if topic is not None and is_internal(topic) and option != "position_topic":
            raise JobError(f"{topic} {IS_INTERNAL}", f"{key}.{option}")
    if sink.topic is not None and sink.topic == sink.dead_letter_topic:
        raise JobError("the letters need a topic of their own", f"{key}.dead_letter_topic")


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
        _check_topics(sink, key)
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
    names = [name.lower() if isinstance(name, str) else "" for name in sink.partition_by]
    if "" in names or len(set(names)) < len(names):
        raise JobError(f"names of columns, each once, not {list(sink.partition_by)!r:.100}", f"{key}.partition_by")
