"""A range of a `.log` file, to be sent through a socket without being read.

Source in Kafka: `FileRecords`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from odradek.records.header import BatchHeader, claimed_size
from odradek.records.scan import scan_batches

if TYPE_CHECKING:
    from odradek.storage.segment.contents import Contents, Window


_WINDOW_BYTES = 1 << 16


def _batch_size(window: Window, position: int) -> int:
    return claimed_size(window.data, position - window.origin)


class FileRecords:
    """Bytes of a `.log` file from the start of a batch on. The file stays open as long as this exists.

    Attributes:
        position: Where they begin, in the file.
        size_bytes: How many bytes they have; the last batch may be cut short.
        magic: The format of the first batch.

    Raises:
        FileNotFoundError: The file was deleted, and it was not open.
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

    def batches(self, last_offset: int) -> Iterator[BatchHeader]:
        """Yield the headers of the whole batches, up to the one that holds an offset or is the last before it.

        Positions are those in the file.

        Raises:
            LogError: The disk cannot read them.
        """
        position, end = self.position, self.position + self.size_bytes
        size = _WINDOW_BYTES
        while position < end:
            window = self._contents.window(position, min(size, end - position))
            size, last = _WINDOW_BYTES, min(window.end, end)
            before = position
            for header in scan_batches(window.data, position, last, origin=window.origin):
                if header.base_offset > last_offset:
                    return
                yield header
                position = header.end_position
            if position == before:
                # A batch that does not fit the window, unless it is cut short.
                size = last - position if last == end else _batch_size(window, position)
                if last == end or position + size > end:
                    return

    def part(self, start: int, size_bytes: int) -> FileRecords:
        """Return whole batches of these; `start` counts from `position`."""
        return FileRecords(self._contents, self.position + start, size_bytes, self.magic)

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
