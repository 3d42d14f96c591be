"""A consumer whose calls end early by an exception out of a signal's handler: none is left out, or given twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import odradek
from crash.interrupter import count, interrupted
from odradek.consumer.consumer import Consumer
from odradek.storage.directory.consumed_record import ConsumedRecord

pytestmark = [pytest.mark.usefixtures("real_locks"), pytest.mark.filterwarnings("ignore::ResourceWarning")]

RECORDS = 8
STEP = 31
"""Every so many bytecodes; each case begins at another one of the first."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("consumer") / "data"
    with odradek.open(path) as logs:
        logs.create_topic("t", partitions=2, config={"segment.bytes": "1048576"})
        for partition in range(2):
            for number in range(RECORDS):
                logs["t", partition].append([odradek.Record(None, b"%d" % number, timestamp=1_700_000_000_000)])
    return path


@pytest.fixture
def group(tmp_path: Path) -> str:
    return f"file://{tmp_path}/offsets.json"


def start(directory: Path, group: str) -> Consumer:
    return odradek.consume(directory, "t", group=group, auto_offset_reset="earliest", follow=False)


def drain(consumer: Consumer) -> Iterator[ConsumedRecord]:
    while records := consumer.poll(max_records=3):
        yield from records


def places(records: list[ConsumedRecord]) -> list[tuple[int, int | None]]:
    return sorted((consumed.partition, consumed.record.offset) for consumed in records)


ALL = [(partition, offset) for partition in range(2) for offset in range(RECORDS)]


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize("first", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, STEP + 1))])
def test_a_poll_that_is_interrupted_takes_no_record_away(directory: Path, group: str, first: int) -> None:
    with start(directory, group) as consumer:
        consumer.poll(max_records=3)
        length = count(lambda: [consumer.poll(max_records=3) for _ in range(2)])
    for bytecode in range(first, length, STEP):
        with odradek.consume(directory, "t", auto_offset_reset="earliest", follow=False) as consumer:
            given = consumer.poll(max_records=3)

            def poll_twice(consumer: Consumer = consumer, given: list[ConsumedRecord] = given) -> None:
                for _ in range(2):
                    given += consumer.poll(max_records=3)

            # Only within the consumer: what comes between two calls of it is no affair of its own.
            interrupted(poll_twice, bytecode, again=bytecode % 3)
            given += drain(consumer)
        assert places(given) == ALL, f"interrupted at bytecode {bytecode}"


@pytest.mark.slow
def test_a_poll_that_is_interrupted_commits_nothing_that_was_not_handed_out(directory: Path, group: str) -> None:
    for bytecode in range(1, 4000, 123):
        given: list[ConsumedRecord] = []
        consumer = start(directory, f"{group}-{bytecode}")

        def poll_all(consumer: Consumer = consumer, given: list[ConsumedRecord] = given) -> None:
            while records := consumer.poll(max_records=3):
                given.extend(records)

        interrupted(poll_all, bytecode)
        consumer.close()
        with start(directory, f"{group}-{bytecode}") as consumer:
            given += drain(consumer)
        assert places(given) == ALL, f"interrupted at bytecode {bytecode}"


@pytest.mark.slow
def test_a_commit_that_is_interrupted_is_no_conflict_with_oneself(directory: Path, group: str) -> None:
    consumer = start(directory, group)
    list(drain(consumer))
    for bytecode in range(1, count(consumer.commit) + 1, STEP):
        consumer.seek_to_beginning()
        consumer.poll(max_records=1 + bytecode % 5)
        interrupted(consumer.commit, bytecode)
        consumer.commit()
    consumer.close()
