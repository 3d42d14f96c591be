"""Odradek: Kafka's commit log as a Python library and a folder.

with odradek.open("data") as logs:             # a Kafka log directory, made if it is missing; mode="r" only reads
    logs.create_topic("events", partitions=3)
    logs["events", 0].append([odradek.Record(key=b"tech", value=b"for good")])
    for record in logs["events", 0].read():
        ...
odradek.scan("data", topics="events")          # a pyarrow.RecordBatchReader
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.consumer.consumer import Consumer, consume
from odradek.consumer.fetched import ConsumedRecord
from odradek.errors import (
    BrokerError,
    FormatError,
    LogError,
    OdradekError,
    OffsetStoreError,
    ProtocolError,
)
from odradek.records import Record
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.directory.opening import open_log_directory
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.log.log import Log
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.names import TopicPartition

if TYPE_CHECKING:
    from odradek.columnar.scan import scan

open = open_log_directory  # noqa: A001 - odradek.open is the name that the interface promises

__all__ = [
    "BrokerError",
    "ConsumedRecord",
    "Consumer",
    "FormatError",
    "Log",
    "LogDirectory",
    "LogError",
    "OdradekError",
    "OffsetStoreError",
    "ProtocolError",
    "Record",
    "TopicPartition",
    "WritableLog",
    "WritableLogDirectory",
    "consume",
    "open",
    "scan",
]


def __getattr__(name: str) -> Any:
    # The core installs without pyarrow: only who scans needs it.
    if name == "scan":
        try:
            from odradek.columnar.scan import scan
        except ModuleNotFoundError as error:
            if error.name != "pyarrow":
                raise
            raise ModuleNotFoundError(
                'odradek.scan needs pyarrow: pip install "odradek[arrow]"', name="pyarrow"
            ) from None
        return scan
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
