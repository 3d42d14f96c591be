"""Reads a log's files again if one is missing: its writer may have replaced or deleted it meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from odradek.errors import LogError, UnknownTopicOrPartitionError
from odradek.storage.log.readable_log import ReadableLog
from odradek.storage.system_errors import unreadable

_T = TypeVar("_T")
_RETRIES = 20


def retried(log: ReadableLog, action: Callable[[], _T]) -> _T:
    """Call a function that opens files of a log; refresh the log and call it again if a file is missing.

    Raises:
        UnknownTopicOrPartitionError: The topic was deleted.
        LogError: Files disappear again and again, or cannot be read.
    """
    failures = 0
    while True:
        try:
            return action()
        except FileNotFoundError as error:
            failures += 1
            if failures > _RETRIES:
                raise _missing_file(log, error) from error
        except OSError as error:
            raise unreadable(error, log.path) from error
        log.refresh()


def _missing_file(log: ReadableLog, error: FileNotFoundError) -> Exception:
    # The folder of a deleted topic has another name, and a log that this process writes does not list its folder again.
    if not log.path.exists():
        return UnknownTopicOrPartitionError(*log.topic_partition, path=log.path.parent)
    return LogError(f"{error.filename} was deleted, but the log that it belongs to was not")
