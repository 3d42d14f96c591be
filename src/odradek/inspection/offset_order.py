"""Checks the offsets of a segment's batches against each other, and finds out which batch has the wrong one.

    batch       [10, 20)   [148, 158)   [30, 40)   [40, 50)
                           ^ no checksum covers the base offset: one flipped bit, and 20 is 148

If two neighbours contradict each other, one of them is wrong. Both sides are evidence of which one: the batch before
and the batch after, the next segment's base offset, and the entries of the indexes. A batch that would fit into the gap
that its neighbours leave is taken to belong there. So one wrong offset is one finding, and the batches after it are
checked against the right offset.

    gap         offsets that are missing: normal in a compacted log, a loss in any other
    misplaced   a batch between two that leave room for it elsewhere: given with its right base offset, if one fits
    filling     a batch that starts below, where offsets could not be read: the next ones go on as if it were not there
    going back  batches that start again below offsets that were there: the next ones are checked against these

Source in Kafka: `DefaultRecordBatch`, `UnifiedLog.append`, `LogSegment`.
"""

from __future__ import annotations

import mmap
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from odradek.inspection.batches import Copies, wrapper_length
from odradek.inspection.finding import Finding, FindingKind
from odradek.inspection.index_evidence import IndexEvidence
from odradek.records import BatchHeader
from odradek.storage.formats.index_file import MAX_RELATIVE_OFFSET
from odradek.storage.segment.batch_reader import Damage

_OFFSET_BITS = 63


def flipped_offsets(offset: int, lowest: int, highest: int) -> list[int]:
    """Return the offsets between two bounds, both included, that differ from another one by one bit."""
    flips = (offset ^ (1 << bit) for bit in range(_OFFSET_BITS))
    return [flipped for flipped in flips if lowest <= flipped <= highest]


def misfit(header: BatchHeader, start: int, lower: int, upper: int | None, right: int | None) -> str:
    """Return what is wrong with a batch's offsets.

    Args:
        header: The batch.
        start: Its first offset.
        lower: The offset after those before it.
        upper: The first one of those after it; None if there are none.
        right: The offset that it should start at; None if that cannot be told.
    """
    end = header.next_offset
    offsets = f"offset {header.base_offset} does" if end - start == 1 else f"offsets {start} to {end - 1} do"
    where = f"after {lower - 1}" + ("" if upper is None else f" and before {upper}")
    told = "" if right is None else f": the base offset should be {right}"
    return f"{offsets} not fit {where}{told}"


class Lost(NamedTuple):
    """Bytes that hold batches of unknown offsets: damage, or a batch that fits nowhere.

    Attributes:
        position: Where they start, in bytes.
        end_position: Where they end.
    """

    position: int
    end_position: int


class _Verdict(Enum):
    GOOD = 0
    MISPLACED = 1
    GOES_BACK = 2
    FILLS_HOLE = 3


@dataclass(slots=True)
class _Span:
    """A batch as a range of offsets; the bound of the segment is a span without a batch.

    Attributes:
        header: The batch; None for the bound.
        start: Its first offset. For a wrapper (v0, v1), whose header does not have it, the last one.
        end: The offset after its last one.
        is_exact: Whether `start` is known.
        after_loss: Whether bytes before it could not be read, so that the offsets between are unknown.
        verdict: The result of judging it together with the batch before it.
    """

    header: BatchHeader | None
    start: int
    end: int
    is_exact: bool = True
    after_loss: bool = False
    verdict: _Verdict = _Verdict.GOOD

    @property
    def length(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """Where a segment lies in its log.

    Attributes:
        path: The `.log` file.
        base_offset: The offset in its name.
        next_base_offset: That of the next segment; None for the last one.
        expected: The offset after the previous segment; the base offset for the first segment.
        after_loss: Whether the end of the previous segment could not be read.
        is_dense: Whether no offset may be missing; False if the log may have been compacted.
        ends: The offsets at which the log may end, according to the files beside it.
    """

    path: Path
    base_offset: int
    next_base_offset: int | None = None
    expected: int | None = None
    after_loss: bool = False
    is_dense: bool = False
    ends: frozenset[int] = frozenset()


class OffsetOrder:
    """Puts the batches of one segment in their places.

    Args:
        place: Where the segment lies.
        evidence: What its indexes say.
        data: Its bytes. Where batches start again below others they are read again, for copies.
        reads_wrappers: Whether to read how many offsets a wrapper (v0, v1) spans. Otherwise its last offset stands for
            all of them.

    Attributes:
        count: How many batches there were.
        next_offset: The offset after the last batch that was placed.
        end_offset: The offset after all batches.
        after_loss: Whether bytes after it could not be read, or their batches not be placed.
    """

    def __init__(
        self,
        place: SegmentPlace,
        evidence: IndexEvidence,
        data: mmap.mmap | bytes = b"",
        *,
        reads_wrappers: bool = False,
    ) -> None:
        self._place = place
        self._data = data
        self._copies = Copies(place.path, data)
        self._evidence = evidence
        self._reads_wrappers = reads_wrappers
        expected = place.base_offset if place.expected is None else place.expected
        self.next_offset = max(place.base_offset, expected)
        self.end_offset = self.next_offset
        self.after_loss = place.after_loss
        self.count = 0
        # The ranges of offsets that could not be read, in order.
        self._holes: list[tuple[int, int]] = []
        self._missing_before = expected if expected < place.base_offset and not place.after_loss else None

    def batches(self, items: Iterable[BatchHeader | Damage]) -> Iterator[BatchHeader | Damage | Lost | Finding]:
        """Yield the batches with their right offsets, in the order of the file.

        Args:
            items: The batches, and the damage between them.

        Returns:
            Each batch, with the base offset that it should have; each damage; a `Lost` after each damage and instead of
            each batch that fits nowhere, unless there is a copy before it; and a finding for each wrong offset, before
            the batch that it is about.
        """
        if self._missing_before is not None and self._place.is_dense:
            yield self._gap(0, self._missing_before, self._place.base_offset)
        highest = self._place.base_offset + MAX_RELATIVE_OFFSET
        queue: deque[_Span | Damage] = deque()
        held: BatchHeader | None = None
        for item in items:
            # The usual case: the batch begins where the one before it ends, and the next one begins where it ends.
            if held is not None:
                if (
                    isinstance(item, BatchHeader)
                    and held.base_offset == self.next_offset
                    and item.base_offset == held.next_offset <= highest
                    and not item.is_wrapper
                ):
                    self.next_offset = item.base_offset
                    self.end_offset = max(self.end_offset, self.next_offset)
                    self.count += 1
                    yield held
                    held = item
                    continue
                queue.append(self._span(held, queue))
                held = None
            if isinstance(item, Damage):
                queue.append(item)
            else:
                self.count += 1
                queue.append(self._span(item, queue))
            # A batch is judged when the two after it are known, or when it fits between its neighbours.
            while sum(isinstance(waiting, _Span) for waiting in queue) > 2 or self._is_settled(queue):
                yield from self._next(queue.popleft(), queue)
            held = self._last_undoubted(queue)
        if held is not None:
            queue.append(self._span(held, queue))
        limit = self._place.next_base_offset
        if limit is not None:
            after_loss = bool(queue) and isinstance(queue[-1], Damage)
            queue.append(_Span(None, limit, limit, after_loss=after_loss))
        while queue:
            yield from self._next(queue.popleft(), queue)

    def _is_settled(self, queue: deque[_Span | Damage]) -> bool:
        """Whether the first of two batches begins where the previous one ended, and the second where the first ends."""
        if len(queue) != 2 or not all(self._is_undoubted(span) for span in queue):
            return False
        first, second = queue
        assert isinstance(first, _Span)
        assert isinstance(second, _Span)
        return first.start == self.next_offset and first.end == second.start

    def _last_undoubted(self, queue: deque[_Span | Damage]) -> BatchHeader | None:
        """Take the last batch out of the queue if nothing is in doubt any more."""
        if len(queue) != 1 or not self._is_undoubted(queue[0]):
            return None
        span = queue.pop()
        assert isinstance(span, _Span)
        return span.header

    def _is_undoubted(self, span: _Span | Damage) -> bool:
        if isinstance(span, Damage) or self.after_loss:
            return False
        return span.is_exact and not span.after_loss and span.verdict is _Verdict.GOOD

    def _span(self, header: BatchHeader, queue: deque[_Span | Damage]) -> _Span:
        after_loss = bool(queue) and isinstance(queue[-1], Damage)
        start, is_exact = header.base_offset, True
        if header.is_wrapper:
            length = wrapper_length(self._data, header) if self._reads_wrappers else None
            start, is_exact = header.next_offset - (length or 1), length is not None
        return _Span(header, start, header.next_offset, is_exact=is_exact, after_loss=after_loss)

    def _next(
        self, head: _Span | Damage, queue: deque[_Span | Damage]
    ) -> Iterator[BatchHeader | Damage | Lost | Finding]:
        if isinstance(head, Damage):
            yield head
            yield self._lost(head.position, head.position + head.size_bytes)
        elif head.header is not None:
            following = [item for item in queue if isinstance(item, _Span)]
            yield from self._batch(head, head.header, following, is_last=not queue)

    def _lost(self, position: int, end_position: int) -> Lost:
        self.after_loss = True
        return Lost(position, end_position)

    def _batch(
        self, span: _Span, header: BatchHeader, following: list[_Span], *, is_last: bool
    ) -> Iterator[BatchHeader | Damage | Lost | Finding]:
        self._judge(span, following)
        upper = next((other.start for other in following if other.verdict is _Verdict.GOOD), None)
        start = span.start
        if span.verdict is _Verdict.MISPLACED:
            fitting = self._fitting(span, header, upper)
            if fitting is None and self._is_in_hole(span):
                span.verdict = _Verdict.FILLS_HOLE
        else:
            fitting = None
            if span.verdict is _Verdict.GOOD:
                fitting = self._elsewhere(span, header, upper, is_last=is_last)
            if fitting is not None:
                span.verdict = _Verdict.MISPLACED
        match span.verdict:
            case _Verdict.MISPLACED:
                yield self._misplaced(span, header, upper, fitting)
                if fitting is None:
                    # Of a copy nothing is lost.
                    if header not in self._copies:
                        yield self._lost(header.position, header.end_position)
                    return
                start = fitting
                header = header._replace(base_offset=header.base_offset + fitting - span.start)
            case _Verdict.GOES_BACK:
                yield Finding(self._place.path, header.position, FindingKind.ORDER, self._follows(span))
                yield self._lost(header.position, header.position)
            case _Verdict.FILLS_HOLE:
                yield Finding(self._place.path, header.position, FindingKind.ORDER, self._follows(span))
                yield header
                return
            case _:
                if self.after_loss and start > self.next_offset:
                    insort(self._holes, (self.next_offset, start))
                if self._place.is_dense and span.is_exact and not self.after_loss and start > self.next_offset:
                    yield self._gap(header.position, self.next_offset, start)
        if following and following[0].header is None and start + span.length > following[0].start:
            reason = f"the offsets go on to {start + span.length - 1}, the next segment is {following[0].start}"
            yield Finding(self._place.path, header.position, FindingKind.ORDER, reason)
        self.next_offset = start + span.length
        self.end_offset = max(self.end_offset, self.next_offset)
        self.after_loss = False
        yield header

    # -- who is wrong

    def _judge(self, span: _Span, following: list[_Span]) -> None:
        if span.verdict is not _Verdict.GOOD:
            return
        after = following[0] if following else None
        if span.start < self.next_offset:
            # No batch before it was to blame: either this one is, or all later ones start again with it.
            continues = after is not None and after.header is not None and after.start == span.end < self.next_offset
            span.verdict = _Verdict.GOES_BACK if continues else _Verdict.MISPLACED
            return
        if span.end - 1 - self._place.base_offset > MAX_RELATIVE_OFFSET:
            span.verdict = _Verdict.MISPLACED
            return
        if after is not None and after.verdict is _Verdict.GOOD and span.end > after.start:
            third = following[1] if len(following) > 1 else None
            blamed = self._blamed(span, after, third)
            if blamed is span and after.header is not None and after.header in self._copies:
                # The one before it is the sound one of the two.
                blamed = None
            if blamed is not None:
                blamed.verdict = _Verdict.MISPLACED
            elif after.header is not None:
                # One batch that was written twice, with the others continuing after it, or all later ones.
                is_alone = third is not None and third.start >= span.end
                after.verdict = _Verdict.MISPLACED if is_alone else _Verdict.GOES_BACK

    def _blamed(self, first: _Span, second: _Span, third: _Span | None) -> _Span | None:
        """Return which of two overlapping batches is wrong; None if neither can be placed elsewhere."""
        room_for_first = second.start >= self.next_offset + first.length
        room_for_second = second.header is not None and (third is None or third.start >= first.end + second.length)
        if not room_for_first or not room_for_second:
            return first if room_for_first else second if room_for_second else None
        for first_is_right, second_is_right in self._arguments(first, second, third):
            if first_is_right != second_is_right:
                return second if first_is_right else first
        return second

    def _arguments(self, first: _Span, second: _Span, third: _Span | None) -> Iterator[tuple[int, int]]:
        """Yield how strong each argument is for either batch, the strongest argument first."""
        # It continues at a neighbour that is not in doubt.
        yield (
            first.is_exact and first.start == self.next_offset and not self.after_loss,
            third is not None and third.is_exact and second.end == third.start and not third.after_loss,
        )
        yield self._votes(first, first.start), self._votes(second, second.start)
        # If no offset may be missing, a gap before the first one speaks against it.
        if self._place.is_dense and first.is_exact and not self.after_loss:
            yield first.start == self.next_offset, True
        # At its place it would exactly fill the gap.
        fills_first = second.is_exact and second.start == self.next_offset + first.length
        fills_second = third is not None and third.is_exact and third.start == first.end + second.length
        yield fills_second, fills_first
        # One flipped bit would move it there.
        first_bits = self._flips(first, self.next_offset, second.start)
        second_bits = self._flips(second, first.end, None if third is None else third.start)
        yield bool(second_bits), bool(first_bits)

    def _votes(self, span: _Span, start: int) -> int:
        return 0 if span.header is None else self._evidence.votes(span.header, start, start + span.length)

    def _flips(self, span: _Span, lower: int, upper: int | None) -> list[int]:
        """Return the offsets between two bounds that differ from a batch's by one bit."""
        highest = (self._place.base_offset + MAX_RELATIVE_OFFSET + 1 if upper is None else upper) - span.length
        return flipped_offsets(span.start, lower, highest)

    # -- where it belongs

    def _is_in_hole(self, span: _Span) -> bool:
        number = bisect_right(self._holes, span.start, key=itemgetter(0)) - 1
        return number >= 0 and span.end <= self._holes[number][1]

    def _fitting(self, span: _Span, header: BatchHeader, upper: int | None) -> int | None:
        """Return the base offset that a misplaced batch should have; None if it cannot be told.

        The batch may also have been written twice, or belong elsewhere. So one flipped bit must move it to its place,
        or an index must say that it is there.
        """
        lower, length = self.next_offset, span.length
        if upper != lower + length and header in self._copies:
            return None
        flips = self._flips(span, lower, upper)
        if span.is_exact and not self.after_loss and (upper == lower + length or self._place.is_dense):
            candidates = [lower] if upper is None or lower + length <= upper else []
        elif span.is_exact and self._place.is_dense and upper is not None and upper - length >= lower:
            candidates = [upper - length]
        else:
            candidates = flips
        votes = {offset: self._evidence.votes(header, offset, offset + length) for offset in candidates}
        most = max(votes.values(), default=0)
        voted = [offset for offset, count in votes.items() if count == most]
        if most and len(voted) == 1:
            return voted[0]
        near = [offset for offset in candidates if offset in flips]
        return near[0] if len(near) == 1 else None

    def _elsewhere(self, span: _Span, header: BatchHeader, upper: int | None, *, is_last: bool) -> int | None:
        """Return the base offset of a batch that contradicts only the files beside the segment; None if unknown."""
        if span.start == self.next_offset and (self._place.is_dense or upper == span.end):
            return None
        offset = self._evidence.indexed_offset(header)
        is_contradicted = offset is not None and not span.start <= offset < span.end
        if not is_contradicted and not is_last and not (self._place.is_dense and span.is_exact):
            return None
        if span.is_exact and self._place.is_dense and not self.after_loss:
            candidates = [self.next_offset] if upper is None or self.next_offset + span.length <= upper else []
        else:
            candidates = self._flips(span, self.next_offset, upper)
        found, most = None, self._support(span, header, span.start, is_last=is_last)
        for candidate in candidates:
            support = self._support(span, header, candidate, is_last=is_last)
            if support > most:
                found, most = candidate, support
        return found

    def _support(self, span: _Span, header: BatchHeader, start: int, *, is_last: bool) -> int:
        end = start + span.length
        return self._evidence.votes(header, start, end) + 2 * (is_last and end in self._place.ends)

    # -- findings

    def _follows(self, span: _Span) -> str:
        return f"offsets {span.start} to {span.end - 1} follow {self.next_offset - 1}"

    def _gap(self, position: int, start: int, end: int) -> Finding:
        reason = f"offsets {start} to {end - 1} are missing, and the log was never compacted"
        return Finding(self._place.path, position, FindingKind.GAP, reason)

    def _misplaced(self, span: _Span, header: BatchHeader, upper: int | None, fitting: int | None) -> Finding:
        reason = misfit(header, span.start, self.next_offset, upper, fitting)
        return Finding(self._place.path, header.position, FindingKind.ORDER, reason)
