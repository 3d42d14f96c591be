"""Which of two batches has the wrong offset, by both sides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from odradek.inspection.finding import Finding, FindingKind
from odradek.inspection.index_evidence import IndexEvidence
from odradek.inspection.offset_order import Lost, OffsetOrder, SegmentPlace
from odradek.records import BatchHeader
from odradek.storage.segment.batch_reader import Damage

PATH = Path("0.log")
LOST = "lost"


class Votes(IndexEvidence):
    """An index that has the entries that it is given: offsets by the number of the batch."""

    def __init__(self, entries: dict[int, int] | None = None) -> None:
        super().__init__(None, None)
        self._entries = entries or {}

    def indexed_offset(self, header: BatchHeader) -> int | None:
        return self._entries.get(header.position // 100)

    def votes(self, header: BatchHeader, start: int, end: int) -> int:
        offset = self.indexed_offset(header)
        return 0 if offset is None or not start <= offset < end else 2 if offset == end - 1 else 1


def header(number: int, start: int, end: int, *, magic: int = 2) -> BatchHeader:
    return BatchHeader(100 * number, 100, start, 0, magic, 0, 0, end - start - 1, -1, -1, -1, -1, -1, end - start)


def place(
    spans: Sequence[tuple[int, int] | None],
    *,
    dense: bool = True,
    base: int = 0,
    expected: int | None = None,
    following: int | None = None,
    entries: dict[int, int] | None = None,
    ends: Sequence[int] = (),
    after_loss: bool = False,
) -> tuple[list[tuple[int, int] | str], list[Finding]]:
    """Return where batches are placed, and what is found; None stands for damage."""
    items = [
        Damage(PATH, 100 * number, 100, "damage") if span is None else header(number, *span)
        for number, span in enumerate(spans)
    ]
    order = OffsetOrder(
        SegmentPlace(PATH, base, following, expected, after_loss, dense, frozenset(ends)), Votes(entries)
    )
    placed: list[tuple[int, int] | str] = []
    found = []
    for item in order.batches(items):
        if isinstance(item, Finding):
            found.append(item)
        elif isinstance(item, Lost):
            placed += [LOST] if item.end_position > item.position else []
        elif isinstance(item, BatchHeader):
            placed.append((item.base_offset, item.next_offset))
    assert order.count == sum(span is not None for span in spans)
    return placed, found


GOOD = [(0, 10), (10, 20), (20, 30), (30, 31), (31, 50)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("wrong", range(5))
def test_one_flipped_bit_is_one_finding_and_is_put_right(wrong: int, dense: bool) -> None:
    for bit in range(62):
        start, end = GOOD[wrong]
        flipped = start ^ 1 << bit
        spans = [*GOOD[:wrong], (flipped, flipped + end - start), *GOOD[wrong + 1 :]]
        placed, [finding] = place(spans, dense=dense, following=50)
        assert (placed, finding.kind, finding.position) == (GOOD, FindingKind.ORDER, 100 * wrong), (bit, finding)


@pytest.mark.parametrize("bit", [0, 3, 10, 40])
def test_the_last_batch_of_a_log_is_judged_by_what_is_written_beside_it(bit: int) -> None:
    spans = [*GOOD[:4], (31 | 1 << (bit + 5), 50 + (1 << (bit + 5)))]
    for dense in (True, False):
        for evidence in ({"entries": {4: 49}}, {"ends": [50]}):
            placed, [finding] = place(spans, dense=dense, **evidence)
            assert (placed, finding.kind) == (GOOD, FindingKind.ORDER)
    # With nothing beside it a batch that begins too late is one after a gap, where there may be none.
    placed, [finding] = place(spans, dense=True)
    assert (placed[-1], finding.kind) == (spans[-1], FindingKind.GAP) if bit < 20 else finding.kind
    if bit < 20:
        assert place(spans, dense=False) == (spans, [])


def test_what_is_missing_is_one_gap() -> None:
    assert place([(0, 10), (20, 30), (30, 40)], dense=False) == ([(0, 10), (20, 30), (30, 40)], [])
    placed, [finding] = place([(0, 10), (20, 30), (30, 40)])
    assert placed == [(0, 10), (20, 30), (30, 40)]
    assert (finding.kind, finding.position) == (FindingKind.GAP, 100)
    assert finding.reason.startswith("offsets 10 to 19 are missing")


def test_a_missing_segment_is_one_gap_at_the_next_one() -> None:
    for spans in ([(40, 50)], []):
        placed, [finding] = place(spans, base=40, expected=30)
        assert placed == spans
        assert (finding.kind, finding.position) == (FindingKind.GAP, 0)
        assert finding.reason.startswith("offsets 30 to 39 are missing")
        assert place(spans, base=40, expected=30, dense=False)[1] == []
        assert place(spans, base=40, expected=30, after_loss=True)[1] == []


def test_what_damage_has_taken_is_no_gap() -> None:
    assert place([(0, 10), None, (30, 40)]) == ([(0, 10), LOST, (30, 40)], [])
    assert place([None, (30, 40)], following=40) == ([LOST, (30, 40)], [])
    assert place([(0, 10), None], following=40) == ([(0, 10), LOST], [])


def test_a_wrong_offset_beside_damage_is_one_finding() -> None:
    placed, [finding] = place([(0, 10), None, (30 | 64, 40 | 64), (40, 50), (50, 60)])
    assert finding.position == 200
    assert placed == [(0, 10), LOST, (30, 40), (40, 50), (50, 60)]
    placed, [finding] = place([(0, 10), (10 | 64, 20 | 64), None, (40, 50)])
    assert finding.position == 100
    assert placed == [(0, 10), (10, 20), LOST, (40, 50)]


def test_batches_that_are_written_twice_are_one_finding() -> None:
    again = [(0, 10), (10, 20), (20, 30), (10, 20), (20, 30), (30, 40)]
    for dense in (True, False):
        placed, [finding] = place(again, dense=dense)
        assert placed == again
        assert (finding.kind, finding.position) == (FindingKind.ORDER, 300)
        assert finding.reason == "offsets 10 to 19 follow 29"


def test_one_batch_that_is_written_twice_at_the_end_is_not_taken_for_a_new_one() -> None:
    placed, [finding] = place([(0, 10), (10, 20), (20, 30), (0, 10)])
    assert placed == [(0, 10), (10, 20), (20, 30), LOST]
    assert finding.position == 300


def test_a_batch_that_fits_nowhere_is_lost_and_the_others_are_held_against_each_other() -> None:
    placed, [finding] = place([(0, 10), (12345678, 12345688), (20, 30)], dense=False)
    # More than one bit would have to be wrong, and no index says that it belongs there.
    assert placed == [(0, 10), LOST, (20, 30)]
    assert finding.position == 100


def test_several_wrong_offsets_are_each_a_finding() -> None:
    spans = [(0, 10), (10 | 64, 20 | 64), (20, 30), (30 | 4096, 31 | 4096), (31, 50), (50, 60)]
    placed, found = place(spans)
    assert [finding.position for finding in found] == [100, 300]
    assert placed == [*GOOD, (50, 60)]


def test_a_segment_that_goes_on_into_the_next_one() -> None:
    placed, [finding] = place([(0, 10), (10, 20), (20, 30)], following=15)
    assert finding.reason == "the offsets go on to 29, the next segment is 15"
    assert placed == [(0, 10), (10, 20), (20, 30)]


def test_offsets_out_of_reach_of_the_segment() -> None:
    far = (1 << 31) + 5
    placed, [finding] = place([(0, 10), (10, 20), (far, far + 1)], dense=False, ends=[])
    assert finding.position == 200
    assert placed[:2] == [(0, 10), (10, 20)]


@pytest.mark.parametrize("dense", [True, False])
def test_in_a_compacted_log_an_index_tells_where_a_batch_belongs(dense: bool) -> None:
    spans = [(5, 6), (100, 101), (100 | 16, 101 | 16), (200, 201)]
    # 100 | 16 is 116: between 101 and 200 anything fits, but the index has an entry for 100.
    assert place(spans, dense=False)[1] == []
    placed, found = place([(5, 6), (116, 117), (200, 201)], dense=False, entries={1: 100})
    assert placed == [(5, 6), (100, 101), (200, 201)]
    assert [finding.position for finding in found] == [100]


def test_an_entry_for_a_later_batch_of_one_append_is_no_contradiction() -> None:
    # Before Kafka 4 an entry has the last offset of an append, and the position of its first batch.
    spans = [(0, 4), (8, 12), (12, 16)]
    assert place(spans, dense=False, entries={1: 15}) == (spans, [])
