"""The level and the amount of each minute of the last day, in a ring of bytes that never grows.

    slot N    minute int64 | level int64 | amount int64 | CRC-32 of these three      little-endian, 28 bytes

A minute takes the slot of its number modulo 1,440. A slot that a crash has torn, or whose minute belongs in another
slot, is ignored. The level (a lag, a size) is the highest of the minute; the amount (offsets) is the sum.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

MINUTES = 1440
"""How many minutes are kept."""

MINUTE_MS = 60_000

_FIELDS = struct.Struct("<qqq")
_SLOT = struct.Struct("<qqqI")
SLOT_BYTES = _SLOT.size
RING_BYTES = MINUTES * SLOT_BYTES
"""The size of a ring."""

_HIGHEST = (1 << 63) - 1


def this_minute() -> int:
    """Return the number of this minute, since 1970."""
    return time.time_ns() // (MINUTE_MS * 1_000_000)


class Minute(NamedTuple):
    """What happened in a minute.

    Attributes:
        number: Minutes since 1970.
        level: The highest level.
        amount: The sum of the amounts.
    """

    number: int
    level: int
    amount: int


class Minutes:
    """A ring of minutes in memory. One thread at a time may use it.

    Args:
        content: The bytes of a ring; empty for a new one.
    """

    def __init__(self, content: bytes = b"") -> None:
        self._slots = bytearray(RING_BYTES)
        for minute in _sound(content[:RING_BYTES]):
            self._put(minute)

    @property
    def is_empty(self) -> bool:
        """Whether no minute is kept."""
        return next(_sound(self._slots), None) is None

    def note(self, number: int, level: int, amount: int) -> tuple[int, bytes] | None:
        """Raise the level of a minute to a value, and add to its amount.

        Returns:
            The position of the bytes that changed, and these bytes; None if nothing changed.
        """
        before = bytes(self._slot(number))
        # Not only the last minute: a clock that is set back comes to earlier ones again.
        held = next(_sound(before, number % MINUTES), None)
        if held is not None and held.number == number:
            level, amount = max(level, held.level), held.amount + amount
        position = self._put(Minute(number, min(level, _HIGHEST), min(amount, _HIGHEST)))
        after = bytes(self._slot(number))
        return None if after == before else (position, after)

    def until(self, number: int) -> list[Minute]:
        """Return the minutes of the day that ends with a minute, in order."""
        # After the clock was set back, the ring has minutes that are still to come.
        return sorted(minute for minute in _sound(self._slots) if number - MINUTES < minute.number <= number)

    def _slot(self, number: int) -> bytearray:
        start = number % MINUTES * SLOT_BYTES
        return self._slots[start : start + SLOT_BYTES]

    def _put(self, minute: Minute) -> int:
        position = minute.number % MINUTES * SLOT_BYTES
        fields = _FIELDS.pack(*minute)
        self._slots[position : position + SLOT_BYTES] = fields + crc32(fields).to_bytes(4, "little")
        return position


def _sound(content: bytes | bytearray, first: int = 0) -> Iterator[Minute]:
    """Yield the minutes of whole slots; `first` is the number of the first slot."""
    whole = len(content) // SLOT_BYTES * SLOT_BYTES
    for place, (number, level, amount, checksum) in enumerate(_SLOT.iter_unpack(content[:whole]), first):
        # Most of a new ring is zeros.
        if number and number % MINUTES == place and checksum == crc32(_FIELDS.pack(number, level, amount)):
            yield Minute(number, level, amount)
