"""The checkpoints in the root of a log directory, read again when they have changed.

    log-start-offset-checkpoint          where a log starts, if not at its first segment
    recovery-point-offset-checkpoint     records below it are on the disk: no recovery cuts them
    replication-offset-checkpoint        the high watermark: no new leader makes a replica cut records below it

It is for readers of a folder that another program writes. A checkpoint that cannot be read is reported, and treated as
empty.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from odradek.errors import FormatError
from odradek.storage.formats.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_offset_checkpoint,
)
from odradek.storage.names import CLEAN_SHUTDOWN_MARKER, TopicPartition
from odradek.storage.system_errors import raise_unless_of_system

_CHECKPOINTS = (LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT)


class _Read(NamedTuple):
    version: tuple[int, int, int] | None
    offsets: dict[TopicPartition, int]
    problem: FormatError | None


class RootCheckpoints:
    """The checkpoints of one log directory. Any thread may ask.

    Args:
        root: The log directory.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._paths = {name: root / name for name in _CHECKPOINTS}
        self._path_texts = {name: str(path) for name, path in self._paths.items()}
        self._read: dict[str, _Read] = {}

    def _offsets(self, name: str) -> dict[TopicPartition, int]:
        path = self._paths[name]
        try:
            status = os.stat(self._path_texts[name])  # noqa: PTH116 - for each poll, and a path takes longer
            version = status.st_mtime_ns, status.st_ino, status.st_size
        except OSError as error:
            raise_unless_of_system(error)
            version = None
        known = self._read.get(name)
        if known is None or known.version != version:
            try:
                known = _Read(version, read_offset_checkpoint(path), None)
            except FormatError as error:
                known = _Read(version, {}, error)
            except OSError as error:
                raise_unless_of_system(error)
                known = _Read(version, {}, FormatError(f"it cannot be read: {error.strerror}", path=path))
            self._read[name] = known
        return known.offsets

    def start_offset(self, topic_partition: TopicPartition) -> int:
        """Return where a log starts, according to the checkpoint; 0 if it says nothing."""
        return self._offsets(LOG_START_OFFSET_CHECKPOINT).get(topic_partition, 0)

    def promised_end_offset(self, topic_partition: TopicPartition) -> int | None:
        """Return the end of a log that was closed in order; None if it was not."""
        if not (self._root / CLEAN_SHUTDOWN_MARKER).exists():
            return None
        return self._offsets(RECOVERY_POINT_CHECKPOINT).get(topic_partition)

    def stable_offset(self, topic_partition: TopicPartition) -> int:
        """Return the offset below which no program cuts a log: the records are on the disk and on every new leader."""
        recovery_points = self._offsets(RECOVERY_POINT_CHECKPOINT)
        high_watermarks = self._offsets(REPLICATION_OFFSET_CHECKPOINT)
        return min(recovery_points.get(topic_partition, 0), high_watermarks.get(topic_partition, 0))

    @property
    def problems(self) -> list[FormatError]:
        """What is wrong with the checkpoints that were read so far."""
        return [known.problem for known in self._read.values() if known.problem is not None]
