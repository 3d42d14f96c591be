"""The output of `odradek pipeline run`: a line for each batch on stdout, and on a terminal the progress on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from odradek.cli.app import printable
from odradek.cli.progress import is_shown
from odradek.cli.record_json import to_json
from odradek.spark.pipeline.job import Job, ParquetSinkSpec
from odradek.storage.names import TopicPartition

if TYPE_CHECKING:
    from odradek.offsets.store import Position
    from odradek.spark.pipeline import BatchReport


class RunReport:
    """The report of one run; a context manager around it.

    Args:
        name: What the job is called.
        jsonl: Whether stdout gets JSON lines, for programs.

    Attributes:
        sink_console: Where console sinks print, if not to stdout.
    """

    def __init__(self, name: str, *, jsonl: bool) -> None:
        self._name = name
        self._jsonl = jsonl
        self._console = Console()
        self.sink_console = Console(stderr=True) if jsonl else None
        self._step = ""
        self._since = time.monotonic()
        self._table: Table | None = None
        self._batches = 0
        self._spinner = Spinner("dots")
        self._live: Live | None = None
        if is_shown():
            self._live = Live(
                get_renderable=self._moving,
                console=Console(stderr=True),
                # If stdout is the same terminal, lines and the tables of console sinks are printed above the progress.
                redirect_stdout=sys.stdout.isatty(),
                transient=True,
            )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def step(self, what: str) -> None:
        """Show the next step."""
        self._step, self._since = what, time.monotonic()
        if self._live is None and not self._batches:
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
            fields = {"batch": batch.number, "offsets": batch.offsets, "seconds": round(batch.seconds, 3)}
            click.echo(to_json(fields | {"lag": batch.lag, "ranges": ranges}))
        else:
            self._console.print(
                f"batch {batch.number}: {batch.offsets:,} offsets of {_ranges(batch)} in {batch.seconds:.1f} s, "
                f"{batch.offsets / batch.seconds:,.0f}/s, {batch.lag:,} left",
                soft_wrap=True,
            )
        self._table = self._progress(batch)
        self.step("waiting for records ...")

    def end(self, job: Job, positions: Mapping[TopicPartition, Position]) -> None:
        """Print a summary of the run; JSON lines have none, because the batches tell it."""
        if self._jsonl:
            return
        if not self._batches:
            self._console.print("nothing new: every partition is read up to its end")
        for sink in job.sinks:
            if isinstance(sink, ParquetSinkSpec):
                self._console.print(f"Parquet: {sink.path}", soft_wrap=True, markup=False)
        table = Table(title="Offsets reached")
        for name in ("topic", "partition", "next offset"):
            table.add_column(name)
        for (topic, partition), position in sorted(positions.items()):
            table.add_row(topic, str(partition), str(position.offset))
        self._console.print(table)

    def _moving(self) -> RenderableType:
        seconds = time.monotonic() - self._since
        self._spinner.update(text=Text(f"{self._name}: {self._step} {seconds:.0f} s"))
        return self._spinner if self._table is None else Group(self._table, self._spinner)

    def _progress(self, batch: BatchReport) -> Table:
        table = Table(title=f"{self._name}: batch {batch.number} in {batch.seconds:.1f} s")
        for column in ("partition", "next offset", "lag", "offsets/s"):
            table.add_column(column, justify="left" if column == "partition" else "right")
        spans = {part.topic_partition: part.end_offset - part.start_offset for part in batch.ranges}
        for name, position in sorted(batch.positions.items()):
            lag = max(0, batch.end_offsets.get(name, position.offset) - position.offset)
            speed = spans.get(name, 0) / batch.seconds
            table.add_row(str(name), f"{position.offset:,}", f"{lag:,}", f"{speed:,.0f}")
        return table


def _ranges(batch: BatchReport) -> str:
    if len(batch.ranges) > 1:
        return f"{len(batch.ranges)} partitions"
    name, start, end = batch.ranges[0]
    return f"{name} [{start}, {end})"
