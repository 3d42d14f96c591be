"""The output of `odradek pipeline run` and `status`.

`run` prints a line for each batch on stdout, and on a terminal the progress on stderr, in one line that moves:

    orders: batch 7: 12,000 offsets, parquet paid ... 3 s | 41,000 offsets/s | lag orders-0 12,000 | parquet paid 2.1 s
"""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Self

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from odradek.cli.listing import show_table
from odradek.cli.progress import is_shown
from odradek.inspection.record_json import to_json
from odradek.printable import printable
from odradek.records.timestamps import iso_text
from odradek.spark.pipeline.job import Job, ParquetSinkSpec
from odradek.storage.names import TopicPartition

if TYPE_CHECKING:
    from odradek.offsets.store import Position
    from odradek.spark.pipeline import BatchReport
    from odradek.spark.pipeline.status import JobStatus

_LAGS_SHOWN = 4


_LIBRARY = logging.getLogger("odradek")


class _Warnings(logging.Handler):
    """Prints what the library warns of: settings without effect, and transactions that hold the job back."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a warning on stderr, above the progress if that is shown."""
        click.echo(printable(record.getMessage()), err=True)


class RunReport:
    """The report of the runs of one or several jobs; a context manager around them.

    Args:
        names: What the jobs are called.
        jsonl: Whether stdout gets JSON lines, for programs.

    Attributes:
        jobs: The report of each job, by its name.
        sink_console: Where console sinks print, if not to stdout.
    """

    def __init__(self, names: Sequence[str], *, jsonl: bool) -> None:
        self.sink_console = Console(stderr=True) if jsonl else None
        is_live = is_shown()
        console = Console()
        self.jobs = {
            name: JobReport(name, console, jsonl=jsonl, is_live=is_live, is_one_of_several=len(names) > 1)
            for name in names
        }
        self._live: Live | None = None
        self._warnings = _Warnings(logging.WARNING)
        if is_live:
            self._live = Live(
                get_renderable=lambda: Group(*(job.moving() for job in self.jobs.values())),
                console=Console(stderr=True),
                # If stdout is the same terminal, lines and the tables of console sinks are printed above the progress.
                redirect_stdout=sys.stdout.isatty(),
                transient=True,
            )

    def __enter__(self) -> Self:
        _LIBRARY.addHandler(self._warnings)
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        _LIBRARY.removeHandler(self._warnings)


class JobReport:
    """The report of one job.

    Args:
        name: What the job is called.
        console: Stdout.
        jsonl: Whether stdout gets JSON lines.
        is_live: Whether the progress is shown.
        is_one_of_several: Whether its lines have to say which job they are of.
    """

    def __init__(
        self, name: str, console: Console, *, jsonl: bool, is_live: bool = False, is_one_of_several: bool = False
    ) -> None:
        self._name = name
        self._jsonl = jsonl
        self._console = console
        self._is_live = is_live
        self._prefix = f"{printable(name)}: " if is_one_of_several else ""
        self._step = ""
        self._since = time.monotonic()
        self._last: BatchReport | None = None
        self._batches = 0
        self._spinner = Spinner("dots")

    def step(self, what: str) -> None:
        """Show the next step."""
        self._step, self._since = what, time.monotonic()
        if not self._is_live and not self._batches:
            # Until the first batch is done nothing else is printed, which may take minutes.
            click.echo(printable(f"{self._name}: {what}"), err=True)

    def batch(self, batch: BatchReport) -> None:
        """Report a batch that is done."""
        self._batches = batch.number
        if self._jsonl:
            ranges = [
                {"topic": name.topic, "partition": name.partition, "start_offset": start, "end_offset": end}
                for name, start, end in batch.ranges
            ]
            fields = {
                "job": self._name,
                "time_ms": time.time_ns() // 1_000_000,
                "batch": batch.number,
                "offsets": batch.offsets,
                "seconds": round(batch.seconds, 3),
                "lag": batch.lag,
                "lags": {str(name): lag for name, lag in sorted(batch.lags.items())},
                "refused": batch.refused,
                "sinks": [{"sink": sink, "seconds": round(seconds, 3)} for sink, seconds in batch.sink_seconds],
                "ranges": ranges,
            }
            click.echo(to_json(fields))
        else:
            self._console.print(
                f"{self._prefix}batch {batch.number}: {batch.offsets:,} offsets of {_ranges(batch)} "
                f"in {batch.seconds:.1f} s, {batch.offsets / batch.seconds:,.0f}/s, {batch.lag:,} left"
                + (f", {batch.refused:,} records refused" if batch.refused else ""),
                soft_wrap=True,
                markup=False,
            )
        self._last = batch
        self.step("waiting for records ...")

    def trace(self, error: Exception) -> None:
        """Print where an error comes from, and the errors that caused it."""
        click.echo("".join(traceback.format_exception(error)), err=True)

    def end(self, job: Job, positions: Mapping[TopicPartition, Position]) -> None:
        """Print a summary of the run; JSON lines have none, because the batches tell it."""
        if self._jsonl:
            return
        if not self._batches:
            what = "nothing new: every partition is read up to its end"
            self._console.print(f"{self._prefix}{what}", soft_wrap=True, markup=False)
        for sink in job.sinks:
            if isinstance(sink, ParquetSinkSpec):
                self._console.print(f"{self._prefix}Parquet: {sink.path}", soft_wrap=True, markup=False)
        table = Table(title=Text(f"{self._prefix}Offsets reached"))
        for name in ("topic", "partition", "next offset"):
            table.add_column(name)
        for (topic, partition), position in sorted(positions.items()):
            table.add_row(topic, str(partition), str(position.offset))
        self._console.print(table)

    def moving(self) -> RenderableType:
        """Return the line of the progress as it is now."""
        # A spinner with a text of its own would wrap it on a narrow terminal.
        frame = self._spinner.render(time.monotonic())
        assert isinstance(frame, Text)
        return Text.assemble(frame, " ", self._line(), no_wrap=True, overflow="ellipsis")

    def _line(self) -> str:
        """Return what the job does now, and how fast and how far the last batch was."""
        seconds = time.monotonic() - self._since
        parts = [f"{self._name}: {self._step} {seconds:.0f} s"]
        if (batch := self._last) is not None:
            parts.append(f"{batch.offsets / batch.seconds:,.0f} offsets/s")
            lags = sorted(((lag, name) for name, lag in batch.lags.items() if lag), reverse=True)
            told = ", ".join(f"{name} {lag:,}" for lag, name in lags[:_LAGS_SHOWN])
            more = f" and {len(lags) - _LAGS_SHOWN} more" if len(lags) > _LAGS_SHOWN else ""
            parts.append(f"lag {told}{more}" if lags else "no lag")
            parts += [f"{sink} {sink_seconds:.1f} s" for sink, sink_seconds in batch.sink_seconds]
        return " | ".join(map(printable, parts))


def show_status(status: JobStatus, *, jsonl: bool) -> None:
    """Print how far a job is.

    Args:
        status: What to print.
        jsonl: Whether as one line of JSON, for programs.
    """
    note = status.note
    if jsonl:
        partitions = [
            {
                "topic": part.topic_partition.topic,
                "partition": part.topic_partition.partition,
                "offset": part.offset,
                "end_offset": part.end_offset,
                "lag": part.lag,
                "problem": part.problem,
            }
            for part in status.partitions
        ]
        fields = {
            "name": status.name,
            "store": status.store,
            "lag": status.lag,
            "batch": None if note.batch is None else asdict(note.batch),
            "error": None if note.error is None else asdict(note.error),
            "source_error": status.source_error,
            "partitions": partitions,
        }
        click.echo(to_json(fields))
        return
    told = [f"{status.name}: {_count(status.lag)} left, position in {status.store}"]
    if note.batch is not None:
        last = note.batch
        refused = f", {last.refused:,} records refused" if last.refused else ""
        # A job with state has a batch that reads nothing where the watermark has closed windows.
        what = f"{last.offsets:,} offsets" if last.offsets else "windows that were over, and no new offsets,"
        told.append(f"last batch: {iso_text(last.time_ms)}, {what} in {last.seconds:.1f} s{refused}")
    if note.error is not None:
        when = "" if note.has_failed else ", before the last batch"
        told.append(f"last error: {iso_text(note.error.time_ms)}{when}: {note.error.text}")
    if status.source_error is not None:
        told.append(f"the source does not answer: {status.source_error}")
    told += [part.problem for part in status.partitions if part.problem is not None]
    for line in told:
        click.echo(printable(line))
    rows = []
    for part in status.partitions:
        numbers = map(_count, (part.offset, part.end_offset, part.lag))
        rows.append((part.topic_partition.topic, str(part.topic_partition.partition), *numbers))
    if rows:
        show_table([("TOPIC", "PARTITION", "OFFSET", "LOG_END", "LAG"), *rows])


def _count(number: int | None) -> str:
    return "-" if number is None else str(number)


def _ranges(batch: BatchReport) -> str:
    if len(batch.ranges) > 1:
        return f"{len(batch.ranges)} partitions"
    name, start, end = batch.ranges[0]
    return f"{name} [{start}, {end})"
