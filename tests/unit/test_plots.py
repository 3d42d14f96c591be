"""Plots: within their frames, in any colour scheme, readable without seeing them, and never a stranger's markup."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from markupsafe import escape

from odradek.plots import Span, bars, series, timeline

MARKUP = "<script>alert(1)</script>\"'&\x1b[1m"
HOUR = 3_600_000


def test_plots_of_nothing_are_none() -> None:
    assert (bars("t", []), timeline("t", []), series("t", [])) == (None, None, None)


def test_texts_are_never_markup_and_plots_are_not_escaped_again() -> None:
    drawn = [
        bars(MARKUP, [(MARKUP, 1, MARKUP)]),
        timeline(MARKUP, [Span(MARKUP, 0, 1, MARKUP)]),
        series(MARKUP, [(0, 1)], lambda _: MARKUP),
    ]
    for plot in drawn:
        assert plot is not None
        root = ET.fromstring(plot)
        assert (root.get("role"), root.get("aria-label")) == ("img", MARKUP.replace("\x1b", "\\x1b"))
        assert {one.tag.rpartition("}")[2] for one in root.iter()} <= {
            "svg",
            "g",
            "title",
            "desc",
            "text",
            "rect",
            "path",
        }
        # What a content policy refuses.
        assert not any({"style", "onload"} & set(one.keys()) for one in root.iter())
        assert str(escape(plot)) == str(plot)


def test_spans_of_no_length_are_seen() -> None:
    plot = str(timeline("t", [Span("a", 5, 5, "x"), Span("a", 5, 5, "y")]))
    assert plot.count('class="mark') == 2
    assert "nan" not in plot


def _drawn(points: list[tuple[int, float]], **options: int) -> list[tuple[str, float, float]]:
    plot = series("lag", points, **options)  # type: ignore[arg-type]
    assert plot is not None
    line = re.search(r'class="line" d="([^"]*)"', plot)
    assert line
    return [(verb, float(x), float(y)) for verb, x, y in re.findall(r"([ML])([\d.]+) ([\d.]+)", line[1])]


def test_a_series_is_drawn_from_its_first_time_to_its_last() -> None:
    (_, left, low), (_, middle, high), (_, right, half) = _drawn([(0, 0), (HOUR, 10), (2 * HOUR, 5)])
    assert (left + right) / 2 == middle
    assert right <= 720
    assert low - half == half - high > 0
    assert [verb for verb, _, _ in _drawn([(0, 1), (HOUR, 1), (9 * HOUR, 1)], gap_ms=HOUR)] == ["M", "L", "M"]
    # Of many points no more are drawn than a plot has units, and the highest are among them.
    many = _drawn([(number, 1 if number == 77_777 else 0) for number in range(100_000)])
    assert len(many) <= 720
    assert min(y for _, _, y in many) == high
    assert [y for _, _, y in _drawn([(0, 0), (1, 0)])] == [low, low]


def test_a_series_says_what_it_shows() -> None:
    root = ET.fromstring(series("lag", [(0, 3), (HOUR, 12_000), (2 * HOUR, 7)]) or "")
    texts = {one.tag.rpartition("}")[2]: one.text for one in root.iter()}
    assert texts["title"] == "lag"
    assert (
        texts["desc"] == "From 1970-01-01 00:00:00Z to 1970-01-01 02:00:00Z: at most 12,000, at least 3, at the end 7."
    )
