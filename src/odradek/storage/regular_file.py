"""Opens files for reading that are what they should be: a file, not a FIFO, a socket, a device or a folder."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from odradek.errors import FormatError, LogError

_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


def open_regular_file(path: Path) -> int:
    """Open a file to read it, and return its descriptor.

    Raises:
        FileNotFoundError: There is none.
        FormatError: It is no regular file; a FIFO, say, would keep us waiting.
        LogError: The system does not let us read it.
        OSError: There is no descriptor left.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in _NO_DESCRIPTORS:
            raise
        raise LogError(f"{path} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FormatError("this is no regular file", path=path)
    return descriptor
