"""Estimates how many different keys there are from the registers of a sketch (see `records.kernels.tally`).

    register i = the greatest rank of the hashes that begin with the bits of i; a rank of r is met once in 2**r hashes

Two sketches become that of the union: of each register, the greater one. The estimator needs no table of corrections
and is good for few keys as for many.

Source: Ertl, "New cardinality estimation algorithms for HyperLogLog sketches", section 4.
"""

from __future__ import annotations

import math
from collections import Counter

REGISTER_BITS = 14
_RANKS = 64 - REGISTER_BITS


def united(first: bytes, second: bytes) -> bytes:
    """Return the sketch of the keys that are in either of two; an empty one has no registers."""
    if not first or not second:
        return first or second
    return bytes(map(max, first, second))


def estimate(registers: bytes) -> int:
    """Return about how many different keys a sketch has met."""
    if not registers:
        return 0
    count = len(registers)
    ranks = Counter(registers)
    total = count * _tau(1 - ranks[_RANKS + 1] / count)
    for rank in range(_RANKS, 0, -1):
        total = 0.5 * (total + ranks[rank])
    total += count * _sigma(ranks[0] / count)
    return 0 if math.isinf(total) else round(count * count / (2 * math.log(2)) / total)


def _sigma(x: float) -> float:
    if x == 1:
        return math.inf
    factor, total = 1.0, x
    while True:
        x *= x
        before, total = total, total + x * factor
        factor *= 2
        if total == before:
            return total


def _tau(x: float) -> float:
    if x in (0, 1):
        return 0
    factor, total = 1.0, 1 - x
    while True:
        x = math.sqrt(x)
        factor *= 0.5
        before, total = total, total - (1 - x) ** 2 * factor
        if total == before:
            return total / 3
