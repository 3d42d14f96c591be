"""Odradek: Kafka's commit log as a Python library and a folder.

with odradek.open("data") as logs:             # a Kafka log directory, made if it is missing; mode="r" only reads
    logs.create_topic("events", partitions=3)
    logs["events", 0].append([odradek.Record(key=b"tech", value=b"for good")])
    for record in logs["events", 0].read():
        ...
odradek.scan("data", topics="events")          # a pyarrow.RecordBatchReader
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it; typing itself takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from odradek.columnar.scan import scan
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
    from odradek.storage.directory.opening import open_log_directory as open  # noqa: A004 - the name that the interface promises
    from odradek.storage.directory.writable_log_directory import WritableLogDirectory
    from odradek.storage.log.log import Log
    from odradek.storage.log.writable_log import WritableLog
    from odradek.storage.names import TopicPartition

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

# Imported when they are asked for: `import odradek` takes no time, and the core installs without pyarrow.
_LATER = {
    "BrokerError": "odradek.errors",
    "ConsumedRecord": "odradek.consumer.fetched",
    "Consumer": "odradek.consumer.consumer",
    "FormatError": "odradek.errors",
    "Log": "odradek.storage.log.log",
    "LogDirectory": "odradek.storage.directory.log_directory",
    "LogError": "odradek.errors",
    "OdradekError": "odradek.errors",
    "OffsetStoreError": "odradek.errors",
    "ProtocolError": "odradek.errors",
    "Record": "odradek.records",
    "TopicPartition": "odradek.storage.names",
    "WritableLog": "odradek.storage.log.writable_log",
    "WritableLogDirectory": "odradek.storage.directory.writable_log_directory",
    "consume": "odradek.consumer.consumer",
    "open": "odradek.storage.directory.opening",
    "scan": "odradek.columnar.scan",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        value = getattr(import_module(_LATER[name]), "open_log_directory" if name == "open" else name)
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise ModuleNotFoundError(
            f'odradek.{name} needs pyarrow: pip install "odradek[arrow]"', name="pyarrow"
        ) from None
    # From now on it is found without this function.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
