"""When a log's records are brought to the disk, and by which thread.

    flush            everything, with the indexes      the caller, `flush.ms`, `close`
    flush_sealed     all segments but the active one   some time after a roll
    make_durable     the records below an offset       an append that waits: the first that gets the FLUSH lock
                                                       syncs for all that wait behind it

The FLUSH lock serialises them, so that no other thread deletes, compacts or closes what is being synced. Appends go on
meanwhile: the LOG lock is held only to look where the log ends.

Source in Kafka: `UnifiedLog.flush`.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.storage.config_def import MAX_INT64
from odradek.storage.log.change_guard import ChangeGuard
from odradek.storage.log.durability import Durability
from odradek.storage.log.local_log import LocalLog
from odradek.storage.topic_config import TopicConfig


class Flushing:
    """The flushes of one log. Any thread may call any method, without a lock of the log if nothing else is said.

    Args:
        local: The log's segments.
        durability: How much of it is on the disk.
        config: The topic's settings.
        guard: Guards its changes.
        clock: Returns the time in ms.

    Attributes:
        config: As given; it may be replaced.
    """

    def __init__(
        self,
        local: LocalLog,
        durability: Durability,
        config: TopicConfig,
        *,
        guard: ChangeGuard,
        clock: Callable[[], int],
    ) -> None:
        self.config = config
        self._local = local
        self._durability = durability
        self._guard = guard
        self._clock = clock
        self._last_flush_ms = clock()

    @property
    def is_due(self) -> bool:
        """Whether the settings want what was appended to be on the disk now: see `make_durable`."""
        config, durability = self.config, self._durability
        unflushed = self._local.log_end_offset - max(durability.durable_end, durability.recovery_point)
        return unflushed > 0 and (
            unflushed >= config.flush_messages or self._clock() - self._last_flush_ms >= config.flush_ms
        )

    @property
    def has_interval(self) -> bool:
        """Whether `flush.ms` is set."""
        return self.config.flush_ms != MAX_INT64

    @property
    def has_unflushed(self) -> bool:
        """Whether sealed segments may not be on the disk."""
        return len(self._local.segments) > 1 and bool(self._durability.unflushed(self._local.segments))

    def flush_if_due(self) -> None:
        """Flush if `flush.ms` has passed.

        Raises:
            LogOfflineError: The disk failed now.
        """
        if self._guard.disk.failure is None and self._clock() - self._last_flush_ms >= self.config.flush_ms:
            self.flush()

    def flush_sealed(self) -> None:
        """Flush all segments but the active one, while other threads append; do nothing if the log is closed.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        guard = self._guard
        guard.check_entry()
        with guard.flush_lock:
            with guard.lock:
                if guard.state.is_closed:
                    return
                guard.check_usable()
                segments = self._local.segments
            if self._durability.unflushed(segments):
                self._durability.sync_sealed(segments)

    def flush(self) -> None:
        """Return when all that was appended is on the disk; other threads may append meanwhile.

        Raises:
            LogError: The log is closed, or this is a fork of the process that opened it.
            LogOfflineError: The disk failed, now or before; what was not flushed before may be lost.
        """
        self._guard.check_entry()
        with self._guard.flush_lock:
            self.flush_under_lock()

    def flush_under_lock(self) -> None:
        """Do what `flush` does; the caller holds the FLUSH lock."""
        guard, durability, local = self._guard, self._durability, self._local
        with guard.lock:
            guard.check_usable()
            segments, end_offset = local.segments, local.log_end_offset
            self._last_flush_ms = self._clock()
        if end_offset != durability.recovery_point or not guard.disk.are_names_synced:
            durability.sync(segments, end_offset, indexes=True)
            with guard.lock:
                # Otherwise it was rolled meanwhile.
                if local.active.base_offset == segments[-1].base_offset:
                    durability.recovery_point = end_offset

    def make_durable(self, end_offset: int | None = None) -> None:
        """Return when the records below an offset are on the disk, but not their indexes, which recovery can rebuild.

        Other threads may append meanwhile. The first of the threads that wait here syncs for all of them.

        Args:
            end_offset: The offset; the log end offset if None.

        Raises:
            LogError: The log is closed, or this is a fork of the process that opened it.
            LogOfflineError: The disk failed, now or before; what was not flushed before may be lost.
        """
        guard, durability, local = self._guard, self._durability, self._local
        guard.check_entry()
        with guard.flush_lock:
            if end_offset is not None and durability.durable_end >= end_offset:
                return
            guard.disk.check()
            # As readers look, without the LOG lock: appends that do not wait would find it taken. The end comes first.
            guard.check_readable()
            covered = local.log_end_offset
            segments = local.segments
            self._last_flush_ms = self._clock()
            if durability.durable_end >= covered:
                return
            durability.sync(segments, covered, indexes=False)

    def wait_until_idle(self) -> None:
        """Return when no other thread is writing or syncing; where the disk has failed, none begins to after that."""
        self._guard.check_entry()
        with self._guard.flush_lock, self._guard.lock:
            pass
