"""What waits until a partition can be written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from odradek.broker.clock import Clock
from odradek.broker.tasks import Tasks
from odradek.broker.transactions.held_up import HeldUp
from odradek.storage.names import TopicPartition

ONE = TopicPartition("events", 0)
OTHER = TopicPartition("events", 1)


class StillClock(Clock):
    """Only a test moves its time."""

    def elapsed_ms(self) -> float:
        return self._advanced_ms


class Tries:
    """Attempts at partitions that a test blocks; which were made, and of which succeeded."""

    def __init__(self) -> None:
        self.clock = StillClock()
        self.clock.bind(asyncio.get_running_loop())
        self.tasks = Tasks()
        self.held_up = HeldUp(self.clock, self.tasks)
        self.blocked: set[str] = set()
        self.made: list[str] = []

    def of(self, name: str) -> Callable[[], Awaitable[bool]]:
        async def attempt() -> bool:
            self.made.append(name)
            return name not in self.blocked

        return attempt

    async def at_once(self) -> list[str]:
        """Return which attempts are made without any time."""
        self.made.clear()
        for _ in range(50):
            await asyncio.sleep(0)
        return list(self.made)

    async def after(self, seconds: float) -> list[str]:
        """Move the time; return which attempts are made then."""
        self.clock.advance(seconds)
        return await self.at_once()


def test_what_has_failed_is_tried_at_growing_intervals() -> None:
    async def run() -> None:
        tries = Tries()
        tries.blocked.add("a")
        tries.held_up.add(ONE, tries.of("a"))
        assert await tries.at_once() == []
        assert await tries.after(0.4) == []
        assert await tries.after(0.2) == ["a"]
        for seconds in (1, 2, 4, 8, 8):
            assert await tries.after(seconds - 0.2) == []
            assert await tries.after(0.2) == ["a"]
        tries.blocked.clear()
        assert await tries.after(8) == ["a"]
        assert not tries.tasks

    asyncio.run(run())


def test_what_is_new_is_tried_at_once_and_its_success_brings_the_others_forward() -> None:
    async def run() -> None:
        tries = Tries()
        tries.blocked |= {"a", "b", "c"}
        for name in ("a", "b"):
            tries.held_up.add(ONE, tries.of(name), is_tried=False)
        assert await tries.at_once() == ["a", "b"]
        for seconds in (0.5, 1, 2):
            await tries.after(seconds)
        # A failure brings nothing forward, and puts nothing off.
        tries.held_up.add(ONE, tries.of("c"), is_tried=False)
        assert await tries.at_once() == ["c"]
        assert len(await tries.after(4)) == 1
        tries.blocked.clear()
        tries.held_up.add(ONE, tries.of("d"), is_tried=False)
        made = await tries.at_once()
        assert (made[0], sorted(made)) == ("d", ["a", "b", "c", "d"])
        assert not tries.tasks

    asyncio.run(run())


def test_a_partition_that_hangs_holds_up_no_other() -> None:
    async def run() -> None:
        tries = Tries()

        async def hang() -> bool:
            await asyncio.Event().wait()
            return True

        tries.held_up.add(ONE, hang, is_tried=False)
        tries.held_up.add(ONE, tries.of("a"))
        tries.held_up.add(OTHER, tries.of("b"))
        await tries.at_once()
        assert await tries.after(10) == ["b"]
        tries.tasks.cancel()

    asyncio.run(run())
