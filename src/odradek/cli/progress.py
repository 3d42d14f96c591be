"""The progress of a command on a terminal: a bar on stderr if it takes more than a second.

Nothing is shown if stderr is not a terminal, nor if stdout is a pipe, because the reader of the pipe may write to the
same terminal.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console, RenderableType
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

DELAY_S = 1.0


def is_shown() -> bool:
    """Whether progress is shown."""
    if sys.stderr is None or not sys.stderr.isatty():
        return False
    with suppress(OSError, ValueError):
        return not stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    return False


def is_file(stream: object) -> bool:
    """Whether a stream writes to a file or to the null device, not to a terminal, a pipe or a socket."""
    with suppress(OSError, ValueError, AttributeError):
        number: int = stream.fileno()  # type: ignore[attr-defined]
        mode = os.fstat(number).st_mode
        return stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not os.isatty(number))
    return False


def total_size(paths: Iterable[Path]) -> int:
    """Return the size of files in bytes; files that cannot be examined count as 0."""
    total = 0
    for path in paths:
        with suppress(OSError):
            total += path.stat().st_size
    return total


class _Bar(Progress):
    """A bar over bytes; it asks how many are done whenever it is drawn."""

    def __init__(self, what: str, total: int, done: Callable[[], int]) -> None:
        self._done = done
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            # Other output to this terminal is printed above the bar, and its lines are not wrapped.
            console=Console(stderr=True, soft_wrap=True),
            redirect_stdout=sys.stdout.isatty(),
            transient=True,
        )
        self.add_task(what, total=total)

    def get_renderables(self) -> Iterable[RenderableType]:
        """Draw the bar as far as the work is."""
        for task in self.task_ids:
            self.update(task, completed=self._done())
        return super().get_renderables()


@contextmanager
def progress(what: str, total: Callable[[], int], done: Callable[[], int]) -> Iterator[None]:
    """Show the progress of the work in the `with` block, if it takes more than a second and there is a terminal.

    Args:
        what: What is done, in one word.
        total: Returns how many bytes there are; called in another thread, and only if the bar is shown.
        done: Returns how many of them are done; called in another thread.
    """
    if not is_shown():
        yield
        return
    lock = threading.Lock()
    bars: list[_Bar] = []
    is_over = False

    def start() -> None:
        bar = _Bar(what, total(), done)
        with lock:
            if not is_over:
                bars.append(bar)
                bar.start()

    timer = threading.Timer(DELAY_S, start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            is_over = True
            for bar in bars:
                bar.stop()
