"""`bootstrap.checkpoint`: the metadata of a log directory on which no controller has started yet.

A controller that finds the metadata log empty copies these records into it. Until then every change is made here. A
record that a change makes obsolete is removed, so the file does not grow with each change; records of unknown types are
kept as they are. The file is written whole at each change, from blocks of records, of which a change makes but one or
two again: what it costs beside that is to write the bytes.

Source in Kafka: `BootstrapDirectory`, `BootstrapMetadata`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from copy import copy
from dataclasses import dataclass
from itertools import count

from odradek.messages.metadata.metadata_records import (
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
    decode_metadata_record,
)
from odradek.storage.formats.metadata_snapshot import Block
from odradek.storage.metadata.metadata_image import TOPIC_RESOURCE

_SUBJECTS_OF_A_BLOCK = 256

_Records = dict[Hashable, bytes | None]
"""The records about one thing (a topic, or the settings of a topic), by what tells them apart."""


@dataclass(slots=True)
class _Block:
    """Some neighbours among the records.

    Attributes:
        subjects: The records, by what they are about.
        values: All of them, as bytes.
    """

    subjects: dict[Hashable, _Records]
    values: Block = ()


class BootstrapRecords:
    """The records of `bootstrap.checkpoint`, in blocks. They never change: a change shares what it does not touch.

    Args:
        values: The records, as bytes.

    Raises:
        FormatError: One of them cannot be read.
    """

    def __init__(self, values: Iterable[bytes | None]) -> None:
        self._blocks: dict[int, _Block] = {}
        self._block_of: dict[Hashable, int] = {}
        self._numbers = count()
        self._change(values)

    @property
    def blocks(self) -> list[Block]:
        """The records, as bytes, block by block."""
        return [block.values for block in self._blocks.values()]

    def changed(self, values: Iterable[bytes | None]) -> BootstrapRecords:
        """Return these records and new ones, without those that the new ones make obsolete."""
        after = copy(self)
        after._blocks = dict(self._blocks)
        after._block_of = dict(self._block_of)
        after._change(values)
        return after

    def _change(self, values: Iterable[bytes | None]) -> None:
        # The blocks that no other records share.
        own: dict[int, _Block] = {}
        for value in values:
            record = decode_metadata_record(value)
            match record:
                case RemoveTopicRecord(topic_id) if TopicRecord in self._records(topic_id):
                    topic = decode_metadata_record(self._records(topic_id)[TopicRecord])
                    assert isinstance(topic, TopicRecord)
                    self._remove(topic_id, own)
                    self._remove((TOPIC_RESOURCE, topic.name), own)
                case ConfigRecord(resource_type, resource_name, name):
                    settings = self._own_records((resource_type, resource_name), own)
                    settings.pop(name, None)
                    if record.value is not None:
                        settings[name] = value
                case ClientQuotaRecord(entity, quota):
                    quotas = self._own_records((ClientQuotaRecord, frozenset(dict(entity).items())), own)
                    quotas.pop(quota, None)
                    if not record.remove:
                        quotas[quota] = value
                case RemoveUserScramCredentialRecord(name, mechanism):
                    self._own_records((UserScramCredentialRecord, name), own).pop(mechanism, None)
                case RemoveDelegationTokenRecord(token_id):
                    self._remove((DelegationTokenRecord, token_id), own)
                case _:
                    subject, key = self._place(record)
                    self._own_records(subject, own)[key] = value
        for number, block in own.items():
            block.values = tuple(value for records in block.subjects.values() for value in records.values())
            if not block.subjects:
                del self._blocks[number]

    def _place(self, record: MetadataRecord) -> tuple[Hashable, Hashable]:
        """Return what a record is about, and what tells it apart from others about it."""
        match record:
            case TopicRecord(topic_id=topic_id):
                return topic_id, TopicRecord
            case PartitionRecord(partition_id=partition_id, topic_id=topic_id):
                return topic_id, partition_id
            case UserScramCredentialRecord(name=name, mechanism=mechanism):
                return (UserScramCredentialRecord, name), mechanism
            case DelegationTokenRecord(token_id=token_id):
                return (DelegationTokenRecord, token_id), None
            case FeatureLevelRecord(name=name):
                return (FeatureLevelRecord, name), None
            case ProducerIdsRecord():
                return ProducerIdsRecord, None
            case _:
                number = (next(self._numbers),)
                return getattr(record, "topic_id", number), number

    def _records(self, subject: Hashable) -> _Records:
        number = self._block_of.get(subject)
        return {} if number is None else self._blocks[number].subjects[subject]

    def _own_block(self, number: int, own: dict[int, _Block]) -> _Block:
        if number not in own:
            block = self._blocks[number]
            own[number] = self._blocks[number] = _Block({about: dict(of) for about, of in block.subjects.items()})
        return own[number]

    def _own_records(self, subject: Hashable, own: dict[int, _Block]) -> _Records:
        number = self._block_of.get(subject)
        if number is None:
            number = next(reversed(self._blocks), 0)
            if number not in self._blocks or len(self._blocks[number].subjects) >= _SUBJECTS_OF_A_BLOCK:
                number += 1
                own[number] = self._blocks[number] = _Block({})
            self._block_of[subject] = number
        return self._own_block(number, own).subjects.setdefault(subject, {})

    def _remove(self, subject: Hashable, own: dict[int, _Block]) -> None:
        number = self._block_of.pop(subject, None)
        if number is not None:
            del self._own_block(number, own).subjects[subject]
