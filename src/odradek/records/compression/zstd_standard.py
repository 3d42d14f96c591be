"""Zstandard by Python's own `compression.zstd`, or by `backports.zstd` before Python 3.14."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ERROR: type[Exception] = zstd.ZstdError


def encoder(level: int) -> Callable[[memoryview], bytes]:
    """Return what makes frames without their content sizes."""
    names = zstd.CompressionParameter
    options: dict[int, int] = {names.compression_level: level, names.content_size_flag: 0}
    made = zstd.ZstdCompressor(options=options)
    return partial(made.compress, mode=made.FLUSH_FRAME)


class _Reader:
    def __init__(self, data: memoryview, frames: Sequence[tuple[int, int]]) -> None:
        self._data = data
        self._frames = iter(frames)
        self._decoder: zstd.ZstdDecompressor | None = None

    def readinto(self, room: memoryview) -> int:
        given: memoryview | bytes = b""
        while True:
            if self._decoder is None:
                frame = next(self._frames, None)
                if frame is None:
                    return 0
                given = self._data[slice(*frame)]
                self._decoder = zstd.ZstdDecompressor()
            part = self._decoder.decompress(given, max_length=len(room))
            if self._decoder.eof:
                self._decoder = None
            elif not part:
                raise ERROR("the frame is incomplete")
            if part:
                room[: len(part)] = part
                return len(part)


@contextmanager
def content(data: memoryview, frames: Sequence[tuple[int, int]], *, is_kept: bool) -> Iterator[_Reader]:
    """Read the content of frames.

    Args:
        data: All frames.
        frames: Where each of them begins and ends.
        is_kept: Ignored: each frame has a new decoder.
    """
    yield _Reader(data, frames)
