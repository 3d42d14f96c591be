"""What was acknowledged, by whoever wrote it, and so what every reader is to be given.

acknowledged("t", 0, records, transaction)    ended(transaction, is_committed)    started("t", 0, offset)
-> expected(partition, isolation)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from odradek.records import Record
from odradek.records.isolation import Isolation
from odradek.storage.names import TopicPartition

READ_UNCOMMITTED: Isolation = "read_uncommitted"
READ_COMMITTED: Isolation = "read_committed"
ISOLATIONS = (READ_UNCOMMITTED, READ_COMMITTED)


class RecordsError(AssertionError):
    """Records are lost, doubled, torn or in another's place. Such a test has no second chance."""


def require(holds: bool, what: str) -> None:
    """Check something about records.

    Raises:
        RecordsError: It does not hold.
    """
    if not holds:
        raise RecordsError(what)


def require_same(found: Sequence[object], expected: Sequence[object], what: str) -> None:
    """Check that these are the records that should be there, each once and in their order.

    Raises:
        RecordsError: They are not; the text says where they begin to differ.
    """
    if found != expected:
        pairs = enumerate(zip(found, expected, strict=False))
        first = next((f"number {n} is {a!s:.200}, not {b!s:.200}" for n, (a, b) in pairs if a != b), "")
        raise RecordsError(f"{what}: {first or f'{len(found)} instead of {len(expected)}'}")


class Ledger:
    """The records of some partitions, by what their writers were told.

    Attributes:
        compacted: The topics of which only the newest record of each key has to be there.
    """

    def __init__(self, compacted: Iterable[str] = ()) -> None:
        self.compacted = set(compacted)
        self._records: dict[TopicPartition, dict[int, Record]] = defaultdict(dict)
        self._transaction: dict[tuple[TopicPartition, int], str] = {}
        self._is_committed: dict[str, bool] = {}
        self._starts: dict[TopicPartition, int] = {}

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that anything is known of."""
        return sorted(self._records)

    def acknowledged(
        self, topic: str, partition: int, records: Iterable[Record], transaction: str | None = None
    ) -> None:
        """Note records, with the offsets that they were given."""
        place = TopicPartition(topic, partition)
        for record in records:
            assert record.offset is not None
            require(record.offset not in self._records[place], f"offset {record.offset} of {place} was given twice")
            self._records[place][record.offset] = record
            if transaction is not None:
                self._transaction[place, record.offset] = transaction

    def ended(self, transaction: str, is_committed: bool) -> None:
        """Note how a transaction ended."""
        self._is_committed[transaction] = is_committed

    def started(self, topic: str, partition: int, offset: int) -> None:
        """Note that the head of a log was deleted."""
        self._starts[TopicPartition(topic, partition)] = offset

    def forget(self, topic: str) -> None:
        """Note that a topic was deleted."""
        for place in [place for place in self._records if place.topic == topic]:
            del self._records[place]

    def start(self, place: TopicPartition) -> int:
        """Return where a log starts."""
        return self._starts.get(place, 0)

    def open_transactions(self, place: TopicPartition) -> dict[str, int]:
        """Return the undecided transactions of a partition, and where each begins."""
        first: dict[str, int] = {}
        for (where, offset), transaction in sorted(self._transaction.items()):
            if where == place and transaction not in self._is_committed:
                first.setdefault(transaction, offset)
        return first

    def expected(self, place: TopicPartition, isolation: str) -> list[Record]:
        """Return what a reader is given of a partition, were nothing compacted."""
        offsets = sorted(offset for offset in self._records[place] if offset >= self.start(place))
        if isolation == READ_COMMITTED:
            stable = min(self.open_transactions(place).values(), default=1 << 62)
            offsets = [offset for offset in offsets if offset < stable and self._counts(place, offset)]
        return [self._records[place][offset] for offset in offsets]

    def _counts(self, place: TopicPartition, offset: int) -> bool:
        transaction = self._transaction.get((place, offset))
        return transaction is None or self._is_committed.get(transaction, False)

    def check(self, place: TopicPartition, isolation: str, found: Sequence[Record]) -> None:
        """Compare what a reader was given with what it should have been."""
        expected = self.expected(place, isolation)
        if place.topic not in self.compacted:
            require_same(list(found), expected, f"{place} {isolation}")
            return
        known = {record.offset: record for record in expected}
        require_same(list(found), [known.get(record.offset) for record in found], f"{place} {isolation}")
        newest = {record.key: record for record in expected}
        left = {record.key: record for record in found}
        for key, record in newest.items():
            # A tombstone goes in the end, with what it stands for.
            is_right = left.get(key) == record or (record.value is None and key not in left)
            require(is_right, f"{place}: the newest record of {key!r} is {left.get(key)}, not {record}")

    def adopt_tail(self, place: TopicPartition, found: Sequence[Record], prefix: bytes) -> int:
        """Note records that a writer was killed before it was told of; return how many there were.

        They can only be at the end, and be what it was about to write.
        """
        end = max(self._records[place], default=-1)
        tail = [record for record in found if record.offset is not None and record.offset > end]
        ours = all((record.value or b"").startswith(prefix) for record in tail)
        require(ours, f"{place} holds what nobody wrote")
        self.acknowledged(*place, tail)
        return len(tail)
