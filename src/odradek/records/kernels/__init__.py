"""The compiled loops over Kafka's bytes, written in Cython's pure-Python mode.

`batches` walks batch headers, `columns` decodes records into Arrow's memory layout, `objects` decodes them into
`Record` objects; `search` looks for literals in them, and `lines` writes them as text, both by the steps of `walk`;
`rows` and `encode` write batches, `check` looks at those that are to be appended, `segment_end` says where a segment
ends after them. They share the inline functions of `wire.pxd`. None of them believes a length before it has checked it
against the bytes that are left, and the long loops run without the GIL.
"""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path


def _check_compiled() -> None:
    """Raise before Python would run the source of a kernel: uncompiled, none of it works."""
    files = {path.name for path in Path(__file__).parent.iterdir()}
    kernels = [name.removesuffix(".py") for name in files if name.endswith(".py") and not name.startswith("_")]
    if not all(any(kernel + suffix in files for suffix in EXTENSION_SUFFIXES) for kernel in kernels):
        raise ImportError("the kernels are not compiled: run make install")


_check_compiled()
