"""A transactional producer that sends single requests of any version, and says what it was answered.

`answers` sends each request in each state that a client can bring a transactional id into, so that brokers can be
compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from operator import methodcaller
from typing import Any, NamedTuple
from uuid import UUID

from odradek.records.kernels.frames import WireReader
from odradek.testing.wire import WireClient
from peers.process import PATIENCE, wait_for
from peers.requests import batch, produce_message, produced

PRODUCE, METADATA, FIND_COORDINATOR, CREATE_TOPICS = 0, 3, 10, 19
INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END, WRITE_MARKERS = 22, 24, 25, 26, 27
DESCRIBE_PRODUCERS, DESCRIBE, LIST = 61, 65, 66

COORDINATOR_LOAD_IN_PROGRESS, CONCURRENT_TRANSACTIONS = 14, 51
_BUSY = (COORDINATOR_LOAD_IN_PROGRESS, 15, 16, CONCURRENT_TRANSACTIONS)
_PATIENCE_S = 30


class Described(NamedTuple):
    """A transactional id as DescribeTransactions tells it."""

    error_code: int
    state: str
    timeout_ms: int
    start_ms: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[tuple[str, int], ...]


def _describe(client: WireClient, transactional_id: str) -> Described:
    """Read the answer by hand: kio refuses the start of a transaction that has not begun."""
    client.send(DESCRIBE, 0, {"transactional_ids": [transactional_id]})
    frame = bytearray(client.receive_frame())
    # After the correlation id, the tags, the throttle time and the size of the array.
    reader = WireReader(frame, 10, is_flexible=True)
    error = reader.int16()
    reader.text()
    state, timeout_ms = reader.text(), reader.int32()
    start_ms, producer_id = ((reader.int32() << 32) + (reader.int32() & 0xFFFFFFFF) for _ in range(2))
    epoch = reader.int16()
    partitions = []
    for _ in range(reader.count()):
        topic = reader.text()
        partitions += [(topic, reader.int32()) for _ in range(reader.count())]
        reader.tags()
    return Described(error, state, timeout_ms, start_ms, producer_id, epoch, tuple(partitions))


class TransactionalProducer:
    """A producer; its id and epoch are those of the last answer that told them.

    Args:
        client: The connection.
        transactional_id: Its transactional id.
        version: The `transaction.version` that it works by: which versions of the requests it sends by itself.
        topic: The topic that it writes to.
        topic_id: The topic's id.
    """

    def __init__(
        self, client: WireClient, transactional_id: str, version: int, topic: str, topic_id: UUID | None
    ) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.version = version
        self.topic = topic
        self.topic_id = topic_id
        self.producer_id = -1
        self.producer_epoch = -1
        self.sequences: dict[int, int] = {}

    def init(
        self, version: int = 5, *, timeout_ms: int = 60_000, expected: tuple[int, int] = (-1, -1), keep: bool = False
    ) -> int:
        """Send InitProducerId; return the error."""
        message = {
            "transactional_id": self.transactional_id,
            "transaction_timeout_ms": timeout_ms,
            "producer_id": expected[0],
            "producer_epoch": expected[1],
        }
        answer = self.client.call(INIT_PRODUCER_ID, version, message)
        if not answer.error_code and not keep:
            self._take(answer)
        return int(answer.error_code)

    def _take(self, answer: Any) -> None:
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()

    def _fields(self, epoch: int, other_id: bool = False, **fields: Any) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id + other_id,
            "producer_epoch": self.producer_epoch + epoch,
            **fields,
        }

    def add(
        self, *partitions: int, version: int = 3, epoch: int = 0, other_id: bool = False, topic: str | None = None
    ) -> list[int]:
        """Send AddPartitionsToTxn; return the errors of the partitions.

        Args:
            partitions: Their numbers.
            version: The API's version.
            epoch: What is added to the producer's epoch.
            other_id: Whether to send a wrong producer id.
            topic: Another topic.
        """
        fields = self._fields(epoch, other_id, topics=[{"name": topic or self.topic, "partitions": list(partitions)}])
        message = {f"v3_and_below_{name}": value for name, value in fields.items()}
        answer = self.client.call(ADD_PARTITIONS, version, message)
        return [
            int(one.partition_error_code)
            for topics in answer.results_by_topic_v3_and_below
            for one in topics.results_by_partition
        ]

    def verify(self, *partitions: int, version: int = 5, epoch: int = 0, verify_only: bool = True) -> list[int]:
        """Send the AddPartitionsToTxn of a broker; return the errors of the partitions."""
        topics = [{"name": self.topic, "partitions": list(partitions)}]
        transaction = self._fields(epoch, verify_only=verify_only, topics=topics)
        answer = self.client.call(ADD_PARTITIONS, version, {"transactions": [transaction]})
        return [
            int(one.partition_error_code)
            for found in answer.results_by_transaction
            for topics in found.topic_results
            for one in topics.results_by_partition
        ]

    def add_offsets(self, group: str = "group", *, version: int = 4, epoch: int = 0, other_id: bool = False) -> int:
        """Send AddOffsetsToTxn; return the error."""
        return int(self.client.call(ADD_OFFSETS, version, self._fields(epoch, other_id, group_id=group)).error_code)

    def end(
        self,
        commit: bool,
        version: int | None = None,
        *,
        epoch: int = 0,
        other_id: bool = False,
        keep: bool = False,
    ) -> int:
        """Send EndTxn; return the error.

        Args:
            commit: Whether to commit.
            version: The API's version; None for that of the producer's `transaction.version`.
            epoch: What is added to the producer's epoch.
            other_id: Whether to send a wrong producer id.
            keep: Whether to go on with the old id and epoch.
        """
        version = version if version is not None else 5 if self.version >= 2 else 4
        answer = self.client.call(END, version, self._fields(epoch, other_id, committed=commit))
        if not answer.error_code and version >= 5 and not keep:
            self._take(answer)
        return int(answer.error_code)

    def batch(self, partition: int, *values: bytes, epoch: int = 0, sequence: int | None = None) -> bytes:
        """Return a transactional batch, the next one of the partition."""
        at = self.sequences.get(partition, 0) if sequence is None else sequence
        self.sequences[partition] = at + len(values)
        producer: dict[str, Any] = {"producer_id": self.producer_id, "producer_epoch": self.producer_epoch + epoch}
        return batch(*values, base_sequence=at, is_transactional=True, **producer)

    def produce(
        self, partition: int, *values: bytes, version: int | None = None, epoch: int = 0, sequence: int | None = None
    ) -> int:
        """Send a batch; return the error."""
        version = version if version is not None else 12 if self.version >= 2 else 11
        data = self.batch(partition, *values, epoch=epoch, sequence=sequence)
        asked = produce_message(data, self.topic, partition=partition, topic_id=self.topic_id, acks=-1)
        return produced(self.client.call(PRODUCE, version, {**asked, "transactional_id": self.transactional_id}))[0]

    def describe(self) -> Described:
        """Return what DescribeTransactions answers."""
        return _describe(self.client, self.transactional_id)

    def until_idle(self) -> str:
        """Wait until no end is in progress; return the state."""
        deadline = time.monotonic() + _PATIENCE_S * PATIENCE
        while (state := self.describe().state).startswith("Prepare"):
            assert time.monotonic() < deadline
            time.sleep(0.002)
        return state

    def patiently(self, send: Callable[[], int]) -> None:
        """Send again while the coordinator is busy; expect no error in the end."""
        deadline = time.monotonic() + _PATIENCE_S * PATIENCE
        while (error := send()) in _BUSY and time.monotonic() < deadline:
            time.sleep(0.005)
        assert error == 0


def find_coordinator(client: WireClient, transactional_id: str) -> None:
    """Have the coordinator's topic created, and wait for it."""

    def is_found() -> bool:
        answer = client.call(FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": [transactional_id]})
        # Found is not loaded.
        return not answer.coordinators[0].error_code and (
            _describe(client, transactional_id).error_code not in (14, 15, 16)
        )

    wait_for(is_found, _PATIENCE_S, f"the coordinator of {transactional_id}")


# -- the states that a client can bring a transactional id into


def _none(producer: TransactionalProducer) -> None:
    producer.producer_id, producer.producer_epoch = 1_000_000, 1


def _empty(producer: TransactionalProducer) -> None:
    producer.patiently(producer.init)
    # So that there is an epoch before it.
    producer.patiently(producer.init)


def _ongoing(producer: TransactionalProducer) -> None:
    _empty(producer)
    if producer.version >= 2:
        producer.patiently(lambda: producer.produce(0, b"a", sequence=0))
    else:
        producer.patiently(lambda: max(producer.add(0)))
        producer.patiently(lambda: producer.produce(0, b"a", sequence=0))


def _ended(*, commit: bool) -> Callable[[TransactionalProducer], None]:
    def bring(producer: TransactionalProducer) -> None:
        _ongoing(producer)
        producer.patiently(lambda: producer.end(commit))
        producer.until_idle()

    return bring


STATES: dict[str, Callable[[TransactionalProducer], None]] = {
    "none": _none,
    "Empty": _empty,
    "Ongoing": _ongoing,
    "CompleteCommit": _ended(commit=True),
    "CompleteAbort": _ended(commit=False),
}


Send = Callable[[TransactionalProducer], Any]


def _init(version: int, *, id_offset: int = 0, epoch_offset: int | None = None, timeout_ms: int = 60_000) -> Send:
    def send(producer: TransactionalProducer) -> int:
        expected = (-1, -1)
        if epoch_offset is not None:
            expected = producer.producer_id + id_offset, producer.producer_epoch + epoch_offset
        return producer.init(version, timeout_ms=timeout_ms, expected=expected, keep=True)

    return send


def _requests() -> Iterator[tuple[str, Send]]:
    for version in (0, 3, 4, 5):
        yield f"init v{version}", _init(version)
    for version in (3, 4, 5):
        for offset in (-1, 0, 1):
            yield f"init v{version} after {offset:+}", _init(version, epoch_offset=offset)
        yield f"init v{version} after another id", _init(version, id_offset=1, epoch_offset=0)
    yield "init v5 with an id only", methodcaller("init", expected=(5, -1), keep=True)
    yield "init v5 without time", _init(5, timeout_ms=0)
    yield "init v5 with too much time", _init(5, timeout_ms=900_001)
    for offset in (-1, 0, 1):
        for version in (0, 1, 2, 3):
            yield f"add v{version} {offset:+}", methodcaller("add", 0, 1, version=version, epoch=offset)
        for version in (0, 1, 2, 4):
            yield f"offsets v{version} {offset:+}", methodcaller("add_offsets", version=version, epoch=offset)
        for version in (4, 5):
            for name, verify_only in (("verify", True), ("broker's add", False)):
                send = methodcaller("verify", 0, 1, version=version, epoch=offset, verify_only=verify_only)
                yield f"{name} v{version} {offset:+}", send
        for version in (0, 1, 2, 4, 5):
            for name, commit in (("commit", True), ("abort", False)):
                yield f"{name} v{version} {offset:+}", methodcaller("end", commit, version, epoch=offset, keep=True)
        for version in (9, 10, 11, 12):
            for partition in (0, 1):
                send = methodcaller("produce", partition, b"b", version=version, epoch=offset)
                yield f"produce v{version} to {partition} {offset:+}", send
    yield "add by another id", methodcaller("add", 0, other_id=True)
    yield "offsets by another id", methodcaller("add_offsets", other_id=True)
    yield "commit v4 by another id", methodcaller("end", True, 4, other_id=True)
    yield "commit v5 by another id", methodcaller("end", True, 5, other_id=True)
    yield "add an unknown partition", methodcaller("add", 0, 99)
    yield "add an unknown topic", methodcaller("add", 0, topic="unknown")


def _state_after(producer: TransactionalProducer, before: tuple[int, int]) -> tuple[Any, ...]:
    """Return the state after a request: what of it is the same in each run."""
    state = producer.until_idle()
    found = producer.describe()
    if found.error_code:
        return (int(found.error_code),)
    return state, found.producer_id == before[0], found.producer_epoch - before[1], len(found.partitions)


def answers(client: WireClient, topic: str, topic_id: UUID | None, version: int, state: str) -> dict[str, list[Any]]:
    """Send each request in a state, with a new transactional id each.

    Args:
        client: A connection.
        topic: A topic with two partitions.
        topic_id: Its id.
        version: The `transaction.version` that the client works by.
        state: One of `STATES`.

    Returns:
        By request the errors, and the state after it: its name, whether the producer id is the same, how much the epoch
        has increased, and how many partitions there are; or an error.
    """
    found: dict[str, list[Any]] = {}
    for number, (name, send) in enumerate(_requests()):
        producer = TransactionalProducer(client, f"{version}-{state}-{number}", version, topic, topic_id)
        STATES[state](producer)
        before = producer.producer_id, producer.producer_epoch
        while (answer := send(producer)) == COORDINATOR_LOAD_IN_PROGRESS:
            # Apache Kafka fetches producer ids.
            time.sleep(0.01)
        found[name] = [answer, *_state_after(producer, before)]
        _abort(producer)
    return found


def _abort(producer: TransactionalProducer) -> None:
    """Leave no transaction open."""
    found = producer.describe()
    if found.state == "Ongoing":
        producer.producer_id, producer.producer_epoch = found.producer_id, found.producer_epoch
        producer.patiently(lambda: producer.end(False, 4))
