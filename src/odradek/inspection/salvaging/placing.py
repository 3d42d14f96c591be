"""Finds out where the batches of a segment belong that are not in the order of their offsets.

    file       | 0..1 | 9..10 | 2..4 | 21..24 | 11..12 |
    in order   | 0..1 |       | 2..4 |        | 11..12 |    the most batches that are
    late              | 9..10 |                             stays where it says: no other batch has these offsets
    misplaced                        | 21..24 |             5..8 are missing, and one flipped bit makes 5 of 21

No checksum covers a base offset. A batch that is out of order may be at its place and late, as where somebody put files
together, or have a wrong base offset. One batch alone is taken to have a wrong one if that explains it; several, and
batches that go on with each other, are taken to be late. A sound batch is given up only if it fits nowhere.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from odradek.inspection.finding import Finding, FindingKind
from odradek.inspection.index_evidence import IndexEvidence
from odradek.inspection.offset_order import SegmentPlace, flipped_offsets, misfit
from odradek.records import BatchHeader
from odradek.storage.formats.index_file import MAX_RELATIVE_OFFSET


@dataclass(slots=True)
class SoundBatch:
    """A batch whose checksum holds, of one of several segments.

    Attributes:
        number: The number of the segment.
        header: Its header, with the right base offset.
        start: Its first offset, also of a wrapper (v0, v1).
        misplaced: The finding, if its base offset was wrong.
    """

    number: int
    header: BatchHeader
    start: int
    misplaced: Finding | None = None

    @property
    def end(self) -> int:
        """The offset after its last one."""
        return self.header.next_offset


@dataclass(frozen=True, slots=True)
class DisorderedSegment:
    """A segment whose batches are not in the order of their offsets.

    Attributes:
        place: Where it lies, and whether offsets may be missing: damage has some.
        evidence: What its indexes say.
        batches: Its batches, as they say, in the order of the file.
    """

    place: SegmentPlace
    evidence: IndexEvidence
    batches: Sequence[SoundBatch]

    @property
    def limit(self) -> int:
        """The offset that no batch of it may go beyond."""
        most = self.place.base_offset + MAX_RELATIVE_OFFSET + 1
        return most if self.place.next_base_offset is None else min(most, self.place.next_base_offset)


class Placing:
    """Where batches belong, by what all batches say.

    Args:
        batches: The batches of the segments that hold offsets of each other, as they say.
        lowest: The base offset of the first of these.
    """

    def __init__(self, batches: Sequence[SoundBatch], lowest: int) -> None:
        self._lowest = lowest
        self._copies = Counter(batch.header.identity for batch in batches)
        # What compaction has emptied takes no offset from others.
        self._starts = sorted(batch.start for batch in batches if batch.header.records_count)
        self._ends = sorted(batch.end for batch in batches if batch.header.records_count)

    def place(self, segment: DisorderedSegment) -> Iterator[tuple[SoundBatch, str]]:
        """Correct the base offsets of a segment's batches; yield those that fit nowhere, with the reason."""
        batches = segment.batches
        in_order = _in_order(segment)
        _settle(segment, in_order)
        # A batch that was moved is no neighbour of others, so the bounds are those of the file as it is.
        ends, starts = _bounds(segment, in_order)
        apart = [number for number in range(len(batches)) if number not in in_order]
        copies = {number for number in apart if self._copies[batches[number].header.identity] > 1}
        lone = {number for number in apart if number not in copies and not _goes_on(batches, in_order, number)}
        # One that contradicts several others is wrong, and not they.
        last_two = sorted(in_order)[-2:]
        is_only = len(lone) == 1
        for number in apart:
            batch, lower, upper = batches[number], ends[number], starts[number]
            if number in lone:
                is_doubtful = is_only and len(last_two) == 2 and number < last_two[0]
                right = self._right_offset(segment, batch, lower, upper, is_only=is_only, is_doubtful=is_doubtful)
            else:
                # One flipped bit may also make a batch the equal of another one.
                is_missing = number in copies and segment.place.is_dense and lower + batch.end - batch.start == upper
                right = lower if is_missing and _flips(batch, lower, batch.end - batch.start + lower) else batch.start
            if right == batch.start:
                continue
            reason = misfit(batch.header, batch.start, lower, upper, right)
            if right is None:
                yield batch, reason
            else:
                batch.misplaced = Finding(segment.place.path, batch.header.position, FindingKind.ORDER, reason)
                moved = batch.header.base_offset + right - batch.start
                batch.header, batch.start = batch.header._replace(base_offset=moved), right

    def _right_offset(
        self,
        segment: DisorderedSegment,
        batch: SoundBatch,
        lower: int,
        upper: int | None,
        *,
        is_only: bool,
        is_doubtful: bool,
    ) -> int | None:
        """Return the first offset that a batch should have; None if it fits nowhere."""
        length, start = batch.end - batch.start, batch.start
        is_possible = self._lowest <= start and batch.end - 1 - segment.place.base_offset <= MAX_RELATIVE_OFFSET
        is_free = is_possible and self._is_free(start, batch.end, batch)
        candidates = self._candidates(segment, batch, lower, upper)
        if segment.place.is_dense and is_free:
            # The less is missing beside it, the more it takes to believe that it belongs elsewhere.
            sides = sum(self._beside(segment, start, batch.end, batch))
            candidates = [
                offset
                for offset in candidates
                if (offset == lower and offset + length == upper)
                or sum(self._beside(segment, offset, offset + length, batch)) > sides
            ]
        votes = {offset: segment.evidence.votes(batch.header, offset, offset + length) for offset in candidates}
        most = max(votes.values(), default=0)
        is_voted = most > segment.evidence.votes(batch.header, start, batch.end)
        flips = set(_flips(batch, segment.place.base_offset, segment.limit))
        near = [offset for offset in candidates if votes[offset] == most and (is_voted or offset in flips)]
        if len(near) == 1:
            # Where records may be missing, one batch alone is taken to be misplaced, and not to be late.
            is_late = is_free and not segment.place.is_dense and (not is_only or start == segment.place.base_offset)
            return start if is_late and not is_voted else near[0]
        # What several flipped bits explain is not taken at its word if others have these offsets; nor is a batch far
        # behind all others that they explain, or that is alone and fits where it lies.
        is_far = self._is_last(batch) and not any(self._beside(segment, start, batch.end, batch))
        has_room = upper is None or lower + length <= upper
        is_wrong = (near and not is_free and not segment.place.is_dense) or (
            is_far and (near or (is_doubtful and has_room))
        )
        return None if not is_possible or is_wrong else start

    def _candidates(
        self, segment: DisorderedSegment, batch: SoundBatch, lower: int, upper: int | None
    ) -> Sequence[int]:
        """Return the first offsets that a batch may have had: between those beside it, or what is missing elsewhere."""
        length = batch.end - batch.start
        highest = (segment.limit if upper is None else upper) - length
        found = {*_flips(batch, lower, highest + length), *((lower, highest) if lower <= highest else ())}
        if segment.place.is_dense:
            found = {offset for offset in found if any(self._beside(segment, offset, offset + length, batch))}
            missing = _flips(batch, segment.place.base_offset, segment.limit)
            found.update(offset for offset in missing if all(self._beside(segment, offset, offset + length, batch)))
        return sorted(offset for offset in found if self._is_free(offset, offset + length, batch))

    def _count(self, start: int, end: int, batch: SoundBatch) -> int:
        """Return how many other batches have some of these offsets."""
        is_own = batch.header.records_count > 0 and start < batch.end and batch.start < end
        return bisect_left(self._starts, end) - bisect_right(self._ends, start) - is_own

    def _is_free(self, start: int, end: int, batch: SoundBatch) -> bool:
        return not self._count(start, end, batch)

    def _is_last(self, batch: SoundBatch) -> bool:
        return len(self._starts) - bisect_left(self._starts, batch.start) <= (batch.header.records_count > 0)

    def _beside(self, segment: DisorderedSegment, start: int, end: int, batch: SoundBatch) -> tuple[bool, bool]:
        """Return whether other batches, or the bounds of the segment, are directly before and after some offsets."""
        return (
            start == segment.place.base_offset or self._count(start - 1, start, batch) > 0,
            end == segment.place.next_base_offset or self._count(end, end + 1, batch) > 0,
        )


def _flips(batch: SoundBatch, lowest: int, limit: int) -> list[int]:
    """Return the first offsets between two bounds that a batch has if one bit of its base offset is another."""
    written, start = batch.header.base_offset, batch.start
    most = limit - batch.end + written
    return [offset - written + start for offset in flipped_offsets(written, lowest + written - start, most)]


def _in_order(segment: DisorderedSegment) -> set[int]:
    """Return the most batches that are in the order of their offsets, by number."""
    batches = segment.batches
    ends: list[int] = []
    # The last batch of the row of each length that ends lowest, and of each batch the one before it in its row.
    last: list[int] = []
    before: list[int | None] = [None] * len(batches)
    for number, batch in enumerate(batches):
        if batch.start < segment.place.base_offset or batch.end - 1 - segment.place.base_offset > MAX_RELATIVE_OFFSET:
            continue
        length = bisect_right(ends, batch.start)
        before[number] = last[length - 1] if length else None
        if length == len(ends):
            ends.append(batch.end)
            last.append(number)
        elif batch.end < ends[length]:
            ends[length], last[length] = batch.end, number
    row: list[int] = []
    at = last[-1] if last else None
    while at is not None:
        row.append(at)
        at = before[at]
    row.reverse()
    # Behind the base offset of the next segment only what goes on without a gap is at its place.
    for index, number in enumerate(row):
        if batches[number].end > segment.limit and index and batches[row[index - 1]].end < batches[number].start:
            return set(row[:index])
    return set(row)


def _settle(segment: DisorderedSegment, in_order: set[int]) -> None:
    """Of two batches beside each other that have some of the same offsets, take the better one as in order."""
    batches = segment.batches
    for number in range(len(batches)):
        for other in (number - 1, number + 1):
            if number in in_order or other not in in_order:
                continue
            # What is before and after the two, if that is in order.
            first, last = sorted((number, other))
            lower = batches[first - 1].end if first - 1 in in_order else None if first else segment.place.base_offset
            upper = batches[last + 1].start if last + 1 in in_order else segment.place.next_base_offset
            one, rival = batches[number], batches[other]
            fits = (lower is None or lower <= one.start) and (upper is None or one.end <= upper)
            if fits and one.start < rival.end and rival.start < one.end:
                # Where each would be if the other one is right.
                bounds = {
                    first: (segment.place.base_offset if lower is None else lower, batches[last].start),
                    last: (batches[first].end, segment.limit if upper is None else upper),
                }
                worth = {
                    each: (
                        (batches[each].start == lower) + (batches[each].end == upper),
                        segment.evidence.votes(batches[each].header, batches[each].start, batches[each].end),
                        -_room(batches[each], *bounds[each]),
                    )
                    for each in (number, other)
                }
                if worth[number] > worth[other]:
                    in_order.remove(other)
                    in_order.add(number)


def _room(batch: SoundBatch, lower: int, upper: int) -> int:
    """Return 2 if one flipped bit makes a batch fill all that is between two offsets, 1 if it fits there, or 0."""
    flips = _flips(batch, lower, upper)
    return 2 if lower in flips and lower + batch.end - batch.start == upper else int(bool(flips))


def _goes_on(batches: Sequence[SoundBatch], in_order: set[int], number: int) -> bool:
    """Whether a batch that is out of order goes on with the one before or after it, which is so as well."""
    return any(
        first >= 0
        and first + 1 < len(batches)
        and not {first, first + 1} & in_order
        and batches[first].end == batches[first + 1].start
        for first in (number - 1, number)
    )


def _bounds(segment: DisorderedSegment, in_order: set[int]) -> tuple[list[int], list[int | None]]:
    """Return for each batch the end of the one in order before it, and the start of the one after it."""
    batches = segment.batches
    ends, starts = list[int](), list[int | None]()
    end, start = segment.place.base_offset, segment.place.next_base_offset
    for number, batch in enumerate(batches):
        ends.append(end)
        if number in in_order:
            end = batch.end
    for number in reversed(range(len(batches))):
        starts.append(start)
        if number in in_order:
            start = batches[number].start
    starts.reverse()
    return ends, starts
