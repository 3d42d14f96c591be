"""What was asked and acknowledged, and so what the logs must hold.

Every record names itself: the thread that made it, its number there, which never falls, and what it was made for.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from crash.checks import require
from odradek.records import Record

START_MS = 1_700_000_000_000


class Token(NamedTuple):
    """Who a record is.

    Attributes:
        worker: The thread that appended it.
        number: Its number there.
        tag: The transaction, or the id of the topic, that it belongs to; empty for none.
    """

    worker: int
    number: int
    tag: str = ""


class Place(NamedTuple):
    """A log: a partition of a topic, which may have been made again under its name."""

    topic: str
    partition: int
    topic_id: str = ""


def record_of(token: Token, key: bytes | None, padding: int) -> Record:
    """Return the record of a token."""
    text = b"%d %d %s " % (token.worker, token.number, token.tag.encode())
    return Record(key, text + b"." * padding, timestamp=timestamp_of(token))


def token_of(value: bytes | None) -> Token:
    """Read a token from the value of a record."""
    words = (value or b"").split(b" ")
    require(len(words) == 4 and not words[3].strip(b"."), "this is no record of ours:", value)
    return Token(int(words[0]), int(words[1]), words[2].decode())


def timestamp_of(token: Token) -> int:
    """Return the timestamp of a record: those of a thread rise."""
    return START_MS + token.number * 10 + token.worker


class Ledger:
    """What was asked and acknowledged.

    Attributes:
        ends: Behind the last offset that was answered.
        unknown: The records whose append ended in an error: they may be there or not.
        keys: The keys of the records of compacted logs.
        transactions: What became of each transaction: `commit` and `abort` as soon as it is asked for.
        starts: The greatest log start offset that was answered.
    """

    def __init__(self) -> None:
        self._acknowledged: dict[Place, dict[int, Token]] = {}
        self.ends: dict[Place, int] = defaultdict(int)
        self.unknown: set[Token] = set()
        self.keys: dict[Token, bytes | None] = {}
        self.transactions: dict[str, str] = {}
        self.starts: dict[Place, int] = defaultdict(int)
        self._lock = threading.Lock()

    def known(self, place: Place) -> dict[int, Token]:
        """Return the records of a log that were acknowledged, by their offsets."""
        return self._acknowledged.setdefault(place, {})

    def acknowledge(self, place: Place, first_offset: int, tokens: Sequence[Token]) -> None:
        """Note what was appended, and where."""
        with self._lock:
            known = self.known(place)
            for offset, token in enumerate(tokens, first_offset):
                require(offset not in known, place, "offset", offset, "was given to", token, "and", known.get(offset))
                known[offset] = token
            self.ends[place] = max(self.ends[place], first_offset + len(tokens))

    def started(self, place: Place, offset: int) -> None:
        """Note a log start offset that was answered."""
        with self._lock:
            self.starts[place] = max(self.starts[place], offset)

    def check(self, place: Place, rows: Iterable[tuple[int, Token]], *, gapless: bool = True) -> None:
        """Compare some records that were read in one go with what was acknowledged."""
        found, known = list(rows), self.known(place)
        for (one, _), (other, _) in pairwise(found):
            require(one < other if not gapless else one + 1 == other, place, "offset", other, "follows", one)
        for offset, token in found:
            expected = known.get(offset, token)
            require(token == expected, place, "offset", offset, "holds", token, "not", expected)

    def check_all(self, place: Place, rows: list[tuple[int, Token]], start: int, end: int) -> None:
        """Compare all records of a log that is never compacted with what was acknowledged."""
        self.check(place, rows)
        require(end >= self.ends[place], place, "ends at", end, "below", self.ends[place])
        require([offset for offset, _ in rows] == list(range(start, end)), place, "has not all from", start, "to", end)
        self._check_tokens(place, rows)

    def _check_tokens(self, place: Place, rows: list[tuple[int, Token]]) -> None:
        known = self.known(place)
        seen: dict[int, int] = {}
        for offset, token in rows:
            require(offset in known or token in self.unknown, place, "offset", offset, "holds what nobody had:", token)
            # Each thread appends one after the other.
            require(token.number > seen.get(token.worker, -1), place, token, "comes twice, or too late")
            seen[token.worker] = token.number

    def check_compacted(self, place: Place, rows: list[tuple[int, Token]]) -> None:
        """Compare all records of a compacted log with what was acknowledged: the newest of each key is there."""
        self.check(place, rows, gapless=False)
        self._check_tokens(place, rows)
        newest = {self.keys[token]: offset for offset, token in sorted(self.known(place).items())}
        present = {self.keys[token]: offset for offset, token in rows}
        lost = [(key, offset) for key, offset in newest.items() if present.get(key, -1) < offset]
        require(not lost, place, f"has lost {len(lost)} of {len(newest)} keys, as", lost[:3])
