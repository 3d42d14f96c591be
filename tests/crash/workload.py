"""Random work on the logs of a directory: what it did, and what was promised, goes into a model."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from crash.model import FOREVER, Event, Marker, PartitionModel, Producer, Row, Sent
from crash.store import Store
from odradek.errors import LogError, LogOfflineError
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.records.kernels.objects import Record
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.names import TopicPartition
from odradek.testing.faults import FaultyFileSystem

START_MS = 1_700_000_000_000
KEYS = [f"key-{number}".encode() for number in range(6)]
FLUSHES_LATE = {4, 7}
"""The seeds, by what is left of them when divided by eight, whose rolled segments are flushed by the maintenance."""


class ProducerSide:
    """What a producer knows of itself, in one partition."""

    def __init__(self, producer_id: int, *, is_transactional: bool) -> None:
        self.producer_id = producer_id
        self.is_transactional = is_transactional
        self.epoch = 0
        self.next_sequence = 0
        self.in_transaction = False
        self.last_batch: bytes | None = None
        self.last_offset = -1


class Workload:
    """Random work, all of it following from a seed.

    Attributes:
        file_system: The type of `files`.
        files: The file system, with its history.
        models: What each partition must hold.
        offline: Whether a fault took a log offline, which ends the work.
    """

    file_system: type[FaultyFileSystem] = FaultyFileSystem

    def __init__(self, root: Path, seed: int) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.seed = seed
        self.rng = random.Random(seed)
        self.files = self.file_system(root, seed)
        self.now = START_MS
        self.models: dict[TopicPartition, PartitionModel] = {}
        self.producers: dict[TopicPartition, list[ProducerSide]] = {}
        self.offline = False
        self.store = Store(root, self.files, self.clock, flushes_late=seed % 8 in FLUSHES_LATE)
        self._topics = 0

    def clock(self) -> int:
        return self.now

    @property
    def moment(self) -> int:
        return len(self.files.history)

    def run(self, steps: int) -> None:
        """Do so many things; a fault ends it early."""
        try:
            if not self.store.is_open:
                self.store.open()
                self.create_topic()
            for _ in range(steps):
                self.step()
        except LogError:
            self.offline = True

    def step(self) -> None:
        """Do one thing."""
        actions: list[tuple[int, Callable[[], None]]] = [
            (40, self.append),
            (30, self.append_as_producer),
            (12, self.end_transaction),
            (4, self.send_again),
            (6, self.flush),
            (3, self.roll),
            (4, self.delete_records),
            (8, self.maintain),
            (3, self.reopen),
            (3, self.be_killed),
            (2, self.create_topic),
            (1, self.delete_topic),
        ]
        weights, choices = [weight for weight, _ in actions], [action for _, action in actions]
        self.now += self.rng.choice((0, 1, 5, 1000, 60_000))
        action = self.rng.choices(choices, weights)[0]
        # A fault may have ended the creation of the only topic.
        if self.alive or action == self.create_topic:
            action()

    def go_on(self) -> None:
        """Open the directory again after a fault, and see what has become of what was not acknowledged.

        Raises:
            AssertionError: What the kernel still holds is not there.
        """
        self._check_offline()
        self.store.abandon()
        self.files.repair()
        self.store.open()
        self.offline = False
        present = set(self.store.logs.topic_partitions())
        for partition, model in list(self.models.items()):
            if model.created > self.moment and partition not in present:
                del self.models[partition]
            elif model.deleted <= self.moment:
                assert model.gone > self.moment or partition not in present
                model.gone = self.moment if partition not in present else FOREVER
                model.deleted = FOREVER if partition in present else model.deleted
        for partition, model in self.alive.items():
            model.created = min(model.created, self.moment)
            self._reconcile(partition, model)

    def _check_offline(self) -> None:
        for partition in self.models:
            if self.store.is_open and partition in self.store.logs.topic_partitions():
                log = self.store.logs[partition]
                if log.is_offline:
                    with pytest.raises(LogOfflineError):
                        log.append([Record(b"key", b"never", timestamp=self.now)])
                    with pytest.raises(LogOfflineError):
                        log.flush()

    def _reconcile(self, partition: TopicPartition, model: PartitionModel) -> None:
        end = self.store.logs[partition].log_end_offset
        assert end >= model.least_end(self.moment, power_cut=False), "what was acknowledged is not there"
        model.sent = [batch for batch in model.sent if batch.next_offset <= end]
        assert end == model.end_offset or end in model.starts(self.moment)
        self.tell_producers(partition, model.producers(end))

    def tell_producers(self, partition: TopicPartition, known: Mapping[int, Producer]) -> None:
        """Let the producers of a partition go on from what it knows of them."""
        for producer in self.producers[partition]:
            state = known.get(producer.producer_id)
            producer.last_batch = None
            producer.epoch, producer.next_sequence, producer.in_transaction = 0, 0, False
            if state is not None:
                producer.epoch, producer.next_sequence = state.producer_epoch, state.last_sequence + 1
                producer.in_transaction = state.transaction_first_offset is not None

    # -- what is done

    def create_topic(self) -> None:
        name = f"topic{self._topics}"
        self._topics += 1
        compacted = self.rng.random() < 0.35
        partitions = self.rng.randint(1, 2)
        config = self._config(compacted=compacted)
        self.expect_partitions(name, range(partitions), compacted=compacted)
        self.store.logs.create_topic(name, partitions, config)
        for number in range(partitions):
            self.models[TopicPartition(name, number)].created = self.moment

    def expect_partitions(self, name: str, numbers: range, *, compacted: bool) -> None:
        """Take note of partitions that are about to be created."""
        for number in numbers:
            partition = TopicPartition(name, number)
            self.models[partition] = PartitionModel(is_compacted=compacted)
            self.producers[partition] = [
                ProducerSide(1000 + self._topics * 10 + index, is_transactional=index > 0) for index in range(3)
            ]

    def _config(self, *, compacted: bool) -> dict[str, str]:
        rng = self.rng
        config = {
            "internal.segment.bytes": str(rng.choice((500, 900, 2000))),
            "segment.index.bytes": str(rng.choice((24, 120, 480))),
            "index.interval.bytes": str(rng.choice((0, 100, 300))),
            "file.delete.delay.ms": str(rng.choice((0, 60_000))),
            "message.timestamp.after.max.ms": str(1 << 50),
        }
        if rng.random() < 0.2:
            config["preallocate"] = "true"
        if rng.random() < 0.2:
            config["flush.messages"] = str(rng.randint(1, 10))
        if rng.random() < 0.3:
            config["compression.type"] = rng.choice(("gzip", "snappy", "lz4", "zstd", "uncompressed"))
        if compacted:
            config |= {
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "0",
                "delete.retention.ms": str(rng.choice((0, 100_000))),
            }
        else:
            config["retention.bytes"] = str(rng.choice((-1, 1500, 4000)))
        return config

    @property
    def alive(self) -> dict[TopicPartition, PartitionModel]:
        """The partitions that nobody has begun to delete."""
        return {partition: model for partition, model in self.models.items() if model.deleted > self.moment}

    def _choose(self) -> tuple[TopicPartition, PartitionModel, WritableLog]:
        partition = self.rng.choice(list(self.alive))
        return partition, self.models[partition], self.store.logs[partition]

    def _rows(self, model: PartitionModel, count: int) -> list[Row]:
        rng, offset, rows = self.rng, model.end_offset, []
        for number in range(count):
            value = None if rng.random() < 0.15 else rng.randbytes(rng.choice((0, 3, 20, 70)))
            key = rng.choice(KEYS) if model.is_compacted or rng.random() < 0.6 else None
            headers = ((f"h{number}", rng.choice((None, b"", b"x"))),) if rng.random() < 0.2 else ()
            timestamp = self.now + rng.choice((0, 0, -3, 7, -2000))
            rows.append(Row(offset + number, timestamp, key, value, headers))
        return rows

    def _acknowledge(self, model: PartitionModel, log: WritableLog, *, durable: bool) -> None:
        end = log.log_end_offset
        assert end == model.end_offset, "the log has given other offsets than those that come next"
        (model.durable if durable else model.acknowledged).append(Event(self.moment, end))

    def append(self) -> None:
        _, model, log = self._choose()
        rows, durable = self._rows(model, self.rng.randint(1, 4)), self.rng.random() < 0.3
        model.sent.append(Sent(self.moment, tuple(rows)))
        first = log.append([row.record() for row in rows], durable=durable)
        assert first == rows[0].offset
        self._acknowledge(model, log, durable=durable)

    def append_as_producer(self) -> None:
        partition, model, log = self._choose()
        producer, durable = self.rng.choice(self.producers[partition]), self.rng.random() < 0.3
        rows = self._rows(model, self.rng.randint(1, 3))
        batch = build_batch(
            [row.record() for row in rows],
            codec=self.rng.choice(list(Codec)),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=producer.next_sequence,
            is_transactional=producer.is_transactional,
        )
        model.sent.append(
            Sent(
                self.moment,
                tuple(rows),
                producer.producer_id,
                producer.epoch,
                producer.next_sequence,
                producer.is_transactional,
            )
        )
        result = log.append_batches(batch, durable=durable)
        assert (result.first_offset, result.last_offset) == (rows[0].offset, rows[-1].offset)
        producer.last_batch, producer.last_offset = batch, rows[-1].offset
        producer.next_sequence += len(rows)
        producer.in_transaction = producer.is_transactional
        self._acknowledge(model, log, durable=durable)

    def send_again(self) -> None:
        partition, model, log = self._choose()
        producer = self.rng.choice(self.producers[partition])
        known = log.producers.producers.get(producer.producer_id)
        if producer.last_batch is None or producer.last_offset < log.log_start_offset or known is None:
            return
        result = log.append_batches(producer.last_batch)
        assert result.is_duplicate
        assert result.last_offset == producer.last_offset
        self._acknowledge(model, log, durable=False)

    def end_transaction(self) -> None:
        partition, model, log = self._choose()
        producer, durable = self.rng.choice(self.producers[partition]), self.rng.random() < 0.3
        if producer.in_transaction:
            self.end_transaction_of(producer, model, log, durable=durable)

    def end_transaction_of(
        self, producer: ProducerSide, model: PartitionModel, log: WritableLog, *, durable: bool
    ) -> None:
        """Commit or abort."""
        commit, raised = self.rng.random() < 0.5, self.rng.random() < 0.5
        if raised:
            producer.epoch += 1
            producer.next_sequence = 0
            producer.last_batch = None
        kind: Marker = "COMMIT" if commit else "ABORT"
        row = Row(model.end_offset, self.now, None, None)
        model.sent.append(Sent(self.moment, (row,), producer.producer_id, producer.epoch, marker=kind))
        log.end_transaction(producer.producer_id, producer.epoch, commit=commit, durable=durable)
        producer.in_transaction = False
        self._acknowledge(model, log, durable=durable)

    def flush(self) -> None:
        _, model, log = self._choose()
        log.flush()
        self._acknowledge(model, log, durable=True)

    def roll(self) -> None:
        self._choose()[2].roll()

    def delete_records(self) -> None:
        _, model, log = self._choose()
        if model.is_compacted:
            return
        offset = self.rng.randint(log.log_start_offset, log.log_end_offset)
        model.starts_asked.append(Event(self.moment, offset))
        log.delete_records(offset)
        assert log.log_start_offset == offset
        model.starts_kept.append(Event(self.moment, offset))

    def maintain(self) -> None:
        for model in self.alive.values():
            if not model.is_compacted:
                model.starts_asked.append(Event(self.moment, model.end_offset))
        self.store.logs.maintain()

    def reopen(self) -> None:
        ends = {partition: model.end_offset for partition, model in self.models.items()}
        starts = {partition: self.store.logs[partition].log_start_offset for partition in self.alive}
        self.store.close()
        for partition, start in starts.items():
            self.models[partition].durable.append(Event(self.moment, ends[partition]))
            self.models[partition].starts_kept.append(Event(self.moment, start))
        self.store.open()

    def be_killed(self) -> None:
        self.store.abandon()
        self.store.open()

    def delete_topic(self) -> None:
        names = sorted({partition.topic for partition in self.alive})
        if len(names) < 2:
            return
        name = self.rng.choice(names)
        for partition, model in self.models.items():
            if partition.topic == name:
                model.deleted = self.moment
        self.store.logs.delete_topic(name)
        for partition, model in self.models.items():
            if partition.topic == name:
                model.gone = self.moment
