"""The topic sink: forwards records to a broker exactly once, each source partition in its own transactions.

    task   for each source partition of the batch
             take over its transactional id, and read the position of the last transaction
             skip rows below that; send the others, and commit them together with the batch's end

So after any crash the rows and the position of a source partition are either both there or both missing, and the tasks
need not wait for each other. A partition without rows in the batch still gets its position.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from odradek.errors import SinkError
from odradek.kafka.client import BrokerClient
from odradek.kafka.producer import CommittedPosition, Transaction
from odradek.kafka.settings import BrokerSettings
from odradek.offsets.store import Position
from odradek.records.compression import CODECS
from odradek.records.partitioner import partition_for_key
from odradek.spark.pipeline.batch import Batch
from odradek.spark.pipeline.job import ORIGIN_COLUMNS, TOPIC_SINK_COLUMNS, TopicSinkSpec
from odradek.spark.pipeline.lineage import origin_columns
from odradek.spark.pipeline.sink import Sink, check_same_topic
from odradek.spark.ranges import OffsetRange
from odradek.storage.names import TopicPartition

_SENT = "topic string, partition int, records bigint"
_SENT_SCHEMA = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("records", pa.int64())])
_NEW_TOPIC_S = 5


class TopicSink(Sink):
    """Forwards a view to a topic.

    Args:
        spec: Which view, and where to.
        transactional_id: The prefix of the transactional ids; the source's partition follows.

    Raises:
        SinkError: There is no such topic.
        BrokerUnavailableError: The broker cannot be reached.
    """

    wants_whole_partitions = True

    def __init__(self, spec: TopicSinkSpec, transactional_id: str) -> None:
        self._spec = spec
        self.on_held = spec.on_held
        self._is_by_record = False
        self._settings = BrokerSettings.parse(spec.kafka)
        self.description = f"topic {spec.topic} of {','.join(self._settings.bootstrap_servers)}"
        self._prefix = transactional_id
        client = BrokerClient(self._settings)
        try:
            found = client.attempt("looking for the target topic", lambda: client.topics([spec.topic]))
            # A broker learns of a new topic a moment after the controller has answered.
            deadline = time.monotonic() + _NEW_TOPIC_S
            while spec.topic not in found and time.monotonic() < deadline:
                time.sleep(0.2)
                found = client.attempt("looking for the target topic", lambda: client.topics([spec.topic]))
        finally:
            client.close()
        if spec.topic not in found:
            raise SinkError(f"{self.description}: there is no such topic")
        self._partitions = len(found[spec.topic].leaders)

    def positions(self) -> Mapping[TopicPartition, Position]:
        """Return nothing: the tasks ask the broker for the positions of their transactions."""
        return {}

    def held(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Position]:
        """Return the positions up to which this sink's transactions have forwarded partitions."""
        found = {}
        client = BrokerClient(self._settings)
        try:
            for name in sorted(partitions):
                position = _transaction(client, self._spec, self._prefix, name).position()
                if position is not None:
                    found[name] = Position(position.offset, topic_id=position.topic_id)
        finally:
            client.close()
        return found

    def replay(self, starts: Mapping[TopicPartition, Position]) -> None:
        """Set the positions back, by transactions without records."""
        client = BrokerClient(self._settings)
        try:
            for name, start in sorted(starts.items()):
                transaction = _transaction(client, self._spec, self._prefix, name)
                transaction.begin()
                transaction.commit(CommittedPosition(start.offset, start.topic_id))
        finally:
            client.close()

    def write(self, batch: Batch) -> None:
        """Forward the view of a batch."""
        frame = batch.spark.table(self._spec.view)
        missing = [name for name in TOPIC_SINK_COLUMNS if name not in frame.columns]
        if missing:
            raise SinkError(f"{self.description}: the view {self._spec.view} has no column {missing[0]}")
        if not self._is_by_record:
            made = sorted(set(ORIGIN_COLUMNS) - origin_columns(frame))
            if made:
                raise SinkError(
                    f"{self.description}: the column {made[0]} of the view {self._spec.view} is not the source's, "
                    "which the sink needs to know what it has forwarded: select the source's column, and give yours "
                    "another name"
                )
            self._is_by_record = True
        wanted = [name for name in (*ORIGIN_COLUMNS, "key", "value", "headers", "timestamp") if name in frame.columns]
        frame = _by_partition(frame.select(*wanted))
        task = _ForwardTask(self._settings, self._spec, self._prefix, self._partitions, batch)
        sent = frame.mapInArrow(task, _SENT).collect()
        done = {TopicPartition(row.topic, row.partition) for row in sent}
        task.advance([part for part in batch.ranges if part.topic_partition not in done])

    def close(self) -> None:
        """Do nothing: the sink keeps no connection open."""


def _transaction(client: BrokerClient, spec: TopicSinkSpec, prefix: str, source: TopicPartition) -> Transaction:
    """Return the transaction in which a partition of the source is forwarded."""
    return Transaction(client, f"{prefix}-{source}", spec.topic, CODECS[spec.compression])


def _by_partition(frame: DataFrame) -> DataFrame:
    """Bring the rows of each source partition into one task, in order, unless they already are."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    moved = any(word in plan for word in ("Exchange", "Union", "Join", "CartesianProduct"))
    if not moved and plan.count("BatchScan") == 1:
        # There is one split for each partition, and one task for each split.
        return frame
    return frame.repartition("topic", "partition").sortWithinPartitions(*ORIGIN_COLUMNS)


class _ForwardTask:
    """The work of a Spark task: a transaction for each source partition among its rows."""

    def __init__(
        self,
        settings: BrokerSettings,
        spec: TopicSinkSpec,
        prefix: str,
        partitions: int,
        batch: Batch,
    ) -> None:
        self._settings = settings
        self._spec = spec
        self.by_key = spec.partition_by == "key"
        self._prefix = prefix
        self.partitions = partitions
        self._ranges = {part.topic_partition: part for part in batch.ranges}
        self._topic_ids = dict(batch.topic_ids)
        self._stored_offsets = dict(batch.stored_offsets)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        results: dict[str, list[Any]] = {"topic": [], "partition": [], "records": []}
        client = BrokerClient(self._settings)
        try:
            current: _Forwarding | None = None
            for batch in batches:
                for name, rows in _runs(batch):
                    if current is None or current.wanted.topic_partition != name:
                        if current is not None:
                            self._finish(current, results)
                        current = self._start(client, self._ranges[name])
                    current.forward(rows)
            if current is not None:
                self._finish(current, results)
        finally:
            client.close()
        yield pa.RecordBatch.from_pydict(results, schema=_SENT_SCHEMA)

    def advance(self, ranges: list[OffsetRange]) -> None:
        """Commit the ends of partitions without rows to forward."""
        if not ranges:
            return
        client = BrokerClient(self._settings)
        try:
            for wanted in ranges:
                self._start(client, wanted).commit()
        finally:
            client.close()

    def _start(self, client: BrokerClient, wanted: OffsetRange) -> _Forwarding:
        source = wanted.topic_partition
        topic_id = self._topic_ids.get(source)
        transaction = _transaction(client, self._spec, self._prefix, source)
        held = transaction.begin() or CommittedPosition(wanted.start_offset, topic_id)
        holder = f"topic {self._spec.topic}"
        check_same_topic(holder, source, Position(held.offset, topic_id=held.topic_id), topic_id)
        stored = self._stored_offsets.get(source, wanted.start_offset)
        # Records between the stored position and the range were lost, and failOnDataLoss=false skips them.
        if held.offset < stored:
            raise SinkError(
                f"{holder}: {source} is forwarded up to offset {held.offset}, and the offset store "
                f"says that everything below {stored} is done: set the store back to {held.offset}"
            )
        return _Forwarding(transaction, wanted, max(held.offset, wanted.start_offset), topic_id, self)

    def _finish(self, current: _Forwarding, results: dict[str, list[Any]]) -> None:
        current.commit()
        results["topic"].append(current.wanted.topic_partition.topic)
        results["partition"].append(current.wanted.topic_partition.partition)
        results["records"].append(current.records)


class _Forwarding:
    """One source partition while it is forwarded."""

    def __init__(
        self, transaction: Transaction, wanted: OffsetRange, position: int, topic_id: str | None, task: _ForwardTask
    ) -> None:
        self.wanted = wanted
        self.records = 0
        self._transaction = transaction
        self._position = position
        self._topic_id = topic_id
        self._partitions = task.partitions
        self._by_key = task.by_key

    def forward(self, rows: pa.RecordBatch) -> None:
        """Send the rows that were not forwarded before."""
        if self._position > self.wanted.start_offset:
            rows = rows.filter(pc.greater_equal(rows.column("offset"), self._position))
        if not rows.num_rows:
            return
        self.records += rows.num_rows
        content = rows.select([name for name in rows.schema.names if name not in ORIGIN_COLUMNS])
        if not self._by_key or "key" not in rows.schema.names:
            self._transaction.send(self.wanted.topic_partition.partition % self._partitions, content)
            return
        targets = _key_partitions(rows.column("key"), self._partitions, self.wanted.topic_partition.partition)
        for target in pc.unique(targets).to_pylist():
            self._transaction.send(target, content.filter(pc.equal(targets, target)))

    def commit(self) -> None:
        """Commit the transaction, with the batch's end as the position; do nothing if that was committed before."""
        if self._position < self.wanted.end_offset:
            self._transaction.commit(CommittedPosition(self.wanted.end_offset, self._topic_id))


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Cut a batch of rows wherever the source partition changes."""
    if not batch.num_rows:
        return
    topics, partitions = batch.column("topic"), batch.column("partition")
    if topics.null_count or partitions.null_count or batch.column("offset").null_count:
        raise SinkError("a row has no topic, partition or offset of the source: an outer join made it, say")
    start = 0
    while start < batch.num_rows:
        name = TopicPartition(topics[start].as_py(), partitions[start].as_py())
        rest = batch.slice(start)
        same = pc.and_(pc.equal(rest.column("topic"), name.topic), pc.equal(rest.column("partition"), name.partition))
        border = pc.index(same, False).as_py()
        length = rest.num_rows if border < 0 else border
        yield name, batch.slice(start, length)
        start += length


def _key_partitions(keys: pa.Array, partitions: int, source_partition: int) -> pa.Array:
    """Return the partitions that Kafka's default partitioner gives to keys; records without a key stay together."""
    encoded = keys.dictionary_encode()
    targets = [partition_for_key(key, partitions) for key in encoded.dictionary.to_pylist()]
    found = pa.array(targets, pa.int32()).take(encoded.indices)
    return pc.fill_null(found, source_partition % partitions)
