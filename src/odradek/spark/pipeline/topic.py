"""The topic sink: forwards records to a broker exactly once, each source partition in its own transactions.

All go to one topic, or each to the topic that a column names.

    task   for each source partition of the batch
             take over its transactional id, and read the position of the last transaction
             skip rows below that; send the others, and commit them together with the batch's end

So after any crash the rows and the position of a source partition are either both there or both missing, and the tasks
need not wait for each other. A partition without rows in the batch still gets its position.

A record that the target does not take is skipped, goes to a dead letter topic in the same transaction, or is an
error: then the transaction is aborted, and the records before that one are forwarded by another run of the tasks.

Spark does not try a task again whose transactional id another task took over: it would take the id back, even for a
driver that was thought dead. The driver decides.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from odradek.errors import BrokerUnavailableError, SinkError
from odradek.kafka.client import MISSING_S, BrokerClient
from odradek.kafka.settings import BrokerSettings
from odradek.kafka.transaction_states import wait_until_visible
from odradek.offsets.store import Position
from odradek.places.broker_transaction import CommittedPosition, Transaction, is_fenced
from odradek.records.compression import CODECS
from odradek.spark.pipeline.batch import Batch
from odradek.spark.pipeline.forwarding import (
    CONTENT_COLUMNS,
    Refusals,
    by_partition,
    first_offset,
    forwarded,
    not_taken,
    source_runs,
)
from odradek.spark.pipeline.sink import FencedError, Sink, check_owner
from odradek.spark.pipeline.sink_specs import TopicSinkSpec
from odradek.spark.pipeline.topic_routing import SinkRouter
from odradek.spark.ranges import OffsetRange
from odradek.spark.worker import keep_modules
from odradek.storage.names import TopicPartition

_SENT = "topic string, partition int, refused bigint, invalid_offset bigint, reason string, fenced string"
_SENT_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("refused", pa.int64()),
        ("invalid_offset", pa.int64()),
        ("reason", pa.string()),
        ("fenced", pa.string()),
    ]
)


class TopicSink(Sink):
    """Forwards a view to a topic.

    Args:
        spec: Which view, and where to.
        owner: Whose the transactions are (`Job.owner`); joined by dashes it is the prefix of the transactional ids, and
            the source's partition follows.

    Raises:
        SinkError: There is no such topic.
        BrokerUnavailableError: The broker cannot be reached.
    """

    wants_whole_partitions = True

    def __init__(self, spec: TopicSinkSpec, owner: tuple[str, ...]) -> None:
        self._spec = spec
        self.on_held = spec.on_held
        self._is_by_record = False
        self._settings = BrokerSettings.parse(spec.kafka)
        self.description = f"{spec.topics} of {','.join(self._settings.bootstrap_servers)}"
        self._owner = owner
        names = [name for name in (spec.topic, spec.dead_letter_topic) if name is not None]
        with BrokerClient(self._settings) as client:
            for name in names:
                if client.partition_count(name) is None:
                    raise SinkError(f"{self.description}: there is no topic {name}")

    def held(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Position]:
        """Return the positions up to which this sink's transactions have forwarded partitions."""
        found = {}
        with BrokerClient(self._settings) as client:
            for name in sorted(partitions):
                transaction = _transaction(client, self._spec, self._owner, name)
                position = transaction.position()
                _check_owners(transaction, self.description, self._owner, name)
                if position is not None:
                    found[name] = _position(position)
        return found

    def replay(self, starts: Mapping[TopicPartition, Position]) -> None:
        """Set the positions back, by transactions without records."""
        with BrokerClient(self._settings) as client:
            for name, start in sorted(starts.items()):
                transaction = _transaction(client, self._spec, self._owner, name)
                transaction.begin()
                _check_owners(transaction, self.description, self._owner, name)
                transaction.commit(CommittedPosition(start.offset, start.topic_id, self._owner))

    def write(self, batch: Batch) -> None:
        """Forward the view of a batch."""
        frame = forwarded(batch.spark, self._spec, self.description, is_by_record=self._is_by_record)
        self._is_by_record = True
        invalid = self._forward(frame, batch)
        if not invalid:
            return
        before = [
            OffsetRange(part.topic_partition, part.start_offset, invalid[part.topic_partition][0])
            for part in batch.ranges
            if part.topic_partition in invalid
        ]
        before = [part for part in before if part.start_offset < part.end_offset]
        if before:
            self._forward(_within(frame, before), replace(batch, ranges=before))
        raise not_taken(self.description, invalid)

    def _forward(self, frame: DataFrame, batch: Batch) -> dict[TopicPartition, tuple[int, str]]:
        """Forward rows; return the offset of the first record of each partition that is an error, and why."""
        task = _ForwardTask(self._settings, self._spec, self._owner, batch)
        sent = by_partition(frame).mapInArrow(task, _SENT).collect()
        fenced = [row.fenced for row in sent if row.fenced is not None]
        if fenced:
            raise self._fenced(fenced[0])
        done = {TopicPartition(row.topic, row.partition): row for row in sent}
        task.wait_until_visible(done)
        try:
            task.advance([part for part in batch.ranges if part.topic_partition not in done])
        except BrokerUnavailableError as error:
            if not is_fenced(error):
                raise
            raise self._fenced(str(error)) from error
        self.refused_records += sum(row.refused for row in sent)
        return {name: (row.invalid_offset, row.reason) for name, row in done.items() if row.reason is not None}

    def _fenced(self, reason: str) -> FencedError:
        return FencedError(
            f"{self.description}: another job has taken the transactional id over, or the batch took longer than "
            f"kafka.transaction.timeout.ms: {reason}"
        )

    def close(self) -> None:
        """Do nothing: the sink keeps no connection open."""


def _id(owner: tuple[str, ...], source: TopicPartition) -> str:
    return "-".join((*owner, str(source)))


def _check_owners(transaction: Transaction, holder: str, own: tuple[str, ...], source: TopicPartition) -> None:
    for owner in transaction.owners:
        check_owner(holder, _id(own, source), owner, own)


def _transaction(
    client: BrokerClient, spec: TopicSinkSpec, owner: tuple[str, ...], source: TopicPartition
) -> Transaction:
    """Return the transaction in which a partition of the source is forwarded."""
    return Transaction(client, _id(owner, source), spec.topic or spec.position_topic, CODECS[spec.compression])


def _position(committed: CommittedPosition) -> Position:
    return Position(committed.offset, topic_id=committed.topic_id, note=committed.letters)


def _within(frame: DataFrame, ranges: Sequence[OffsetRange]) -> DataFrame:
    """Return the rows whose source is in the ranges."""
    conditions = (
        (frame["topic"] == name.topic) & (frame["partition"] == name.partition) & (frame["offset"] < end)
        for name, _, end in ranges
    )
    return frame.where(functools.reduce(operator.or_, conditions))


class _ForwardTask:
    """The work of a Spark task: a transaction for each source partition among its rows."""

    def __init__(
        self,
        settings: BrokerSettings,
        spec: TopicSinkSpec,
        owner: tuple[str, ...],
        batch: Batch,
    ) -> None:
        self._settings = settings
        self.spec = spec
        self._owner = owner
        self._ranges = {part.topic_partition: part for part in batch.ranges}
        self._topic_ids = dict(batch.topic_ids)
        self._stored_offsets = dict(batch.stored_offsets)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        results: dict[str, list[Any]] = {name: [] for name in _SENT_SCHEMA.names}
        current: _Forwarding | None = None
        with BrokerClient(self._settings) as client:
            router = self._router(client)
            try:
                for batch in batches:
                    for name, rows in source_runs(batch):
                        if current is None or current.wanted.topic_partition != name:
                            if current is not None:
                                self._finish(current, results)
                            current = self._start(client, router, self._ranges[name])
                        current.forward(rows)
                if current is not None:
                    self._finish(current, results)
            except BrokerUnavailableError as error:
                if not is_fenced(error):
                    raise
                _add(results, None, fenced=str(error))
                # Spark sends all rows before it takes a result.
                for _ in batches:
                    pass
        yield pa.RecordBatch.from_pydict(results, schema=_SENT_SCHEMA)
        keep_modules()

    def advance(self, ranges: list[OffsetRange]) -> None:
        """Commit the ends of partitions without rows to forward."""
        if not ranges:
            return
        with BrokerClient(self._settings) as client:
            for wanted in ranges:
                self._start(client, self._router(client), wanted).commit()

    def wait_until_visible(self, sources: Iterable[TopicPartition]) -> None:
        """Wait until readers see what was forwarded of partitions of the source: a job after this one may read it."""
        with BrokerClient(self._settings) as client:
            wait_until_visible(client, [_id(self._owner, source) for source in sources])

    def _router(self, client: BrokerClient) -> SinkRouter:
        patience_s = MISSING_S

        def count(topic: str) -> int | None:
            nonlocal patience_s
            found = client.partition_count(topic, patience_s)
            if found is None:
                # What other topics were made before has become known in the meantime.
                patience_s = 0
            return found

        return SinkRouter(self.spec, count)

    def _start(self, client: BrokerClient, router: SinkRouter, wanted: OffsetRange) -> _Forwarding:
        source = wanted.topic_partition
        transaction = _transaction(client, self.spec, self._owner, source)
        committed = transaction.begin()
        held = None if committed is None else _position(committed)
        holder = f"topic {self.spec.topic}" if self.spec.topic is not None else f"group {_id(self._owner, source)}"
        _check_owners(transaction, holder, self._owner, source)
        topic_id, stored = self._topic_ids.get(source), self._stored_offsets.get(source)
        start = first_offset(self.spec, holder, wanted, held, topic_id, stored)
        refusals = Refusals(self.spec, router, source, transaction.write, held, wanted.start_offset)
        end = CommittedPosition(wanted.end_offset, topic_id, self._owner)
        return _Forwarding(transaction, wanted, start, end, router, refusals)

    def _finish(self, current: _Forwarding, results: dict[str, list[Any]]) -> None:
        current.commit()
        offset, reason = current.refusals.invalid or (None, None)
        _add(results, current.wanted.topic_partition, current.refusals.refused, offset, reason)


def _add(
    results: dict[str, list[Any]],
    name: TopicPartition | None,
    refused: int = 0,
    offset: int | None = None,
    reason: str | None = None,
    fenced: str | None = None,
) -> None:
    """Add a row to what a task returns; see `_SENT`."""
    values = (*(name or (None, None)), refused, offset, reason, fenced)
    for column, value in zip(_SENT_SCHEMA.names, values, strict=True):
        results[column].append(value)


class _Forwarding:
    """One source partition while it is forwarded.

    Attributes:
        wanted: Its range.
        refusals: What became of records that no target takes; after one that is an error, the transaction is aborted.
    """

    def __init__(
        self,
        transaction: Transaction,
        wanted: OffsetRange,
        start_offset: int,
        end: CommittedPosition,
        router: SinkRouter,
        refusals: Refusals,
    ) -> None:
        self.wanted = wanted
        self.refusals = refusals
        self._transaction = transaction
        self._start_offset = start_offset
        self._end = end
        self._router = router

    def forward(self, rows: pa.RecordBatch) -> None:
        """Send the rows that were not forwarded before."""
        if self._start_offset > self.wanted.start_offset:
            rows = rows.filter(pc.greater_equal(rows.column("offset"), self._start_offset))
        rows = self.refusals.unsent(rows)
        if not rows.num_rows or self.refusals.invalid is not None:
            return
        self.refusals.refuse(rows, dict(self._send(rows)))
        if self.refusals.invalid is not None:
            self._transaction.abort()

    def _send(self, rows: pa.RecordBatch) -> Iterator[tuple[int, str]]:
        """Send rows; yield the numbers of those that the target does not take, and why."""
        source_partition = self.wanted.topic_partition.partition
        only = self._router.only_target(rows, source_partition)
        if only is not None:
            yield from self._transaction.write(only, rows)
            return
        content = rows.select([name for name in rows.schema.names if name in CONTENT_COLUMNS])
        for target, numbers, reason in self._router.route(rows, source_partition):
            if target is None:
                yield from ((row, reason) for row in numbers.to_pylist())
                continue
            for row, refused in self._transaction.write(target, content.take(numbers)):
                yield numbers[row].as_py(), refused

    def commit(self) -> None:
        """Commit the transaction, with the batch's end as the position; do nothing if that was committed before."""
        if self._start_offset < self.wanted.end_offset and self.refusals.invalid is None:
            self._transaction.commit(self._end._replace(letters=self.refusals.letters))
