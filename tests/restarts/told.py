"""What the writers were told, from the file that they noted it in, and the records that they write.

append TOPIC PARTITION OFFSET NUMBER TRANSACTION       the record is `numbered(number)`; -1 for no transaction
end TRANSACTION commit|abort
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from odradek.records import Record
from odradek.storage.names import TopicPartition

KEYS = 20
FIRST_TIMESTAMP = 1_700_000_000_000


def numbered(number: int) -> Record:
    """Return the record of a number, without its offset."""
    value = b"%d " % number + b"." * (number * 7919 % 200)
    return Record(b"k%d" % (number % KEYS), value, [("n", b"%d" % number)], FIRST_TIMESTAMP + number)


class Told:
    """What was acknowledged.

    Attributes:
        numbers: The number of each record, by its offset.
        offsets: Those offsets, in the order in which they were told.
        transactions: The offsets of each transaction.
        ends: How each transaction ended.
    """

    def __init__(self, path: Path) -> None:
        self.numbers: dict[TopicPartition, dict[int, int]] = defaultdict(dict)
        self.offsets: dict[TopicPartition, list[int]] = defaultdict(list)
        self.transactions: dict[int, list[int]] = defaultdict(list)
        self.ends: dict[int, str] = {}
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
            if kind == "end":
                self.ends[int(words[0])] = words[1]
                continue
            place = TopicPartition(words[0], int(words[1]))
            offset, number, transaction = map(int, words[2:])
            assert offset not in self.numbers[place], f"offset {offset} of {place} was given twice"
            self.numbers[place][offset] = number
            self.offsets[place].append(offset)
            if transaction >= 0:
                self.transactions[transaction].append(offset)

    def end(self, place: TopicPartition) -> int:
        """Return the offset behind the greatest one that was told."""
        return max(self.offsets[place][-50:], default=-1) + 1


def has_grown(path: Path, size_bytes: int) -> Callable[[], bool]:
    """Return what is true once so much more was told."""
    size = path.stat().st_size + size_bytes
    return lambda: path.stat().st_size > size


def number_of(record: Record) -> int:
    """Return the number of a record."""
    return int((record.value or b"").split(b" ", 1)[0])


def is_numbered(record: Record, number: int) -> bool:
    """Whether a record is the one of a number, whatever its offset."""
    made = numbered(number)
    found = record.key, record.value, list(record.headers), record.timestamp
    return found == (made.key, made.value, list(made.headers), made.timestamp)
