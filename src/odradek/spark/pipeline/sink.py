"""What a pipeline asks of a sink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import SparkSession

from odradek.errors import SinkError
from odradek.offsets.store import Position, is_same_topic
from odradek.spark.pipeline.batch import Batch
from odradek.spark.ranges import OffsetRange
from odradek.storage.names import TopicPartition


class FencedError(SinkError):
    """Another driver has taken over what a sink was writing, so that nothing of it counts.

    Only the driver to which the offset store belongs may write it again.
    """


def check_same_topic(holder: str, name: TopicPartition, held: Position, topic_id: str | None) -> None:
    """Check that what a sink holds of a partition comes from the current topic of that name.

    Args:
        holder: A description of the sink, for the error.
        name: The partition.
        held: The position that the sink holds, with the topic's id.
        topic_id: The current id of the topic.

    Raises:
        SinkError: It comes from an earlier topic of that name.
    """
    if not is_same_topic(held.topic_id, topic_id):
        raise SinkError(
            f"{holder} holds {name} up to offset {held.offset} of another topic of that name, whose id was "
            f"{held.topic_id}: `odradek pipeline start-over FILE {name.topic}` lets the job begin with the new one, "
            "beside what is there; or give the sink another path or transactional_id"
        )


def check_owner(holder: str, group: str, held: Sequence[str] | None, own: Sequence[str]) -> None:
    """Check that the positions that a group keeps are a sink's own.

    Names are joined by dashes, so two jobs may have the same group: `a` with the topic `b-c`, and `a-b` with `c`. Each
    would take what the other has forwarded for its own.

    Args:
        holder: A description of the sink, for the error.
        group: The group, which is also the transactional id.
        held: Whose the positions are (`Job.owner`); None if an earlier version wrote them, which did not say it.
        own: Whose they should be.

    Raises:
        SinkError: They are another job's.
    """
    if held is None or list(held) == list(own):
        return
    # A job that is renamed keeps its ids by a `transactional_id` of its own.
    if "-".join(held) == "-".join(own) and 1 in (len(held), len(own)):
        return
    other = (
        f"the job {held[0]} with the topic {held[1]}" if len(held) == 2 else f"transactional_id = {'-'.join(held)!r}"
    )
    raise SinkError(
        f"{holder}: the group and transactional id {group} belong to {other}, which makes the same one: give this sink "
        "another transactional_id"
    )


class Sink(ABC):
    """Somewhere that the output of batches goes.

    Every sink writes the batch, then the offset store takes its end. So after a crash a sink may be ahead of the store;
    a sink that says so through `positions` is given only what it does not hold yet.

    Attributes:
        description: What it is, in a few words.
        on_held: What to do if the sink holds records of a partition for which the offset store has no position:
            `error`, `skip` what is held, or `replay` it.
        refused_records: How many records it was given so far that its target did not take.
        wants_whole_partitions: Whether a task should have all of a source partition's rows, not a split of them.
    """

    description: str
    on_held = "skip"
    refused_records = 0
    wants_whole_partitions = False

    def positions(self) -> Mapping[TopicPartition, Position]:
        """Return the position that the sink holds of each partition, below which it is given nothing; may be empty."""
        return {}

    def held(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Position]:
        """Return the positions that the sink holds of these partitions; those without one are missing in the result."""
        positions = self.positions()
        return {name: positions[name] for name in partitions if name in positions}

    def held_ranges(self) -> list[OffsetRange] | None:
        """Return which ranges the sink holds, not only up to where; None if it cannot know."""
        return None

    def start(self, stored: Mapping[TopicPartition, Position]) -> None:  # noqa: B027 - most sinks need nothing
        """Take note, before the first batch, of what the offset store says is done."""

    def replay(self, starts: Mapping[TopicPartition, Position]) -> None:
        """Forget what is held of partitions, so that it is written again from these positions."""
        places = ", ".join(f"{name} from offset {place.offset}" for name, place in sorted(starts.items()))
        raise SinkError(
            f"{self.description}: what it holds of {places} on cannot be forgotten by the job: take it out there, so "
            "that its positions are these"
        )

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Write a batch, whose views are defined. When this returns, the batch is durable."""

    def define_views(self, spark: SparkSession) -> None:  # noqa: B027 - most sinks have none
        """Define the views that the sinks after this one may query; also called if nothing was left to write."""

    def close(self) -> None:  # noqa: B027 - some sinks hold nothing open
        """Close what the sink holds open."""


def check_held(sinks: Sequence[Sink], first: Mapping[TopicPartition, Position]) -> None:
    """Apply `on_held` if a sink holds records of partitions for which the offset store has no position.

    This is not the case after a crash: the store then has the positions from which the batch started.

    All sinks are checked before one of them replays, so that an error leaves every sink as it is.
    """
    replays: list[tuple[Sink, dict[TopicPartition, Position]]] = []
    for sink in sinks:
        held = sink.held(first)
        if not held:
            continue
        if sink.on_held == "replay":
            replays.append((sink, {name: first[name] for name in held}))
            continue
        for name, place in sorted(held.items()):
            check_same_topic(sink.description, name, place, first[name].topic_id)
            if sink.on_held == "error" and place.offset > first[name].offset:
                raise SinkError(
                    f"{sink.description} holds {name} up to offset {place.offset} already, and the offset store has no "
                    'position of it: say whether to skip what is held (on_held = "skip") or not (another path, or '
                    'on_held = "replay" where a topic is the target), or set the store to where the sink is'
                )
    for sink, starts in replays:
        sink.replay(starts)
