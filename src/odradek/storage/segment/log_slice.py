"""Consecutive whole batches of one segment, for whoever decodes them."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from odradek.storage.segment.contents import Contents, Mapped, Window


class LogSlice:
    """Consecutive whole batches of one segment. Their bytes are read when they are first asked for.

    Attributes:
        path: The `.log` file.
        position: Where the first batch starts, in the file.
        end_position: Where the last batch ends, in the file.
        base_offset: No batch of the slice begins below it.
        next_offset: Where the segment that follows begins, if this is the end of a sealed one; else None. Bytes at the
            end that are no batch are no loss where the offsets before them go up to it.
    """

    def __init__(
        self,
        path: Path,
        contents: Contents,
        position: int,
        end_position: int,
        base_offset: int,
        next_offset: int | None = None,
    ) -> None:
        self.path = path
        self.position = position
        self.end_position = end_position
        self.base_offset = base_offset
        self.next_offset = next_offset
        self._contents = contents

    def __repr__(self) -> str:
        return f"<LogSlice {self.path} [{self.position}, {self.end_position})>"

    @property
    def is_stable(self) -> bool:
        """Whether nobody will ever cut the file: then it is mapped."""
        return self._contents.mapped is not None

    @property
    def inode(self) -> int:
        """The inode of the file."""
        return self._contents.identity[1]

    @property
    def size_bytes(self) -> int:
        """How many bytes the batches have."""
        return self.end_position - self.position

    @cached_property
    def _window(self) -> Window:
        return self._contents.window(self.position, self.size_bytes)

    @property
    def data(self) -> Mapped:
        """The bytes: of the whole file, where it is mapped, else of the slice."""
        return self._window.data

    @property
    def origin(self) -> int:
        """The position in the file that `data` starts at."""
        return self._window.origin
