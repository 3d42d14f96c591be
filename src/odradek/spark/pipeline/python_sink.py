"""The Python sink: a function stores the rows of each batch, and may remember how far it has come.

    store(rows, batch)      rows: the view's DataFrame; batch.ranges: the offsets that they come from
    positions()             {("orders", 0): 1200}       what the function has stored

If the function stores the ends of the ranges together with the rows, in one transaction of its database, then it holds
each record once: what `positions` returns is not given again. Another run of the job, which asked for it before, may
give it again: so in that transaction the function refuses ranges that start below what it holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from odradek.arguments import given_text
from odradek.errors import JobError
from odradek.offsets.store import Position
from odradek.spark.pipeline.batch import Batch, token
from odradek.spark.pipeline.functions import failed
from odradek.spark.pipeline.session import explain
from odradek.spark.pipeline.sink import Sink
from odradek.spark.pipeline.sink_specs import PythonSinkSpec
from odradek.spark.ranges import OffsetRange
from odradek.storage.names import TopicPartition, checked_topic_partition


@dataclass(frozen=True)
class SinkBatch:
    """The batch that a function is to store.

    Attributes:
        ranges: The offsets that its rows come from, for each partition: the partition, the first offset, and the one
            after the last.
        topic_ids: The ids of the topics, by partition, where they are known.
        token: A name for the ranges: the same ranges have the same name.
    """

    ranges: Sequence[OffsetRange]
    topic_ids: Mapping[TopicPartition, str | None]
    token: str


class PythonSink(Sink):
    """Gives the rows of a view to a function.

    Args:
        spec: The function, and what it is given.
        key: The sink's key in the job's file, for errors.

    Raises:
        JobError: There is no such function.
    """

    def __init__(self, spec: PythonSinkSpec, key: str) -> None:
        self._spec = spec
        self._key = key
        self.description = f"python {spec.function}"
        self.on_held = spec.on_held
        self._store = spec.function.load(f"{key}.function", takes=2)
        self._positions = None if spec.positions is None else spec.positions.load(f"{key}.positions", takes=0)

    def positions(self) -> Mapping[TopicPartition, Position]:
        """Return what the function says that it has stored."""
        if self._positions is None:
            return {}
        key = f"{self._key}.positions"
        try:
            found = self._positions()
        except (Exception, SystemExit) as error:
            raise failed(error, key) from error
        try:
            return {checked_topic_partition(name): Position(offset) for name, offset in dict(found or {}).items()}
        except (TypeError, ValueError) as error:
            wanted = 'the next offset by topic and partition, such as {("orders", 0): 1200}'
            raise JobError(f"{self._spec.positions} must return {wanted}, not {given_text(found)}", key) from error

    def write(self, batch: Batch) -> None:
        """Call the function."""
        rows = batch.spark.table(self._spec.view)
        given = SinkBatch(tuple(batch.ranges), dict(batch.topic_ids), token(batch.ranges))
        try:
            self._store(rows, given)
        except (Py4JError, PySparkException) as error:
            raise explain(error, f"{self._key}.function") from error
        except (Exception, SystemExit) as error:
            raise failed(error, f"{self._key}.function") from error
