"""What a cluster says about topics and partitions; without a client, so that a folder can say it, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

NOBODY = -1
_UNKNOWN_EPOCH = -1


class PartitionDescription(NamedTuple):
    """The leader and the replicas of a partition; -1 means an unknown leader or epoch."""

    leader: int = NOBODY
    leader_epoch: int = _UNKNOWN_EPOCH
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic.

    Attributes:
        name: Its name.
        topic_id: Its id as Kafka prints it; None if it has none, or if that is not known.
        partitions: Its partitions by number, sorted. What only lists a folder gives those that are there.
        config: The settings of its own, if they were asked for.
    """

    name: str
    topic_id: str | None
    partitions: Mapping[int, PartitionDescription]
    config: Mapping[str, str] = field(default_factory=dict)


class Bounds(NamedTuple):
    """The offsets that a partition holds.

    Attributes:
        start_offset: Its log start offset.
        end_offset: Its end, exclusive, for an isolation level.
        topic_id: Its topic's id, if it was asked for; it changes when the topic is deleted and created again.
        leader_epoch: Its latest leader epoch, if it was asked for. Records that replace some below `end_offset` have a
            greater one.
    """

    start_offset: int
    end_offset: int
    topic_id: str | None = None
    leader_epoch: int | None = None
