"""Memory that ends where the input ends: the byte behind it belongs to no one, and reading it kills the process.

| ... unused ... input | PROT_NONE page |
                       ^ a read from here on is a segmentation fault
"""

from __future__ import annotations

import ctypes
import mmap

_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)


class GuardedMemory:
    """One block of memory in front of a page that cannot be read.

    Args:
        capacity: The longest input, in bytes.
    """

    def __init__(self, capacity: int = 1 << 20) -> None:
        usable = -(-capacity // _PAGE) * _PAGE
        self._map = mmap.mmap(-1, usable + _PAGE)
        self._end = ctypes.addressof(ctypes.c_char.from_buffer(self._map)) + usable
        if _libc.mprotect(ctypes.c_void_p(self._end), ctypes.c_size_t(_PAGE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
        self.capacity = usable

    def place(self, data: bytes) -> memoryview:
        """Return `data` as memory whose last byte is the last one that can be read; valid until the next call."""
        block = (ctypes.c_ubyte * len(data)).from_address(self._end - len(data))
        ctypes.memmove(block, data, len(data))
        return memoryview(block).cast("B").toreadonly()
