"""The process that has something open for writing: a fork of it inherits the memory, but not the right to write.

    parent   open -> append ------------> append        holds the lock of the log directory
    child          `fork` -> append: LogError           POSIX locks are not inherited; neither are threads

The child may read what it inherited, as it was at the fork.
"""

from __future__ import annotations

import os
from pathlib import Path

from odradek.errors import LogError


class WritingProcess:
    """The process that opened something for writing.

    Args:
        path: What it opened.

    Attributes:
        pid: Its id.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = path
        self.pid = os.getpid()

    @property
    def is_this(self) -> bool:
        """Whether this is that process; not so in a fork of it."""
        return os.getpid() == self.pid

    def check(self) -> None:
        """Raise in a fork of the process; to be called before a lock is taken, which a fork may inherit held.

        Raises:
            LogError: This is a fork of it.
        """
        if os.getpid() != self.pid:
            raise LogError(f"{self._path} was opened by process {self.pid}: a fork of it has to open it itself")
