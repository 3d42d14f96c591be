"""What a log is opened with: the topic's settings, what the checkpoints say of it, and what it shares with others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from odradek.records.timestamps import now_ms
from odradek.storage.files import FILES, FileSystem
from odradek.storage.log.open_writers import OpenWriters
from odradek.storage.names import TopicPartition
from odradek.storage.producers.producer_state_manager import PRODUCER_ID_EXPIRATION_MS
from odradek.storage.segment.open_segments import OpenSegments
from odradek.storage.topic_config import TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """What a log is opened with.

    Attributes:
        config: The topic's settings.
        is_clean: Whether the last program that wrote it closed it in order.
        recovery_point: The checkpointed recovery point.
        log_start_offset: The checkpointed log start offset.
        leader_epoch: The leader epoch that batches are written in; at least the last one in the log.
        producer_id_expiration_ms: `producer.id.expiration.ms`.
        opened: The register of open segments, shared by the logs of a log directory.
        writers: The register of logs with files open for appending, shared as well.
        pending: The logs that the maintenance looks at each second, shared as well. A log adds itself when
            `WritableLog.has_pending` may have become true; the maintenance removes it when that is false again.
        files: The file system to write through.
        clock: Returns the time in ms.
        flushes_late: Whether the log's owner flushes rolled segments some time later; otherwise a roll flushes them.
        was_compacted: Whether the log was compacted before.
        is_strict: Whether a recovery that would lose records is refused.
    """

    config: TopicConfig = field(default_factory=TopicConfig)
    is_clean: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    leader_epoch: int = 0
    producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS
    opened: OpenSegments = field(default_factory=OpenSegments)
    writers: OpenWriters = field(default_factory=OpenWriters)
    pending: set[TopicPartition] = field(default_factory=set)
    files: FileSystem = FILES
    clock: Callable[[], int] = now_ms
    flushes_late: bool = False
    was_compacted: bool = False
    is_strict: bool = False
