"""How a log directory is closed: each log in order, then the checkpoints, then the clean-shutdown marker.

    nothing was appended, nothing is unflushed    the log is only closed
    all others                                    are flushed, some in parallel: `num.recovery.threads.per.data.dir`

A folder gets its marker only if every log in it was closed in order and all of its checkpoints were written. Logs that
were never opened are still clean: after a crash all are opened at the start.

Source in Kafka: `LogManager.shutdown`.
"""

from __future__ import annotations

from functools import partial

from odradek.printable import logger
from odradek.storage.directory.directory_parts import DirectoryParts
from odradek.storage.directory.directory_state import Checkpoint, DirectoryState
from odradek.storage.directory.maintenance import collect
from odradek.storage.directory.many_logs import do_for_each
from odradek.storage.directory.topic_changes import TopicChanges
from odradek.storage.names import TopicPartition

_logger = logger(__name__)


class DirectoryShutdown:
    """The end of one log directory. The caller holds the DIRECTORY lock.

    Args:
        parts: What the directory consists of.
        changes: The changes of its topics.
        threads: How many threads bring logs to the disk, for each folder of `log.dirs`.
    """

    def __init__(self, parts: DirectoryParts, changes: TopicChanges, threads: int) -> None:
        self._parts = parts
        self._changes = changes
        self._threads = threads
        self._has_let_go = False
        self._unclean: list[DirectoryState] = []

    def close(self) -> list[Exception]:
        """Close everything; return what failed. If an exception ended it, it continues where it stopped."""
        parts = self._parts
        failures: list[Exception] = []
        if self._has_let_go:
            return failures
        if not self._changes.is_settled:
            collect(failures, self._changes.settle)
        failed = self._close_logs()
        for topic_partition, log in sorted(parts.open_logs.items()):
            errors = failed[topic_partition]
            if errors or log.is_offline or log.durability.is_dirty:
                place = parts.folders.places.get(topic_partition)
                self._unclean += parts.states if place is None else [place]
            if errors:
                failures += errors
                _logger.error("%s could not be closed: %s", topic_partition, errors[0])
                log.discard()
        for state in parts.states:
            self._close_state(state, failures)
        self._has_let_go = True
        return failures

    def _close_logs(self) -> dict[TopicPartition, list[Exception]]:
        """Close the logs; return the errors of each."""
        logs = self._parts.open_logs

        def close(topic_partition: TopicPartition) -> list[Exception]:
            failures: list[Exception] = []
            collect(failures, logs[topic_partition].close)
            return failures

        dirty = [place for place, log in logs.items() if log.durability.is_dirty]
        threads = len(self._parts.states) * self._threads
        failed = dict(zip(dirty, do_for_each(close, dirty, threads=threads, name="log-closing"), strict=True))
        return failed | {place: close(place) for place in logs if place not in failed}

    def _close_state(self, state: DirectoryState, failures: list[Exception]) -> None:
        failed = len(failures)
        collect(failures, self._parts.cluster.metadata.settle)
        for kind in Checkpoint:
            collect(failures, partial(self._parts.checkpoint, kind, state))
        is_clean = len(failures) == failed and state not in self._unclean
        collect(failures, lambda: state.close(is_clean=is_clean))
        state.close(is_clean=False)

    def abandon(self) -> None:
        """Release everything as it is, as when the program is killed."""
        for log in list(self._parts.open_logs.values()):
            log.discard()
        for state in self._parts.states:
            state.close(is_clean=False)
        self._has_let_go = True
