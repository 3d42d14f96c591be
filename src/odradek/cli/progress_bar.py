"""The bar that `odradek.cli.progress` shows, drawn by rich."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text


class _RecordSpeedColumn(ProgressColumn):
    """How many records a second."""

    def render(self, task: Task) -> Text:
        """Return the text; nothing until it is known."""
        return Text("" if task.speed is None else f"{task.speed:,.0f} records/s", style="progress.data.speed")


class ProgressBar(Progress):
    """A bar; it asks how much is done whenever it is drawn.

    Without a total it shows how much is done and how long that has taken, or only how long.
    """

    def __init__(self, what: str, total: int | None, done: Callable[[], int] | None, unit: str) -> None:
        self._done = done
        columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn()]
        if done is not None and unit == "bytes":
            columns += [DownloadColumn(), TransferSpeedColumn()]
        elif done is not None:
            columns += [MofNCompleteColumn(), _RecordSpeedColumn()]
        super().__init__(
            *columns,
            TimeRemainingColumn() if total else TimeElapsedColumn(),
            # Other output to this terminal is printed above the bar, and its lines are not wrapped.
            console=Console(stderr=True, soft_wrap=True),
            redirect_stdout=sys.stdout.isatty(),
            transient=True,
        )
        self.add_task(what, total=total or None)

    def get_renderables(self) -> Iterable[RenderableType]:
        """Draw the bar as far as the work is."""
        if self._done is not None:
            for task in self.task_ids:
                self.update(task, completed=self._done())
        return super().get_renderables()
