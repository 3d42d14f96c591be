"""Requests that are answered at once leave the same answers, logs and counts behind as by the way of all others."""

from __future__ import annotations

import errno
import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.api import APIS
from odradek.broker.clock import Clock
from odradek.broker.partitions import Partition
from odradek.broker.protocol import encode_request
from odradek.broker.running import BrokerThread
from odradek.errors import ProtocolError
from odradek.records.append.batching import AppendResult
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.records.kernels.objects import Record
from odradek.testing.wire import WireClient
from peers.broker_thread import connect
from peers.requests import batch, produce_message, produced

PRODUCE, API_VERSIONS = 0, 18
INVALID_TOPIC = 17
NOW_MS = 1_700_000_000_000
AFTERWARDS = 0x5A5A5A5A
LISTENERS: dict[str, str | int | float | bool] = {"listeners": "PLAINTEXT://127.0.0.1:0"}
TOPICS = {
    "events": {},
    "compacted": {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "small": {"max.message.bytes": "200"},
    "flushed": {"flush.messages": "1"},
    "rolled": {"segment.ms": "1"},
    "indexed": {"index.interval.bytes": "0"},
    "compressed": {"compression.type": "lz4"},
}
PARTITIONS = 2


class _StandingClock(Clock):
    def now_ms(self) -> int:
        return NOW_MS


class _Side:
    """A broker, with or without the way at once, and what became of what it was sent."""

    def __init__(self, path: Path, *, at_once: bool) -> None:
        self.path = path
        self.running = BrokerThread(path, LISTENERS, sync="off", background=False, clock=_StandingClock())
        self.at_once = 0
        produce = APIS[PRODUCE]
        assert produce is not None
        assert produce.at_once is not None
        answer_at_once = produce.at_once

        def counted(*arguments: Any) -> Any:
            answer = answer_at_once(*arguments)
            self.at_once += answer is not None
            return answer

        apis = type(APIS)()
        apis[PRODUCE] = produce._replace(at_once=counted if at_once else None)  # type: ignore[index]
        self.running.server._apis = apis
        self.ids = {name: self._create(name) for name in TOPICS}
        self.client = connect(self.running)

    def _create(self, name: str) -> UUID:
        logs = self.running.broker.logs
        topic_id = self.running.call(
            lambda: logs.create_topic(name, partitions=PARTITIONS, config=TOPICS[name])
        ).topic_id
        assert topic_id is not None
        return topic_id

    def make_again(self, name: str) -> None:
        self.running.call(lambda: self.running.broker.logs.delete_topic(name))
        self.ids[name] = self._create(name)

    def fail_disk(self, name: str, number: int) -> None:
        log = self.running.broker.logs[name, number]
        log.guard.disk.failure = OSError(errno.ENOSPC, "No space left on device")

    def answers(self, request: bytes) -> list[bytes]:
        """Send a request, and another one after it; return what came before the answer to that."""
        try:
            self.client.socket.sendall(request + encode_request(API_VERSIONS, 0, AFTERWARDS, "c", {}))
            found: list[bytes] = []
            while struct.unpack_from(">i", frame := self.client.receive_frame())[0] != AFTERWARDS:
                found.append(frame)
        except (ProtocolError, OSError):
            self.client.close()
            self.client = connect(self.running)
            return [b"closed"]
        return found

    def counted(self) -> tuple[dict[int, int], int]:
        """Return the errors, and how many requests were answered."""

        def count() -> tuple[dict[int, int], int]:
            found = self.running.broker.metrics.apis["Produce"]
            return dict(found.errors), sum(found.counts)

        # In the broker's thread: a client may see its connection closed before the request has been counted.
        return self.running.call(count)

    def files(self) -> dict[str, bytes]:
        """Return the checksums of the partitions' files."""
        found = {}
        for name in TOPICS:
            for path in sorted(self.path.glob(f"{name}-[0-9]/*")):
                if path.suffix in (".log", ".index", ".timeindex", ".snapshot"):
                    found[f"{path.parent.name}/{path.name}"] = sha256(path.read_bytes()).digest()
        return found


@contextmanager
def both(tmp_path: Path) -> Iterator[tuple[_Side, _Side]]:
    sides = _Side(tmp_path / "one", at_once=True), _Side(tmp_path / "two", at_once=False)
    try:
        yield sides
    finally:
        for side in sides:
            side.client.close()
            side.running.stop()


class _Producer:
    """Requests at random, most of them good."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.sequences: dict[tuple[str, int], int] = {}

    def batch(self, topic: str, number: int) -> bytes | None:
        rng, kind = self.rng, self.rng.random()
        key = None if topic == "compacted" and rng.random() < 0.3 else b"k"
        late_ms = rng.choice([0, 0, 0, 5, -5, 7_200_000])
        count = rng.choice([1, 1, 2, 5])
        records = [Record(key=key, value=rng.randbytes(rng.choice([0, 10, 150])), timestamp=NOW_MS + late_ms)] * count
        fields: dict[str, Any] = {}
        if rng.random() < 0.5:
            sequence = self.sequences.get((topic, number), 0)
            if rng.random() < 0.8:
                self.sequences[topic, number] = sequence + count
            else:
                sequence = max(0, sequence + rng.choice([-count, 1]))
            fields = {"producer_id": 7, "producer_epoch": rng.choice([0] * 20 + [1]), "base_sequence": sequence}
        if kind < 0.04:
            return rng.choice([None, b"", b"x" * 70])
        if kind < 0.08:
            fields["codec"] = Codec.LZ4
        data = bytes(build_batch(records, **fields))
        if kind > 0.97:
            data += data
        if kind > 0.93:
            position = rng.randrange(len(data))
            data = data[:position] + bytes([data[position] ^ 1 << rng.randrange(8)]) + data[position + 1 :]
        return data

    def request(self, ids: dict[str, UUID]) -> bytes:
        rng, topics = self.rng, []
        for name in rng.sample(sorted(TOPICS), rng.choice([1, 1, 1, 2, 3])):
            numbers = rng.choice([[0], [1], [0], [1], [0, 1], [1, 0], [0, 0], [5]])
            parts = [{"index": number, "records": self.batch(name, number)} for number in numbers]
            topics.append({"name": name, "topic_id": ids[name], "partition_data": parts})
        if rng.random() < 0.05:
            topics[0] = {
                **topics[0],
                "name": rng.choice(["missing", "__consumer_offsets", "é"]),
                "topic_id": UUID(int=rng.choice([0, 5])),
            }
        acks = rng.choice([1, 1, 1, -1, -1, -1, 0, 3])
        transactional_id = "t" if rng.random() < 0.03 else None
        message = {"transactional_id": transactional_id, "acks": acks, "timeout_ms": 1000, "topic_data": topics}
        client_id = rng.choice(["c", "c", None, "", "é", "__admin_client"])
        request = bytearray(encode_request(PRODUCE, rng.randrange(3, 14), rng.getrandbits(31), client_id, message))
        if rng.random() < 0.2:
            # Not the size of the frame, nor the API.
            position = rng.randrange(6, len(request))
            request[position] = rng.randrange(256)
        return bytes(request)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "requests"), [(1, 200), (2, 1000)])
def test_whatever_is_produced_is_answered_and_written_alike(tmp_path: Path, seed: int, requests: int) -> None:
    with both(tmp_path) as (at_once, slowly):
        producer, kinds = _Producer(seed), set()
        for number in range(requests):
            if number == requests // 2:
                for side in (at_once, slowly):
                    side.make_again("events")
            if number == requests * 9 // 10:
                for side in (at_once, slowly):
                    side.fail_disk("events", 1)
            request = producer.request(at_once.ids)
            same = request
            for name in TOPICS:
                same = same.replace(at_once.ids[name].bytes, slowly.ids[name].bytes)
            wanted = slowly.answers(same)
            for name in TOPICS:
                wanted = [one.replace(slowly.ids[name].bytes, at_once.ids[name].bytes) for one in wanted]
            wanted = [one.replace(bytes(slowly.path), bytes(at_once.path)) for one in wanted]
            assert at_once.answers(request) == wanted, f"seed {seed}, request {number}: {request!r}"
            kinds.add(len(wanted))
        assert slowly.at_once == 0
        assert at_once.at_once > requests / 10
        assert kinds == {0, 1}
        assert at_once.counted() == slowly.counted()
    files = at_once.files()
    assert files == slowly.files()
    assert len(files) > 2 * PARTITIONS * len(TOPICS)


def test_internal_topics_are_refused_however_often_one_produces_to_them(
    running: BrokerThread, client: WireClient
) -> None:
    topic_id = running.broker.logs.create_topic("__consumer_offsets").topic_id
    message = produce_message(batch(b"v", key=b"k"), "__consumer_offsets", topic_id=topic_id)
    for version in (9, 9, 13, 13):
        assert produced(client.call(PRODUCE, version, message)) == (INVALID_TOPIC, -1)
    assert running.broker.logs["__consumer_offsets", 0].log_end_offset == 0


def test_an_error_that_nobody_expects_is_told_of_each_partition(
    running: BrokerThread, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id = running.broker.logs.create_topic("events", partitions=2).topic_id
    parts = [{"index": number, "records": batch(b"v")} for number in (0, 1)]
    message = produce_message(None, topic_data=[{"name": "events", "topic_id": topic_id, "partition_data": parts}])
    client.call(PRODUCE, 13, message)

    def fail(self: Partition, *arguments: object, **options: object) -> AppendResult:
        raise ZeroDivisionError

    monkeypatch.setattr(Partition, "append_at_once", fail)
    for version in (9, 13):
        answer = client.call(PRODUCE, version, message)
        codes = [int(one.error_code) for one in answer.responses[0].partition_responses]
        assert codes == [-1, -1]
