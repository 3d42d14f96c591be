"""Odradek: Kafka's commit log as a Python library and a folder.

    with odradek.open("data") as logs:             # a Kafka log directory, created if missing; mode="r" only reads
        logs.create_topic("events", partitions=3)
        logs["events", 0].append([odradek.Record(key=b"tech", value=b"for good")])
        for record in logs["events", 0]:
            ...
    odradek.scan("data", topics="events")          # a pyarrow.RecordBatchReader

Each name is imported when it is first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for True; importing typing would take longer than all of this
if TYPE_CHECKING:
    from typing import Any

    from odradek.columnar.dataset import LogDataset, LogFragment, dataset
    from odradek.columnar.scan import scan
    from odradek.consumer.async_consumer import AsyncConsumer, consume_async
    from odradek.consumer.consumer import Consumer
    from odradek.consumer.opening import Topics, consume
    from odradek.consumer.partition_reader import ResetPolicy
    from odradek.consumer.subscription import SubscriptionPattern
    from odradek.errors import (
        BrokerError,
        BrokerUnavailableError,
        CheckpointError,
        CommitConflictError,
        CompressionError,
        CorruptIndexError,
        CorruptMessageError,
        CorruptRecordError,
        DecompressedSizeError,
        DuplicateSequenceNumberError,
        ForeignDirectoryError,
        FormatError,
        InvalidConfigError,
        InvalidPartitionsError,
        InvalidProducerEpochError,
        InvalidRecordError,
        InvalidTimestampError,
        InvalidTopicError,
        InvalidTransactionStateError,
        JobError,
        LogDirectoryLockedError,
        LogError,
        LogOfflineError,
        MissingRecordsError,
        NoOffsetForPartitionError,
        OdradekError,
        OffsetOutOfRangeError,
        OffsetStoreError,
        OffsetStoreUnavailableError,
        OptionError,
        OutOfOrderSequenceNumberError,
        PipelineError,
        PolicyViolationError,
        ProtocolError,
        ReadOnlyError,
        RecordListTooLargeError,
        RecordRefusedError,
        RecordTooLargeError,
        SinkError,
        TimestampOutOfRangeError,
        TimestampWarning,
        TopicExistsError,
        TransactionCoordinatorFencedError,
        TruncatedBatchError,
        UnknownTopicOrPartitionError,
        UnsupportedMagicError,
    )
    from odradek.offsets.store import OffsetStore, Position, Positions, open_store
    from odradek.records import Record
    from odradek.records.append.batching import AppendResult
    from odradek.records.append.given import Headers
    from odradek.records.append.validator import AppendOrigin
    from odradek.records.isolation import Isolation
    from odradek.records.timestamps import Time
    from odradek.storage.config_def import ConfigValue
    from odradek.storage.directory.consumed_record import ConsumedRecord
    from odradek.storage.directory.log_directory import LogDirectory
    from odradek.storage.directory.opening import open_log_directory as open  # noqa: A004 - the name that the interface promises
    from odradek.storage.directory.topic import Topic, WritableTopic
    from odradek.storage.directory.writable_log_directory import WritableLogDirectory
    from odradek.storage.files import FileSystem
    from odradek.storage.formats.checkpoints import EpochEntry
    from odradek.storage.formats.meta_properties import MetaProperties
    from odradek.storage.formats.transaction_index import AbortedTransaction
    from odradek.storage.log.log import Log
    from odradek.storage.log.recovery_report import RecoveryAction, RecoveryKind, RecoveryReport, SoundRecords
    from odradek.storage.log.retention import Deletion, DeletionReason
    from odradek.storage.log.writable_log import WritableLog
    from odradek.storage.metadata.metadata_image import TopicImage
    from odradek.storage.metadata.new_topic import NewTopic
    from odradek.storage.names import TopicPartition
    from odradek.storage.segment.log_slice import LogSlice
    from odradek.storage.segment.segment import Segment
    from odradek.storage.segment.timestamp_lookup import TimestampedOffset
    from odradek.storage.topic_config import TopicConfig

    __version__: str

__all__ = [
    "AbortedTransaction",
    "AppendOrigin",
    "AppendResult",
    "AsyncConsumer",
    "BrokerError",
    "BrokerUnavailableError",
    "CheckpointError",
    "CommitConflictError",
    "CompressionError",
    "ConfigValue",
    "ConsumedRecord",
    "Consumer",
    "CorruptIndexError",
    "CorruptMessageError",
    "CorruptRecordError",
    "DecompressedSizeError",
    "Deletion",
    "DeletionReason",
    "DuplicateSequenceNumberError",
    "EpochEntry",
    "FileSystem",
    "ForeignDirectoryError",
    "FormatError",
    "Headers",
    "InvalidConfigError",
    "InvalidPartitionsError",
    "InvalidProducerEpochError",
    "InvalidRecordError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTransactionStateError",
    "Isolation",
    "JobError",
    "Log",
    "LogDataset",
    "LogDirectory",
    "LogDirectoryLockedError",
    "LogError",
    "LogFragment",
    "LogOfflineError",
    "LogSlice",
    "MetaProperties",
    "MissingRecordsError",
    "NewTopic",
    "NoOffsetForPartitionError",
    "OdradekError",
    "OffsetOutOfRangeError",
    "OffsetStore",
    "OffsetStoreError",
    "OffsetStoreUnavailableError",
    "OptionError",
    "OutOfOrderSequenceNumberError",
    "PipelineError",
    "PolicyViolationError",
    "Position",
    "Positions",
    "ProtocolError",
    "ReadOnlyError",
    "Record",
    "RecordListTooLargeError",
    "RecordRefusedError",
    "RecordTooLargeError",
    "RecoveryAction",
    "RecoveryKind",
    "RecoveryReport",
    "ResetPolicy",
    "Segment",
    "SinkError",
    "SoundRecords",
    "SubscriptionPattern",
    "Time",
    "TimestampOutOfRangeError",
    "TimestampWarning",
    "TimestampedOffset",
    "Topic",
    "TopicConfig",
    "TopicExistsError",
    "TopicImage",
    "TopicPartition",
    "Topics",
    "TransactionCoordinatorFencedError",
    "TruncatedBatchError",
    "UnknownTopicOrPartitionError",
    "UnsupportedMagicError",
    "WritableLog",
    "WritableLogDirectory",
    "WritableTopic",
    "__version__",
    "consume",
    "consume_async",
    "dataset",
    "open",
    "open_store",
    "scan",
]

# The module of each public name, imported when the name is first used: `import odradek` stays fast, and the core works
# without pyarrow. Names that are not listed here are errors, and come from `odradek.errors`.
_LATER = {
    "AbortedTransaction": "odradek.storage.formats.transaction_index",
    "AppendOrigin": "odradek.records.append.validator",
    "AppendResult": "odradek.records.append.batching",
    "AsyncConsumer": "odradek.consumer.async_consumer",
    "ConfigValue": "odradek.storage.config_def",
    "ConsumedRecord": "odradek.storage.directory.consumed_record",
    "Consumer": "odradek.consumer.consumer",
    "Deletion": "odradek.storage.log.retention",
    "DeletionReason": "odradek.storage.log.retention",
    "EpochEntry": "odradek.storage.formats.checkpoints",
    "FileSystem": "odradek.storage.files",
    "Headers": "odradek.records.append.given",
    "Isolation": "odradek.records.isolation",
    "Log": "odradek.storage.log.log",
    "LogDataset": "odradek.columnar.dataset",
    "LogDirectory": "odradek.storage.directory.log_directory",
    "LogFragment": "odradek.columnar.dataset",
    "LogSlice": "odradek.storage.segment.log_slice",
    "MetaProperties": "odradek.storage.formats.meta_properties",
    "OffsetStore": "odradek.offsets.store",
    "Position": "odradek.offsets.store",
    "Positions": "odradek.offsets.store",
    "Record": "odradek.records",
    "RecoveryAction": "odradek.storage.log.recovery_report",
    "RecoveryKind": "odradek.storage.log.recovery_report",
    "RecoveryReport": "odradek.storage.log.recovery_report",
    "SoundRecords": "odradek.storage.log.recovery_report",
    "ResetPolicy": "odradek.consumer.partition_reader",
    "SubscriptionPattern": "odradek.consumer.subscription",
    "Segment": "odradek.storage.segment.segment",
    "Time": "odradek.records.timestamps",
    "TimestampedOffset": "odradek.storage.segment.timestamp_lookup",
    "Topic": "odradek.storage.directory.topic",
    "TopicConfig": "odradek.storage.topic_config",
    "NewTopic": "odradek.storage.metadata.new_topic",
    "TopicImage": "odradek.storage.metadata.metadata_image",
    "TopicPartition": "odradek.storage.names",
    "Topics": "odradek.consumer.opening",
    "WritableLog": "odradek.storage.log.writable_log",
    "WritableLogDirectory": "odradek.storage.directory.writable_log_directory",
    "WritableTopic": "odradek.storage.directory.topic",
    "consume": "odradek.consumer.opening",
    "consume_async": "odradek.consumer.async_consumer",
    "dataset": "odradek.columnar.dataset",
    "open": "odradek.storage.directory.opening",
    "open_store": "odradek.offsets.store",
    "scan": "odradek.columnar.scan",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from odradek.version import VERSION

        return VERSION
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        module = import_module(_LATER.get(name, "odradek.errors"))
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        return _needs_pyarrow(name)
    value = getattr(module, "open_log_directory" if name == "open" else name)
    # From now on it is found without this function.
    globals()[name] = value
    return value


def _needs_pyarrow(name: str) -> Any:
    def missing(*_arguments: object, **_named: object) -> None:
        raise ModuleNotFoundError(f'odradek.{name} needs pyarrow: pip install "odradek[arrow]"', name="pyarrow")

    # Who calls it is told, and not already who imports all names (`from odradek import *`).
    return missing


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
