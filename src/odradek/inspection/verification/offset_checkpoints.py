"""Checks the offset checkpoints of a log directory against the logs that they name.

    log-start-offset-checkpoint        orders 0 777     within the log; a start after its end hides every record,
                                                        and the next program to open the log deletes them
    recovery-point-offset-checkpoint   orders 0 1200    up to the end of a log that was closed in order
    replication-offset-checkpoint      orders 0 1200    likewise: the high watermark

What a crash may leave is not wrong: checkpoints are written some seconds before or after the logs that they describe.

Source in Kafka: `LogManager`, `LogLoader`, `ReplicaManager`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from odradek.inspection.finding import Finding, FindingKind
from odradek.inspection.surroundings import Surroundings
from odradek.storage.formats.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from odradek.storage.names import TopicPartition, parse_partition_directory

_ENDS = {RECOVERY_POINT_CHECKPOINT: "the recovery point", REPLICATION_OFFSET_CHECKPOINT: "the high watermark"}


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The range of offsets that a log has.

    Attributes:
        topic_partition: The log's partition.
        base_offset: The base offset of the first segment; None if there is no segment.
        end_offset: The offset after the last batch; None if it is not known because the end is damaged.
    """

    topic_partition: TopicPartition
    base_offset: int | None
    end_offset: int | None


def check_extents(surroundings: Surroundings, extents: Iterable[LogExtent]) -> Iterator[Finding]:
    """Yield what the checkpoints say wrongly about logs."""
    for extent in extents:
        yield from _check_start(surroundings, extent)
        if surroundings.is_closed_in_order and extent.end_offset is not None:
            yield from _check_end(surroundings, extent, extent.end_offset)


def _finding(surroundings: Surroundings, name: str, reason: str) -> Finding:
    return Finding(surroundings.root / name, None, FindingKind.CONTRADICTION, reason)


def start_beyond_end(surroundings: Surroundings, extent: LogExtent) -> Finding | None:
    """Return the finding for a log that starts beyond its end; None if it does not, or has no end that is known."""
    start = surroundings.offset(LOG_START_OFFSET_CHECKPOINT, extent.topic_partition)
    if start is None or extent.end_offset is None or start <= extent.end_offset:
        return None
    reason = f"{extent.topic_partition} starts at offset {start}, beyond its end at {extent.end_offset}"
    return _finding(surroundings, LOG_START_OFFSET_CHECKPOINT, reason)


def _check_start(surroundings: Surroundings, extent: LogExtent) -> Iterator[Finding]:
    start = surroundings.offset(LOG_START_OFFSET_CHECKPOINT, extent.topic_partition)
    if start is None or extent.base_offset is None:
        return
    beyond = start_beyond_end(surroundings, extent)
    if beyond is not None:
        yield beyond
    # Retention may pass the checkpoint's offset; a clean shutdown writes only starts within a segment.
    elif (
        start < extent.base_offset
        and surroundings.is_closed_in_order
        and not surroundings.is_tiered(extent.topic_partition.topic)
    ):
        reason = f"{extent.topic_partition} starts at offset {start}, before its first segment {extent.base_offset}"
        yield _finding(surroundings, LOG_START_OFFSET_CHECKPOINT, reason)


def _check_end(surroundings: Surroundings, extent: LogExtent, end_offset: int) -> Iterator[Finding]:
    beyond = {}
    for name, what in _ENDS.items():
        offset = surroundings.offset(name, extent.topic_partition)
        if offset is not None and offset > end_offset:
            beyond[name] = f"{what} {offset}"
    if beyond:
        # If both are after the end, the log has lost its end, which is one finding.
        reason = f"{extent.topic_partition} ends at offset {end_offset}, before {' and '.join(beyond.values())}"
        yield _finding(surroundings, next(iter(beyond)), f"{reason}, though it was closed in order")


def check_names(surroundings: Surroundings) -> Iterator[Finding]:
    """Yield the entries of partitions that do not exist.

    Raises:
        OSError: The log directory cannot be listed.
    """
    # A partition that is deleted, stray or moved keeps its entries for some time.
    parsed = (parse_partition_directory(path.name) for path in surroundings.root.iterdir())
    present = {name.topic_partition for name in parsed if name is not None}
    for name in (LOG_START_OFFSET_CHECKPOINT, *_ENDS):
        if name != LOG_START_OFFSET_CHECKPOINT and not surroundings.is_closed_in_order:
            # Checkpoints are written every few seconds: after a crash they may name what was deleted shortly before.
            continue
        absent = sorted((surroundings.checkpoints[name] or {}).keys() - present)
        if absent:
            others = f" and {len(absent) - 1} others do" if len(absent) > 1 else " does"
            yield _finding(surroundings, name, f"{absent[0]}{others} not exist")
