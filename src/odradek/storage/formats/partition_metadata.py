"""`partition.metadata`: the id of the topic that a partition's folder belongs to.

    version: 0
    topic_id: x1aKva0FS9aP4CPblmQDiw          no line end: 43 bytes

To Kafka a folder without it is stray. Source in Kafka: `PartitionMetadataFile` (KIP-516).
"""

from __future__ import annotations

import re
from pathlib import Path
from uuid import UUID

from odradek.errors import CheckpointError
from odradek.messages.uuids import ZERO_UUID, format_uuid, parse_uuid
from odradek.storage.files import FILES, FileSystem, write_atomically
from odradek.storage.regular_files import read_file

PARTITION_METADATA = "partition.metadata"

_MAX_BYTES = 1 << 16
_FORM = re.compile(r"\S*:\s+(?P<version>[0-9]{1,9})\r?\n\S*:\s+(?P<topic_id>\S+)\s*", re.ASCII)


def parse_partition_metadata(text: str, *, path: Path | None = None) -> UUID:
    """Return the topic's id.

    Raises:
        CheckpointError: The text is not of the form that Kafka reads, or the id is zero.
    """
    match = _FORM.fullmatch(text)
    if match is None or int(match["version"]) != 0:
        raise CheckpointError("this is not 'version: 0' and 'topic_id: <id>'", path=path)
    try:
        topic_id = parse_uuid(match["topic_id"])
    except ValueError as error:
        raise CheckpointError(str(error), path=path) from error
    if topic_id == ZERO_UUID:
        raise CheckpointError("the topic id is zero", path=path)
    return topic_id


def format_partition_metadata(topic_id: UUID) -> bytes:
    """Return the file's bytes."""
    return f"version: 0\ntopic_id: {format_uuid(topic_id)}".encode("ascii")


def read_partition_metadata(path: Path) -> UUID | None:
    """Return the topic's id; `None` if the file is missing.

    Raises:
        FormatError: The file is not of the form that Kafka reads, or is not a regular file.
    """
    try:
        return parse_partition_metadata(read_file(path, _MAX_BYTES).decode("latin-1"), path=path)
    except FileNotFoundError:
        return None


def write_partition_metadata(path: Path, topic_id: UUID, files: FileSystem = FILES) -> None:
    """Write the file in one step."""
    write_atomically(path, format_partition_metadata(topic_id), files)
