"""`.timeindex`: from a timestamp to an offset.

    | timestamp: int64 | relative offset: int32 |      12 bytes an entry, big-endian, neither column decreasing

An entry says: this is the greatest timestamp of any batch so far, and the first batch that has it ends with that
offset. So no batch before the one of the greatest entry at or below a timestamp can have a record at or above that
timestamp. A segment without timestamps (v0) has no entries.

Source in Kafka: `TimeIndex`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from odradek.errors import CorruptIndexError, LogError
from odradek.storage.formats.index_file import IndexFile, WritableIndexFile

ENTRY = struct.Struct(">qi")
"""An entry: the timestamp, and the offset, relative to the base offset."""
NO_TIMESTAMP = -1
MAX_TIMESTAMP = 0x7FFFFFFFFFFFFFFF


class TimestampOffset(NamedTuple):
    """A timestamp, and the offset of the record that has it."""

    timestamp: int
    offset: int


class TimeIndex(IndexFile):
    """A time index, open for reading."""

    ENTRY_SIZE = ENTRY.size
    OFFSET_COLUMN = 8

    def _used_entries(self, descriptor: int, capacity: int) -> int:
        # A segment whose only record has offset 0 and timestamp 0 has a single entry of zeros, which is not padding.
        return super()._used_entries(descriptor, capacity) if capacity != 1 else 1

    def entry(self, number: int) -> TimestampOffset:
        """Return one entry."""
        timestamp, relative_offset = ENTRY.unpack(self._entry_bytes(number))
        return TimestampOffset(timestamp, self.base_offset + relative_offset)

    def entries(self) -> Iterator[TimestampOffset]:
        """Yield every entry, in order."""
        return map(self.entry, range(self.count))

    def last_entry(self) -> TimestampOffset:
        """Return the last entry, or no timestamp at the segment's base offset."""
        return self.entry(self.count - 1) if self.count else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def floor_entry_of_timestamp(self, timestamp: int) -> int:
        """Return the number of the last entry whose timestamp is at most `timestamp`, or -1 if there is none."""
        return -1 if timestamp < 0 else self._floor(min(timestamp, MAX_TIMESTAMP).to_bytes(8, "big"))

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Return the greatest entry at or below a timestamp, or no timestamp at the segment's base offset."""
        number = self.floor_entry_of_timestamp(timestamp)
        return TimestampOffset(NO_TIMESTAMP, self.base_offset) if number < 0 else self.entry(number)

    def check(self) -> None:
        """Compare every entry with the one before it.

        Raises:
            CorruptIndexError: The size is not a whole number of entries, or timestamps or offsets decrease.
        """
        self.check_size()
        last = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        for number, entry in enumerate(self.entries()):
            if entry.timestamp < last.timestamp or entry.offset < last.offset:
                raise CorruptIndexError(
                    f"entry {number} ({entry.timestamp}, {entry.offset}) follows ({last.timestamp}, {last.offset})",
                    path=self.path,
                    position=number * self.ENTRY_SIZE,
                )
            last = entry


class WritableTimeIndex(WritableIndexFile[TimeIndex]):
    """A time index that grows with its segment.

    Attributes:
        last_entry: The last entry, or no timestamp at the base offset.
    """

    _kind = TimeIndex
    _kept_entries = 1

    def _take_last(self) -> None:
        self.last_entry = self._current.last_entry()

    def maybe_append(self, timestamp: int, offset: int, *, at_roll: bool = False) -> None:
        """Add an entry if the timestamp is above the last one.

        Args:
            timestamp: The greatest timestamp of the segment so far.
            offset: The last offset of the first batch that has it.
            at_roll: Whether the entry may take the reserved place.

        Raises:
            LogError: The index is full, or the timestamp or the offset is below the last one.
        """
        # Recovery may have used the reserved place: then there is nothing left to add at the roll.
        if self.is_full if not at_roll else timestamp > self.last_entry.timestamp and self._is_out_of_room:
            raise self._full()
        last = self.last_entry
        if self.count and (offset < last.offset or timestamp < last.timestamp):
            raise LogError(f"{self.path}: ({timestamp}, {offset}) is below the last entry {tuple(last)}")
        if timestamp > last.timestamp:
            self._write(ENTRY.pack(timestamp, self._relative(offset)))
            self.last_entry = TimestampOffset(timestamp, offset)
