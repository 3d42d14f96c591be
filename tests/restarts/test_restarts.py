"""A writer is killed and started again under readers: none of them dies, and none sees anything else than before."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import odradek
from restarts.processes import Readers, Writers, tear
from restarts.told import Told, has_grown, is_numbered, number_of, numbered
from restarts.writer import LONG, PASSING

TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "events": (2, LONG),
    "preallocated": (1, LONG | {"preallocate": "true"}),
    "short": (1, LONG | {"internal.segment.bytes": "200000", "retention.bytes": "500000"}),
    "transactions": (1, LONG),
}
LONGEST_LIFE_BYTES = 40_000
TORN = {"events": 2, "transactions": 1}
"""Where a crash leaves a torn batch, and in how many partitions; preallocated files end with zeros."""


def restart(path: Path, restarts: int, readers: int, seed: int, batches: int) -> None:
    """Kill a writer so often under so many readers.

    Args:
        path: A folder for all of it.
        restarts: How often.
        readers: How many.
        seed: What decides who does what.
        batches: How many there are in each partition before the first start: the more, the longer the indexes.
    """
    folder, told = path / "log-dir", path / "told"
    told.touch()
    rng = random.Random(seed)
    with odradek.open(folder) as logs:
        for topic, (partitions, config) in TOPICS.items():
            logs.create_topic(topic, partitions, config)
            for partition in range(partitions):
                log = logs[topic, partition]
                for number in range(batches):
                    log.append([numbered(number)])
        logs.create_topic(PASSING, config=LONG)
    sizes = {topic: partitions for topic, (partitions, _) in TOPICS.items()} | {PASSING: 0}
    with Writers(path) as writers, Readers(readers, path, folder, told, seed, sizes) as read:
        read.wait()
        for number in range(restarts):
            writers.run(folder, told, seed + number + 1, has_grown(told, rng.randrange(LONGEST_LIFE_BYTES)))
            if rng.random() < 0.5:
                tear(folder, TORN, rng)
            read.look(f"restart {number}")
        read.stop()
    check(folder, told)
    assert not readers or read.counts["look_up"] > restarts


def check(folder: Path, told: Path) -> None:
    """Look whether all that was acknowledged is there."""
    acknowledged = Told(told)
    acknowledged.read_on()
    with odradek.open(folder) as logs:
        for place, numbers in acknowledged.numbers.items():
            log = logs[place]
            found = {record.offset: record for record in log.read()}
            missing = [offset for offset in numbers if offset >= log.log_start_offset and offset not in found]
            assert not missing, f"{place}: acknowledged and lost: {missing[:5]}"
            for offset, record in found.items():
                number = numbers.get(offset or 0, number_of(record))
                assert is_numbered(record, number), f"{place}: offset {offset} holds {record}, not number {number}"
            assert log.damage == []


@pytest.mark.laboratory
@pytest.mark.timeout(600)
def test_twelve_restarts(memory_folder: Path) -> None:
    restart(memory_folder, 12, 4, 100, 6_000)


@pytest.mark.laboratory
@pytest.mark.timeout(24 * 3600)
def test_two_hundred_restarts(memory_folder: Path, pytestconfig: pytest.Config) -> None:
    restart(memory_folder, pytestconfig.getoption("--restarts"), 4, 1000, 15_000)
