"""Reads what is sound in segments of the source, and says of the rest which offsets it may have held."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

from odradek.errors import FormatError
from odradek.inspection.batches import salvageable
from odradek.inspection.finding import Finding, FindingKind
from odradek.inspection.index_evidence import IndexEvidence
from odradek.inspection.live_segments import LiveSegment
from odradek.inspection.offset_order import Lost, OffsetOrder, SegmentPlace
from odradek.inspection.salvaging.overlaps import Chain, first_offset
from odradek.inspection.salvaging.placing import DisorderedSegment, Placing, SoundBatch
from odradek.records import BatchHeader
from odradek.storage.names import SWAP_SUFFIX
from odradek.storage.segment.batch_reader import Damage, mapped

Sound: TypeAlias = tuple[BatchHeader, Finding | None]
"""A batch with its right offsets, and the finding if its base offset was wrong."""


class UnreadableError(Exception):
    """A segment of the source that cannot be opened."""


@contextmanager
def readable(path: Path) -> Iterator[mmap.mmap | bytes]:
    """Map a segment of the source; its errors are not those of the target."""
    with ExitStack() as stack:
        try:
            data = stack.enter_context(mapped(path))
        except FormatError as error:
            raise UnreadableError(error.reason) from error
        except OSError as error:
            raise UnreadableError(error.strerror or str(error)) from error
        yield data


def sound_batches(
    order: OffsetOrder, place: SegmentPlace, data: mmap.mmap | bytes, *, is_preallocated: bool
) -> Iterator[Sound | Damage]:
    """Yield the batches of a segment with their right offsets, and what is lost."""
    misplaced: Finding | None = None
    is_last = place.next_base_offset is None
    for item in order.batches(salvageable(place.path, data, is_last=is_last, is_preallocated=is_preallocated)):
        match item:
            case Finding():
                misplaced = item if item.kind is FindingKind.ORDER else None
            case Damage():
                yield item
            case Lost(position, end_position):
                if misplaced is not None and end_position > position:
                    yield Damage(place.path, position, end_position - position, misplaced.reason)
                    misplaced = None
            case BatchHeader():
                yield item, misplaced
                misplaced = None


class LostRange(NamedTuple):
    """Bytes of a segment that hold no sound batch.

    Attributes:
        damage: They.
        start: The first offset that they may have held.
        end: The offset after the last one; None if nothing says that.
        is_exact: Whether the batches beside them tell the two; otherwise any offset between may be theirs.
    """

    damage: Damage
    start: int
    end: int | None
    is_exact: bool = True


class ChainReader:
    """The batches of segments that hold offsets of each other, or whose batches are not in order.

    Args:
        chain: The segments.
        is_dense: Whether no offset may be missing.
        ends: The offsets at which the log may end, according to the files beside it.
        is_preallocated: Whether the last segment may end with zeros: preallocated space.
        leave_out: Is told of a segment that cannot be read, and why; returns its bytes.

    Attributes:
        batches: The batches.
        views: The bytes of each segment.
        lost: What is not sound.
        misfits: The batches that fit nowhere, and are not among the others.
        segments: How many segments could be read.
    """

    def __init__(
        self,
        chain: Chain,
        *,
        is_dense: bool,
        ends: frozenset[int],
        is_preallocated: bool,
        leave_out: Callable[[LiveSegment, str], Damage],
    ) -> None:
        self._chain = chain
        self._is_dense = is_dense
        self._ends = ends
        self._is_preallocated = is_preallocated
        self._leave_out = leave_out
        self.batches: list[SoundBatch] = []
        self.views: list[memoryview] = []
        self.lost: list[LostRange] = []
        self.misfits: list[tuple[Damage, SoundBatch]] = []
        self.segments = 0

    def read(self, stack: ExitStack) -> None:
        """Read all, sort the batches by their right offsets, and keep the files mapped as long as the stack lasts."""
        disordered: list[DisorderedSegment] = []
        for number, segment in enumerate(self._chain.segments):
            try:
                data = stack.enter_context(readable(segment.path))
            except UnreadableError as error:
                self.views.append(memoryview(b""))
                self.lost.append(LostRange(self._leave_out(segment, str(error)), segment.base_offset, None))
                continue
            self.segments += 1
            self.views.append(memoryview(data))
            stack.callback(self.views[-1].release)
            evidence = IndexEvidence.beside(segment.path, segment.base_offset)
            stack.callback(evidence.close)
            if segment.path in self._chain.disordered:
                disordered.append(self._read_disordered(number, data, evidence))
            else:
                self._read_in_order(number, data, evidence)
        placing = Placing(self.batches, self._chain.segments[0].base_offset)
        for one in disordered:
            for batch, reason in placing.place(one):
                damage = Damage(one.place.path, batch.header.position, batch.header.size_bytes, reason)
                self.misfits.append((damage, batch))
        gone = {id(batch) for _, batch in self.misfits}
        # Of two copies, of which compaction has emptied one, or taken some of the records, the other has them all.
        is_swap = [segment.path.suffix == SWAP_SUFFIX for segment in self._chain.segments]
        self.batches = [batch for batch in self.batches if id(batch) not in gone]
        self.batches.sort(key=lambda one: (one.start, not one.header.records_count, is_swap[one.number], one.number))

    def _read_in_order(self, number: int, data: mmap.mmap | bytes, evidence: IndexEvidence) -> None:
        path, base_offset = self._chain.segments[number]
        place = SegmentPlace(path, base_offset, self._chain.following, is_dense=self._is_dense, ends=self._ends)
        order = OffsetOrder(place, evidence, data, reads_wrappers=True)
        items = sound_batches(order, place, data, is_preallocated=self._is_preallocated)
        self.lost += self._collect(number, data, items)

    def _read_disordered(self, number: int, data: mmap.mmap | bytes, evidence: IndexEvidence) -> DisorderedSegment:
        segments, following = self._chain.segments, self._chain.following
        path, base_offset = segments[number]
        upper = segments[number + 1].base_offset if number + 1 < len(segments) else following
        items = salvageable(path, data, is_last=following is None, is_preallocated=self._is_preallocated)
        first, is_dense = len(self.batches), self._is_dense
        for one in self._collect(number, data, (item if isinstance(item, Damage) else (item, None) for item in items)):
            # Beside batches that are in no order only a hole says which offsets damage had.
            is_hole = one.end is not None and one.start < one.end
            self.lost.append(one if is_hole else LostRange(one.damage, base_offset, upper, is_exact=False))
            is_dense = False
        place = SegmentPlace(path, base_offset, upper, is_dense=is_dense)
        return DisorderedSegment(place, evidence, self.batches[first:])

    def _collect(self, number: int, data: mmap.mmap | bytes, items: Iterable[Sound | Damage]) -> Iterator[LostRange]:
        """Add the batches of a segment; yield what is lost, with the range of offsets that it had."""
        end, damages = self._chain.segments[number].base_offset, list[Damage]()
        for item in items:
            if isinstance(item, Damage):
                damages.append(item)
                continue
            header, misplaced = item
            start = first_offset(data, header)
            # A batch that comes again does not say where the damage before it ends.
            if start >= end:
                yield from (LostRange(damage, end, start) for damage in damages)
                damages.clear()
            self.batches.append(SoundBatch(number, header, start, misplaced))
            end = max(end, header.next_offset)
        yield from (LostRange(damage, end, None) for damage in damages)
