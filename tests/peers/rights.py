"""Gives up the right of root to read and write everything: a locked file is locked for tests of root, too."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

VERSION_3 = 0x20080522
OVERRIDES = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH (`linux/capability.h`)."""

_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def without_overrides() -> Iterator[None]:
    """Let permissions count for this thread, and for those that it starts meanwhile."""
    before = _call("capget", bytes(24))
    effective = struct.unpack_from("=I", before)[0]
    _call("capset", struct.pack("=I", effective & ~OVERRIDES) + before[4:])
    try:
        yield
    finally:
        _call("capset", before)


def _call(name: str, sets: bytes) -> bytes:
    """Read or set what this thread may do: effective, permitted and inheritable, twice."""
    header = ctypes.create_string_buffer(struct.pack("=Ii", VERSION_3, 0))
    data = ctypes.create_string_buffer(sets, len(sets))
    if getattr(_libc, name)(header, data):
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return data.raw
