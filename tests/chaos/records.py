"""Records of every kind, and whether those of a target are those of the source."""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Message, Producer

from peers.ledger import require
from peers.librdkafka import read_to_end

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LARGEST = 5 << 20
MOST_MESSAGE_BYTES = LARGEST + (1 << 20)
DELIVERY_S = 900.0

POISON_VALUES = (b'{"id": ', b'{"id": -1}')
"""A value that cannot be decoded, and one for which a function raises."""

Header = tuple[str, bytes | None]


class Row(NamedTuple):
    """A record as it was read; of a value that is not short only the digest, for there are hundreds of megabytes.

    The timestamp of each record is another one, so it says which record it is, unless a broker has stamped it.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp: int


Rows = dict[int, list[Row]]
"""The records of each partition, in their order."""


class Filler:
    """Produces random records to a topic, by one producer for each codec.

    With poison the values are JSON, except few that make a job's views fail.
    """

    def __init__(
        self, servers: str, topic: str, partitions: int, chance: random.Random, *, has_poison: bool = False
    ) -> None:
        self.count = 0
        self._has_poison = has_poison
        self._topic = topic
        self._partitions = partitions
        self._chance = chance
        # Each record has a millisecond of its own, and none is in the future.
        self._first_ms = round(time.time() * 1000) - 86_400_000
        self._producers = [
            Producer(
                {
                    "bootstrap.servers": servers,
                    "compression.codec": codec,
                    "enable.idempotence": True,
                    "message.max.bytes": MOST_MESSAGE_BYTES,
                    "linger.ms": 50,
                    "log_level": 0,
                }
            )
            for codec in CODECS
        ]
        self._failed: list[str] = []

    def fill(self, count: int) -> None:
        """Produce records and wait until the broker has them."""
        for producer in self._producers:
            for _ in range(max(1, self._chance.randrange(2 * count // len(CODECS)))):
                self._send(producer)
            # One producer after another, for all of them write to the same partitions.
            assert producer.flush(DELIVERY_S) == 0, "records were not delivered"
        assert not self._failed, self._failed[:3]

    def _send(self, producer: Producer) -> None:
        producer.produce(
            self._topic,
            key=self._key(),
            value=self._json_value() if self._has_poison else self._value(),
            headers=self._headers(),
            partition=self._chance.randrange(self._partitions),
            timestamp=self._first_ms + self.count,
            on_delivery=self._delivered,
        )
        self.count += 1
        producer.poll(0)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self._failed.append(str(error))

    def _key(self) -> bytes | None:
        kind = self._chance.random()
        if kind < 0.2:
            return None
        if kind < 0.25:
            return b""
        if kind < 0.27:
            return self._chance.randbytes(self._chance.randrange(20_000))
        # Few enough for compaction to have work.
        return b"key \xff %d" % self._chance.randrange(60)

    def _value(self) -> bytes | None:
        kind = self._chance.random()
        if kind < 0.07:
            return None
        if kind < 0.14:
            return b""
        if kind < 0.75:
            size = self._chance.randrange(200)
        elif kind < 0.93:
            size = self._chance.randrange(4_000)
        elif kind < 0.993:
            size = self._chance.randrange(60_000)
        elif kind < 0.9985:
            size = self._chance.randrange(1_100_000)
        else:
            size = self._chance.randrange(1_100_000, LARGEST + 1)
        if self._chance.random() < 0.5:
            return self._chance.randbytes(size)
        line = b"%d " % self._chance.getrandbits(60)
        return (line * (size // len(line) + 1))[:size]

    def _json_value(self) -> bytes | None:
        if self._chance.random() < 0.001:
            return self._chance.choice(POISON_VALUES)
        value = self._value()
        return None if value is None else json.dumps({"id": self.count, "text": value[: LARGEST // 4].hex()}).encode()

    def _headers(self) -> list[tuple[str, str | bytes | None]]:
        return [
            (
                self._chance.choice(("trace", "trace", "имя", "")),
                self._chance.choice((None, b"", b"\xff\0", self._chance.randbytes(30))),
            )
            for _ in range(self._chance.choice((0, 0, 1, 2, 5)))
        ]


def read_rows(servers: str, topic: str, partitions: int, kind: int) -> Rows:
    """Read what is committed, by librdkafka.

    Args:
        servers: The broker.
        topic: The topic.
        partitions: How many partitions it has.
        kind: What the timestamps of its records must be.
    """
    rows: Rows = {number: [] for number in range(partitions)}
    asked = [(topic, number) for number in range(partitions)]
    largest: dict[str, Any] = {
        "fetch.message.max.bytes": 2 * MOST_MESSAGE_BYTES,
        "receive.message.max.bytes": 10 * MOST_MESSAGE_BYTES,
    }
    for message in read_to_end(servers, asked, **largest):
        partition = message.partition()
        assert partition is not None
        rows[partition].append(_row(message, kind))
    return rows


def read_letters(servers: str, topic: str, partitions: int) -> list[tuple[tuple[int, int], bytes | None]]:
    """Return the partitions, offsets and values of the records that a job has put aside."""
    letters = []
    for message in read_to_end(servers, [(topic, number) for number in range(partitions)]):
        headers: Any = dict(message.headers() or ())
        place = int(headers["__odradek.errors.partition"]), int(headers["__odradek.errors.offset"])
        letters.append((place, message.value()))
    return letters


def _row(message: Message, kind: int) -> Row:
    found, timestamp = message.timestamp()
    assert found == kind, f"the timestamp of {message.topic()}-{message.partition()} at {message.offset()} is {found}"
    headers: Any = tuple(message.headers() or ())
    return Row(message.key(), shortened(message.value()), headers, timestamp)


def shortened(value: bytes | None) -> bytes | None:
    """Return a value, or its length and digest if it is not short."""
    if value is None or len(value) <= 64:
        return value
    return b"%d bytes " % len(value) + hashlib.sha256(value).digest()


def check_same(found: Rows, sent: Rows) -> None:
    """Check that a target has the records of the source: field by field, in order, each once."""
    for partition, rows in sent.items():
        _check_partition(partition, found[partition], rows)


def check_same_but_for_times(found: Rows, sent: Rows) -> None:
    """Check a target that stamps the time itself, which never goes back."""
    for partition, rows in sent.items():
        times = [row.timestamp for row in found[partition]]
        require(times == sorted(times), f"the times of partition {partition} go back")
        timeless = [row._replace(timestamp=0) for row in rows]
        _check_partition(partition, [row._replace(timestamp=0) for row in found[partition]], timeless)


def check_compacted(found: Rows, sent: Rows) -> int:
    """Check a compacted target: the latest record of each key, and no order that was not; return how many are gone.

    A record without a value may be gone, too.
    """
    gone = 0
    for partition, rows in sent.items():
        keyed = [row for row in rows if row.key is not None]
        left = iter(keyed)
        for number, row in enumerate(found[partition]):
            require(row in left, f"record {number} of partition {partition} is twice, late, or another's: {row}")
        last_sent, last_found = _latest(keyed), _latest(found[partition])
        missing = {key for key, row in last_sent.items() if row.value is not None and last_found.get(key) != row}
        require(not missing, f"partition {partition} lacks the latest record of {sorted(missing)[:3]}")
        is_latest = all(last_sent[key] == row for key, row in last_found.items())
        require(is_latest, f"partition {partition} has older records")
        gone += len(keyed) - len(found[partition])
    return gone


def _latest(rows: Sequence[Row]) -> Mapping[bytes, Row]:
    return {row.key: row for row in rows if row.key is not None}


def _check_partition(partition: int, found: Sequence[Row], sent: Sequence[Row]) -> None:
    # Not `==` of all: what pytest would print of a difference is too long to be read.
    lost, twice = Counter(sent) - Counter(found), Counter(found) - Counter(sent)
    require(not lost, f"partition {partition}: {lost.total()} of {len(sent)} records are lost: {_first(lost)}")
    require(not twice, f"partition {partition}: {twice.total()} records are twice, or were never sent: {_first(twice)}")
    wrong = [number for number, (one, other) in enumerate(zip(found, sent, strict=True)) if one != other]
    first = f", from record {wrong[0]} on" if wrong else ""
    require(not wrong, f"partition {partition}: {len(wrong)} records are out of order{first}")


def _first(rows: Counter[Row]) -> list[Row]:
    return list(rows)[:3]
