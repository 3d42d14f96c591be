"""The partition of a key, held against Kafka's own test and another client."""

from __future__ import annotations

import random

import pytest
from kafka.partitioner.default import murmur2 as peers_murmur2

from odradek.records import Record
from odradek.records.kernels.murmur2 import murmur2
from odradek.records.partitioner import by_partition, partition_for_key

# Source in Kafka: UtilsTest.testMurmur2
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", KNOWN)
def test_the_hashes_of_kafkas_own_test(key: bytes) -> None:
    assert murmur2(key) == KNOWN[key]


def test_the_hashes_of_another_client() -> None:
    source = random.Random(7)
    for size in [*range(40), 255, 256, 1000]:
        for _ in range(20):
            key = source.randbytes(size)
            assert murmur2(key) & 0xFFFFFFFF == peers_murmur2(key) & 0xFFFFFFFF, key


def test_the_partition_is_without_the_sign() -> None:
    assert partition_for_key(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7
    assert {partition_for_key(b"%d" % number, 3) for number in range(100)} == {0, 1, 2}


@pytest.mark.slow
def test_records_without_a_key_stay_together_and_those_with_one_find_theirs() -> None:
    records = [Record(None if number % 2 else b"%d" % (number % 10), b"%d" % number) for number in range(100)]
    chosen: set[int] = set()
    for _ in range(100):
        found = by_partition(records, 8)
        [sticky] = [number for number, given in found.items() if any(record.key is None for record in given)]
        chosen.add(sticky)
        for number, given in found.items():
            assert all(partition_for_key(record.key, 8) == number for record in given if record.key is not None)
            assert given == [record for record in records if record in given], "in the order given"
        assert sum(map(len, found.values())) == 100
    assert chosen == set(range(8)), "any of them, over time"
