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

Keys outside of `[[job]]` are defaults: those of a table (`[source]`) hold key by key, all others as a whole. No
two jobs may have the same name, offset store, transactional id, folder of Parquet files or of state, or function for
positions: each would take what the other has done for its own.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from odradek.errors import FormatError, JobError
from odradek.spark.pipeline.job_lines import JobLines
from odradek.spark.pipeline.job_reader import read_fields
from odradek.spark.pipeline.job_table import Table
from odradek.storage.regular_files import read_file

_LIMIT_BYTES = 1 << 20


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

    def fields(self, folder: Path, unknown: list[JobError] | None = None) -> dict[str, Any]:
        """Return what its keys say, by the names of the fields of `Job`.

        Args:
            folder: What its paths are relative to.
            unknown: Collects the errors of unknown keys; without it the first one is raised.

        Raises:
            JobError: A key is unknown, missing or wrong.
        """
        if self.number is not None:
            # Jobs that all have the default name could not be told apart.
            Table("", self.content, None).need("name", str)
        return read_fields(Table("", self.content, unknown), folder)


def read_entries(text: str) -> list[JobEntry]:
    """Return the jobs of a text in TOML.

    Raises:
        JobError: It is not TOML, or has a key outside of `[[job]]` that belongs into one.
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
