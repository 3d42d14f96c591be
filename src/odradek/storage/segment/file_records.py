"""A range of a `.log` file, to be sent through a socket without being read.

Source in Kafka: `FileRecords`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.storage.segment.contents import Contents


class FileRecords:
    """Bytes of a `.log` file from the start of a batch on. The file stays open as long as this exists.

    Attributes:
        position: Where they begin, in the file.
        size_bytes: How many bytes they have; the last batch may be cut short.
        magic: The format of the first batch.

    Raises:
        FileNotFoundError: The file is gone, and it was not open.
    """

    __slots__ = ("_contents", "_descriptor", "magic", "position", "size_bytes")

    def __init__(self, contents: Contents, position: int, size_bytes: int, magic: int) -> None:
        self._contents = contents
        self.magic = magic
        self.position = position
        self.size_bytes = size_bytes
        # Opened now: compaction or retention may remove the file before its turn to be sent.
        self._descriptor = contents.fileno()

    def fileno(self) -> int:
        """Return the descriptor of the file, for `os.sendfile`."""
        return self._descriptor

    def read(self, start: int = 0, size_bytes: int | None = None) -> bytes:
        """Return the bytes, or a part of them.

        Args:
            start: Where the part begins, counted from `position`.
            size_bytes: How many bytes of it; None for all that follow.

        Raises:
            LogError: The disk cannot read them.
        """
        size = self.size_bytes - start if size_bytes is None else min(size_bytes, self.size_bytes - start)
        data, origin = self._contents.window(self.position + start, size)
        at = self.position + start - origin
        return bytes(memoryview(data)[at : at + size])
