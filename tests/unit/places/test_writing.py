"""What is written into a folder and to a broker, and which rows either of them does not take."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import odradek
from odradek.errors import InvalidRecordError, RecordListTooLargeError, SinkError
from odradek.kafka.batch_sender import BatchSender
from odradek.kafka.client import BrokerClient
from odradek.kafka.producer_identity import take_producer_id
from odradek.kafka.settings import BrokerSettings
from odradek.places.writing import RowWriter, WritableFolder, WritablePlace
from odradek.records import Record
from odradek.records.batch import read_records
from odradek.records.compression import Codec
from odradek.records.scan import scan_batches
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.names import TopicPartition
from odradek.storage.segment.log_slice import records_of
from odradek.testing import Broker

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


class Opened(NamedTuple):
    place: WritablePlace
    logs: WritableLogDirectory
    producer: Callable[[], tuple[int, int]]

    def create(self, **config: Any) -> None:
        self.logs.create_topic("t", 2, {name.replace("_", "."): str(value) for name, value in config.items()})

    def values(self, partition: TopicPartition = FIRST) -> list[bytes | None]:
        return [record.value for record in self.logs[partition].read()]


@pytest.fixture(params=["folder", "broker"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    if request.param == "folder":
        with odradek.open(tmp_path / "data", sync="off") as logs:
            yield Opened(WritableFolder(logs), logs, lambda: (logs.take_producer_ids()[0], 0))
        return
    with Broker() as broker:
        settings = BrokerSettings.parse({"bootstrap.servers": broker.bootstrap_servers})
        with BrokerClient(settings) as client:
            yield Opened(BatchSender(client), broker.logs, lambda: take_producer_id(client))


def arrow(*records: tuple[bytes | None, bytes | None]) -> pa.RecordBatch:
    keys, values = zip(*records, strict=True)
    return pa.record_batch({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})


def objects(*records: tuple[bytes | None, bytes | None]) -> list[Record]:
    return [Record(key, value) for key, value in records]


@pytest.mark.sampled
@pytest.mark.parametrize("rows", [arrow, objects])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_rows_that_a_topic_does_not_take_are_left_out(
    opened: Opened, rows: Callable[..., pa.RecordBatch | list[Record]], codec: Codec
) -> None:
    opened.create(max_message_bytes=1000, cleanup_policy="compact")
    writer = RowWriter(opened.place, codec, opened.producer())
    given: list[tuple[bytes | None, bytes]] = [(b"%d" % n, random.Random(n).randbytes(400)) for n in range(9)]
    given[2] = (None, b"no key")
    given[6] = (b"k", random.Random(6).randbytes(5000))
    for repeated in (1, 2):
        refused = writer.write(FIRST, rows(*given))
        assert [row for row, _ in sorted(refused)] == [2, 6]
        reasons = dict(refused)
        assert reasons[2].startswith("INVALID_RECORD (87): ")
        assert reasons[6].startswith("MESSAGE_TOO_LARGE (10): ")
        assert "max.message.bytes" in reasons[6]
        taken = [value for number, (_, value) in enumerate(given) if number not in (2, 6)]
        assert opened.values() == taken * repeated
        assert writer.written == len(taken) * repeated
    assert writer.write(SECOND, rows((b"k", None))) == []
    assert opened.values(SECOND) == [None]


def test_each_batch_of_a_producer_follows_the_one_before(opened: Opened) -> None:
    opened.create()
    writer = RowWriter(opened.place, producer=opened.producer())
    for _ in range(3):
        writer.write(FIRST, arrow((b"a", b"a"), (b"b", b"b")))
        writer.write(SECOND, objects((b"c", b"c")))
    found = {
        partition: [batch.base_sequence for part in opened.logs[partition].slices() for _, batch in records_of(part)]
        for partition in (FIRST, SECOND)
    }
    assert found == {FIRST: [0, 0, 2, 2, 4, 4], SECOND: [0, 1, 2]}


def test_rows_that_are_no_records(opened: Opened) -> None:
    opened.create()
    writer = RowWriter(opened.place)
    for column, told in (
        (pa.array([1, 2]), "t-0 cannot take the rows: the column 'value' is int64"),
        (pa.array([b"a", b"b"]), "t-0 cannot take the rows: .*negative"),
    ):
        times = pa.array([0, -5], pa.int64())
        with pytest.raises(SinkError, match=told):
            writer.write(FIRST, pa.record_batch({"value": column, "timestamp": times}))


class Refusing:
    """A place that does not say which records it means, or takes only short lists of them."""

    def __init__(self, refuses: Callable[[list[bytes | None]], Exception | None]) -> None:
        self.refuses = refuses
        self.taken: list[list[bytes | None]] = []

    def append(self, partition: TopicPartition, batch: bytearray) -> None:
        values = [record.value for header in scan_batches(batch) for record in read_records(batch, header)]
        error = self.refuses(values)
        if error is not None:
            raise error
        self.taken.append(values)


def test_a_place_that_names_no_record_gets_them_one_by_one() -> None:
    place = Refusing(lambda values: InvalidRecordError("it has no key") if b"c" in values else None)
    refused = RowWriter(place).write(FIRST, objects(*((None, value) for value in (b"a", b"b", b"c", b"d"))))
    assert refused == [(2, "INVALID_RECORD (87): it has no key")]
    assert place.taken == [[b"a"], [b"b"], [b"d"]]


def test_a_batch_that_is_too_large_is_halved_and_later_ones_are_short_at_once() -> None:
    place = Refusing(lambda values: RecordListTooLargeError("too many") if len(values) > 3 else None)
    writer = RowWriter(place)
    given = objects(*((None, b"%d" % number + bytes(200_000)) for number in range(8)))
    assert writer.write(FIRST, given) == []
    assert [len(values) for values in place.taken] == [2, 2, 2, 2]
    place.refuses = lambda values: None
    writer.write(SECOND, given)
    assert [len(values) for values in place.taken] == [2] * 8
