"""What a backfill has claimed of its job's past, and how far it has come: a group of its own, beside the job's.

    offsets.json             events-0: 5000                                            the job's position, not touched
    offsets.json.backfill    events-0: 1200, note {"id": "5f0c...", "asked": "--from 1000 --until 3000",
                             "sinks": "a1b2...", "range": [1000, 3000], "done": [[0, 500]]}

A job writes what is at its position and after it, and a backfill only what is before it: so neither writes the other's.
A claim is stored before anything is written. A backfill that was killed continues from its position, with the same
offsets, if it is asked for the same. Until it has ended, no other one starts: it could write what this one has written.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from odradek.errors import CommitConflictError, JobError, OffsetStoreError
from odradek.offsets.store import OffsetStore, Position, Positions
from odradek.storage.names import TopicPartition

Span = tuple[int, int]
"""Offsets, the end exclusive."""
_ATTEMPTS = 20


@dataclass(frozen=True)
class Start:
    """Where a backfill of a partition begins and ends."""

    position: Position
    end_offset: int


@dataclass(frozen=True)
class Claim:
    """The ranges of one backfill.

    Attributes:
        id: Its name, which no other backfill has.
        asked: What the user asked for.
        sinks: A digest of the job's sinks.
        ranges: The offsets that it writes.
        done: The offsets that earlier backfills of the job have written.
    """

    id: str
    asked: str
    sinks: str
    ranges: Mapping[TopicPartition, Span]
    done: Mapping[TopicPartition, Sequence[Span]]

    def at(self, name: TopicPartition, place: Position) -> Position:
        """Return a position with the claim as its note."""
        note = {
            "id": self.id,
            "asked": self.asked,
            "sinks": self.sinks,
            "range": self.ranges[name],
            "done": self.done.get(name, ()),
        }
        return replace(place, note=json.dumps(note, ensure_ascii=False, separators=(",", ":")))


def joined(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order, those that touch or overlap as one."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif start < end:
            found.append((start, end))
    return found


def is_within(span: Span, spans: Iterable[Span]) -> bool:
    """Return whether one of the spans, which are joined, has all of another one."""
    return any(start <= span[0] and span[1] <= end for start, end in spans)


def first_border(span: Span, spans: Iterable[Span]) -> int:
    """Return the first offset within a span at which others start or end; its own end if there is none."""
    return min((border for each in spans for border in each if span[0] < border < span[1]), default=span[1])


def read_claim(address: str, positions: Mapping[TopicPartition, Position]) -> Claim | None:
    """Return the backfill that has not ended, or None.

    Raises:
        OffsetStoreError: The positions are not those of a backfill.
    """
    last = {name: _parse(address, name, place) for name, place in positions.items()}
    open_ones = [name for name, place in positions.items() if place.offset < last[name].ranges[name][1]]
    if not open_ones:
        return None
    one = last[open_ones[0]]
    own = {name: found for name, found in last.items() if found.id == one.id}
    return replace(
        one,
        ranges={name: found.ranges[name] for name, found in own.items()},
        done={name: found.done[name] for name, found in own.items()},
    )


def claim(
    store: OffsetStore, asked: str, sinks: str, resolve: Callable[[], Mapping[TopicPartition, Start]]
) -> Claim | None:
    """Claim what a backfill is to write, or continue the one that was asked for the same and has not ended.

    Args:
        store: Where claims are kept.
        asked: What the user asks for.
        sinks: A digest of the job's sinks. If others were there before, it begins again: each sink is given what it
            does not hold.
        resolve: Returns where it begins and ends in each partition; called for a new one.

    Returns:
        The claim, which is stored; None if there is nothing to write.

    Raises:
        JobError: Another backfill has not ended.
        OffsetStoreError: The store cannot be reached.
    """
    for _ in range(_ATTEMPTS):
        held = store.load()
        found = read_claim(store.address, held)
        if found is not None and found.asked != asked:
            raise JobError(
                f"another backfill of this job has not ended: run it again, by `{found.asked}`, until it has; its "
                f"positions are in {store.address}"
            )
        if found is not None and found.sinks == sinks:
            return found
        if found is not None:
            found = replace(found, sinks=sinks)
            places = {name: Position(start, topic_id=held[name].topic_id) for name, (start, _) in found.ranges.items()}
        else:
            starts = resolve()
            if not starts:
                return None
            places = {name: start.position for name, start in starts.items()}
            found = Claim(
                secrets.token_hex(8),
                asked,
                sinks,
                {name: (start.position.offset, start.end_offset) for name, start in starts.items()},
                {name: _done(store.address, name, held) for name in starts},
            )
        try:
            store.commit({name: found.at(name, place) for name, place in places.items()}, expected=held)
        except CommitConflictError:
            # Another one has claimed, or has come further: look again.
            continue
        return found
    raise OffsetStoreError(f"{store.address}: {_ATTEMPTS} others committed while a backfill was claimed")


def _done(address: str, name: TopicPartition, held: Positions) -> list[Span]:
    """Return what earlier backfills, all ended, have written of a partition."""
    if name not in held:
        return []
    last = _parse(address, name, held[name])
    return joined([*last.done[name], last.ranges[name]])


def _parse(address: str, name: TopicPartition, place: Position) -> Claim:
    try:
        note = json.loads(place.note or "")
        start, end = map(int, note["range"])
        done = [(int(first), int(last)) for first, last in note["done"]]
        return Claim(str(note["id"]), str(note["asked"]), str(note["sinks"]), {name: (start, end)}, {name: done})
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise OffsetStoreError(
            f"{address}: another program has set the position of {name}, and a backfill keeps its claims here: remove "
            "it by `odradek offsets delete` if no backfill is to be continued"
        ) from error
