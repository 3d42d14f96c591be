"""What must not lie within a log directory: any folder but those of partitions. Kafka does not start on it then.

    data/ meta.properties orders-0/     a log directory
    data/exported/                      refused: "exported" is no topic's partition

Source in Kafka: `LogManager.loadLogs`, `LocalLog.parseTopicPartitionName`.
"""

from __future__ import annotations

import os
from pathlib import Path

from odradek.errors import LogError
from odradek.storage.formats.meta_properties import META_PROPERTIES
from odradek.storage.names import parse_partition_directory
from odradek.storage.regular_files import subfolders

_OF_KAFKA = frozenset({"remote-log-index-cache"})
"""Folders beside the partitions that Kafka itself makes."""


def check_outside(target: Path, source: Path | None = None) -> None:
    """Do nothing if a folder that is about to be made lies neither within a log directory nor within what is read.

    Raises:
        LogError: It does; nothing was written.
    """
    for folder in Path(os.path.realpath(target)).parents:
        is_read = source is not None and folder.exists() and folder.samefile(source)
        if is_read or (folder / META_PROPERTIES).exists():
            raise LogError(
                f"{target} is within the log directory {folder}, and Kafka does not start on one that holds a folder "
                "that is no partition: name a folder elsewhere"
            )


def foreign_folders(log_dir: Path) -> list[Path]:
    """Return the folders of a log directory that are no partitions, with which Kafka does not start, by name.

    Raises:
        OSError: The directory cannot be listed.
    """
    names = (name for name in subfolders(log_dir) if name not in _OF_KAFKA)
    return [log_dir / name for name in names if parse_partition_directory(name) is None]
