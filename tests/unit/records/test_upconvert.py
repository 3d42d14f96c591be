"""Batches of the old formats become v2 batches with the same records."""

from __future__ import annotations

import pytest

from odradek.errors import CorruptRecordError
from odradek.records.batch import read_records
from odradek.records.kernels.objects import Record
from odradek.records.scan import scan_batches
from odradek.records.upconvert import to_v2
from peers.kafka_fixture import KafkaFixture


def records_of(data: bytes) -> list[Record]:
    return [record for header in scan_batches(data) for record in read_records(data, header)]


def same(record: Record) -> tuple[object, ...]:
    return record.offset, record.key, record.value, -1 if record.timestamp is None else record.timestamp


def segments(fixture: KafkaFixture) -> list[bytes]:
    return [path.read_bytes() for path in sorted(fixture.log_dir.glob("*/*.log")) if path.stat().st_size]


@pytest.mark.slow
def test_records_of_every_segment_of_an_old_broker_stay_the_same(fixture_2_8_2: KafkaFixture) -> None:
    magics = set()
    for data in segments(fixture_2_8_2):
        magics |= {header.magic for header in scan_batches(data)}
        converted = to_v2(data)
        assert {header.magic for header in scan_batches(converted)} == {2}
        assert [same(record) for record in records_of(converted)] == [same(record) for record in records_of(data)]
        codecs = [header.codec for header in scan_batches(data) if header.codec]
        assert [header.codec for header in scan_batches(converted) if header.codec] == codecs
    assert magics == {0, 1, 2}


def test_a_batch_that_is_cut_short_is_left_out(fixture_2_8_2: KafkaFixture) -> None:
    data = next(data for data in segments(fixture_2_8_2) if next(iter(scan_batches(data))).magic == 1)
    last = list(scan_batches(data))[-1]
    whole = records_of(data[: last.position])
    assert [record.offset for record in records_of(to_v2(data[:-1]))] == [record.offset for record in whole]


def test_damage_is_an_error(fixture_2_8_2: KafkaFixture) -> None:
    data = bytearray(next(data for data in segments(fixture_2_8_2) if next(iter(scan_batches(data))).magic == 1))
    data[30] ^= 1
    with pytest.raises(CorruptRecordError):
        to_v2(bytes(data))
