"""The files beside the segments as lists of entries, each a dictionary by Kafka's field names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial

from odradek.errors import FormatError
from odradek.inspection.log_files import FileKind, LogFile
from odradek.messages.uuids import format_uuid
from odradek.storage.formats import transaction_index
from odradek.storage.formats.checkpoints import read_leader_epochs, read_offset_checkpoint
from odradek.storage.formats.meta_properties import MetaProperties
from odradek.storage.formats.offset_index import OffsetIndex
from odradek.storage.formats.partition_metadata import read_partition_metadata
from odradek.storage.formats.producer_snapshot import read_snapshot
from odradek.storage.formats.quorum_state import read_quorum_state
from odradek.storage.formats.time_index import TimeIndex
from odradek.storage.formats.transaction_index import parse_transaction_index
from odradek.storage.regular_files import file_size, read_file

Entry = dict[str, object]

_MAX_TEXT_BYTES = 1 << 28
"""Room for a checkpoint of a million partitions with long names: more than a log directory has."""

MAX_SEGMENT_BYTES = 0x7FFFFFFF
_MARKER_BYTES = 78


def _index(kind: type[OffsetIndex] | type[TimeIndex], file: LogFile) -> Iterator[Entry]:
    index = kind(file.path, file.base_offset)
    for entry in index.entries():
        yield dict(entry._asdict())
    index.check_size()


def _transaction_index(file: LogFile) -> Iterator[Entry]:
    for entry in parse_transaction_index(read_transaction_index(file), path=file.path):
        yield dict(entry._asdict())


def read_transaction_index(file: LogFile) -> bytes:
    """Return the bytes of a transaction index.

    Raises:
        FormatError: It is not a regular file, or is longer than the markers of a whole segment can make it.
        OSError: It cannot be read.
    """
    return read_file(file.path, MAX_SEGMENT_BYTES // _MARKER_BYTES * transaction_index.ENTRY.size)


def _producer_snapshot(file: LogFile) -> Iterator[Entry]:
    for entry in read_snapshot(file.path):
        yield {name: getattr(entry, name) for name in type(entry).__slots__}


def _offset_checkpoint(file: LogFile) -> Iterator[Entry]:
    for (topic, partition), offset in read_offset_checkpoint(file.path).items():
        yield {"topic": topic, "partition": partition, "offset": offset}


def _leader_epochs(file: LogFile) -> Iterator[Entry]:
    for entry in read_leader_epochs(file.path):
        yield dict(entry._asdict())


def _partition_metadata(file: LogFile) -> Iterator[Entry]:
    topic_id = read_partition_metadata(file.path)
    yield {"topic_id": None if topic_id is None else format_uuid(topic_id)}


def _meta_properties(file: LogFile) -> Iterator[Entry]:
    properties = MetaProperties.read(file.path)
    if properties is not None:
        directory_id = None if properties.directory_id is None else format_uuid(properties.directory_id)
        yield {
            "version": properties.version,
            "cluster_id": properties.cluster_id,
            "node_id": properties.node_id,
            "directory_id": directory_id,
        }


def _quorum_state(file: LogFile) -> Iterator[Entry]:
    state = read_quorum_state(file.path)
    if state is not None:
        yield state._asdict() | {"voted_directory_id": format_uuid(state.voted_directory_id)}


def _clean_shutdown(file: LogFile) -> Iterator[Entry]:
    text = read_file(file.path, _MAX_TEXT_BYTES)
    if not text:
        # Kafka before 3.7 wrote an empty file.
        return
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError("this is not JSON", path=file.path) from error
    if not isinstance(fields, dict) or type(fields.get("version")) is not int:
        raise FormatError("this is not a JSON object with a version", path=file.path)
    yield {"version": fields["version"], "broker_epoch": fields.get("brokerEpoch")}


_READERS: dict[FileKind, Callable[[LogFile], Iterator[Entry]]] = {
    FileKind.OFFSET_INDEX: partial(_index, OffsetIndex),
    FileKind.TIME_INDEX: partial(_index, TimeIndex),
    FileKind.TRANSACTION_INDEX: _transaction_index,
    FileKind.PRODUCER_SNAPSHOT: _producer_snapshot,
    FileKind.OFFSET_CHECKPOINT: _offset_checkpoint,
    FileKind.LEADER_EPOCHS: _leader_epochs,
    FileKind.PARTITION_METADATA: _partition_metadata,
    FileKind.META_PROPERTIES: _meta_properties,
    FileKind.QUORUM_STATE: _quorum_state,
    FileKind.CLEAN_SHUTDOWN: _clean_shutdown,
}
_READ_WHOLE = frozenset(
    {FileKind.OFFSET_CHECKPOINT, FileKind.LEADER_EPOCHS, FileKind.PARTITION_METADATA, FileKind.META_PROPERTIES}
)


def entries_of(file: LogFile) -> Iterator[Entry]:
    """Yield the entries of a file that holds no records.

    Raises:
        FormatError: The file is damaged, or is not a regular file; the entries before the damage were given.
        OSError: It cannot be read.
    """
    # The readers treat a missing file as an empty one, so its existence is checked here.
    size = file_size(file.path)
    if file.kind in _READ_WHOLE and size > _MAX_TEXT_BYTES:
        raise FormatError(f"{size} bytes are more than such a file can have: {_MAX_TEXT_BYTES}", path=file.path)
    return _READERS[file.kind](file)
