"""What the next batch of a job reads: from the positions in its store to the ends of the log.

    position 1200, log [0, 1500)                 ->   [1200, 1500)
    no position,   reset = "earliest"            ->   [0, 1500), and the store gets the position 0 before

A position outside the log means that records are lost: an error unless `failOnDataLoss` is false.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek.errors import JobError
from odradek.kafka.topics import Bounds
from odradek.offsets.store import Position, Positions, is_same_topic
from odradek.spark.options import EARLIEST, LATEST, OffsetSpec
from odradek.spark.pipeline.job import Job
from odradek.spark.ranges import (
    DataLossError,
    LossCause,
    OffsetRange,
    Topics,
    check_places,
    cut_places,
    find_partitions,
    limited,
    position_at,
    resolve,
    within,
)
from odradek.storage.names import TopicPartition


@dataclass(frozen=True)
class BatchPlan:
    """A planned batch.

    Attributes:
        ranges: What it reads.
        end_offsets: The ends that the ranges were cut from.
        first: Positions to store before it.
        bounds: What the partitions have.
        cut: The ends of logs that were cut below their positions, where `failOnDataLoss` is false: to go on from.
    """

    ranges: list[OffsetRange]
    end_offsets: dict[TopicPartition, int]
    first: dict[TopicPartition, Position]
    bounds: dict[TopicPartition, Bounds]
    cut: dict[TopicPartition, Position] = field(default_factory=dict)

    @property
    def topic_ids(self) -> dict[TopicPartition, str | None]:
        """The ids of the topics, by partition, where they are known."""
        return {name: held.topic_id for name, held in self.bounds.items()}


def plan(job: Job, topics: Topics, positions: Positions, target: Mapping[TopicPartition, int] | None) -> BatchPlan:
    """Plan the next batch.

    Args:
        job: The job.
        topics: Its source.
        positions: Its positions.
        target: Where to stop at the latest, and in which partitions; None for the end of each.

    Raises:
        DataLossError: Records that should be read do not exist any more, and `failOnDataLoss` is true.
        JobError: There is no position, and the job says that it must have one.
    """
    options = job.source_options()
    asked_for = find_partitions(topics, options, positions)
    bounds = topics.bounds(asked_for)
    stored = {name: positions[name] for name in asked_for if name in positions}
    check_places(topics, bounds, stored, fail_on_data_loss=options.fail_on_data_loss)
    if target is not None:
        bounds = {name: held for name, held in bounds.items() if name in target}
    first = _first_positions(job, topics, positions, bounds)
    cut = cut_places(topics, bounds, stored)
    known = {**stored, **first, **cut}
    starts = {name: known[name].offset for name in bounds}
    ends = {
        name: held.end_offset if target is None else min(held.end_offset, target[name]) for name, held in bounds.items()
    }
    asked = [OffsetRange(name, starts[name], max(ends[name], starts[name])) for name in sorted(bounds)]
    kept = within(asked, bounds, fail_on_data_loss=options.fail_on_data_loss)
    return BatchPlan(limited(kept, job.max_offsets_per_batch), ends, first, bounds, cut)


def _first_positions(
    job: Job, topics: Topics, positions: Positions, bounds: Mapping[TopicPartition, Bounds]
) -> dict[TopicPartition, Position]:
    """Return the starting positions of partitions without a position."""
    new = {name: held for name, held in bounds.items() if name not in positions}
    if not new:
        return {}
    ids = {name.topic: place.topic_id for name, place in positions.items()}
    for name, held in new.items():
        # For a topic that was deleted, a store may know only its id, or other partitions.
        if not is_same_topic(ids.get(name.topic), held.topic_id):
            at_start = OffsetRange(name, held.start_offset, held.start_offset)
            raise DataLossError(LossCause.NEW_TOPIC, at_start, held, ids[name.topic])
    if len(positions):
        # The group has positions: a new partition, or topic, is read from its start.
        return {name: position_at(held, held.start_offset) for name, held in new.items()}
    reset = job.reset
    if reset == "none":
        raise JobError(f"the group has no positions for {', '.join(map(str, new))}, and offsets.reset is none")
    if isinstance(reset, int):
        spec = OffsetSpec(timestamp=reset)
    else:
        spec = OffsetSpec(EARLIEST if reset == "earliest" else LATEST)
    offsets = resolve(spec, "offsets.reset", topics, new, end_for_later_times=True)
    return {name: position_at(new[name], offset) for name, offset in offsets.items()}
