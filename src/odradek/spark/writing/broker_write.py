"""Writing to a broker: each task sends its rows, and the driver commits what the tasks sent.

    task     a transaction of its own: id PREFIX-TASK, which fences an earlier attempt of the task
    driver   asks whether all of them are still the tasks' own
             of a stream: commits the first task's transaction, together with the number of the batch; then the others
             of a batch: commits all of them, one after another

So the rows of a failed query are never seen (by `read_committed`), and a batch that Spark repeats is written once: the
tasks find its number, and the driver commits what is not committed yet.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from odradek.errors import BrokerUnavailableError, SinkError
from odradek.kafka.batch_sender import BatchSender
from odradek.kafka.client import BrokerClient
from odradek.kafka.groups import committed_offsets
from odradek.kafka.producer_identity import ProducerIdentity, take_producer_id
from odradek.kafka.settings import BrokerSettings
from odradek.kafka.transaction_states import producers_of, wait_until_visible
from odradek.places.broker_transaction import Transaction
from odradek.places.writing import RowWriter
from odradek.records.compression import Codec
from odradek.spark.broker_split import kept_client
from odradek.spark.writing.epochs import (
    Epoch,
    HeldEpoch,
    TaskTransaction,
    held_from_offsets,
    held_to_offsets,
    part_group,
)
from odradek.spark.writing.routing import Router
from odradek.storage.names import TopicPartition

_NO_TOPIC = ""
"""Transactions that keep no position need no topic to keep it under."""


@dataclass
class SentRows(WriterCommitMessage):
    """What a task sent.

    Attributes:
        prefix: The beginning of the transactional id; the task's number follows.
        transaction: The transaction; None if the task has none.
        topics: The topics that got rows.
        epoch: The batch of the stream, if it is one.
        is_held: Whether the target holds the batch already, so that nothing was sent.
    """

    prefix: str = ""
    transaction: TaskTransaction | None = None
    topics: tuple[str, ...] = ()
    epoch: Epoch | None = None
    is_held: bool = False


class BrokerWrite:
    """A write to a broker. It is sent to tasks, and holds no connection.

    Args:
        settings: How to reach the broker.
        topic: The topic of every row; None if a column says it.
        codec: How batches are compressed.
        transactional_id: The beginning of the transactional ids; None without transactions. Of a stream, also the group
            that keeps the number of its last batch; empty to choose them by the query.
    """

    def __init__(
        self, settings: BrokerSettings, topic: str | None, codec: Codec, transactional_id: str | None = None
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._codec = codec
        self._transactional_id = transactional_id

    def check(self) -> None:
        """Find out whether rows can be written at all.

        Raises:
            SinkError: The topic does not exist.
            BrokerUnavailableError: The broker cannot be reached, or refuses the credentials.
        """
        if self._topic is not None:
            self._partitions(self._topic)
        else:
            client = self._client()
            client.attempt("connecting", lambda: client.topics([]))

    # -- tasks

    def write(self, batches: Iterable[pa.RecordBatch], task: int, epoch: Epoch | None = None) -> SentRows:
        """Send the rows of a task.

        Args:
            batches: The rows.
            task: The task's number.
            epoch: The batch of the stream, if it is one and has transactions.

        Raises:
            SinkError: A row has no topic, or its partition does not take it.
            BrokerUnavailableError: The broker did not answer in time, or another attempt has taken over.
        """
        if self._transactional_id is None:
            client = self._client()
            self._send(batches, RowWriter(BatchSender(client), self._codec, take_producer_id(client)))
            return SentRows()
        prefix = self._transactional_id or ("" if epoch is None else epoch.group)
        transaction = Transaction(self._client(), f"{prefix}-{task}", _NO_TOPIC, self._codec)
        # The first task's transaction commits the number of the batch. Until it is taken over, the driver of an earlier
        # run could do so; and if that one died in the middle of it, no broker would say what the number is.
        is_first = epoch is not None and task == 0
        if is_first:
            transaction.take_over()
        if epoch is not None and self._is_held(prefix, epoch):
            return SentRows(prefix, epoch=epoch, is_held=True)
        rows = (batch for batch in batches if batch.num_rows)
        first = next(rows, None)
        if not is_first:
            if first is None:
                return SentRows(prefix, epoch=epoch)
            transaction.take_over()
        try:
            topics = () if first is None else self._send(itertools.chain([first], rows), transaction)
        except BaseException:
            # Otherwise the next attempt does, or the broker after some minutes.
            with suppress(BrokerUnavailableError):
                transaction.abort()
            raise
        return SentRows(prefix, TaskTransaction(task, *transaction.identity), topics, epoch)

    def _send(self, batches: Iterable[pa.RecordBatch], writer: RowWriter | Transaction) -> tuple[str, ...]:
        topics: dict[str, None] = {}

        def send(target: TopicPartition, rows: pa.RecordBatch) -> None:
            topics[target.topic] = None
            refused = writer.write(target, rows)
            if refused:
                raise SinkError(f"{target} of {self._client().name} does not take a record: {refused[0].reason}")

        Router(self._topic, self._partitions, send).write(batches)
        return tuple(topics)

    def _partitions(self, topic: str) -> int:
        client = self._client()
        count = client.partition_count(topic)
        if count is None:
            raise SinkError(f"{client.name}: there is no topic {topic}: create it first")
        return count

    # -- the driver

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit what the tasks of a batch query sent, one task after another.

        Raises:
            SinkError: None of the tasks could be committed, or, if something happened in between, only some.
            BrokerUnavailableError: None could.
        """
        sent = _sent(messages)
        self._check_all_there(sent)
        for number, one in enumerate(sent):
            try:
                self._transaction(one).end(committed=True)
            except BrokerUnavailableError as error:
                if not number:
                    raise
                raise SinkError(
                    f"only {number} of {len(sent)} tasks are committed, the rows of the others are lost: {error}"
                ) from error
        self._wait_until_visible(sent)

    def commit_epoch(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit a batch of a stream: all that the tasks sent, or what an earlier run of the batch sent.

        Raises:
            SinkError: A part of the batch is lost, as transactions have timed out or were taken over. If it is not told
                which, nothing is committed.
            BrokerUnavailableError: The broker did not answer in time.
        """
        told = [message for message in messages if isinstance(message, SentRows)]
        if self._transactional_id is None or not told or told[0].epoch is None:
            return
        prefix, epoch = told[0].prefix, told[0].epoch
        held = self._held(prefix, epoch.query_id)
        if held is not None and held.repeats(epoch):
            self.abort(messages)
            self._complete(prefix, self._with_all_tasks(prefix, held))
            return
        sent = _sent(messages)
        topics = sorted({topic for one in told for topic in one.topics})
        if not topics:
            return
        if any(one.is_held for one in told):
            raise SinkError(f"{epoch} was started by two drivers at a time, and neither has finished it")
        self._check_all_there(sent)
        first, *others = sent
        tasks = tuple(one.transaction for one in others if one.transaction is not None)
        transaction = self._transaction(first, topics[0])
        for group, offset in held_to_offsets(prefix, HeldEpoch(epoch, tasks)).items():
            transaction.add_offset(group, offset.offset, offset.metadata)
        transaction.end(committed=True)
        self._complete(prefix, HeldEpoch(epoch, tasks))
        self._wait_until_visible(sent)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Drop what the tasks sent and the driver did not commit, so that readers need not wait for it."""
        deadline = time.monotonic() + self._settings.timeout_ms / 1000
        for task, told in enumerate(messages):
            with suppress(BrokerUnavailableError):
                if isinstance(told, SentRows) and told.transaction is not None:
                    self._transaction(told).end(committed=False)
                elif told is None and self._transactional_id:
                    # The task was killed; the next owner of its transactional id aborts what it left open.
                    take_producer_id(self._client(), f"{self._transactional_id}-{task}")
            if time.monotonic() > deadline:
                return

    def abort_epoch(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Drop what the tasks of a stream sent, unless the batch is committed: a restart completes it then."""
        sent = _sent(messages)
        with suppress(BrokerUnavailableError, SinkError):
            if sent and (epoch := sent[0].epoch) is not None and not self._is_held(sent[0].prefix, epoch):
                self.abort(messages)

    def _complete(self, prefix: str, held: HeldEpoch) -> None:
        """Commit the transactions of a batch that is decided; those that are committed already stay so."""
        lost: list[int] = []
        reason: BrokerUnavailableError | None = None
        deadline = time.monotonic() + self._settings.timeout_ms / 1000
        for task in held.tasks:
            try:
                # Each waits as long as a broker may be away.
                if reason is None or time.monotonic() < deadline:
                    self._transaction(SentRows(prefix, task)).end(committed=True)
                    continue
            except BrokerUnavailableError as error:
                reason = reason or error
            lost.append(task.task)
        if lost:
            numbers = ", ".join(map(str, lost))
            raise SinkError(
                f"{held.epoch} is written but for the rows of its tasks {numbers}: {reason}. If the driver was away "
                f"for longer than kafka.transaction.timeout.ms they are lost: after the group {prefix} is deleted, a "
                "restart writes the whole batch again, and so the rows of the other tasks twice"
            ) from reason

    def _check_all_there(self, sent: Sequence[SentRows]) -> None:
        """Check, before the first transaction is committed, that none has timed out or was taken over.

        Else a part of the rows would be committed, and the others not.
        """
        identities = _identities(sent)
        found = producers_of(self._client(), identities)
        if found is None:
            return
        lost = [name for name, identity in identities.items() if found.get(name) != identity]
        if lost:
            raise SinkError(
                f"nothing is committed, for the rows of {len(lost)} of {len(sent)} tasks are lost: the transaction "
                f"{lost[0]} was not committed within kafka.transaction.timeout.ms, or another attempt of its task "
                "(spark.speculation) or another driver has taken it over"
            )

    def _wait_until_visible(self, sent: Sequence[SentRows]) -> None:
        wait_until_visible(self._client(), _identities(sent))

    def _is_held(self, prefix: str, epoch: Epoch) -> bool:
        held = self._held(prefix, epoch.query_id)
        return held is not None and held.repeats(epoch)

    def _with_all_tasks(self, prefix: str, held: HeldEpoch) -> HeldEpoch:
        """Return what is held with the transactions that the other groups keep.

        Raises:
            SinkError: One of the groups does not have them any more.
        """
        tasks = list(held.tasks)
        for number in range(1, held.group_count):
            group = part_group(prefix, number)
            more = self._held(group, held.epoch.query_id)
            if more is None or more.epoch != held.epoch:
                raise SinkError(
                    f"{held.epoch} is written, but the group {group} has lost which of its transactions were still to "
                    f"be committed: their rows may be lost. After the group {prefix} is deleted, a restart writes the "
                    "whole batch again, and so the rows of the other tasks twice"
                )
            tasks += more.tasks
        return held._replace(tasks=tuple(tasks))

    def _held(self, group: str, query_id: str) -> HeldEpoch | None:
        offsets = committed_offsets(self._client(), [group], require_stable=True)[group]
        return held_from_offsets(group, list(offsets.values()), query_id)

    def _transaction(self, sent: SentRows, topic: str = _NO_TOPIC) -> Transaction:
        assert sent.transaction is not None
        task, *identity = sent.transaction
        return Transaction(self._client(), f"{sent.prefix}-{task}", topic, Codec.NONE, ProducerIdentity(*identity))

    def _client(self) -> BrokerClient:
        return kept_client(self._settings)


def _sent(messages: Sequence[WriterCommitMessage | None]) -> list[SentRows]:
    """Return the messages of tasks that have a transaction, by task."""
    sent = [one for one in messages if isinstance(one, SentRows) and one.transaction is not None]
    return sorted(sent, key=lambda one: -1 if one.transaction is None else one.transaction.task)


def _identities(sent: Sequence[SentRows]) -> dict[str, ProducerIdentity]:
    """Return the transactional ids of tasks, and their producers."""
    return {
        f"{one.prefix}-{one.transaction.task}": ProducerIdentity(*one.transaction[1:])
        for one in sent
        if one.transaction is not None
    }
