"""How far a command is, on a terminal: a bar on stderr for what takes more than a second.

Nothing is shown where stderr is no terminal, nor where stdout is a pipe: whoever reads that may write to the same
terminal.
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
    """Whether there is a terminal to show progress on."""
    if sys.stderr is None or not sys.stderr.isatty():
        return False
    with suppress(OSError, ValueError):
        return not stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    return False


def is_file(stream: object) -> bool:
    """Whether a stream writes to a file, or to nowhere: not to a terminal, a pipe or a socket."""
    with suppress(OSError, ValueError, AttributeError):
        number: int = stream.fileno()  # type: ignore[attr-defined]
        mode = os.fstat(number).st_mode
        return stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not os.isatty(number))
    return False


def total_size(paths: Iterable[Path]) -> int:
    """Return how many bytes files have; those that cannot be looked at count as none."""
    total = 0
    for path in paths:
        with suppress(OSError):
            total += path.stat().st_size
    return total


class _Bar(Progress):
    """A bar over bytes, which asks how many are done whenever it is drawn."""

    def __init__(self, what: str, total: int, done: Callable[[], int]) -> None:
        self._done = done
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            # What goes to the same terminal is printed above the bar, and not broken where the terminal ends.
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
    """Show how far the work within is, if it takes more than a second and there is a terminal.

    Args:
        what: What is done, in a word.
        total: How many bytes there are; called in another thread, and only if it is shown.
        done: How many of them are done; called in another thread.
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
