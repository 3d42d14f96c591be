"""Checks a job, or the jobs of a file, without running it: nothing is written, and of Spark only the parser starts.

    keys      unknown keys, with the nearest known name, and wrong values
    store     its address, and whether it answers
    topics    of the source and of the sinks: whether the folder, or the broker, has them
    python    whether the functions that are named exist; none of their code is run
    packages  whether Spark has those that formats and sinks need
    sql       whether it parses, and whether the views and columns that it names exist
    sinks     whether their views have the columns that they need, and their folders can be written to

With a Spark session, Spark analyses the queries, too (`spark_check`).

A store or a broker that does not answer within `PATIENCE_MS` is a finding.
"""

from __future__ import annotations

import importlib.util
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.errors import JobError, OdradekError, OffsetStoreUnavailableError
from odradek.offsets.store import open_store, parse_address
from odradek.spark.options import SourceOptions, nearest
from odradek.spark.pipeline.check_places import (
    PATIENCE_MS,
    folder_problem,
    listener_problem,
    master_problem,
    patient_client,
    remote_folder_problem,
    shown,
    timeout_problem,
)
from odradek.spark.pipeline.functions import FunctionName, is_built_in
from odradek.spark.pipeline.job import Job, clashes
from odradek.spark.pipeline.job_file import JobEntry, read_entries, read_job_text
from odradek.spark.pipeline.job_lines import JobLines
from odradek.spark.pipeline.packages import PACKAGES, missing_package
from odradek.spark.pipeline.sink_specs import (
    ConsoleSinkSpec,
    ParquetSinkSpec,
    PythonSinkSpec,
    SparkSinkSpec,
    TopicSinkSpec,
)
from odradek.spark.pipeline.spark_grammar import GRAMMAR, SqlFinding
from odradek.spark.pipeline.sql_check import Columns, Query
from odradek.spark.pipeline.state_spec import WATERMARK_KEY
from odradek.spark.pipeline.value_format import RECORD_COLUMNS, RECORDS_VIEW, ValueFormat
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.names import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANSWERS_S = 3.0
_NO_COORDINATOR_YET = ("CoordinatorNotAvailableError", "CoordinatorLoadInProgressError")


@dataclass(frozen=True)
class JobFinding:
    """Something that is wrong with a job.

    Attributes:
        path: The job's file.
        line: The line in the file, from 1; None if it is not known.
        key: The key that is wrong; None if the finding is not about a key.
        reason: What is wrong.
        job: The name of the job, in a file with several; None if it is wrong for more than one.
    """

    path: Path
    line: int | None
    key: str | None
    reason: str
    job: str | None = None

    def __str__(self) -> str:
        job = self.job and f"job {self.job}"
        parts = [str(self.path), self.line and f"line {self.line}", job, self.key, self.reason]
        return ": ".join(part for part in parts if part)


def check_job(path: Path, spark: Callable[[], SparkSession] | None = None) -> list[JobFinding]:
    """Return what is wrong with the jobs in a file, in the order of its lines.

    Args:
        path: The file.
        spark: Returns a session, which then analyses the queries of the jobs that have no other findings.

    Raises:
        FormatError: The file does not hold text.
        OSError: The file cannot be read.
    """
    text = read_job_text(path)
    found = _Findings(path, JobLines(text))
    try:
        entries = read_entries(text)
    except JobError as error:
        found.add(None, error)
        return found.sorted()
    checks: list[_JobCheck] = []
    numbers: list[int] = []
    for number, entry in enumerate(entries):
        unknown: list[JobError] = []
        try:
            checks.append(_JobCheck(Job(**entry.fields(path.absolute().parent, unknown)), entry, found))
            numbers.append(number)
        except JobError as error:
            unknown.append(error)
        for wrong in unknown:
            found.add(entry, wrong)
    for number, clash in clashes([check.job for check in checks]):
        found.add(entries[numbers[number]], clash)
    parser = threading.Thread(target=_start_parser, args=(found,), daemon=True)
    if any(check.has_sql for check in checks):
        # The thread needs it, and so does this one: of two that import it at once, one sees but a part of it.
        import pyspark  # noqa: F401

        parser.start()
    # Other machines are asked for all jobs together.
    for check in checks:
        check.begin()
    deadline = time.monotonic() + ANSWERS_S
    for check in checks:
        check.end(deadline)
    if spark is not None and not found:
        from odradek.spark.pipeline.spark_check import analyse

        try:
            session = spark()
        except JobError as error:
            found.add(None, JobError(f"Spark does not start with these settings: {error.reason}", "spark.conf"))
            return found.sorted()
        for check, number in zip(checks, numbers, strict=True):
            for wrong in analyse(session, check.job):
                place = re.search(r"\bline (\d+),? pos(?:ition)? \d+", wrong.reason)
                line = place and found.lines.text_line(str(wrong.key), int(place[1]), entries[number].number)
                found.add(entries[number], wrong, line)
    return found.sorted()


def _start_parser(found: _Findings) -> None:
    try:
        GRAMMAR.start()
    except OdradekError as error:
        found.add(None, JobError(f"the SQL was not checked: {error}"))


class _Findings:
    """What was found so far in a file."""

    def __init__(self, path: Path, lines: JobLines) -> None:
        self.lines = lines
        self._path = path
        self._findings: list[JobFinding] = []

    def add(self, entry: JobEntry | None, error: JobError, line: int | None = None) -> None:
        """Add an error of a job, or, without one, of the file."""
        if error.key is None and line is None:
            # TOML's parser puts the line into its message.
            place = re.search(r"\(at line (\d+)", error.reason)
            line = int(place[1]) if place else None
        elif error.key is not None and line is None:
            line = self.lines.line(error.key, None if entry is None else entry.number)
        # One line, even if a library's message has several.
        told = " ".join(error.reason.split())
        self._findings.append(JobFinding(self._path, line, error.key, told, None if entry is None else entry.title))

    def __len__(self) -> int:
        return len(self._findings)

    def sorted(self) -> list[JobFinding]:
        """Return them in the order of the lines; an error in a default is reported once, not for each job."""
        jobs: dict[tuple[int | None, str | None, str], list[str | None]] = {}
        for found in self._findings:
            jobs.setdefault((found.line, found.key, found.reason), []).append(found.job)
        findings = [
            JobFinding(self._path, *what, names[0] if len(names) == 1 else None) for what, names in jobs.items()
        ]
        return sorted(findings, key=lambda found: found.line or 0)


class _JobCheck:
    """One check of a job whose keys are right."""

    def __init__(self, job: Job, entry: JobEntry, found: _Findings) -> None:
        self.job = job
        self._entry = entry
        self._findings = found
        self._views: dict[str, Columns] = {}
        self._asked: list[tuple[str, str, threading.Thread]] = []

    @property
    def has_sql(self) -> bool:
        """Whether there is something that Spark's parser reads."""
        job = self.job
        queries = any(transform.sql is not None for transform in job.transforms) or bool(job.udfs)
        sinks = any(isinstance(sink, ConsoleSinkSpec) or getattr(sink, "merge", None) for sink in job.sinks)
        return queries or sinks or (job.value is not None and job.value.format == "json")

    def begin(self) -> None:
        """Run the checks that need no other machine, and start those that do."""
        options = self.job.source_options()
        master = self.job.spark_master or self.job.spark_conf.get("spark.master", "local[*]")
        self._found_if("spark.master" if self.job.spark_master else "spark.conf", master_problem(master))
        used = {
            "metrics.listen": (self.job.metrics, "prometheus_client"),
            "openlineage": (self.job.openlineage, "openlineage"),
            "opentelemetry": (self.job.traces, "opentelemetry"),
        }
        for key, (setting, package) in used.items():
            if setting is not None and importlib.util.find_spec(package) is None:
                self._found(key, f"this needs the package {package}, which is not installed")
        if self.job.metrics is not None:
            self._found_if("metrics.listen", listener_problem(*self.job.metrics))
        self._ask("offsets.store", parse_address(self.job.offset_store).text, self._store)
        if options.path is None:
            servers = options.kafka["bootstrap.servers"]
            self._ask("source.kafka.bootstrap.servers", servers, lambda: self._broker_topics(options, servers))
        else:
            self._ask("source.path", options.path, lambda: self._folder_topics(options, Path(str(options.path))))
        columns = (*RECORD_COLUMNS, "headers") if options.include_headers else RECORD_COLUMNS
        if (value := self.job.value) is not None:
            columns = (*columns, value.column)
            self._value_schema(value)
        self._views[RECORDS_VIEW] = columns
        for number, udf in enumerate(self.job.udfs):
            self._function(udf.function, f"udf[{number}].function")
            if self._parses and GRAMMAR.has_function(udf.name):
                self._found(f"udf[{number}].name", is_built_in(udf.name))
            if self._parses and udf.returns is not None:
                self._syntax(f"udf[{number}].returns", GRAMMAR.data_type(udf.returns))
        self._watermark(RECORDS_VIEW)
        for number, transform in enumerate(self.job.transforms):
            if transform.sql is not None:
                self._views[transform.view] = self._query(f"transform[{number}].sql", transform.sql)
            elif transform.python is not None:
                self._function(transform.python, f"transform[{number}].python")
                self._views[transform.view] = None
            self._watermark(transform.view)
            if self.job.state is not None and transform is self.job.stateful_transforms()[0][-1]:
                # Those before it are of the stream.
                self._views = {transform.view: self._views[transform.view]}
        if self.job.state is not None:
            self._found_if("state.path", folder_problem(self.job.state.path))
        if self.job.dead_letters is not None:
            self._ask_target("dead_letters", self.job.dead_letters)
        for number, sink in enumerate(self.job.sinks):
            key = f"sink[{number}]"
            match sink:
                case ConsoleSinkSpec():
                    self._query(f"{key}.sql", sink.sql)
                case TopicSinkSpec():
                    self._ask_target(key, sink)
                    self._needs(f"{key}.view", sink.view, sink.columns)
                case ParquetSinkSpec():
                    self._parquet(key, sink)
                case PythonSinkSpec():
                    self._function(sink.function, f"{key}.function")
                    if sink.positions is not None:
                        self._function(sink.positions, f"{key}.positions")
                case SparkSinkSpec():
                    self._package(sink.format, f"{key}.type")

    def end(self, deadline: float) -> None:
        """Wait for the answers."""
        for key, asked, thread in self._asked:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self._found(key, f"{asked}: no answer after {ANSWERS_S:g} s")

    @property
    def _parses(self) -> bool:
        """Whether there is a parser; without one that is a finding of the file."""
        try:
            GRAMMAR.start()
        except OdradekError:
            return False
        return True

    def _found_if(self, key: str, problem: str | None) -> None:
        if problem is not None:
            self._found(key, problem)

    def _syntax(self, key: str, wrong: SqlFinding | None) -> None:
        if wrong is not None:
            self._found(key, wrong.reason)

    def _found(self, key: str, reason: str, line: int | None = None) -> None:
        self._findings.add(self._entry, JobError(reason, key), line)

    def _ask(self, key: str, asked: str, look: Callable[[], None]) -> None:
        """Run a check that may ask another machine, while the other checks continue."""
        # A look-up at a name server cannot be interrupted; a daemon thread does not hold up the end.
        thread = threading.Thread(target=self._attempt, args=(key, look), daemon=True)
        thread.start()
        self._asked.append((key, asked, thread))

    def _attempt(self, key: str, look: Callable[[], None]) -> None:
        try:
            look()
        except ModuleNotFoundError as error:
            self._found(key, f"this needs the package {error.name}, which is not installed")
        except OdradekError as error:
            self._found(key, str(error))
        except OSError as error:
            self._found(key, f"{error.filename}: {error.strerror}" if error.filename else str(error))

    def _store(self) -> None:
        address = parse_address(self.job.offset_store)
        if address.scheme == "file":
            self._found_if("offsets.store", folder_problem(Path(address.path).parent))
        options = {"timeout_ms": PATIENCE_MS, **self.job.offset_store_options}
        with open_store(self.job.offset_store, options) as store:
            try:
                if not store.load() and self.job.reset == "none":
                    self._found("offsets.reset", "the store has no positions of the job, so it cannot start by none")
            except OffsetStoreUnavailableError as error:
                # A new broker makes the topic of the offsets when it is first asked for them.
                if type(error.__cause__).__name__ not in _NO_COORDINATOR_YET:
                    raise
            source = self.job.source_options()
            for name in sorted(store.unknown(source.partitions or [TopicPartition(name, 0) for name in source.topics])):
                self._found("offsets.store", f"it cannot keep positions of {name.topic}: it has no {name} itself")

    def _folder_topics(self, options: SourceOptions, folder: Path) -> None:
        if not folder.is_dir():
            reason = "not a folder" if folder.exists() else "there is no such folder"
            self._found("source.path", f"{shown(folder)}: {reason}")
            return
        with LogDirectory(folder) as logs:
            self._topics(options, logs.topic_partitions(), shown(folder))

    def _broker_topics(self, options: SourceOptions, servers: str) -> None:
        found = _topics_of_broker(options.kafka)
        names = [TopicPartition(topic, number) for topic, partitions in found.items() for number in partitions]
        self._topics(options, names, servers)

    def _topics(self, options: SourceOptions, names: Collection[TopicPartition], where: str) -> None:
        topics = sorted({name.topic for name in names})
        if options.pattern is not None:
            if not any(map(options.wants, topics)):
                self._found("source.subscribePattern", f"no topic of {where} matches {options.pattern}")
            return
        word = "assign" if options.partitions is not None else "subscribe"
        for topic in options.topics:
            if topic not in topics:
                self._found(f"source.{word}", f"there is no topic {topic} in {where}{nearest(topic, topics)}")
        for name in options.partitions or ():
            if name.topic in topics and name not in names:
                self._found(f"source.{word}", f"there is no partition {name} in {where}")

    def _ask_target(self, key: str, sink: TopicSinkSpec) -> None:
        if sink.path is not None:
            self._ask(f"{key}.path", str(sink.path), partial(self._target_folder, key, sink, sink.path))
        else:
            servers = sink.kafka.get("bootstrap.servers", "")
            self._ask(f"{key}.kafka.bootstrap.servers", servers, partial(self._target_broker, key, sink))

    def _target_folder(self, key: str, sink: TopicSinkSpec, folder: Path) -> None:
        self._found_if(f"{key}.path", folder_problem(folder))
        with LogDirectory(folder) as logs:
            self._target(key, sink, logs.topics(), shown(folder))

    def _target_broker(self, key: str, sink: TopicSinkSpec) -> None:
        self._target(key, sink, _topics_of_broker(sink.kafka), sink.kafka["bootstrap.servers"])
        self._found_if(f"{key}.kafka.transaction.timeout.ms", timeout_problem(sink.kafka))

    def _target(self, key: str, sink: TopicSinkSpec, topics: Collection[str], where: str) -> None:
        for option, topic in (("topic", sink.topic), ("dead_letter_topic", sink.dead_letter_topic)):
            if topic is not None and topic not in topics:
                self._found(f"{key}.{option}", f"there is no topic {topic} in {where}{nearest(topic, topics)}")

    def _query(self, key: str, sql: str) -> Columns:
        if not self._parses:
            return None
        # The tables of a catalog are not known here.
        has_catalog = any(word in name for name in self.job.spark_conf for word in ("catalog", "warehouse", "hive"))
        query = Query(sql, self._views, has_catalog=has_catalog)
        for finding in query.findings:
            self._found(key, finding.reason, self._findings.lines.text_line(key, finding.line, self._entry.number))
        return query.columns

    def _function(self, name: FunctionName, key: str) -> None:
        problem = name.problem()
        if problem is not None:
            self._found(key, problem)

    def _value_schema(self, value: ValueFormat) -> None:
        if value.format == "json":
            text = value.schema.decode().strip()
            if self._parses and not text.startswith("{"):
                self._syntax("source.value.schema", GRAMMAR.columns(text))
            return
        from odradek.spark.pipeline.value_decoders import value_decoder

        try:
            value_decoder(value)
        except ImportError as error:
            self._found("source.value.format", f"needs the extra odradek[{value.format}] ({error})")
        except ValueError as error:
            self._found("source.value.schema", f"no schema of {value.format}: {error}")

    def _package(self, kind: str, key: str) -> None:
        missing = missing_package(kind, self.job.spark_conf) if kind in PACKAGES else None
        if missing is not None:
            self._found(key, missing)

    def _watermark(self, view: str) -> None:
        """Check the column of the watermark, if it is of this view."""
        watermark = self.job.state and self.job.state.watermark
        if watermark and watermark.view == view:
            self._needs(WATERMARK_KEY, view, [watermark.column])

    def _parquet(self, key: str, sink: ParquetSinkSpec) -> None:
        if isinstance(sink.path, Path):
            self._found_if(f"{key}.path", folder_problem(sink.path))
        else:
            uri = sink.path
            self._ask(f"{key}.path", str(uri), lambda: self._found_if(f"{key}.path", remote_folder_problem(uri)))
        has_date = "date" in map(str.lower, self._views.get(sink.view) or ())
        by = ["timestamp" if name == "date" and not has_date else name for name in sink.partition_by]
        self._needs(f"{key}.partition_by", sink.view, by)
        if sink.name is not None and sink.merge is not None:
            # The folder begins with the view's rows, and then holds what the query gives.
            held = self._views.get(sink.view)
            self._views[sink.name] = held
            merged = self._query(f"{key}.merge", sink.merge)
            if held is not None and merged is not None:
                for name in held:
                    if name.lower() not in {column.lower() for column in merged}:
                        self._found(f"{key}.merge", f"the query gives no column {name}, which the view {sink.view} has")
        elif sink.name is not None:
            # The view also has the columns of the files that are there already; those are not looked at here.
            columns = self._views.get(sink.view)
            dates = ("date",) if "date" in sink.partition_by and not has_date else ()
            self._views[sink.name] = None if columns is None else (*columns, *dates)

    def _needs(self, key: str, view: str, needed: Collection[str]) -> None:
        columns = self._views.get(view)
        if columns is None:
            return
        known = {name.lower() for name in columns}
        for name in needed:
            if name.lower() not in known:
                self._found(key, f"the view {view} has no column {name}{nearest(name, columns)}")


def _topics_of_broker(kafka: Mapping[str, str]) -> dict[str, list[int]]:
    """Return the partitions of each topic of a broker.

    Raises:
        OdradekError: The broker cannot be reached in time.
    """
    with patient_client(kafka) as client:
        found = client.attempt("looking for topics", client.topics)
    return {name: sorted(held.partitions) for name, held in found.items()}
