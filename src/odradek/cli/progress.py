"""The progress of a command on a terminal: a bar on stderr if it takes more than a second.

Nothing is shown if stderr is not a terminal, nor if stdout is a pipe, because the reader of the pipe may write to the
same terminal; nor without the package `rich`, which the extra `terminal` installs.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from odradek.cli.progress_bar import ProgressBar

DELAY_S = 1.0

Unit = Literal["bytes", "records"]


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


@contextmanager
def progress(
    what: str,
    total: Callable[[], int] = lambda: 0,
    done: Callable[[], int] | None = None,
    unit: Unit = "bytes",
) -> Iterator[None]:
    """Show the progress of the work in the `with` block, if it takes more than a second and there is a terminal.

    Args:
        what: What is done, in one word.
        total: Returns how much there is, 0 if that is not known; called in another thread, only if the bar is shown.
        done: Returns how much of it is done; called in another thread. None: that is not known.
        unit: What is counted.
    """
    if not is_shown():
        yield
        return
    lock = threading.Lock()
    bars: list[ProgressBar] = []
    is_over = False

    def start() -> None:
        # Takes longer to import than a short command runs.
        try:
            from odradek.cli.progress_bar import ProgressBar
        except ModuleNotFoundError:
            return
        bar = ProgressBar(what, total(), done, unit)
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
