"""What the writers were told, from the file that they noted it in.

append TOPIC PARTITION FIRST_OFFSET FIRST_NUMBER COUNT TRANSACTION       the records are `numbered(number)`
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from odradek.records import Record
from odradek.storage.names import TopicPartition
from peers.load_writer import numbered


class Told:
    """The records that were acknowledged.

    Attributes:
        numbers: The number of each record, by its offset.
        offsets: Those offsets, in the order in which they were told.
    """

    def __init__(self, path: Path) -> None:
        self.numbers: dict[TopicPartition, dict[int, int]] = defaultdict(dict)
        self.offsets: dict[TopicPartition, list[int]] = defaultdict(list)
        self._path = path
        self._position = 0

    def read_on(self) -> None:
        """Look at what was noted meanwhile."""
        with self._path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        for line in whole.decode().splitlines():
            kind, *words = line.split()
            if kind == "append":
                place = TopicPartition(words[0], int(words[1]))
                offset, number, count = map(int, words[2:5])
                known = self.numbers[place]
                for index in range(count):
                    assert offset + index not in known, f"offset {offset + index} of {place} was given twice"
                    known[offset + index] = number + index
                    self.offsets[place].append(offset + index)

    def end(self, place: TopicPartition) -> int:
        """Return the offset behind the greatest one that was told."""
        return max(self.offsets[place][-50:], default=-1) + 1


def number_of(record: Record) -> int:
    """Return the number of a record."""
    return int((record.value or b"").split(b" ", 1)[0])


def is_numbered(record: Record, number: int) -> bool:
    """Whether a record is the one of a number, whatever its offset."""
    made = numbered(number)
    found = record.key, record.value, list(record.headers), record.timestamp
    return found == (made.key, made.value, list(made.headers), made.timestamp)
