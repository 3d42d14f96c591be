"""A file of jobs: one job, or several under `[[job]]`.

    [offsets]                                    # for every job that does not say otherwise
    store = "redis://localhost:6379/0?group={name}"

    [[job]]
    name = "orders"
    source = { path = "data", subscribe = "orders" }

    [[job.sink]]
    type = "parquet"
    path = "orders"

    [[job]]
    name = "invoices"
    ...

What stands outside of `[[job]]` are defaults: those of a table (`[source]`) hold key by key, all others as a whole. No
two jobs may have the same name, offset store, transactional id, folder of Parquet files or of state, function for
positions or address of `/metrics`: each would take what the other has done for its own.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from odradek.arguments import checked_path
from odradek.errors import FormatError, JobError, OdradekError
from odradek.offsets.store import parse_address
from odradek.spark.options import nearest
from odradek.spark.pipeline.folder_uri import overlap
from odradek.spark.pipeline.job import Job, ParquetSinkSpec, TopicSinkSpec
from odradek.spark.pipeline.job_lines import JobLines
from odradek.spark.pipeline.job_reader import read_table
from odradek.spark.pipeline.job_table import Table
from odradek.spark.pipeline.sink_specs import PythonSinkSpec
from odradek.storage.regular_files import read_file

_LIMIT_BYTES = 1 << 20
_PORTS = {"kafka": "9092", "redis": "6379", "zookeeper": "2181"}


@dataclass(frozen=True)
class JobEntry:
    """A job as a file has it, not yet checked.

    Attributes:
        number: Its number among the `[[job]]` of the file, from 0; None if the whole file is the job.
        content: Its keys and values, with the file's defaults.
    """

    number: int | None
    content: Mapping[str, Any]

    @property
    def title(self) -> str | None:
        """What errors call it; None if the whole file is the job."""
        if self.number is None:
            return None
        name = self.content.get("name")
        return name if isinstance(name, str) else f"#{self.number + 1}"

    def job(self, folder: Path, unknown: list[JobError] | None = None) -> Job:
        """Read the job.

        Args:
            folder: What its paths are relative to.
            unknown: Collects the errors of unknown keys; without it the first one is raised.

        Raises:
            JobError: It cannot run.
        """
        if self.number is not None:
            # Jobs that all have the default name could not be told apart.
            Table("", self.content, None).need("name", str)
        return read_table(Table("", self.content, unknown), folder)


def read_entries(text: str) -> list[JobEntry]:
    """Return the jobs of a text in TOML.

    Raises:
        JobError: It is not TOML, or something stands outside of `[[job]]` that may not.
    """
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise JobError(str(error)) from error
    except ValueError as error:
        # Python reads no number of more than 4,300 digits.
        raise JobError("a number has too many digits") from error
    except RecursionError as error:
        raise JobError("nested too deeply to be read") from error
    if "job" not in content:
        return [JobEntry(None, content)]
    entries = content.pop("job")
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise JobError("expected [[job]]", "job")
    if "name" in content:
        raise JobError("each [[job]] has a name of its own", "name")
    for number, entry in enumerate(entries):
        if "spark" in entry:
            raise JobError("the jobs of a file share one Spark: set it outside of [[job]]", f"job[{number}].spark")
    return [JobEntry(number, _named(_merged(content, entry))) for number, entry in enumerate(entries)]


def clashes(jobs: Sequence[Job]) -> Iterator[tuple[int, JobError]]:
    """Find jobs that would take each other's work for their own; yields the number of the second one, and its error."""
    for number, job in enumerate(jobs):
        for other in jobs[:number]:
            for key, reason in _clashes(job, other):
                yield number, JobError(f"job {other.name} {reason}: each job needs its own", key)


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
                jobs.append(entry.job(folder))  # noqa: PERF401 - an error is one of `entry`
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


def located(path: Path | None, text: str, entry: JobEntry | None, error: JobError) -> JobError:
    """Return an error with its file, the line of its key, and its job if the file has several.

    Args:
        path: The file; None for a text.
        text: What it holds.
        entry: The job; None if the error is not one of a job's.
        error: The error.
    """
    lines = JobLines(text)
    number = None if entry is None else entry.number
    line = None if error.key is None else lines.line(error.key, number)
    in_query = re.search(r"\bline (\d+),? pos(?:ition)? \d+", error.reason)
    if error.key is not None and in_query is not None:
        # Spark counts the lines of the query.
        line = lines.text_line(error.key, int(in_query[1]), number)
    parts = [
        None if path is None else str(path),
        f"line {line}" if line else None,
        None if entry is None or entry.title is None else f"job {entry.title}",
        str(error),
    ]
    return JobError(": ".join(part for part in parts if part is not None))


def read_job_text(path: Path) -> str:
    """Return the text of a file of jobs.

    Raises:
        FormatError: The path is not a file, or the file is far too long, or not UTF-8.
        OSError: The file cannot be read.
    """
    try:
        # Editors of Windows may put a mark before the text.
        return read_file(path, _LIMIT_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"this is not UTF-8: {error.reason}", path=path, position=error.start) from error


def _merged(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(defaults)
    for name, value in given.items():
        held = merged.get(name)
        merged[name] = _merged(held, value) if isinstance(held, dict) and isinstance(value, dict) else value
    return merged


def _named(content: dict[str, Any]) -> dict[str, Any]:
    """Put the job's name where its offset store asks for it."""
    name, offsets = content.get("name"), content.get("offsets")
    if not isinstance(name, str) or not isinstance(offsets, dict) or not isinstance(offsets.get("store"), str):
        return content
    store: str = offsets["store"]
    is_path = store.startswith("file:") and not store.startswith("file:/")
    store = store.replace("{name}", name if is_path else quote(name, safe=""))
    return {**content, "offsets": {**offsets, "store": store}}


def _clashes(job: Job, other: Job) -> Iterator[tuple[str, str]]:
    """Yield the keys of a job that have what another one has, and what that other one does with it."""
    if job.name == other.name:
        yield "name", "has this name"
    if _groups(job) & _groups(other):
        yield "offsets.store", "has this offset store, in whose address {name} may stand for a job's name"
    if job.metrics is not None and job.metrics == other.metrics and job.metrics[1]:
        yield "metrics.listen", "serves at this address"
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
    """Return what the positions of a job are kept under, by each of the hosts that its store names."""
    try:
        address = parse_address(job.offset_store, job.offset_store_options)
    except OdradekError:
        # Whoever opens it says what is wrong.
        return set()
    scheme = "redis" if address.scheme == "rediss" else address.scheme
    path = address.path.strip("/")
    if scheme in ("file", "folder"):
        path = str(Path(address.path).resolve())
    elif scheme == "redis":
        path = path or "0"
    hosts = [host if ":" in host else f"{host}:{_PORTS.get(scheme, '')}" for host in address.hosts.split(",")]
    return {(scheme, host, path, address.options.get("group", "")) for host in hosts}
