"""The console sink: a table on the terminal for every batch."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from odradek.printable import printable
from odradek.spark.pipeline.batch import Batch
from odradek.spark.pipeline.sink import Sink
from odradek.spark.pipeline.sink_specs import ConsoleSinkSpec


class ConsoleSink(Sink):
    """Shows the first rows of a query.

    Args:
        spec: What to show.
        console: Where to show it; by default stdout.
    """

    description = "console"

    def __init__(self, spec: ConsoleSinkSpec, console: Console | None = None) -> None:
        self._spec = spec
        self._console = console or Console()

    def write(self, batch: Batch) -> None:
        """Show the table."""
        frame = batch.spark.sql(self._spec.sql).limit(self._spec.rows)
        # Each a `Text`, because rich would take `[/x]` in a string for markup.
        table = Table(title=None if self._spec.title is None else Text(printable(self._spec.title)))
        for name in frame.columns:
            table.add_column(Text(printable(name)))
        for row in frame.collect():
            table.add_row(*(_cell(value) for value in row))
        self._console.print(table)


def _cell(value: Any) -> Text:
    if value is None:
        return Text()
    text = bytes(value).decode("utf-8", "backslashreplace") if isinstance(value, bytes | bytearray) else str(value)
    # Records are others' words: nothing of them may command the terminal. Lines and columns of a text stay.
    return Text(printable(text, kept="\n\t"))
