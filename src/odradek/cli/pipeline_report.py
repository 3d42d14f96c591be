"""The output of `odradek pipeline run` and `status`.

`run` prints a line for each batch on stdout, and on a terminal the progress on stderr, in one line that moves:

    orders: batch 7: 12,000 offsets, parquet paid ... 3 s | 41,000 offsets/s | lag orders-0 12,000 | parquet paid 2.1 s
"""

from __future__ import annotations

import logging
import shutil
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from odradek.cli.app import describe, report
from odradek.cli.listing import show_table
from odradek.cli.progress import is_shown
from odradek.inspection.record_json import to_json
from odradek.minutes import MINUTE_MS, Minute, this_minute
from odradek.printable import printable
from odradek.records.timestamps import iso_text
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.sink_specs import ParquetSinkSpec
from odradek.storage.names import TopicPartition

if TYPE_CHECKING:
    from odradek.offsets.store import Position
    from odradek.spark.pipeline import BatchReport
    from odradek.spark.pipeline.status import JobStatus

_LAGS_SHOWN = 4
_PLOT_MINUTES = 360
_HOUR_MINUTES = 60
_PLOT_COLUMNS = 60
_LEAST_PLOT_COLUMNS = 8
_BESIDE_PLOT_COLUMNS = 51
"""What stands before and after the bars, for a lag below ten billion."""
_BARS = "▁▂▃▄▅▆▇█"

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
                "batch": batch.number,
                "offsets": batch.offsets,
                "seconds": round(batch.seconds, 3),
                "lag": batch.lag,
                "lags": {str(name): lag for name, lag in sorted(batch.lags.items())},
                "refused": batch.refused,
                "sinks": [{"sink": sink, "seconds": round(seconds, 3)} for sink, seconds in batch.sink_seconds],
                "ranges": ranges,
            }
            self._event("batch", fields)
        else:
            self._console.print(
                f"{self._prefix}batch {batch.number}: {batch.offsets:,} offsets of {printable(_ranges(batch))} "
                f"in {batch.seconds:.1f} s, {batch.offsets / batch.seconds:,.0f}/s, {batch.lag:,} left"
                + (f", {batch.refused:,} records refused" if batch.refused else ""),
                soft_wrap=True,
                markup=False,
            )
        self._last = batch
        self.step("waiting for records ...")

    def restart(self, error: Exception, wait_s: float) -> None:
        """Report a failure after which the job starts again."""
        text = describe(error)
        report(f"job {self._name}: {text}; it starts again in {wait_s:g} s")
        self._event("restart", {"error": text, "wait_s": wait_s})

    def failed(self, text: str) -> None:
        """Report a failure that ends the job."""
        self._event("failed", {"error": text})
        self.step("failed")

    def _event(self, event: str, fields: Mapping[str, object]) -> None:
        if self._jsonl:
            at = {"job": self._name, "time_ms": time.time_ns() // 1_000_000, "event": event}
            click.echo(to_json({**at, **fields}))

    def trace(self, error: Exception) -> None:
        """Print where an error comes from, and the errors that caused it."""
        click.echo("".join(traceback.format_exception(error)), err=True)

    def end(self, job: Job, positions: Mapping[TopicPartition, Position]) -> None:
        """Print a summary of the run; as JSON only that it has ended, because the batches tell the rest."""
        if self._jsonl:
            self._event("ended", {"batches": self._batches})
            return
        if not self._batches:
            what = "nothing new: every partition is read up to its end"
            self._console.print(f"{self._prefix}{what}", soft_wrap=True, markup=False)
        for sink in job.sinks:
            if isinstance(sink, ParquetSinkSpec):
                self._console.print(f"{self._prefix}Parquet: {printable(str(sink.path))}", soft_wrap=True, markup=False)
        table = Table(title=Text(f"{self._prefix}Offsets reached"))
        for name in ("topic", "partition", "next offset"):
            table.add_column(name)
        for (topic, partition), position in sorted(positions.items()):
            table.add_row(Text(printable(topic)), str(partition), str(position.offset))
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


def status_fields(status: JobStatus) -> dict[str, Any]:
    """Return how far a job is as plain values, for programs and the console."""
    note = status.note
    partitions = [
        {
            "topic": part.topic_partition.topic,
            "partition": part.topic_partition.partition,
            "offset": part.offset,
            "end_offset": part.end_offset,
            "lag": part.lag,
            "problem": part.problem,
            "open_transaction": part.transaction and part.transaction.fields(),
        }
        for part in status.partitions
    ]
    return {
        "name": status.name,
        "store": status.store,
        "lag": status.lag,
        "held_back": status.held_back,
        "batch": None if note.batch is None else asdict(note.batch),
        "error": None if note.error is None else asdict(note.error),
        "loss": None if note.loss is None else asdict(note.loss),
        "source_error": status.source_error,
        "history": [
            {"time_ms": number * MINUTE_MS, "lag": lag, "offsets": offsets} for number, lag, offsets in status.history
        ],
        "partitions": partitions,
    }


def show_status(status: JobStatus, *, jsonl: bool) -> None:
    """Print how far a job is.

    Args:
        status: What to print.
        jsonl: Whether as one line of JSON, for programs.
    """
    note = status.note
    if jsonl:
        click.echo(to_json(status_fields(status)))
        return
    held = f", {status.held_back:,} held back by open transactions" if status.held_back else ""
    told = [f"{status.name}: {_count(status.lag)} left{held}, position in {status.store}"]
    if note.batch is not None:
        last = note.batch
        refused = f", {last.refused:,} records refused" if last.refused else ""
        # A job with state has a batch that reads nothing where the watermark has closed windows.
        what = f"{last.offsets:,} offsets" if last.offsets else "windows that were over, and no new offsets,"
        told.append(f"last batch: {iso_text(last.time_ms)}, {what} in {last.seconds:.1f} s{refused}")
    if note.error is not None:
        when = "" if note.has_failed else ", before the last batch"
        told.append(f"last error: {iso_text(note.error.time_ms)}{when}: {note.error.text}")
    if note.loss is not None:
        told.append(f"last loss, of logs that were cut: {iso_text(note.loss.time_ms)}: {note.loss.text}")
    if status.source_error is not None:
        told.append(f"the source does not answer: {status.source_error}")
    told += [part.problem for part in status.partitions if part.problem is not None]
    waits = [str(part.transaction) for part in status.partitions if part.transaction is not None]
    told += waits
    for line in (*told, *plot(status.history, this_minute(), plot_columns())):
        click.echo(printable(line))
    rows = []
    for part in status.partitions:
        ends = [part.end_offset if part.transaction is None else part.transaction.end_offset, part.end_offset]
        numbers = map(_count, (part.offset, *(ends if waits else ends[:1]), part.lag))
        rows.append((part.topic_partition.topic, str(part.topic_partition.partition), *numbers))
    if rows:
        stable = ["LAST_STABLE"] if waits else []
        show_table([("TOPIC", "PARTITION", "OFFSET", "LOG_END", *stable, "LAG"), *rows])


def plot(history: Sequence[Minute], now: int, columns: int = _PLOT_COLUMNS) -> list[str]:
    """Return the lag and the rate of the last hours in block characters, a column for each minute or for some.

    Args:
        history: The minutes, in order.
        now: The number of this minute.
        columns: How many columns there are at most.
    """
    shown = [minute for minute in history if minute.number > now - _PLOT_MINUTES]
    if not shown:
        return []
    minutes = now - shown[0].number + 1
    width = -(-minutes // columns)
    lags: dict[int, float] = {}
    rates: dict[int, float] = {}
    for number, lag, offsets in shown:
        age = (now - number) // width
        lags[age] = max(lag, lags.get(age, 0))
        rates[age] = rates.get(age, 0) + offsets / (60 * width)
    span = f"the last {minutes} min" if minutes < 2 * _HOUR_MINUTES else f"the last {minutes / _HOUR_MINUTES:.1f} h"
    return [
        f"lag       |{_bars(lags)}| at most {max(lags.values()):,.0f} in {span}",
        f"offsets/s |{_bars(rates)}| at most {max(rates.values()):,.1f}",
    ]


def plot_columns() -> int:
    """Return how many columns a plot may have, so that a terminal does not wrap the bars."""
    if not sys.stdout.isatty():
        return _PLOT_COLUMNS
    room = shutil.get_terminal_size().columns - _BESIDE_PLOT_COLUMNS
    return min(max(room, _LEAST_PLOT_COLUMNS), _PLOT_COLUMNS)


def _bars(values: Mapping[int, float]) -> str:
    """Return a bar for each value, by its age; a blank for a missing value."""
    highest = max(values.values()) or 1
    ages = range(max(values), -1, -1)
    return "".join(_BARS[round(values[age] / highest * 7)] if age in values else " " for age in ages)


def _count(number: int | None) -> str:
    return "-" if number is None else str(number)


def _ranges(batch: BatchReport) -> str:
    if len(batch.ranges) > 1:
        return f"{len(batch.ranges)} partitions"
    name, start, end = batch.ranges[0]
    return f"{name} [{start}, {end})"
