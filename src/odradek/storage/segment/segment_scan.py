"""Walks over the batches of a segment, a window of the file at a time.

    | batch | batch | batch | batch | ...
    |------ window ------|                   a batch that the window cuts is the first of the next one
                    |------ window ------|

A window is at least as large as its first batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from odradek.errors import FormatError, TruncatedBatchError
from odradek.records.header import BatchHeader, claimed_size
from odradek.records.scan import scan_batches
from odradek.storage.segment.contents import WINDOW_BYTES, Contents, Window


class SegmentScan:
    """An iterator over the headers of consecutive batches.

    Args:
        path: The `.log` file, for what `damage` says.
        contents: Its bytes.
        position: Where the first batch starts.
        end: Where to stop.
        check_crc: Whether each checksum is verified.
        next_offset: The least offset that the first batch may have; from then on offsets must rise. -1: unchecked.
        transactional: Whether only the batches of transactions are given, their markers among them.

    Attributes:
        position: The first byte that was not understood (or not yet reached).
        window: The part of the file that holds the batch that was given last.
        damage: Why the scan stopped before the end; None as long as all is well. It is not raised.
    """

    window: Window

    def __init__(
        self,
        path: Path,
        contents: Contents,
        position: int,
        end: int,
        *,
        check_crc: bool = False,
        next_offset: int = -1,
        transactional: bool = False,
    ) -> None:
        self.position = position
        self.damage: FormatError | None = None
        self._path = path
        self._contents = contents
        self._end = end
        self._check_crc = check_crc
        self._next_offset = next_offset
        self._transactional = transactional

    def __iter__(self) -> Iterator[BatchHeader]:
        window_bytes = WINDOW_BYTES
        while self.damage is None and self.position < self._end:
            start = self.position
            self.window = self._contents.window(start, min(window_bytes, self._end - start))
            stop = min(self.window.end, self._end)
            scan = scan_batches(
                self.window.data,
                start,
                max(start, stop),
                check_crc=self._check_crc,
                path=self._path,
                origin=self.window.origin,
                next_offset=self._next_offset,
                transactional=self._transactional,
            )
            for header in scan:
                self.position = header.end_position
                yield header
            self.position, self._next_offset = scan.position, scan.next_offset
            if stop <= start:
                self.damage = TruncatedBatchError("the file ends here", path=self._path, position=start)
            elif not isinstance(scan.damage, TruncatedBatchError) or stop == self._end:
                self.damage = scan.damage
            elif self.position == start:
                # The window holds less than one batch.
                window_bytes = self._batch_bytes()
                if window_bytes > self._end - start:
                    # Before so much memory is taken for it.
                    reason = f"the batch claims {window_bytes} bytes, {self._end - start} are left"
                    self.damage = TruncatedBatchError(reason, path=self._path, position=start)

    def _batch_bytes(self) -> int:
        """Return the size of the batch that the window starts with."""
        return claimed_size(self.window.data, self.position - self.window.origin)
