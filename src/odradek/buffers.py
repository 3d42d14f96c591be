"""The type of what can be given as bytes: `collections.abc.Buffer`, or the usual kinds of it before Python 3.12."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

__all__ = ["Buffer"]

if TYPE_CHECKING:
    from typing_extensions import Buffer
elif sys.version_info >= (3, 12):
    from collections.abc import Buffer
else:
    Buffer = bytes | bytearray | memoryview
