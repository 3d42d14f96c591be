"""Deadlines of members."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from odradek.broker.clock import Clock
from odradek.broker.groups.deadlines import Deadlines


def test_a_deadline_is_put_off_dropped_and_over() -> None:
    clock, due = Clock(), list[str]()
    deadlines = Deadlines(clock, lambda group_id, member_id: due.append(member_id))
    for member in ("off", "dropped", "over"):
        deadlines.put("g", member, 1000)
    clock.advance(0.9)
    deadlines.put("g", "off", 1000)
    deadlines.drop("g", "dropped")
    clock.advance(0.9)
    assert (due, deadlines.is_set("g", "off"), deadlines.is_set("g", "over")) == (["over"], True, False)
    clock.advance(0.2)
    assert due == ["over", "off"]


def test_there_are_no_deadlines_after_the_end() -> None:
    """What is under way when a partition is closed sets none: that would try to write to it for ever."""
    clock, due = Clock(), list[str]()
    deadlines = Deadlines(clock, lambda group_id, member_id: due.append(member_id))
    deadlines.put("g", "before", 1000)
    deadlines.stop()
    deadlines.put("g", "after", 1000)
    clock.advance(2)
    assert due == []


def test_thousands_that_are_due_at_once_share_the_loop_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, fired, between = Clock(), list[int](), list[int]()
    ticks = itertools.count()
    # Each look at the time is a millisecond later.
    monkeypatch.setattr("odradek.broker.clock.perf_counter", lambda: next(ticks) / 1000)

    async def run() -> None:
        clock.bind(asyncio.get_running_loop())
        now = [0.0]
        monkeypatch.setattr(clock, "elapsed_ms", lambda: now[0])
        for number in range(100):
            clock.after(0, lambda number=number: fired.append(number))  # type: ignore[misc]
        clock.after(20_000, lambda: fired.append(100))
        while not fired:
            await asyncio.sleep(0)
        # The process was stopped: what is late now waits until the sockets are read.
        now[0] = 21_000.0
        while len(fired) < 101:
            await asyncio.sleep(0)
            between.append(len(fired))

    asyncio.run(run())
    assert sorted(fired[:100]) == list(range(100))
    assert between.count(100) >= 2
    assert max(after - before for before, after in itertools.pairwise(between)) <= 6
