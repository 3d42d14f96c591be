r"""Plots as SVG: bars, spans on a line of time, and a value over time.

    label |  ___/\_        bars      a bar for each name
          | /     \__      timeline  spans of time in rows
        0 +---------       series    one value over time
         first   last

The console and notebooks show them. A plotting library would have more code than the console, and its markup has
scripts, styles or generated ids, which the console's content policy refuses. Shapes have the colour of the text around
them, so they fit light and dark pages; a style sheet may change it by class. Each plot has a title, and each mark or
plot has a text with its values, for people who do not see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from odradek.printable import printable
from odradek.records.timestamps import iso_text

_WIDTH = 720
_LABEL_WIDTH = 220
_ROW = 22
_LABEL_CHARACTERS = 30
_LEAST_MARK = 2.0
_HEIGHT = 136
_VALUE_WIDTH = 90
_LINE = 16
_MINUTE = len("2026-11-01 12:00")
_SECOND = len("2026-11-01 12:00:00")
_SHORT_MS = 300_000


class Svg(str):
    """The markup of a plot. Templates do not escape it again, and notebooks show it."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return str(self)


class Span(NamedTuple):
    """A mark from one time to another, in ms.

    Attributes:
        row: The name of its row.
        start_ms: When it begins.
        end_ms: When it ends.
        text: Describes it.
    """

    row: str
    start_ms: int
    end_ms: int
    text: str


def bars(title: str, values: Sequence[tuple[str, int, str]]) -> Svg | None:
    """Return horizontal bars, each of a name, a value, and the value as text; None without any."""
    if not values:
        return None
    most = max(1, *(value for _, value, _ in values))
    room = _WIDTH - _LABEL_WIDTH - _VALUE_WIDTH
    parts = []
    for number, (name, value, text) in enumerate(values):
        top, width = number * _ROW, max(_LEAST_MARK, room * value / most)
        bar = _rectangle("mark", _LABEL_WIDTH, top, width)
        parts.append(
            f"<g><title>{_escaped(name)}: {_escaped(text)}</title>{_text(0, top + 15, _label(name))}{bar}"
            f"{_text(_LABEL_WIDTH + width + 6, top + 15, text)}</g>"
        )
    return _drawing(title, _WIDTH, len(values) * _ROW, parts)


def largest_bars(title: str, values: Mapping[str, int], text: Callable[[int], str], most: int = 20) -> Svg | None:
    """Return bars of the largest values, by their names; `text` writes a value for people. None without any."""
    largest = sorted(values.items(), key=lambda item: -item[1])[:most]
    return bars(title, [(name, value, text(value)) for name, value in largest])


def timeline(title: str, spans: Sequence[Span]) -> Svg | None:
    """Return spans on a common line of time, a row for each `Span.row`; None without any."""
    if not spans:
        return None
    first, last = min(span.start_ms for span in spans), max(span.end_ms for span in spans)
    scale = (_WIDTH - _LABEL_WIDTH) / max(1, last - first)
    rows = {row: number for number, row in enumerate(dict.fromkeys(span.row for span in spans))}
    parts = [_text(0, number * _ROW + 15, _label(row)) for row, number in rows.items()]
    for number, span in enumerate(spans):
        width = max(_LEAST_MARK, (span.end_ms - span.start_ms) * scale - 1)
        left = min(_LABEL_WIDTH + (span.start_ms - first) * scale, _WIDTH - width)
        parts.append(
            _rectangle("mark even" if number % 2 else "mark odd", left, rows[span.row] * _ROW, width, span.text)
        )
    bottom = len(rows) * _ROW + 14
    parts += _times(first, last, _LABEL_WIDTH, _WIDTH, bottom)
    return _drawing(title, _WIDTH, bottom + 6, parts)


def series(
    title: str,
    points: Sequence[tuple[int, float]],
    text: Callable[[float], str] = "{:,.0f}".format,
    *,
    gap_ms: int | None = None,
    width: int = _WIDTH,
) -> Svg | None:
    """Return a value over time as a line above zero; None without any point.

    Args:
        title: What the value is.
        points: Times in ms, in order, each with its value, which is not negative. If several points have the same
            place in the width, the highest is drawn.
        text: Writes a value for people.
        gap_ms: Points that are further apart than this are not joined; None joins all.
        width: The width in the plot's own units; the smaller it is, the larger is the text when the plot is scaled.
    """
    if not points:
        return None
    first, last = points[0][0], points[-1][0]
    values = [value for _, value in points]
    most = max(values)
    top, bottom, left = 2 * _LINE, _HEIGHT - _LINE - 4, _VALUE_WIDTH
    scale = (width - left - 2) / max(1, last - first)
    highest: dict[int, tuple[int, float]] = {}
    for time_ms, value in points:
        column = left + int((time_ms - first) * scale)
        if column not in highest or value >= highest[column][1]:
            highest[column] = time_ms, value
    path, before = [], None
    for column, (time_ms, value) in highest.items():
        y = bottom - (bottom - top) * value / most if most > 0 else bottom
        is_joined = before is not None and (gap_ms is None or time_ms - before <= gap_ms)
        # A point alone is drawn as a dot: a line of no length with round ends.
        path.append(f"L{column} {y:.1f}" if is_joined else f"M{column} {y:.1f}h0")
        before = time_ms
    parts = [
        f"<desc>From {_time(first)} to {_time(last)}: at most {_escaped(text(most))}, at least "
        f"{_escaped(text(min(values)))}, at the end {_escaped(text(values[-1]))}.</desc>",
        f'<path class="axis" d="M{left} {top}V{bottom}H{width}" fill="none" stroke="currentColor" '
        'stroke-opacity="0.4"/>',
        f'<path class="line" d="{"".join(path)}" fill="none" stroke="currentColor" stroke-width="2" '
        f'stroke-linecap="round" stroke-linejoin="round"/>',
        _text(left, _LINE, title),
        _text(left - 6, top + 8, text(most), is_end=True),
        _text(left - 6, bottom, text(0), is_end=True) if most > 0 else "",
        *_times(first, last, left, width, _HEIGHT - 5),
    ]
    return _drawing(title, width, _HEIGHT, parts)


def _rectangle(kind: str, left: float, row_top: int, width: float, text: str | None = None) -> str:
    opacity = "0.45" if kind.endswith("even") else "0.7"
    end = "/>" if text is None else f"><title>{_escaped(text)}</title></rect>"
    return (
        f'<rect class="{kind}" x="{left:.1f}" y="{row_top + 4}" width="{width:.1f}" height="{_ROW - 8}" '
        f'fill="currentColor" fill-opacity="{opacity}"{end}'
    )


def _text(left: float, bottom: int, text: str, *, is_end: bool = False) -> str:
    anchor = ' text-anchor="end"' if is_end else ""
    return f'<text x="{left:.1f}" y="{bottom}" font-size="12" fill="currentColor"{anchor}>{_escaped(text)}</text>'


def _times(first: int, last: int, left: int, right: int, bottom: int) -> list[str]:
    end = _SECOND if last - first < _SHORT_MS else _MINUTE
    texts = [_time(time_ms)[:end] for time_ms in (first, last)]
    return [_text(left, bottom, texts[0]), _text(right, bottom, texts[1], is_end=True) if last > first else ""]


def _time(time_ms: int) -> str:
    return iso_text(time_ms, "seconds").replace("T", " ").replace("+00:00", "Z")


def _escaped(text: str) -> str:
    return escape(printable(text))


def _label(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _LABEL_CHARACTERS else f"{shown[: _LABEL_CHARACTERS - 1]}…"


def _drawing(title: str, width: int, height: int, parts: Iterable[str]) -> Svg:
    name = _escaped(title)
    return Svg(
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" role="img" viewBox="0 0 {width} {height}" '
        f'aria-label="{name}"><title>{name}</title>{"".join(parts)}</svg>'
    )
