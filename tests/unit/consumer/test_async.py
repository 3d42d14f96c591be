"""The consumer for asyncio: what it gives, and that a cancellation takes nothing away and gives nothing twice."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek import AsyncConsumer, CommitConflictError, LogError, OptionError, Record, UnknownTopicOrPartitionError

RECORDS = 600
"""More than are read ahead at a time."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t", partitions=2)
        for partition in range(2):
            logs["t", partition].append(Record(value=b"%d" % number) for number in range(RECORDS))
    return tmp_path / "data"


@pytest.fixture
def group(tmp_path: Path) -> str:
    return f"file://{tmp_path}/offsets.json"


ALL = [(partition, offset) for partition in range(2) for offset in range(RECORDS)]


def start(data: Path, **options: Any) -> AsyncConsumer:
    return odradek.consume_async(data, "t", **{"auto_offset_reset": "earliest", "follow": False, **options})


def place(consumed: odradek.ConsumedRecord) -> tuple[int, int]:
    return consumed.partition, consumed.offset


def test_all_records_are_given(data: Path) -> None:
    async def run() -> list[tuple[int, int]]:
        async with start(data) as consumer:
            return [place(consumed) async for consumed in consumer]

    assert sorted(asyncio.run(run())) == ALL


def test_it_opens_by_itself_where_it_is_only_iterated_over(data: Path) -> None:
    async def run() -> int:
        count = 0
        async for topic, _, record in start(data):
            assert (topic, record.value) == ("t", str(record.offset).encode())
            count += 1
        return count

    assert asyncio.run(run()) == len(ALL)


def test_the_loop_goes_on_while_it_waits_for_records(tmp_path: Path) -> None:
    async def run() -> list[bytes | None]:
        with odradek.open(tmp_path / "data") as logs:
            logs.create_topic("t")
            async with odradek.consume_async(tmp_path / "data", "t", auto_offset_reset="latest") as consumer:
                waiting = asyncio.ensure_future(anext(consumer))
                for _ in range(5):
                    await asyncio.sleep(0.01)
                assert not waiting.done()
                logs["t", 0].append(value=b"late")
                return [(await waiting).record.value]

    assert asyncio.run(run()) == [b"late"]


@pytest.mark.slow
def test_cancelled_tasks_lose_nothing_and_get_nothing_twice(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A step in a thread every few records.
    monkeypatch.setattr("odradek.consumer.consumer.DEFAULT_MAX_POLL_RECORDS", 5)
    source = random.Random(5)

    async def take(consumer: AsyncConsumer, given: list[tuple[int, int]]) -> None:
        async for consumed in consumer:
            given.append(place(consumed))
            if source.random() < 0.1:
                await asyncio.sleep(0)

    async def read_all() -> int:
        given: list[tuple[int, int]] = []
        cancelled = 0
        async with start(data, metadata_max_age_ms=1) as consumer:
            while len(given) < len(ALL):
                task = asyncio.ensure_future(take(consumer, given))
                # From before its first step to the middle of one in a thread.
                for _ in range(source.randrange(4)):
                    await asyncio.sleep(0)
                if source.random() < 0.3:
                    await asyncio.sleep(source.random() * 0.003)
                cancelled += task.cancel()
                await asyncio.wait([task])
                if not task.cancelled():
                    task.result()
        assert sorted(given) == ALL
        return cancelled

    # How many records a task comes to before it is cancelled depends on the machine.
    cancelled = 0
    while cancelled < 100:
        cancelled += asyncio.run(read_all())


def test_a_timeout_takes_no_record_away(tmp_path: Path) -> None:
    async def run() -> list[int]:
        with odradek.open(tmp_path / "data") as logs:
            logs.create_topic("t")
            given: list[int] = []
            async with odradek.consume_async(tmp_path / "data", "t", auto_offset_reset="earliest") as consumer:
                for number in range(20):
                    logs["t", 0].append(value=b"%d" % number)
                    while len(given) <= number:
                        try:
                            given.append((await asyncio.wait_for(anext(consumer), 0.002)).offset)
                        except TimeoutError:
                            continue
            return given

    assert asyncio.run(run()) == list(range(20))


def test_what_was_handed_out_is_committed_and_no_more(data: Path, group: str) -> None:
    async def some(count: int) -> list[tuple[int, int]]:
        given = []
        async with start(data, group=group) as consumer:
            async for consumed in consumer:
                given.append(place(consumed))
                if len(given) == count:
                    break
        return given

    assert sorted(asyncio.run(some(7)) + asyncio.run(some(500)) + asyncio.run(some(10_000))) == ALL


def test_what_failed_is_given_again(data: Path, group: str) -> None:
    async def failing() -> tuple[int, int]:
        async with start(data, group=group) as consumer:
            await anext(consumer)
            consumed = await anext(consumer)
            try:
                raise RuntimeError
            except RuntimeError:
                await consumer.__aexit__(RuntimeError, RuntimeError(), None)
        return place(consumed)

    async def again() -> tuple[int, int]:
        async with start(data, group=group) as consumer:
            return place(await anext(consumer))

    failed = asyncio.run(failing())
    assert asyncio.run(again()) in {failed, (1 - failed[0], 0)}


def test_it_ends_cleanly_where_its_end_is_cancelled(data: Path, group: str) -> None:
    async def run() -> None:
        entered = asyncio.Event()

        async def take() -> None:
            async with start(data, group=group, follow=True) as consumer:
                for _ in range(3):
                    await anext(consumer)
                await anext(consumer)
                entered.set()
                await asyncio.sleep(60)

        task = asyncio.ensure_future(take())
        await entered.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    threads = set(threading.enumerate())
    asyncio.run(run())
    assert set(threading.enumerate()) <= threads
    with odradek.consume(data, "t", group=group, follow=False) as consumer:
        # The fourth was not done; the store was given back.
        assert sum(position.offset for position in consumer.committed.values()) == 3


def test_errors_are_raised_where_it_is_entered_or_iterated_over(data: Path, group: str) -> None:
    async def enter(**options: Any) -> None:
        async with odradek.consume_async(data, options.pop("topics", "t"), **options):
            pass

    with pytest.raises(UnknownTopicOrPartitionError):
        asyncio.run(enter(topics="absent", auto_offset_reset="earliest"))
    with pytest.raises(OptionError, match="where to start"):
        asyncio.run(enter())

    async def replaced() -> None:
        async with start(data, group=group) as consumer:
            await anext(consumer)
            async with start(data, group=group) as other:
                await anext(other)
                await other.commit()
                with pytest.raises(CommitConflictError):
                    await consumer.commit()
            # The error on its way says more than one of the store.
            await consumer.__aexit__(RuntimeError, RuntimeError(), None)

    asyncio.run(replaced())


def test_nothing_works_after_it_was_closed(data: Path) -> None:
    async def run() -> None:
        consumer = start(data)
        assert repr(consumer) == "<AsyncConsumer, not open yet>"
        assert consumer.assignment == []
        await anext(consumer)
        assert len(consumer.assignment) == 2
        await consumer.close()
        await consumer.close()
        assert repr(consumer) == "<AsyncConsumer, closed>"
        for call in (lambda: anext(consumer), consumer.commit, consumer.__aenter__):
            with pytest.raises(LogError, match="is closed"):
                await call()
        never = start(data)
        await never.close()
        with pytest.raises(LogError, match="is closed"):
            await anext(never)

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("interval_ms", [0, 1, 20])
def test_a_commit_that_falls_due_meanwhile_is_no_end(data: Path, group: str, interval_ms: int, follow: bool) -> None:
    async def run() -> int:
        count = 0
        async with start(data, group=group, auto_commit_interval_ms=interval_ms, follow=follow) as consumer:
            async for _ in consumer:
                count += 1
                if count == len(ALL) and follow:
                    break
        return count

    assert asyncio.run(asyncio.wait_for(run(), 60)) == len(ALL)


def test_it_is_closed_in_another_event_loop(data: Path) -> None:
    consumer = odradek.consume_async(data / "nowhere", "t", auto_offset_reset="earliest")

    async def use() -> None:
        await anext(consumer)

    with pytest.raises(odradek.LogError):
        asyncio.run(use())
    asyncio.run(consumer.close())
