"""The committed offsets of groups: what the compacted topic `__consumer_offsets` adds up to.

    commit g t-0 -> 10 | commit g t-0 -> 20 | commit g t-1 -> 5 | tombstone g t-1          g: t-0 at 20

A commit within a transaction waits for the transaction's marker, and then counts unless the group has committed outside
of it since, as the coordinator sees it that loads the topic.

Source in Kafka: `OffsetMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from odradek.errors import FormatError
from odradek.messages.coordinators.coordinator_records import UnknownCoordinatorRecordError
from odradek.messages.coordinators.group_records import OffsetCommitKey, OffsetCommitValue, decode_group_record
from odradek.records import BatchHeader, Record, read_records, scan_batches
from odradek.records.control import ControlRecordType, parse_control_key
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.log.log import Log
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, TopicPartition

CommittedOffsets: TypeAlias = dict[str, dict[TopicPartition, OffsetCommitValue]]
"""By group and partition."""


def consumer_group_offsets(directory: LogDirectory) -> CommittedOffsets:
    """Return the committed offsets of every group that a log directory holds.

    Args:
        directory: The log directory; whatever is missing of `__consumer_offsets` is missing here.

    Raises:
        FormatError: A batch or a record is corrupt.
    """
    offsets: CommittedOffsets = {}
    for topic, partition in directory.topic_partitions():
        if topic != CONSUMER_OFFSETS_TOPIC:
            continue
        offsets.update(committed_offsets(directory[topic, partition]))
    return offsets


def committed_offsets(log: Log) -> CommittedOffsets:
    """Return the committed offsets of the groups in one partition of `__consumer_offsets`.

    Raises:
        FormatError: A batch or a record is corrupt.
    """
    committed: dict[OffsetCommitKey, tuple[int, OffsetCommitValue | None]] = {}
    pending: dict[int, dict[OffsetCommitKey, tuple[int, OffsetCommitValue | None]]] = {}
    for header, record in _records(log):
        if header.is_control:
            waiting = pending.pop(header.producer_id, {})
            if parse_control_key(record.key) == ControlRecordType.COMMIT:
                for key, commit in waiting.items():
                    if key not in committed or committed[key][0] < commit[0]:
                        committed[key] = commit
            continue
        try:
            decoded = decode_group_record(record.key, record.value)
        except UnknownCoordinatorRecordError:
            continue
        except FormatError as error:
            raise FormatError(f"record {record.offset}: {error.reason}", path=log.path) from error
        if isinstance(decoded.key, OffsetCommitKey):
            target = pending.setdefault(header.producer_id, {}) if header.is_transactional else committed
            target[decoded.key] = record.offset or 0, decoded.value
    offsets: CommittedOffsets = {}
    for key, (_, value) in committed.items():
        if value is not None:
            offsets.setdefault(key.group, {})[TopicPartition(key.topic, key.partition)] = value
    return offsets


def _records(log: Log) -> Iterator[tuple[BatchHeader, Record]]:
    for part in log.slices():
        scan = scan_batches(part.data, part.position, part.end_position, path=part.path, origin=part.origin)
        for header in scan:
            try:
                records = read_records(part.data, header, origin=part.origin)
            except FormatError as error:
                raise error.at(part.path, header.position) from None
            for record in records:
                if record.offset is not None and record.offset >= log.log_start_offset:
                    yield header, record
        if scan.damage is not None:
            raise scan.damage
