"""Log directories that tests make, and files that cannot be read."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

import odradek
from odradek.storage.config_def import ConfigValue
from odradek.storage.names import CLEAN_SHUTDOWN_MARKER


def create_log(
    path: Path | str,
    topic: str,
    records: Iterable[odradek.Record | bytes],
    *,
    partitions: int = 1,
    config: Mapping[str, ConfigValue] | None = None,
) -> None:
    """Makes a topic in a log directory, and appends records, or values of records, to its first partition."""
    with odradek.open(path) as logs:
        logs.create_topic(topic, partitions, config)
        logs[topic, 0].append([odradek.Record(value=one) if isinstance(one, bytes) else one for one in records])


def refuse(monkeypatch: pytest.MonkeyPatch, wanted: Callable[[Path], bool], error: int = errno.EIO) -> None:
    """Lets some segments not be opened."""
    opened = os.open

    def refusing(path: str | Path, *arguments: int, **options: int) -> int:
        if str(path).endswith(".log") and wanted(Path(path)):
            raise OSError(error, os.strerror(error), str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refusing)


def crashed(folder: Path, segments: Mapping[str, Mapping[int, bytes]]) -> Path:
    """Makes topics of one partition whose segments hold some bytes, without indexes, as after a crash.

    Args:
        folder: The log directory, which is new.
        segments: By topic and base offset what each segment holds.
    """
    with odradek.open(folder) as logs:
        for topic in segments:
            logs.create_topic(topic)
    (folder / CLEAN_SHUTDOWN_MARKER).unlink()
    for topic, files in segments.items():
        for path in (folder / f"{topic}-0").glob("0*"):
            path.unlink()
        for base_offset, data in files.items():
            (folder / f"{topic}-0" / f"{base_offset:020d}.log").write_bytes(data)
    return folder
