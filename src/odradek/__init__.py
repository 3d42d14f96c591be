"""Odradek: Kafka's commit log as a Python library and a folder.

with odradek.open("data") as logs:             # a Kafka log directory, made if it is missing; mode="r" only reads
    logs.create_topic("events", partitions=3)
    logs["events", 0].append([odradek.Record(key=b"tech", value=b"for good")])
    for record in logs["events", 0]:
        ...
odradek.scan("data", topics="events")          # a pyarrow.RecordBatchReader
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.consumer.consumer import Consumer, Topics, consume
from odradek.consumer.partition_reader import ResetPolicy
from odradek.errors import (
    BrokerError,
    BrokerUnavailableError,
    CheckpointError,
    CommitConflictError,
    CompressionError,
    CorruptIndexError,
    CorruptMessageError,
    CorruptRecordError,
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
    TimestampWarning,
    TopicExistsError,
    TransactionCoordinatorFencedError,
    TruncatedBatchError,
    UnknownProducerIdError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
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
from odradek.storage.directory.opening import open_log_directory
from odradek.storage.directory.topic import Topic, WritableTopic
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.files import FileSystem
from odradek.storage.formats.checkpoints import EpochEntry
from odradek.storage.formats.meta_properties import MetaProperties
from odradek.storage.formats.transaction_index import AbortedTransaction
from odradek.storage.log.log import Log
from odradek.storage.log.recovery import RecoveryAction, RecoveryKind, RecoveryReport
from odradek.storage.log.retention import Deletion, DeletionReason
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.metadata.metadata_image import TopicImage
from odradek.storage.names import TopicPartition
from odradek.storage.segment.log_slice import LogSlice
from odradek.storage.segment.segment import Segment, TimestampedOffset
from odradek.storage.topic_config import TopicConfig

if TYPE_CHECKING:
    from odradek.columnar.scan import scan
    from odradek.consumer.async_consumer import AsyncConsumer, consume_async

    __version__: str

open = open_log_directory  # noqa: A001 - odradek.open is the name that the interface promises

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
    "LogDirectory",
    "LogDirectoryLockedError",
    "LogError",
    "LogOfflineError",
    "LogSlice",
    "MetaProperties",
    "MissingRecordsError",
    "NoOffsetForPartitionError",
    "OdradekError",
    "OffsetOutOfRangeError",
    "OffsetStore",
    "OffsetStoreError",
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
    "Time",
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
    "UnknownProducerIdError",
    "UnknownTopicOrPartitionError",
    "UnsupportedCompressionTypeError",
    "UnsupportedForMessageFormatError",
    "UnsupportedMagicError",
    "WritableLog",
    "WritableLogDirectory",
    "WritableTopic",
    "__version__",
    "consume",
    "consume_async",
    "open",
    "open_store",
    "scan",
]

# Imported when they are asked for: the core installs without pyarrow, and starts without asyncio.
_LATER = {
    "AsyncConsumer": "odradek.consumer.async_consumer",
    "consume_async": "odradek.consumer.async_consumer",
    "scan": "odradek.columnar.scan",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("odradek")
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(_LATER[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise ModuleNotFoundError(
            f'odradek.{name} needs pyarrow: pip install "odradek[arrow]"', name="pyarrow"
        ) from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
