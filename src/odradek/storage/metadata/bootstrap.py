"""`bootstrap.checkpoint`: the metadata of a log directory on which no controller has started yet.

A controller that finds the metadata log empty copies these records into it. Until then every change is made here. A
record that a change makes obsolete is removed, so the file does not grow with each change; records of unknown types are
kept as they are.

Source in Kafka: `BootstrapDirectory`, `BootstrapMetadata`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from copy import copy
from itertools import count

from odradek.messages.metadata.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_metadata_record,
)
from odradek.storage.metadata.metadata_image import TOPIC_RESOURCE


class BootstrapRecords:
    """The records of `bootstrap.checkpoint`, in order.

    Args:
        values: The records, as bytes.

    Raises:
        FormatError: One of them cannot be read.
    """

    def __init__(self, values: Iterable[bytes | None]) -> None:
        self._kept: dict[Hashable, tuple[MetadataRecord, bytes | None]] = {}
        self._numbers = count()
        self._change(values)

    @property
    def values(self) -> list[bytes | None]:
        """The records, as bytes."""
        return [value for _, value in self._kept.values()]

    def changed(self, values: Iterable[bytes | None]) -> BootstrapRecords:
        """Return these records and new ones, without those that the new ones make obsolete."""
        after = copy(self)
        after._kept = dict(self._kept)
        after._change(values)
        return after

    def _change(self, values: Iterable[bytes | None]) -> None:
        for value in values:
            record = decode_metadata_record(value)
            match record:
                case RemoveTopicRecord(topic_id) if (TopicRecord, topic_id) in self._kept:
                    self._remove_topic(record)
                case ConfigRecord(resource_type, resource_name, name):
                    key = (ConfigRecord, resource_type, resource_name, name)
                    self._kept.pop(key, None)
                    if record.value is not None:
                        self._kept[key] = record, value
                case _:
                    self._kept[self._key(record)] = record, value

    def _key(self, record: MetadataRecord) -> Hashable:
        match record:
            case TopicRecord(topic_id=topic_id):
                return TopicRecord, topic_id
            case PartitionRecord(partition_id=partition_id, topic_id=topic_id):
                return PartitionRecord, topic_id, partition_id
            case FeatureLevelRecord(name=name):
                return FeatureLevelRecord, name
            case ProducerIdsRecord():
                return ProducerIdsRecord
            case _:
                return next(self._numbers)

    def _remove_topic(self, removal: RemoveTopicRecord) -> None:
        topic, _ = self._kept[TopicRecord, removal.topic_id]

        def is_void(record: MetadataRecord) -> bool:
            if isinstance(record, ConfigRecord):
                assert isinstance(topic, TopicRecord)
                return (record.resource_type, record.resource_name) == (TOPIC_RESOURCE, topic.name)
            return getattr(record, "topic_id", None) == removal.topic_id

        self._kept = {key: entry for key, entry in self._kept.items() if not is_void(entry[0])}
