"""The threads, and what they do."""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import odradek
from crash.checks import require
from odradek.errors import (
    InvalidPartitionsError,
    LogError,
    LogOfflineError,
    OdradekError,
    OffsetOutOfRangeError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from odradek.storage.log.log import Log
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.names import DELETED_SUFFIX
from peers.batches import transactional
from threads.ledger import Ledger, Place, Token, record_of, timestamp_of, token_of

WORKERS = 8
KEYS = 12
TEMPORARY = 3
LONGEST_READ = 40
SMALL = {
    "internal.segment.bytes": "4096",
    "index.interval.bytes": "256",
    "segment.index.bytes": "4096",
    "max.message.bytes": "2000",
    "file.delete.delay.ms": "20",
    "retention.ms": "-1",
    "message.timestamp.after.max.ms": str(1 << 50),
}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "plain": (2, SMALL),
    "short": (1, SMALL | {"retention.bytes": "20000"}),
    "keyed": (1, SMALL | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}),
    "transactions": (1, SMALL),
}
TEMPORARY_CONFIG = SMALL | {"internal.segment.bytes": "1000", "max.message.bytes": "900", "retention.bytes": "2500"}
BROKER = {
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "10",
    "log.cleaner.backoff.ms": "5",
    "log.cleaner.dedupe.buffer.size": "100000",
    "log.flush.offset.checkpoint.interval.ms": "20",
    "log.flush.start.offset.checkpoint.interval.ms": "20",
    "replica.high.watermark.checkpoint.interval.ms": "20",
}


class Shared:
    """What the threads have in common.

    Args:
        path: The folder.
        seed: What decides what each thread does; the rest is the scheduler's.
        background: Whether the maintenance has threads of its own besides.

    Attributes:
        logs: The directory that is open, or was last.
        ledger: What was acknowledged.
        failures: What went wrong.
        counts: How often each thing was done.
        errors: How often each error was met where it is one that fits.
    """

    def __init__(self, path: Path, seed: int, *, background: bool) -> None:
        self.path = path
        self.seed = seed
        self.background = background
        self.ledger = Ledger()
        self.failures: list[str] = []
        self.counts: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.stopping = threading.Event()
        self.closings = 0
        self.is_closing = False
        self.logs = self.open()
        for topic, (partitions, config) in TOPICS.items():
            self.logs.create_topic(topic, partitions, config)

    def open(self) -> odradek.WritableLogDirectory:
        return odradek.open(self.path, config=BROKER, background=self.background)

    def fail(self, what: str) -> None:
        self.failures.append(what)
        self.stopping.set()


class Worker(threading.Thread):
    """A thread that does one thing after the other.

    Attributes:
        doing: What it is at.
        since: Since when.
    """

    def __init__(self, shared: Shared, number: int) -> None:
        super().__init__(name=f"worker-{number}", daemon=True)
        self.number = number
        self.doing = "nothing"
        self.since = time.monotonic()
        self._shared = shared
        self._ledger = shared.ledger
        self._rng = random.Random(shared.seed * WORKERS + number)
        self._made = 0
        self._transaction: _Transaction | None = None
        self._follower: _Follower | None = None
        self._consumer: odradek.Consumer | None = None
        self._places: dict[Place, int] = {}
        self._actions = self._choices()

    def _choices(self) -> dict[Callable[[], None], int]:
        choices = {
            self.append: 30,
            self.append_keyed: 14,
            self.append_temporary: 10,
            self.write_transaction: 14,
            self.read: 12,
            self.read_committed: 8,
            self.read_keyed: 3,
            self.read_short: 3,
            self.read_temporary: 6,
            self.look_up_time: 8,
            self.look_around: 6,
            self.scan: 4,
            self.follow: 8,
            self.consume: 6,
            self.maintain: 5,
            self.delete_records: 4,
            self.roll: 5,
            self.flush: 4,
            self.create_topic: 4,
            self.delete_topic: 4,
            self.grow_topic: 3,
            self.alter_topic: 2,
        }
        if self.number == 0:
            choices[self.close_and_open] = 1
        return choices

    def run(self) -> None:
        actions, weights = list(self._actions), list(self._actions.values())
        while not self._shared.stopping.is_set():
            action = self._rng.choices(actions, weights)[0]
            self.doing, self.since = action.__name__, time.monotonic()
            self._shared.counts[action.__name__] += 1
            self._attempt(action)
        self.doing = "nothing"
        for reader in (self._follower, self._consumer):
            if reader is not None:
                with suppress(OdradekError):
                    reader.close()

    def _attempt(self, action: Callable[[], None]) -> None:
        shared = self._shared
        closings, was_closing = shared.closings, shared.is_closing
        try:
            action()
        except OdradekError as error:
            is_closed = was_closing or closings != shared.closings or shared.is_closing
            if is_closed and isinstance(error, LogError) and not isinstance(error, LogOfflineError):
                shared.errors["closed"] += 1
            else:
                self._failed(action.__name__)
        except BaseException:
            self._failed(action.__name__)

    def _failed(self, action: str) -> None:
        self._shared.fail(f"worker {self.number}, {action}:\n{traceback.format_exc()}")

    def _met(self, error: OdradekError) -> None:
        self._shared.errors[type(error).__name__] += 1

    # -- appending

    def _tokens(self, count: int, tag: str = "") -> list[Token]:
        self._made += count
        return [Token(self.number, self._made - count + index, tag) for index in range(count)]

    def _append(self, log: WritableLog, place: Place, tokens: list[Token], keys: list[bytes | None]) -> None:
        records = [record_of(token, key, self._rng.randrange(60)) for token, key in zip(tokens, keys, strict=True)]
        self._ledger.keys.update(zip(tokens, keys, strict=True))
        self._ledger.unknown.update(tokens)
        first = log.append(records, durable=self._rng.random() < 0.1)
        self._ledger.acknowledge(place, first, tokens)
        self._ledger.unknown.difference_update(tokens)

    def append(self) -> None:
        place = Place(*self._rng.choice((("plain", 0), ("plain", 1), ("short", 0))))
        # Sometimes more than a segment.
        count = self._rng.randint(1, 8) if self._rng.random() < 0.98 else 120
        tokens = self._tokens(count)
        self._append(self._shared.logs[place[:2]], place, tokens, [None] * count)

    def append_keyed(self) -> None:
        tokens = self._tokens(self._rng.randint(1, 6))
        keys = [
            b"%d" % self._rng.randrange(KEYS) if self._rng.random() < 0.4 else b"only %d %d" % token[:2]
            for token in tokens
        ]
        self._append(self._shared.logs["keyed", 0], Place("keyed", 0), tokens, list(keys))

    def append_temporary(self) -> None:
        topic, logs = self._temporary(), self._shared.logs
        try:
            log = logs[topic, 0]
            # That of another topic of the name can only be known when the log is one that nothing is appended to.
            topic_id = str(logs.topic_id(topic))
            tokens = self._tokens(self._rng.randint(1, 6), topic_id)
            self._append(log, Place(topic, 0, topic_id), tokens, [None] * len(tokens))
        except LogError as error:
            self._deleted_meanwhile(error)

    def _deleted_meanwhile(self, error: LogError) -> None:
        # Before its log was looked up, or after.
        if isinstance(error, LogOfflineError | OffsetOutOfRangeError):
            raise error
        self._met(error)

    def _temporary(self) -> str:
        return f"temporary-{self._rng.randrange(TEMPORARY)}"

    def write_transaction(self) -> None:
        log = self._shared.logs["transactions", 0]
        if self._transaction is None:
            self._transaction = _Transaction(self.number, self._made)
            self._ledger.transactions[self._transaction.name] = "open"
        transaction = self._transaction
        if transaction.is_unknown or (transaction.sequence and self._rng.random() < 0.5):
            self._end(log, transaction)
            return
        tokens = self._tokens(self._rng.randint(1, 3), transaction.name)
        records = [record_of(token, None, self._rng.randrange(60)) for token in tokens]
        batch = transactional(records, transaction.producer_id, transaction.sequence)
        transaction.is_unknown = True
        self._ledger.unknown.update(tokens)
        result = log.append_batches(batch, durable=self._rng.random() < 0.1)
        self._ledger.acknowledge(Place("transactions", 0), result.first_offset, tokens)
        self._ledger.unknown.difference_update(tokens)
        transaction.sequence += len(tokens)
        transaction.is_unknown = False

    def _end(self, log: WritableLog, transaction: _Transaction) -> None:
        if transaction.kind is None:
            # What it holds is not known where an append ended in an error.
            commit = not transaction.is_unknown and self._rng.random() < 0.7
            transaction.kind = "commit" if commit else "abort"
            self._ledger.transactions[transaction.name] = transaction.kind
        result = log.end_transaction(transaction.producer_id, 0, commit=transaction.kind == "commit")
        marker = Token(-1 - transaction.producer_id, 0, transaction.name)
        self._ledger.acknowledge(Place("transactions", 0), result.first_offset, [marker])
        self._transaction = None

    # -- reading

    def _rows(self, log: Log, start: int | None = None, end: int | None = None) -> list[tuple[int, Token]]:
        return [(record.offset or 0, token_of(record.value)) for record in log.read(start, end)]

    def read(self) -> None:
        place = Place("plain", self._rng.randrange(2))
        log, least = self._shared.logs[place[:2]], self._ledger.ends[place]
        end = log.log_end_offset
        require(end >= least, place, "ends at", end, "below", least, "which was acknowledged")
        if end:
            start = self._rng.randrange(end)
            stop = min(end, start + self._rng.randint(1, LONGEST_READ))
            rows = self._rows(log, start, stop)
            require([offset for offset, _ in rows] == list(range(start, stop)), place, start, stop, "gives", rows)
            self._ledger.check(place, rows)

    def read_committed(self) -> None:
        log = self._shared.logs["transactions", 0]
        stable = log.last_stable_offset
        start = self._rng.randint(max(0, stable - LONGEST_READ), stable)
        for record in log.read(start, isolation="read_committed"):
            token = token_of(record.value)
            state = self._ledger.transactions.get(token.tag)
            require(state == "commit", "a reader is given", token, "of a transaction that is", state)
            known = self._ledger.known(Place("transactions", 0)).get(record.offset or 0, token)
            require(known == token, "offset", record.offset, "holds", token, "not", known)

    def read_short(self) -> None:
        place = Place("short", 0)
        log = self._shared.logs[place[:2]]
        try:
            rows = self._rows(log, log.log_start_offset)
        except OffsetOutOfRangeError as error:
            self._met(error)
            return
        self._ledger.check(place, rows)

    def read_keyed(self) -> None:
        log, place = self._shared.logs["keyed", 0], Place("keyed", 0)
        end = log.log_end_offset
        self._ledger.check(place, self._rows(log, max(0, end - 3 * LONGEST_READ), end), gapless=False)

    def read_temporary(self) -> None:
        logs, topic = self._shared.logs, self._temporary()
        try:
            rows = self._rows(logs[topic, 0])
        except LogError as error:
            self._deleted_meanwhile(error)
            return
        require(len({token.tag for _, token in rows}) <= 1, topic, "mixes two topics of one name:", rows[:1], rows[-1:])

    def look_up_time(self) -> None:
        place = Place("plain", self._rng.randrange(2))
        known = self._ledger.known(place)
        end = self._ledger.ends[place]
        asked = known.get(self._rng.randrange(end)) if end else None
        if asked is None:
            return
        time_ms = timestamp_of(asked)
        found = self._shared.logs[place[:2]].offset_for_time(time_ms)
        require(found is not None, place, "has nothing from", time_ms, "on, the time of", asked)
        for offset in {found, *(self._rng.randrange(found) for _ in range(8) if found)}:
            token = known.get(offset or 0)
            if token is not None:
                is_late = timestamp_of(token) >= time_ms
                require(is_late == (offset == found), place, "time", time_ms, "is at", found, "and", offset, token)

    def look_around(self) -> None:
        logs = self._shared.logs
        require(set(TOPICS) <= set(logs.topics()), "there are the topics", logs.topics())
        place = self._rng.choice((("plain", 0), ("short", 0), ("keyed", 0), ("transactions", 0)))
        log = logs[place]
        start, stable, end = log.log_start_offset, log.last_stable_offset, log.log_end_offset
        require(start <= stable <= end, place, "has the offsets", start, stable, end)
        require(start >= 0 and log.damage == [], place, log.damage)
        require(not log.is_offline, place, "is offline")
        require(log.size_bytes >= 0, place, "has a size below nothing")

    def scan(self) -> None:
        place = Place("plain", self._rng.randrange(2))
        end = self._ledger.ends[place]
        batches = odradek.scan(
            self._shared.path,
            "plain",
            partitions=place.partition,
            columns=["offset", "value"],
            start_offset=max(0, end - LONGEST_READ),
            views=self._rng.random() < 0.5,
        )
        rows = [
            (offset, token_of(value))
            for batch in batches
            for offset, value in zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
        ]
        self._ledger.check(place, rows)
        require(not end or (rows and rows[-1][0] >= end - 1), place, "is scanned up to", rows[-1:], "of", end)

    def follow(self) -> None:
        """Read on where this thread was, in the folder itself."""
        if self._follower is None or self._rng.random() < 0.02:
            if self._follower is not None:
                self._follower.close()
            self._follower = _Follower(self._shared.path, self._rng.randrange(2))
        follower = self._follower
        place, least = Place("plain", follower.partition), self._ledger.ends[Place("plain", follower.partition)]
        follower.log.refresh()
        end = follower.log.log_end_offset
        require(end >= least, place, "ends at", end, "for a follower, below", least, "which was acknowledged")
        start = max(0, end - 5 * LONGEST_READ) if follower.position is None else follower.position
        rows = self._rows(follower.log, start, end)
        require([offset for offset, _ in rows] == list(range(start, end)), place, start, end, "gives", rows[:1])
        self._ledger.check(place, rows)
        follower.position = end

    def consume(self) -> None:
        if self._consumer is None or self._rng.random() < 0.02:
            if self._consumer is not None:
                self._consumer.close()
            self._consumer = odradek.consume(
                self._shared.path, ["plain"], auto_offset_reset=self._rng.choice(("earliest", "latest"))
            )
            self._places = {}
        for topic, partition, record in self._consumer.poll(0, 5 * LONGEST_READ):
            place, offset = Place(topic, partition), record.offset or 0
            require(self._places.get(place, offset) == offset, place, "goes on at", offset, "after", self._places)
            self._ledger.check(place, [(offset, token_of(record.value))])
            self._places[place] = offset + 1

    # -- the rest

    def maintain(self) -> None:
        self._shared.logs.maintain()

    def delete_records(self) -> None:
        log, place = self._shared.logs["short", 0], Place("short", 0)
        start, end = log.log_start_offset, log.log_end_offset
        offset = self._rng.randint(start, max(start, end - 20))
        found = log.delete_records(offset)
        require(found >= offset, place, "starts at", found, "below", offset)
        self._ledger.started(place, found)
        try:
            first = next(log.read(found), None)
        except OffsetOutOfRangeError as error:
            # Another has deleted more.
            require(log.log_start_offset > found, place, error)
            self._met(error)
            return
        require(first is None or (first.offset or 0) == found, place, "has", first, "at", found)

    def roll(self) -> None:
        topic = self._rng.choice(list(TOPICS))
        self._shared.logs[topic, 0].roll()

    def flush(self) -> None:
        logs = self._shared.logs
        if self._rng.random() < 0.3:
            logs.flush()
        else:
            logs[self._rng.choice(list(TOPICS)), 0].flush()

    def create_topic(self) -> None:
        try:
            self._shared.logs.create_topic(self._temporary(), self._rng.randint(1, 2), TEMPORARY_CONFIG)
        except TopicExistsError as error:
            self._met(error)

    def delete_topic(self) -> None:
        try:
            self._shared.logs.delete_topic(self._temporary())
        except UnknownTopicOrPartitionError as error:
            self._met(error)

    def grow_topic(self) -> None:
        try:
            self._shared.logs.create_partitions(self._temporary(), self._rng.randint(2, 4))
        except (UnknownTopicOrPartitionError, InvalidPartitionsError) as error:
            self._met(error)

    def alter_topic(self) -> None:
        codec = self._rng.choice(("lz4", "gzip", "uncompressed", "producer"))
        topic = self._rng.choice(("plain", "keyed"))
        self._shared.logs.alter_topic_config(topic, {"compression.type": codec})

    def close_and_open(self) -> None:
        """Close the folder under the others, and open it again."""
        shared = self._shared
        shared.is_closing = True
        shared.closings += 1
        try:
            shared.logs.close()
            shared.logs = shared.open()
            # What was deleted goes later, if need be by who opens the folder next.
            actions = [str(action) for action in shared.logs.report.actions if action.path.suffix != DELETED_SUFFIX]
            require(not actions, "it was not closed in order:", actions)
        except Exception:
            # None of the errors that others get meanwhile.
            self._failed("close_and_open")
        shared.closings += 1
        shared.is_closing = False


class _Transaction:
    """A transaction of one thread."""

    def __init__(self, worker: int, number: int) -> None:
        self.producer_id = 1000 + number * WORKERS + worker
        self.name = f"t{self.producer_id}"
        self.sequence = 0
        self.is_unknown = False
        self.kind: str | None = None


class _Follower:
    """A reader of the folder that stays open."""

    def __init__(self, path: Path, partition: int) -> None:
        self.partition = partition
        self.position: int | None = None
        self._logs = odradek.LogDirectory(path)
        self.log = self._logs["plain", partition]

    def close(self) -> None:
        self._logs.close()
