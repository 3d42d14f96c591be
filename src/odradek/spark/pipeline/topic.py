"""A topic of a broker: records forwarded exactly once, each source partition in transactions of its own.

    task   for each source partition of the batch
             take its transactional id over, and look where the last transaction ended
             rows below that are done already; rows from there on go out, and the batch's end with them

So whoever dies, and whenever: either the rows and the position of a source partition are both there, or neither is,
and the tasks need not wait for each other. A partition without rows in the batch still gets its position.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from odradek.kafka.client import BrokerClient
from odradek.kafka.producer import Transaction
from odradek.kafka.settings import BrokerSettings
from odradek.records.compression import Codec
from odradek.spark.pipeline.batch import Batch
from odradek.spark.pipeline.job import TopicSinkSpec
from odradek.spark.pipeline.sink import Sink, SinkError
from odradek.spark.ranges import OffsetRange
from odradek.storage.names import TopicPartition

CODECS = {"none": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}
_SENT = "topic string, partition int, records bigint"
_SENT_SCHEMA = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("records", pa.int64())])
_POSITION = ("topic", "partition", "offset")
_NEW_TOPIC_S = 5


class TopicSink(Sink):
    """Forwards a view to a topic.

    Args:
        spec: Which view, and where to.
        job_name: What makes the transactional ids this job's own.

    Raises:
        SinkError: There is no such topic.
        BrokerUnavailableError: The broker cannot be reached.
    """

    wants_whole_partitions = True

    def __init__(self, spec: TopicSinkSpec, job_name: str) -> None:
        self._spec = spec
        self._settings = BrokerSettings.parse(spec.kafka)
        self.description = f"topic {spec.topic} of {','.join(self._settings.bootstrap_servers)}"
        self._prefix = f"{job_name}-{spec.topic}"
        client = BrokerClient(self._settings)
        try:
            found = client.attempt("looking for the target topic", lambda: client.topics([spec.topic]))
            # A broker learns of a topic a moment after the controller has answered that it was created.
            deadline = time.monotonic() + _NEW_TOPIC_S
            while spec.topic not in found and time.monotonic() < deadline:
                time.sleep(0.2)
                found = client.attempt("looking for the target topic", lambda: client.topics([spec.topic]))
        finally:
            client.close()
        if spec.topic not in found:
            raise SinkError(f"{self.description}: there is no such topic")
        self._partitions = len(found[spec.topic].leaders)

    def positions(self) -> Mapping[TopicPartition, int]:
        """Return nothing: the transactions know, and the tasks ask them."""
        return {}

    def write(self, batch: Batch) -> None:
        """Forward the view of a batch."""
        frame = batch.spark.table(self._spec.view)
        missing = [name for name in (*_POSITION, "value") if name not in frame.columns]
        if missing:
            raise SinkError(f"{self.description}: the view {self._spec.view} has no column {missing[0]}")
        wanted = [name for name in (*_POSITION, "key", "value", "headers", "timestamp") if name in frame.columns]
        frame = _by_partition(frame.select(*wanted))
        task = _ForwardTask(self._settings, self._spec, self._prefix, self._partitions, tuple(batch.ranges))
        sent = frame.mapInArrow(task, _SENT).collect()
        done = {TopicPartition(row.topic, row.partition) for row in sent}
        task.advance([part for part in batch.ranges if part.topic_partition not in done])

    def close(self) -> None:
        """Do nothing: connections last as long as a task."""


def _by_partition(frame: DataFrame) -> DataFrame:
    """Bring the rows of each source partition into one task, in order, unless they are there already."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    moved = any(word in plan for word in ("Exchange", "Union", "Join", "CartesianProduct"))
    if not moved and plan.count("BatchScan") == 1:
        # One task for each split, and one split for each partition.
        return frame
    return frame.repartition("topic", "partition").sortWithinPartitions(*_POSITION)


class _ForwardTask:
    """What a Spark task does: a transaction for each source partition among its rows."""

    def __init__(
        self,
        settings: BrokerSettings,
        spec: TopicSinkSpec,
        prefix: str,
        partitions: int,
        ranges: tuple[OffsetRange, ...],
    ) -> None:
        self._settings = settings
        self._topic = spec.topic
        self._by_key = spec.partition_by == "key"
        self._codec = CODECS[spec.compression]
        self._prefix = prefix
        self._partitions = partitions
        self._ranges = {part.topic_partition: part for part in ranges}

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
        """Commit the ends of partitions that had nothing to forward."""
        if not ranges:
            return
        client = BrokerClient(self._settings)
        try:
            for wanted in ranges:
                self._start(client, wanted).commit()
        finally:
            client.close()

    def _start(self, client: BrokerClient, wanted: OffsetRange) -> _Forwarding:
        name = f"{self._prefix}-{wanted.topic_partition}"
        transaction = Transaction(client, name, self._topic, self._codec)
        position = transaction.begin()
        if position is not None and position < wanted.start_offset:
            raise SinkError(
                f"{self._topic}: {wanted.topic_partition} is forwarded up to offset {position}, and the offset store "
                f"says that everything below {wanted.start_offset} is done: set the store back to {position}"
            )
        return _Forwarding(transaction, wanted, position or wanted.start_offset, self._partitions, self._by_key)

    def _finish(self, current: _Forwarding, results: dict[str, list[Any]]) -> None:
        current.commit()
        results["topic"].append(current.wanted.topic_partition.topic)
        results["partition"].append(current.wanted.topic_partition.partition)
        results["records"].append(current.records)


class _Forwarding:
    """One source partition on its way."""

    def __init__(
        self, transaction: Transaction, wanted: OffsetRange, position: int, partitions: int, by_key: bool
    ) -> None:
        self.wanted = wanted
        self.records = 0
        self._transaction = transaction
        self._position = position
        self._partitions = partitions
        self._by_key = by_key

    def forward(self, rows: pa.RecordBatch) -> None:
        """Send the rows that are not there yet."""
        if self._position > self.wanted.start_offset:
            rows = rows.filter(pc.greater_equal(rows.column("offset"), self._position))
        if not rows.num_rows:
            return
        self.records += rows.num_rows
        content = rows.select([name for name in rows.schema.names if name not in _POSITION])
        if not self._by_key or "key" not in rows.schema.names:
            self._transaction.send(self.wanted.topic_partition.partition % self._partitions, content)
            return
        targets = _key_partitions(rows.column("key"), self._partitions, self.wanted.topic_partition.partition)
        for target in pc.unique(targets).to_pylist():
            self._transaction.send(target, content.filter(pc.equal(targets, target)))

    def commit(self) -> None:
        """End the transaction, with the batch's end as the position; nothing if that is there already."""
        if self._position < self.wanted.end_offset:
            self._transaction.commit(self.wanted.end_offset)


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Cut a batch where the source partition changes."""
    if not batch.num_rows:
        return
    topics, partitions = batch.column("topic"), batch.column("partition")
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
    """Return where Kafka's default partitioner puts keys; records without one stay together."""
    from kafka.partitioner.default import murmur2

    encoded = keys.dictionary_encode()
    targets = [(murmur2(key) & 0x7FFFFFFF) % partitions for key in encoded.dictionary.to_pylist()]
    found = pa.array(targets, pa.int32()).take(encoded.indices)
    return pc.fill_null(found, source_partition % partitions)
