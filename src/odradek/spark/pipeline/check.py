"""Checks a job without running it: no Spark is started, and nothing is written.

    keys      unknown keys, with the nearest known name, and wrong values
    store     its address, and whether it answers
    topics    of the source and of the sinks: whether the folder, or the broker, has them
    sql       whether it parses, and whether the views and columns that it names exist
    sinks     whether their views have the columns that they need

A store or a broker that does not answer within `PATIENCE_MS` is a finding.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from odradek.errors import JobError, OdradekError
from odradek.offsets.store import open_store, parse_address
from odradek.spark.options import SourceOptions, nearest
from odradek.spark.pipeline.job import (
    PARTITION_COLUMNS,
    RECORDS_VIEW,
    TOPIC_SINK_COLUMNS,
    ConsoleSinkSpec,
    Job,
    ParquetSinkSpec,
    TopicSinkSpec,
    read_job,
)
from odradek.spark.pipeline.job_lines import JobLines
from odradek.spark.pipeline.sql_check import Columns, Query
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.names import TopicPartition

PATIENCE_MS = 1000
ANSWERS_S = 3.0
_RECORD_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


@dataclass(frozen=True)
class JobFinding:
    """Something that is wrong with a job.

    Attributes:
        path: The job's file.
        line: The line in the file, from 1; None if it is not known.
        key: The key that is wrong; None if the finding is not about a key.
        reason: What is wrong.
    """

    path: Path
    line: int | None
    key: str | None
    reason: str

    def __str__(self) -> str:
        place = f"{self.path}: line {self.line}" if self.line else str(self.path)
        return f"{place}: {self.key}: {self.reason}" if self.key else f"{place}: {self.reason}"


def check_job(path: Path) -> list[JobFinding]:
    """Return what is wrong with the job in a file, in the order of its lines.

    Raises:
        FormatError: The file does not hold text.
        OSError: The file cannot be read.
    """
    text = read_job(path)
    lines = JobLines(text)
    unknown: list[JobError] = []
    findings: list[JobFinding] = []

    def found(key: str | None, reason: str, line: int | None = None) -> None:
        # One line, even if a library's message has several.
        told = " ".join(reason.split())
        findings.append(JobFinding(path, line or (lines.line(key) if key else None), key, told))

    try:
        job = Job.parse(text, path.absolute().parent, unknown)
    except JobError as error:
        unknown.append(error)
    else:
        _JobCheck(job, lines, found).run()
    for wrong in unknown:
        # TOML's parser puts the line into its message.
        place = None if wrong.key else re.search(r"\(at line (\d+)", wrong.reason)
        found(wrong.key, wrong.reason, int(place[1]) if place else None)
    return sorted(findings, key=lambda finding: finding.line or 0)


class _JobCheck:
    """One check of a job whose keys are right."""

    def __init__(self, job: Job, lines: JobLines, found: Callable[..., None]) -> None:
        self._job = job
        self._lines = lines
        self._found = found
        self._views: dict[str, Columns] = {}
        self._asked: list[tuple[str, str, threading.Thread]] = []

    def run(self) -> None:
        options = self._job.source_options()
        self._ask("offsets.store", parse_address(self._job.offset_store).text, self._store)
        if options.path is None:
            servers = options.kafka["bootstrap.servers"]
            self._ask("source.kafka.bootstrap.servers", servers, lambda: self._broker_topics(options, servers))
        else:
            self._ask("source.path", options.path, lambda: self._folder_topics(options, Path(str(options.path))))
        self._views[RECORDS_VIEW] = (*_RECORD_COLUMNS, "headers") if options.include_headers else _RECORD_COLUMNS
        for number, transform in enumerate(self._job.transforms):
            self._views[transform.view] = self._query(f"transform[{number}].sql", transform.sql)
        for number, sink in enumerate(self._job.sinks):
            key = f"sink[{number}]"
            match sink:
                case ConsoleSinkSpec():
                    self._query(f"{key}.sql", sink.sql)
                case TopicSinkSpec():
                    servers = sink.kafka.get("bootstrap.servers", "")
                    self._ask(f"{key}.kafka.bootstrap.servers", servers, partial(self._target, key, sink))
                    self._needs(f"{key}.view", sink.view, TOPIC_SINK_COLUMNS)
                case ParquetSinkSpec():
                    self._parquet(key, sink)
        deadline = time.monotonic() + ANSWERS_S
        for key, asked, thread in self._asked:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self._found(key, f"{asked}: no answer after {ANSWERS_S:g} s")

    def _ask(self, key: str, asked: str, look: Callable[[], None]) -> None:
        """Check something that may be on another machine, while the other checks go on."""
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
        options = {"timeout_ms": PATIENCE_MS, **self._job.offset_store_options}
        with open_store(self._job.offset_store, options) as store:
            store.load()

    def _folder_topics(self, options: SourceOptions, folder: Path) -> None:
        if not folder.is_dir():
            reason = "not a folder" if folder.exists() else "there is no such folder"
            self._found("source.path", f"{_shown(folder)}: {reason}")
            return
        with LogDirectory(folder) as logs:
            self._topics(options, logs.topic_partitions(), _shown(folder))

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

    def _target(self, key: str, sink: TopicSinkSpec) -> None:
        topics = _topics_of_broker(sink.kafka)
        if sink.topic not in topics:
            where = sink.kafka["bootstrap.servers"]
            self._found(f"{key}.topic", f"there is no topic {sink.topic} in {where}{nearest(sink.topic, topics)}")

    def _query(self, key: str, sql: str) -> Columns:
        # The tables of a catalog are not known here.
        has_catalog = any(word in name for name in self._job.spark_conf for word in ("catalog", "warehouse", "hive"))
        query = Query(sql, self._views, has_catalog=has_catalog)
        for finding in query.findings:
            self._found(key, finding.reason, self._lines.text_line(key, finding.line))
        return query.columns

    def _parquet(self, key: str, sink: ParquetSinkSpec) -> None:
        if sink.path.exists() and not sink.path.is_dir():
            self._found(f"{key}.path", f"{_shown(sink.path)}: not a folder")
        self._needs(f"{key}.partition_by", sink.view, [PARTITION_COLUMNS[name] for name in sink.partition_by])
        if sink.name is not None:
            # The view also has the columns of the files that are there already; those are not looked at here.
            columns = self._views.get(sink.view)
            dates = ("date",) if "date" in sink.partition_by else ()
            self._views[sink.name] = None if columns is None else (*columns, *dates)

    def _needs(self, key: str, view: str, needed: Collection[str]) -> None:
        columns = self._views.get(view)
        if columns is None:
            return
        known = {name.lower() for name in columns}
        for name in needed:
            if name.lower() not in known:
                self._found(key, f"the view {view} has no column {name}{nearest(name, columns)}")


def _shown(path: Path) -> str:
    """Return a path relative to the current directory, if it is below it."""
    folder = Path.cwd()
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


def _topics_of_broker(kafka: Mapping[str, str]) -> dict[str, list[int]]:
    """Return the partitions of each topic of a broker.

    Raises:
        OdradekError: The broker cannot be reached in time.
    """
    from odradek.kafka.client import BrokerClient
    from odradek.kafka.settings import BrokerSettings

    settings = BrokerSettings.parse(kafka)
    client = BrokerClient(replace(settings, timeout_ms=min(settings.timeout_ms, PATIENCE_MS)))
    try:
        found = client.attempt("looking for topics", client.topics)
    finally:
        client.close()
    return {name: sorted(held.leaders) for name, held in found.items()}
