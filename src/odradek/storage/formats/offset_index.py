"""`.index`: from an offset to a position in the segment.

    | relative offset: int32 | position: int32 |      8 bytes an entry, big-endian, offsets increasing

The offset is the last one of a batch, relative to the segment's base offset; the position is where that batch starts
(before Kafka 4, where the append that ended with it started). An entry is added about every `index.interval.bytes`,
so a look-up finds the nearest entry at or below an offset, and the segment is scanned from there.

Source in Kafka: `OffsetIndex`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from odradek.errors import CorruptIndexError, LogError
from odradek.records.kernels.lookup import surrounding_positions
from odradek.storage.formats.index_file import MAX_RELATIVE_OFFSET, FileBytes, IndexFile, WritableIndexFile

ENTRY = struct.Struct(">ii")
"""An entry: the offset, relative to the base offset, and the position."""


class OffsetPosition(NamedTuple):
    """An offset, and the position in the `.log` of the batch that holds it."""

    offset: int
    position: int


class OffsetIndex(IndexFile):
    """An offset index, open for reading."""

    ENTRY_SIZE = ENTRY.size

    def entry(self, number: int) -> OffsetPosition:
        """Return one entry."""
        relative_offset, position = ENTRY.unpack(self._entry_bytes(number))
        return OffsetPosition(self.base_offset + relative_offset, position)

    def entries(self) -> Iterator[OffsetPosition]:
        """Yield every entry, in order."""
        return map(self.entry, range(self.count))

    def last_entry(self) -> OffsetPosition:
        """Return the last entry, or the segment's start."""
        return self.entry(self.count - 1) if self.count else OffsetPosition(self.base_offset, 0)

    def floor_position(self, position: int) -> int:
        """Return the number of the last entry whose position is at most `position`, or -1 if there is none."""
        return -1 if position < 0 else self._floor(min(position, MAX_RELATIVE_OFFSET).to_bytes(4, "big"), column=4)

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the greatest entry at or below an offset, or the segment's start."""
        number = self.floor_entry_of_offset(offset)
        return OffsetPosition(self.base_offset, 0) if number < 0 else self.entry(number)

    def surroundings(self, offset: int) -> tuple[int, int, int]:
        """Return where the batch of an offset lies: three positions, -1 for the segment's end.

        These are the positions of the greatest entry at or below the offset, and of the two after it: the batch of the
        first of them may be the batch that is looked for, and ends at the second one or before.
        """
        relative_offset, data, count = offset - self.base_offset, self._data, self.count
        if isinstance(data, FileBytes):
            key = min(max(relative_offset, 0), MAX_RELATIVE_OFFSET).to_bytes(4, "big")
            _, data, count = self._narrowed(key, more=2)
        return surrounding_positions(data, count, relative_offset)

    def check(self) -> None:
        """Compare every entry with the one before it.

        Raises:
            CorruptIndexError: The size is not a whole number of entries, or offsets or positions do not increase.
        """
        self.check_size()
        last = OffsetPosition(self.base_offset - 1, -1)
        for number, entry in enumerate(self.entries()):
            if entry.offset <= last.offset or entry.position < last.position or entry.position < 0:
                raise CorruptIndexError(
                    f"entry {number} ({entry.offset} at {entry.position}) follows ({last.offset} at {last.position})",
                    path=self.path,
                    position=number * self.ENTRY_SIZE,
                )
            last = entry


class WritableOffsetIndex(WritableIndexFile[OffsetIndex]):
    """An offset index that grows with its segment.

    Attributes:
        last_offset: The offset of the last entry, or the base offset.
    """

    _kind = OffsetIndex

    def _take_last(self) -> None:
        self.last_offset = self._current.last_entry().offset

    def append(self, offset: int, position: int) -> None:
        """Add an entry.

        Raises:
            LogError: The index is full, or the offset is not above the last one, or is too far from the base offset.
        """
        if self.is_full:
            raise self._full()
        if self.count and offset <= self.last_offset:
            raise LogError(f"{self.path}: offset {offset} is not above the last one, {self.last_offset}")
        self._write(ENTRY.pack(self._relative(offset), position))
        self.last_offset = offset
