"""Opens a log to be appended to: loads and recovers its folder, and puts together what a `WritableLog` consists of.

    folder  ->  LogLoader  ->  segments, producers, leader epochs  ->  LocalLog, LogHead, Appender, Flushing
                                                                       all of them behind one ChangeGuard

Source in Kafka: `LogLoader`, `UnifiedLog.create`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from odradek.storage.log.appender import Appender
from odradek.storage.log.change_guard import ChangeGuard
from odradek.storage.log.durability import Durability
from odradek.storage.log.flushing import Flushing
from odradek.storage.log.loader import LogLoader
from odradek.storage.log.local_log import LocalLog
from odradek.storage.log.log_head import LogHead
from odradek.storage.log.log_options import LogOptions
from odradek.storage.log.log_state import LogState
from odradek.storage.log.new_segments import NewSegments
from odradek.storage.log_disk import LogDisk
from odradek.storage.topic_config import TopicConfig


class LogParts:
    """The parts of one log.

    Args:
        path: The partition's folder.
        state: Whether the log is open.
        options: What it is opened with.
        announce: Called when the maintenance may have to look at the log each second: see `WritableLog.has_pending`.

    Attributes:
        config: The topic's settings.
        was_compacted: Whether the log is compacted, or was at any time.
        clock: Returns the time in ms.
        guard: Guards the changes of the log.
        report: What had to be done to open it.
        durability: How much of it is on the disk.
        local: Its segments.
        head: Where it begins.
        appender: Appends to its segments.
        flushing: When it is brought to the disk.

    Raises:
        LogOfflineError: The disk failed.
        CheckpointError: `leader-epoch-checkpoint` is not of the form that Kafka reads.
    """

    def __init__(self, path: Path, state: LogState, options: LogOptions, announce: Callable[[], object]) -> None:
        config = self.config = options.config
        self.was_compacted = options.was_compacted or config.is_compacted
        clock = self.clock = options.clock
        opened, writers = options.opened, options.writers

        def free_descriptors() -> None:
            writers.park_all(but=guard.lock)
            opened.close_all()

        disk = LogDisk(path, options.files, free_descriptors, announce)
        guard = self.guard = ChangeGuard(state, disk)
        loaded = LogLoader(path, options, disk).load()
        self.report = loaded.report
        latest = loaded.epochs.latest_epoch
        leader_epoch = options.leader_epoch if latest is None else max(options.leader_epoch, latest)
        is_new = latest is None and loaded.log_end_offset == loaded.log_start_offset
        if loaded.log_end_offset == loaded.log_start_offset:
            # An earlier opening may have failed, or been interrupted, before the names were on the disk.
            disk.names_changed()
        self._announce = announce
        self.durability = Durability(
            disk,
            loaded.recovery_point,
            is_dirty=not options.is_clean or not loaded.segments,
            flushes_late=options.flushes_late,
        )
        self.local = LocalLog(
            path,
            loaded.segments,
            loaded.log_start_offset,
            producers=loaded.producers,
            guard=guard,
            durability=self.durability,
            opened=opened,
            new_segments=NewSegments(path, config, opened=opened, disk=disk, clock=clock),
            writers=writers,
            announce=announce,
            clock=clock,
        )
        self.head = LogHead(loaded.log_start_offset, local=self.local, epochs=loaded.epochs, durability=self.durability)
        self.appender = Appender(
            self.local, loaded.epochs, config, leader_epoch=leader_epoch, in_parts=guard.in_parts, clock=clock
        )
        self.flushing = Flushing(self.local, self.durability, config, guard=guard, clock=clock)
        if is_new:
            loaded.epochs.assign(leader_epoch, loaded.log_start_offset)
            if not loaded.segments and disk.are_names_synced:
                # The files are new and empty, and writing the epoch has synced their names.
                self.durability.is_dirty = False

    def configure(self, config: TopicConfig) -> None:
        """Use other settings from now on; the caller holds the LOG lock."""
        if self.guard.is_changeable:
            # A change that began under the old settings is completed under them.
            self.guard.settle()
        self.local.configure(config)
        self.appender.configure(config)
        self.was_compacted = self.was_compacted or config.is_compacted
        self.config = self.flushing.config = config
        self._announce()
