"""Logs with several things wrong at once, of those that people really have: random, and the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import odradek
from odradek.errors import MissingRecordsError
from odradek.records import Record
from odradek.records.builder import build_batch, build_empty_batch
from odradek.storage.formats.checkpoints import LOG_START_OFFSET_CHECKPOINT
from peers.files import crashed

_V2_HEADER_BYTES = 61


@dataclass(frozen=True)
class Batch:
    """A batch as it lies in a segment.

    Attributes:
        start: Its first offset.
        count: How many offsets it has.
        data: Its bytes.
        offsets: Those of the records that it gives.
    """

    start: int
    count: int
    data: bytes
    offsets: frozenset[int]


@dataclass
class Mixture:
    """A topic's only partition.

    Attributes:
        topic: Its name.
        segments: Their batches, by base offset.
        tails: What lies behind the last batch of a segment.
        log_start_offset: What the checkpoint says, or None.
        is_foreign: Whether the folder has another topic's id.
        is_indexed: Whether each segment has its indexes, empty; otherwise they were lost.
        done: What was done to it.
    """

    topic: str
    segments: dict[int, list[Batch]]
    tails: dict[int, bytes] = field(default_factory=dict)
    log_start_offset: int | None = None
    is_foreign: bool = False
    is_indexed: bool = False
    done: list[str] = field(default_factory=list)

    @property
    def batches(self) -> list[Batch]:
        """All of them, in the order in which they lie."""
        return [one for base_offset in sorted(self.segments) for one in self.segments[base_offset]]

    @property
    def sound(self) -> set[int]:
        """The offsets of the records that have a valid checksum."""
        return {offset for one in self.batches for offset in one.offsets}

    @property
    def end(self) -> int:
        """The offset after every batch."""
        return max((one.start + one.count for one in self.batches), default=0)

    def data(self) -> dict[int, bytes]:
        """The bytes of each segment."""
        return {
            base_offset: b"".join(one.data for one in batches) + self.tails.get(base_offset, b"")
            for base_offset, batches in self.segments.items()
        }


def value_of(offset: int) -> bytes:
    """The value that the record of an offset has, in each of its copies."""
    return b"v%d" % offset


def _batch(start: int, count: int) -> Batch:
    records = [Record(b"k", value_of(start + at), (), 1_700_000_000_000 + start + at) for at in range(count)]
    return Batch(start, count, build_batch(records, base_offset=start), frozenset(range(start, start + count)))


def _segment(rng: random.Random, mixture: Mixture) -> int:
    return rng.choice(sorted(mixture.segments))


def _overlap(rng: random.Random, mixture: Mixture) -> None:
    """A segment begins with the last batches of the one before it."""
    bases = sorted(mixture.segments)
    if len(bases) < 2:
        return
    at = rng.randrange(1, len(bases))
    repeated = mixture.segments[bases[at - 1]][-rng.randint(1, 3) :]
    overlaps = any(one.start < repeated[-1].start for one in mixture.segments[bases[at]])
    if min(one.start for one in repeated) < repeated[0].start or overlaps:
        return
    batches = repeated + mixture.segments.pop(bases[at])
    if repeated[0].start not in mixture.segments:
        mixture.segments[repeated[0].start] = batches
    else:
        mixture.segments[bases[at]] = batches[len(repeated) :]


def _twice(rng: random.Random, mixture: Mixture) -> None:
    """Batches lie in a segment once more."""
    batches = mixture.segments[_segment(rng, mixture)]
    if batches:
        first = rng.randrange(len(batches))
        last = rng.randint(first + 1, len(batches))
        batches[last:last] = batches[first:last]


def _torn(rng: random.Random, mixture: Mixture) -> None:
    """A segment ends within a batch."""
    last = _batch(mixture.end, rng.randint(1, 4)).data
    mixture.tails[_segment(rng, mixture)] = last[: rng.randrange(1, len(last))]


def _zeros(rng: random.Random, mixture: Mixture) -> None:
    mixture.tails[_segment(rng, mixture)] = bytes(rng.randint(1, 200))


def _flipped(rng: random.Random, mixture: Mixture) -> None:
    """A bit of a batch's records, which its checksum covers."""
    base_offset = _segment(rng, mixture)
    batches = mixture.segments[base_offset]
    if batches:
        at = rng.randrange(len(batches))
        data = bytearray(batches[at].data)
        if len(data) > _V2_HEADER_BYTES:
            data[rng.randrange(_V2_HEADER_BYTES, len(data))] ^= 1 << rng.randrange(8)
            batches[at] = Batch(batches[at].start, batches[at].count, bytes(data), frozenset())


def _emptied(rng: random.Random, mixture: Mixture) -> None:
    """Compaction has left the header of a batch, or of a marker; a copy in another segment is still there."""
    batches = mixture.segments[_segment(rng, mixture)]
    if batches:
        emptied = rng.choice(batches)
        start, count = emptied.start, emptied.count
        is_marker = rng.random() < 0.5
        data = build_empty_batch(
            start,
            start + count - 1,
            max_timestamp=5,
            producer_id=rng.randrange(3),
            producer_epoch=0,
            is_transactional=is_marker,
            is_control=is_marker,
        )
        batches[:] = [Batch(start, count, data, frozenset()) if one.start == start else one for one in batches]


def _compacted(rng: random.Random, mixture: Mixture) -> None:
    """A batch is gone; not the first of a segment."""
    batches = mixture.segments[_segment(rng, mixture)]
    if len(batches) > 1:
        del batches[rng.randrange(1, len(batches))]


def _deleted(rng: random.Random, mixture: Mixture) -> None:
    """The log starts later."""
    mixture.log_start_offset = rng.randint(1, mixture.end)


def _beyond(rng: random.Random, mixture: Mixture) -> None:
    """The log start is said to be behind the end."""
    mixture.log_start_offset = mixture.end + rng.randint(1, 50)


def _foreign(_: random.Random, mixture: Mixture) -> None:
    mixture.is_foreign = True


KINDS: list[Callable[[random.Random, Mixture], None]] = [
    *(_overlap, _twice, _torn, _zeros, _flipped, _emptied, _compacted, _deleted),
    *(_overlap, _twice, _torn, _flipped, _emptied, _compacted),
    *(_beyond, _foreign),
]
"""What can be done to a log; what is there twice is done twice as often."""


def mixture_of(topic: str, rng: random.Random) -> Mixture:
    """Return a log of one to three segments, to which nothing to four things were done."""
    segments: dict[int, list[Batch]] = {}
    end = 0
    for _ in range(rng.randint(1, 3)):
        base_offset, batches = end, []
        for _ in range(rng.randint(1, 4)):
            batches.append(_batch(end, rng.randint(1, 5)))
            end += batches[-1].count
        segments[base_offset] = batches
    mixture = Mixture(topic, segments)
    for change in rng.choices(KINDS, k=rng.randint(0, 4)):
        change(rng, mixture)
        mixture.done.append(change.__name__.strip("_"))
    for batches in mixture.segments.values():
        # Apache Kafka's consumer goes round in circles where the last batch of a segment does not end it.
        while batches and batches[-1].start < max(one.start for one in batches):
            batches.pop()
    mixture.is_indexed = rng.random() < 0.5
    return mixture


def rows(log: odradek.Log) -> Iterator[tuple[int | None, bytes | None]]:
    """Read a log over its gaps: offsets and values."""
    start_offset = log.log_start_offset
    while True:
        try:
            for record in log.read(start_offset):
                yield record.offset, record.value
            return
        except MissingRecordsError as error:
            start_offset = error.end_offset


def write(folder: Path, mixtures: Iterable[Mixture]) -> None:
    """Make the log directory, as after a crash."""
    made = list(mixtures)
    crashed(folder, {one.topic: one.data() for one in made})
    starts = [f"{one.topic} 0 {one.log_start_offset}" for one in made if one.log_start_offset is not None]
    (folder / LOG_START_OFFSET_CHECKPOINT).write_text("\n".join(["0", str(len(starts)), *starts, ""]), encoding="ascii")
    for one in made:
        if one.is_indexed:
            for path in (folder / f"{one.topic}-0").glob("*.log"):
                path.with_suffix(".index").touch()
                path.with_suffix(".timeindex").touch()
        if one.is_foreign:
            text = "version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAACA\n"
            (folder / f"{one.topic}-0" / "partition.metadata").write_text(text, encoding="ascii")
