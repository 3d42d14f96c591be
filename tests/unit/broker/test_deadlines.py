"""Deadlines of members."""

from __future__ import annotations

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
