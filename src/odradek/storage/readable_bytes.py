"""Asks the system whether the bytes of a mapped file can be read, before they are looked at.

A page that the disk does not give (a bad sector, a file that was cut meanwhile) ends a process that looks at it through
a mapping: SIGBUS. Asked to bring the pages in beforehand, Linux says so instead (MADV_POPULATE_READ, since 5.14); an
older one cannot be asked, and takes every page for one that can be read.
"""

from __future__ import annotations

import errno
import mmap

from odradek.storage.system_errors import raise_unless_of_system

_POPULATE_READ = 22
_EHWPOISON = 133


class ReadableBytes:
    """The bytes of a file, of which some may not be readable.

    Args:
        data: The file; bytes that are no mapping can be read.
    """

    def __init__(self, data: mmap.mmap | bytes) -> None:
        self._data = data

    def end(self, position: int, end: int) -> int:
        """Return up to where the bytes from a position on can be read, `end` at most."""
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
        """Return where the next page is that can be read; the end of the file where none is."""
        page = position - position % mmap.PAGESIZE + mmap.PAGESIZE
        while page < len(self._data) and not self._is_readable(page, page + 1):
            page += mmap.PAGESIZE
        return min(page, len(self._data))

    def _is_readable(self, start: int, end: int) -> bool:
        if not isinstance(self._data, mmap.mmap) or start >= end:
            return True
        try:
            self._data.madvise(_POPULATE_READ, start, end - start)
        except OSError as error:
            raise_unless_of_system(error)
            return error.errno not in (errno.EFAULT, errno.EIO, _EHWPOISON)
        return True
