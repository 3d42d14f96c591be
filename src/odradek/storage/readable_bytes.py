"""Asks the system whether the bytes of a mapped file can be read, before they are looked at.

If a mapped page cannot be read from the disk (a bad sector, a file that was cut meanwhile), a process that accesses it
gets SIGBUS, which ends it. Linux can be asked to bring the pages in beforehand, and then returns an error instead
(MADV_POPULATE_READ, since 5.14). An older Linux cannot be asked; there every page is assumed to be readable.
"""

from __future__ import annotations

import errno
import mmap

from odradek import system
from odradek.storage.system_errors import raise_unless_of_system

_EHWPOISON = 133


class ReadableBytes:
    """The bytes of a file, some of which may not be readable.

    Args:
        data: The file; bytes that are not a mapping can always be read.
    """

    def __init__(self, data: mmap.mmap | bytes) -> None:
        self._data = data

    def end(self, position: int, end: int) -> int:
        """Return up to where the bytes from a position on can be read, at most `end`."""
        start = position - position % mmap.PAGESIZE
        if self._is_readable(start, end):
            return end
        # The last page that is known to be readable, and the first that is not.
        low, high = start, end
        while high - low > mmap.PAGESIZE:
            middle = (low + high) // 2
            middle -= middle % mmap.PAGESIZE
            if middle == low:
                middle = low + mmap.PAGESIZE
            if self._is_readable(low, middle):
                low = middle
            else:
                high = middle
        return max(low, position)

    def next(self, position: int) -> int:
        """Return where the next readable page is; the end of the file if there is none."""
        page = position - position % mmap.PAGESIZE + mmap.PAGESIZE
        while page < len(self._data) and not self._is_readable(page, page + 1):
            page += mmap.PAGESIZE
        return min(page, len(self._data))

    def _is_readable(self, start: int, end: int) -> bool:
        if not isinstance(self._data, mmap.mmap) or start >= end:
            return True
        try:
            system.bring_in(self._data, start, end - start)
        except OSError as error:
            raise_unless_of_system(error)
            return error.errno not in (errno.EFAULT, errno.EIO, _EHWPOISON)
        return True
