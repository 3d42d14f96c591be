"""What has open files cannot be copied: a copy would give up the lock of a log directory."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import odradek
from odradek.errors import LogDirectoryLockedError


@pytest.mark.sampled
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_nothing_with_open_files_is_copied(tmp_path: Path, copied: Callable[[object], object]) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        log = logs["t", 0]
        log.append(value=b"one")
        read = odradek.open(tmp_path, "r")
        consumer = odradek.consume(tmp_path, "t", auto_offset_reset="earliest")
        opened = [logs, log, log.segments[0], logs.topic("t"), read, read["t", 0], read.topic("t"), consumer]
        opened.append(odradek.consume_async(tmp_path, "t"))
        for one in opened:
            with pytest.raises(TypeError, match=f"a {type(one).__name__} has open files"):
                copied(one)
        read.close()
        consumer.close()
        with pytest.raises(LogDirectoryLockedError):
            odradek.open(tmp_path)
