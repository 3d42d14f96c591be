"""The files beside the segments as lists of entries, each a dictionary by Kafka's field names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from odradek.cli.log_files import FileKind, LogFile
from odradek.storage.checkpoints import read_leader_epochs, read_offset_checkpoint
from odradek.storage.directory.meta_properties import MetaProperties
from odradek.storage.directory.partition_metadata import read_partition_metadata
from odradek.storage.index.offset_index import OffsetIndex
from odradek.storage.index.time_index import TimeIndex
from odradek.storage.index.transaction_index import parse_transaction_index
from odradek.storage.producers.producer_snapshot import read_snapshot
from odradek.storage.uuids import format_uuid

Entry = dict[str, object]


def _offset_index(file: LogFile) -> Iterator[Entry]:
    index = OffsetIndex(file.path, file.base_offset)
    for entry in index.entries():
        yield {"offset": entry.offset, "position": entry.position}
    index.check_size()


def _time_index(file: LogFile) -> Iterator[Entry]:
    index = TimeIndex(file.path, file.base_offset)
    for entry in index.entries():
        yield {"timestamp": entry.timestamp, "offset": entry.offset}
    index.check_size()


def _transaction_index(file: LogFile) -> Iterator[Entry]:
    for entry in parse_transaction_index(file.path.read_bytes(), path=file.path):
        yield dict(entry._asdict())


def _producer_snapshot(file: LogFile) -> Iterator[Entry]:
    for entry in read_snapshot(file.path):
        yield {name: getattr(entry, name) for name in type(entry).__slots__}


def _offset_checkpoint(file: LogFile) -> Iterator[Entry]:
    for (topic, partition), offset in read_offset_checkpoint(file.path).items():
        yield {"topic": topic, "partition": partition, "offset": offset}


def _leader_epochs(file: LogFile) -> Iterator[Entry]:
    for entry in read_leader_epochs(file.path):
        yield dict(entry._asdict())


def _properties(file: LogFile) -> Iterator[Entry]:
    if file.path.name == "partition.metadata":
        topic_id = read_partition_metadata(file.path)
        yield {"topic_id": None if topic_id is None else format_uuid(topic_id)}
        return
    properties = MetaProperties.read(file.path)
    if properties is not None:
        directory_id = None if properties.directory_id is None else format_uuid(properties.directory_id)
        yield {
            "version": properties.version,
            "cluster_id": properties.cluster_id,
            "node_id": properties.node_id,
            "directory_id": directory_id,
        }


_READERS: dict[FileKind, Callable[[LogFile], Iterator[Entry]]] = {
    FileKind.OFFSET_INDEX: _offset_index,
    FileKind.TIME_INDEX: _time_index,
    FileKind.TRANSACTION_INDEX: _transaction_index,
    FileKind.PRODUCER_SNAPSHOT: _producer_snapshot,
    FileKind.OFFSET_CHECKPOINT: _offset_checkpoint,
    FileKind.LEADER_EPOCHS: _leader_epochs,
    FileKind.PROPERTIES: _properties,
}


def entries_of(file: LogFile) -> Iterator[Entry]:
    """Give the entries of a file that holds no records.

    Raises:
        FormatError: The file cannot be believed; what came before is good.
        OSError: It cannot be read.
    """
    with Path(file.path).open("rb"):
        # The readers take a missing file for an empty one; whoever names a file wants it to be there.
        pass
    return _READERS[file.kind](file)
