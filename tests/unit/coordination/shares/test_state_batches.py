"""Ranges of states that are merged, beside a model that has a state for each record."""

from __future__ import annotations

import itertools
import random

import pytest

from odradek.coordination.shares.state_batches import NO_START_OFFSET, StateBatch, are_in_order, combined, touched


def by_offset(batches: list[StateBatch], start: int) -> dict[int, tuple[int, int]]:
    """Returns what counts for each record: the range with the greatest priority."""
    found: dict[int, tuple[int, int]] = {}
    for one in batches:
        for offset in range(max(one.first_offset, start), one.last_offset + 1):
            found[offset] = max(one.priority, found.get(offset, one.priority))
    return found


def some(chance: random.Random, count: int) -> list[StateBatch]:
    firsts = [chance.randrange(30) for _ in range(count)]
    return [
        StateBatch(first, first + chance.randrange(10), chance.randrange(1, 4), chance.choice((0, 2, 4)))
        for first in firsts
    ]


def test_of_several_ranges_the_one_with_the_greatest_priority_counts() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        before, new = some(chance, chance.randrange(8)), some(chance, chance.randrange(8))
        start = chance.choice((NO_START_OFFSET, 0, 5, 20))
        found = combined(before, new, start)
        assert by_offset(list(found), start) == by_offset([*before, *new], start), seed
        for one, following in itertools.pairwise(found):
            assert one.first_offset <= one.last_offset < following.first_offset, seed


@pytest.mark.parametrize(
    ("before", "new", "wanted"),
    [
        ([(0, 9, 1, 0)], [(4, 6, 1, 2)], [(0, 3, 1, 0), (4, 6, 1, 2), (7, 9, 1, 0)]),
        ([(0, 4, 1, 2)], [(5, 9, 1, 2)], [(0, 9, 1, 2)]),
        ([(0, 4, 1, 2)], [(5, 9, 2, 2)], [(0, 4, 1, 2), (5, 9, 2, 2)]),
        ([(0, 4, 2, 0)], [(0, 9, 1, 2)], [(0, 4, 2, 0), (5, 9, 1, 2)]),
        ([(0, 9, 1, 0)], [(0, 9, 1, 4)], [(0, 9, 1, 4)]),
        # As in Kafka, a range that was passed is not joined with its neighbour any more.
        ([(0, 4, 1, 2), (5, 9, 1, 0)], [(5, 9, 1, 2)], [(0, 4, 1, 2), (5, 9, 1, 2)]),
        ([], [(9, 5, 1, 2), (0, 10, 1, 0)], [(0, 10, 1, 0)]),
    ],
)
def test_ranges_are_merged_as_in_kafka(
    before: list[tuple[int, ...]], new: list[tuple[int, ...]], wanted: list[tuple[int, ...]]
) -> None:
    found = combined([StateBatch(*one) for one in before], [StateBatch(*one) for one in new], 0)
    assert list(found) == wanted


def test_what_new_ranges_touch_is_merged_and_all_else_stays() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        before = combined((), some(chance, chance.randrange(8)), NO_START_OFFSET)
        new = some(chance, chance.randrange(8))
        merged, done = list[StateBatch](), 0
        for one in touched(before, new):
            assert done <= one.first <= one.end, seed
            merged += before[done : one.first]
            merged += combined(before[one.first : one.end], one.new, NO_START_OFFSET)
            done = one.end
        merged += before[done:]
        assert are_in_order(merged), seed
        assert by_offset(merged, -1) == by_offset([*before, *new], -1), seed


def test_ranges_that_overlap_or_are_reversed_are_not_in_order() -> None:
    first, second = StateBatch(0, 4, 1, 0), StateBatch(5, 5, 1, 2)
    assert are_in_order(())
    assert are_in_order([first, second])
    assert not are_in_order([second, first])
    assert not are_in_order([first, first])
    assert not are_in_order([StateBatch(3, 2, 1, 0)])
