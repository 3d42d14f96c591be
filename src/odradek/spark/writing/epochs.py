"""What a target holds of a stream: its last batch, which Spark may repeat after a restart.

    group odradek-spark-QUERY    offset: the next batch    metadata: {"query": ..., "tasks": [[1, 4711, 0], ...]}

The offset becomes visible together with rows of the batch, in the transaction of the first task. `tasks` are the other
transactions of the batch, as task, producer id and producer epoch: who finds the batch here has to commit them, for the
driver may have died in between. Of many tasks, the groups `odradek-spark-QUERY.1` and so on have the rest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from pyspark import TaskContext

from odradek.errors import SinkError
from odradek.kafka.committed_offset import CommittedOffset

PREFIX = "odradek-spark"
_TASKS_A_GROUP = 100
"""A broker keeps 4096 bytes with an offset (`offset.metadata.max.bytes`)."""


class Epoch(NamedTuple):
    """A batch of a stream: its checkpoint's id, which stays the same when the query is restarted, and its number."""

    query_id: str
    batch_id: int

    @property
    def group(self) -> str:
        """The group that keeps what a target holds, if no transactional id was given."""
        return f"{PREFIX}-{self.query_id}"

    def __str__(self) -> str:
        return f"batch {self.batch_id} of the query {self.query_id}"


class TaskTransaction(NamedTuple):
    """A transaction of a task: a program that knows these values may end it."""

    task: int
    producer_id: int
    producer_epoch: int


class HeldEpoch(NamedTuple):
    """The last batch that a target holds.

    Attributes:
        epoch: The batch.
        tasks: The transactions of the batch that the driver had to commit after this became visible.
        group_count: How many groups they are kept in.
    """

    epoch: Epoch
    tasks: tuple[TaskTransaction, ...] = ()
    group_count: int = 1

    def repeats(self, wanted: Epoch) -> bool:
        """Return whether a batch of the same query is held already, so that nothing is to be written.

        Raises:
            SinkError: The target is ahead of the checkpoint by more than the batch that a restart repeats.
        """
        if self.epoch.batch_id < wanted.batch_id:
            return False
        if self.epoch.batch_id > wanted.batch_id:
            raise SinkError(
                f"the target holds {self.epoch} already, and the checkpoint is at batch {wanted.batch_id}: it is an "
                "older copy. Start the query with a new checkpoint"
            )
        return True


def running_task() -> int:
    """Return the number of the running task, which another attempt of it has too."""
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def current_epoch() -> Epoch:
    """Return the batch that the running task belongs to.

    Raises:
        SinkError: Spark does not tell it.
    """
    context = TaskContext.get()
    assert context is not None
    query_id = context.getLocalProperty("sql.streaming.queryId")
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    if query_id is None or batch_id is None:
        raise SinkError("this Spark does not tell a task the number of its batch: set transactional to false")
    return Epoch(query_id, int(batch_id))


def held_to_offsets(group: str, held: HeldEpoch) -> dict[str, CommittedOffset]:
    """Return the offsets that keep what a target holds, by group."""
    offset = held.epoch.batch_id + 1
    parts = [held.tasks[start : start + _TASKS_A_GROUP] for start in range(0, len(held.tasks), _TASKS_A_GROUP)]
    found = {}
    for number, tasks in enumerate(parts or [()]):
        content: dict[str, object] = {"query": held.epoch.query_id, "tasks": tasks}
        if number == 0:
            content["groups"] = max(1, len(parts))
        found[part_group(group, number)] = CommittedOffset(offset, None, json.dumps(content, separators=(",", ":")))
    return found


def part_group(group: str, number: int) -> str:
    """Return the name of one of the groups that keep what a target holds."""
    return group if number == 0 else f"{group}.{number}"


def held_from_offsets(group: str, offsets: Sequence[CommittedOffset], query_id: str) -> HeldEpoch | None:
    """Return what a target holds of a query; None if it holds nothing.

    Args:
        group: The group.
        offsets: Its offsets. Each is kept under a partition that the batch went to, so there may be several: of earlier
            batches, and of an earlier query that had the same transactional id.
        query_id: The query; its last offset counts.

    Raises:
        SinkError: The offsets are another program's.
    """
    found: list[HeldEpoch] = []
    for offset in offsets:
        try:
            content = json.loads(offset.metadata)
            tasks = tuple(TaskTransaction(*map(int, task)) for task in content["tasks"])
            epoch = Epoch(str(content["query"]), offset.offset - 1)
            found.append(HeldEpoch(epoch, tasks, int(content.get("groups", 1))))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise SinkError(
                f"the group {group} has offsets that no Spark query wrote: set kafka.transactional.id to another name"
            ) from error
    of_query = [held for held in found if held.epoch.query_id == query_id]
    return max(of_query, key=lambda held: held.epoch.batch_id, default=None)
