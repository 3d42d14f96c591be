"""Which partition each row goes to, as Kafka's producer chooses it.

    partition is given      that one
    a key                   murmur2 of its bytes, as Kafka's default partitioner
    neither                 any partition, the same one for the rows of a flush: they fill one batch instead of many

Rows wait until there are enough of them for large batches. The rows of a task keep their order within a partition.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from odradek.errors import SinkError
from odradek.records.timestamps import now_ms
from odradek.spark.partitioning import key_partitions
from odradek.storage.names import TopicPartition

_FLUSH_BYTES = 16 << 20
_CONTENT = ("key", "value", "headers")

Send = Callable[[TopicPartition, pa.RecordBatch], None]


class Router:
    """Sends the rows of a task to their partitions.

    Args:
        topic: The topic of every row; None if a column says it.
        partitions: Returns how many partitions a topic has; raises if it does not exist.
        send: Takes the rows of one partition: `key`, `value`, `headers` and `timestamp`.
    """

    def __init__(self, topic: str | None, partitions: Callable[[str], int], send: Send) -> None:
        self._topic = topic
        self._partitions = partitions
        self._send = send
        self._counts: dict[str, int] = {}
        self._waiting: dict[TopicPartition, list[pa.RecordBatch]] = {}
        self._waiting_bytes = 0
        self._sticky = random.random()

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Send all rows.

        Raises:
            SinkError: A row has no topic, or a partition that its topic does not have.
        """
        for batch in batches:
            for target, rows in self._routed(batch):
                self._waiting.setdefault(target, []).append(rows)
            self._waiting_bytes += batch.nbytes
            if self._waiting_bytes >= _FLUSH_BYTES:
                self._flush()
        self._flush()

    def _flush(self) -> None:
        for target, parts in sorted(self._waiting.items()):
            for rows in pa.Table.from_batches(parts).combine_chunks().to_batches():
                # Kafka's producer stamps records as well when they are sent.
                times = pa.repeat(pa.scalar(now_ms(), pa.int64()), rows.num_rows)
                self._send(target, rows.append_column("timestamp", times))
        self._waiting.clear()
        self._waiting_bytes = 0
        self._sticky = random.random()

    def _routed(self, batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        names = batch.schema.names
        for topic, rows in self._by_topic(batch):
            content = rows.select([name for name in _CONTENT if name in names])
            targets = self._targets(topic, rows)
            for number in pc.unique(targets).to_pylist():
                is_here = pc.equal(targets, number)
                all_here = pc.all(is_here).as_py()
                yield TopicPartition(topic, number), content if all_here else content.filter(is_here)

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if not batch.num_rows:
            return
        if self._topic is not None:
            yield self._topic, batch
            return
        topics = batch.column("topic")
        if topics.null_count:
            raise SinkError("null topic present in the data. Use the topic option for setting a topic.")
        named = pc.unique(topics).to_pylist()
        for topic in named:
            yield topic, batch if len(named) == 1 else batch.filter(pc.equal(topics, topic))

    def _targets(self, topic: str, rows: pa.RecordBatch) -> pa.Array:
        """Return the partition of each row."""
        if topic not in self._counts:
            self._counts[topic] = self._partitions(topic)
        count = self._counts[topic]
        names = rows.schema.names
        targets = pa.nulls(rows.num_rows, pa.int32())
        if "partition" in names:
            targets = rows.column("partition")
            least, most = pc.min_max(targets).as_py().values()
            if least is not None and not 0 <= least <= most < count:
                wrong = least if least < 0 else most
                raise SinkError(
                    f"Invalid partition given with record: {wrong} is not in the range [0...{count}) of topic {topic}"
                )
        if targets.null_count and "key" in names:
            targets = pc.coalesce(targets, key_partitions(rows.column("key"), count))
        return pc.fill_null(targets, int(self._sticky * count))
