"""Whether something on the disk is open."""

from __future__ import annotations

from pathlib import Path

from odradek.errors import LogError


class OpenState:
    """The state of a log, or of a log directory. Any thread may read it.

    Args:
        path: Its folder.

    Attributes:
        path: As given.
        is_closed: Whether nothing can be read or changed any more.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_closed = False

    def check_open(self) -> None:
        """Raise if it was closed.

        Raises:
            LogError: It was.
        """
        if self.is_closed:
            raise LogError(f"{self.path} is closed")
