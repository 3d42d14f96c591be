"""Draws the statistics of logs as one picture: PNG, SVG, or a page of HTML that needs nothing else.

    bytes over time
    records over time
    sizes of batches | bytes of each log
    lag of the groups, if there are any

Needs the extra `odradek[plot]`: Matplotlib, which draws files without a screen and without a browser.
"""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.errors import OptionError
from odradek.html_table import html_table
from odradek.inspection.statistics.log_statistics import LogStatistics, class_start
from odradek.inspection.statistics.timeline import Stretch
from odradek.sources.statistics import GroupLag
from odradek.storage.files import hidden_temporary, replaceable, write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "html")

_COLORS = ("#2f6f9f", "#d98b2b", "#5a9367", "#a5556b", "#7c6ba8", "#9a9a9a")
_MOST_SERIES = len(_COLORS)
_MOST_BARS = 12
_MOST_BINS = 180
_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000
_WIDTHS = (
    *(count * _SECOND for count in (1, 2, 5, 10, 30)),
    *(count * _MINUTE for count in (1, 2, 5, 10, 30)),
    *(count * _HOUR for count in (1, 3, 6, 12)),
    *(count * _DAY for count in (1, 7, 30, 365)),
)
_SHOWN_SHARE = 0.999
_STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "svg.hashsalt": "odradek",
}


def draw(path: Path, title: str, logs: Sequence[LogStatistics], lags: Sequence[GroupLag] = ()) -> None:
    """Draw statistics into a file, which is there when it is complete; a pipe or a device is written itself.

    Args:
        path: The file; its suffix says what it becomes: `.png`, `.svg` or `.html`.
        title: What the picture is about.
        logs: The statistics of each log.
        lags: How far groups are behind.

    Raises:
        OptionError: The suffix is another one.
        ImportError: Matplotlib is not installed.
        OSError: The file cannot be written.
    """
    form = path.suffix.removeprefix(".").lower()
    if form not in FORMATS:
        raise OptionError(f"{path}: a picture ends with .png, .svg or .html")
    place = replaceable(path)
    # Not from pyplot, which would look for a screen.
    from matplotlib import rc_context

    with rc_context(_STYLE):
        figure = _figure(title, logs, lags)
        drawn = io.BytesIO()
        figure.savefig(drawn, format="png" if form == "png" else "svg", dpi=150, metadata=_metadata(form))
    data = drawn.getvalue()
    if form == "html":
        data = _page(title, data.decode(), logs)
    if place is None:
        path.write_bytes(data)
    else:
        write_atomically(place, data, temporary=hidden_temporary(place))


def _metadata(form: str) -> dict[str, str | None]:
    return {"Software": None} if form == "png" else {"Date": None, "Creator": None}


def _figure(title: str, logs: Sequence[LogStatistics], lags: Sequence[GroupLag]) -> Figure:
    from matplotlib.figure import Figure

    behind = sorted(lags, key=lambda lag: -lag.lag)[:_MOST_BARS]
    bars = min(len(logs), _MOST_BARS)
    lowest = 1.0 + 0.22 * max(bars, 5)
    heights = [2.1, 2.1, lowest, *([0.8 + 0.24 * max(len(behind), 2)] if behind else [])]
    figure = Figure(figsize=(10, sum(heights) + 1.6), layout="constrained", facecolor="white")
    figure.get_layout_engine().set(h_pad=0.1, w_pad=0.1, hspace=0.06)  # type: ignore[union-attr, call-arg]
    figure.suptitle(f"{title}\n", x=0.01, ha="left", fontsize=13, fontweight="bold")
    figure.text(0.01, 1 - 0.42 / figure.get_figheight(), _summary(logs), ha="left", va="top", color="#555555")
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
    series = _series(logs)
    window = _Window([stretch for stretches in series.values() for stretch in stretches])
    first = figure.add_subplot(grid[0, :])
    second = figure.add_subplot(grid[1, :], sharex=first)
    _draw_times(first, f"Bytes written per {window.width_text}", "B", window, series, column=1)
    _draw_times(second, f"Records written per {window.width_text}", "", window, series, column=2)
    if len(series) > 1:
        first.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)
    _draw_batch_sizes(figure.add_subplot(grid[2, 0]), logs)
    _draw_log_sizes(figure.add_subplot(grid[2, 1]), logs)
    if behind:
        _draw_lags(figure.add_subplot(grid[3, :]), behind, len(lags))
    return figure


def _summary(logs: Sequence[LogStatistics]) -> str:
    topics = len({log.topic for log in logs})
    parts = [
        _count(topics, "topic"),
        _count(len(logs), "partition"),
        _count(sum(log.records for log in logs), "record"),
        _amount(sum(log.size_bytes for log in logs), "B"),
    ]
    times = [log for log in logs if log.least_timestamp is not None and log.greatest_timestamp is not None]
    if times:
        start = min(log.least_timestamp or 0 for log in times)
        end = max(log.greatest_timestamp or 0 for log in times)
        parts.append(f"{_moment(start)} to {_moment(end)} UTC")
    return "   ·   ".join(parts)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _moment(timestamp: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp / 1000, UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return str(timestamp)


def _amount(number: float, unit: str) -> str:
    """Return a number in three digits, with a prefix of its unit."""
    prefixes = ("", "k", "M", "G", "T", "P")
    power = 0
    while abs(number) >= 999.5 and power < len(prefixes) - 1:
        number, power = number / 1000, power + 1
    return f"{number:.3g} {prefixes[power]}{unit}".rstrip()


def _binary(size: float) -> str:
    """Return a power of two of bytes."""
    power = min(max(int(size).bit_length() - 1, 0) // 10, 4)
    return f"{size / (1 << 10 * power):.3g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


# -- over time


class _Window:
    """The time that is shown: without the few early or late stretches that would squeeze all others together."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        ordered = sorted(stretches)
        total = sum(stretch.size_bytes for stretch in ordered)
        spare = (1 - _SHOWN_SHARE) * total / 2
        while len(ordered) > 2 and ordered[0].size_bytes <= spare:
            spare -= ordered.pop(0).size_bytes
        spare = (1 - _SHOWN_SHARE) * total / 2
        while len(ordered) > 2 and ordered[-1].size_bytes <= spare:
            spare -= ordered.pop().size_bytes
        start = ordered[0].start_ms if ordered else 0
        end = ordered[-1].start_ms + 1 if ordered else 1
        gaps = [after.start_ms - before.start_ms for before, after in itertools.pairwise(ordered)]
        least = max(min((gap for gap in gaps if gap), default=_SECOND), math.ceil((end - start) / _MOST_BINS))
        self.width_ms = next((width for width in _WIDTHS if width >= least), _WIDTHS[-1])
        self.first = start // self.width_ms
        self.bins = max(1, -(-(end - self.first * self.width_ms) // self.width_ms))
        # Someone's clock may be in the year 10000.
        self.bins = min(self.bins, 10 * _MOST_BINS)

    @property
    def width_text(self) -> str:
        """How long a bin is, for people."""
        for unit, name in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute"), (_SECOND, "second")):
            if self.width_ms % unit == 0:
                count = self.width_ms // unit
                return name if count == 1 else f"{count} {name}s"
        return f"{self.width_ms} ms"

    @property
    def edges(self) -> list[datetime]:
        """The bounds of the bins."""
        edges = ((self.first + number) * self.width_ms / 1000 for number in range(self.bins + 1))
        return [datetime.fromtimestamp(min(edge, 253_402_300_799), UTC) for edge in edges]

    def sums(self, stretches: Sequence[Stretch], column: int) -> list[float]:
        """Return what was written in each bin."""
        sums = [0.0] * self.bins
        for stretch in stretches:
            number = stretch.start_ms // self.width_ms - self.first
            if 0 <= number < self.bins:
                sums[number] += stretch[column]
        return sums


def _series(logs: Sequence[LogStatistics]) -> dict[str, list[Stretch]]:
    """Return what is drawn in one color each: topics, or the partitions of the only topic; the smallest together."""
    is_one_topic = len({log.topic for log in logs}) == 1
    sizes: dict[str, int] = {}
    stretches: dict[str, list[Stretch]] = {}
    for log in logs:
        name = f"{log.topic}-{log.partition}" if is_one_topic else log.topic
        sizes[name] = sizes.get(name, 0) + log.size_bytes
        stretches.setdefault(name, []).extend(log.timeline.stretches)
    names = sorted((name for name in sizes if stretches[name]), key=lambda name: -sizes[name])
    shown = names if len(names) <= _MOST_SERIES else names[: _MOST_SERIES - 1]
    found = {name: stretches[name] for name in shown}
    if len(names) > len(shown):
        others = names[len(shown) :]
        found[f"{len(others)} others"] = [stretch for name in others for stretch in stretches[name]]
    return found


def _draw_times(
    axes: Axes, title: str, unit: str, window: _Window, series: Mapping[str, Sequence[Stretch]], *, column: int
) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import MaxNLocator

    axes.set_title(title)
    bottom = [0.0] * window.bins
    edges: Any = window.edges
    for number, (name, stretches) in enumerate(series.items()):
        top = [low + value for low, value in zip(bottom, window.sums(stretches, column), strict=True)]
        axes.stairs(top, edges, baseline=bottom, fill=True, color=_COLORS[number % len(_COLORS)], label=name)
        bottom = top
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: _amount(value, unit))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    axes.set_xlim(edges[0], edges[-1])
    if not series:
        axes.text(0.5, 0.5, "no timestamps", transform=axes.transAxes, ha="center", color="#888888")


# -- sizes


def _draw_batch_sizes(axes: Axes, logs: Sequence[LogStatistics]) -> None:
    sizes: dict[int, int] = {}
    for log in logs:
        for number, count in log.sizes.items():
            sizes[number] = sizes.get(number, 0) + count
    axes.set_title(f"Sizes of the batches ({sum(sizes.values()):,})")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: _binary(value))
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_ylabel("batches")
    if sizes:
        numbers = range(min(sizes), max(sizes) + 1)
        edges = [class_start(number) for number in numbers] + [class_start(numbers[-1] + 1)]
        axes.stairs([sizes.get(number, 0) for number in numbers], edges, fill=True, color=_COLORS[0])
        axes.set_ylim(bottom=0)


def _draw_log_sizes(axes: Axes, logs: Sequence[LogStatistics]) -> None:
    ordered = sorted(logs, key=lambda log: -log.size_bytes)
    shown = ordered[:_MOST_BARS]
    more = "" if len(shown) == len(logs) else f", the largest {len(shown)} of {len(logs)}"
    axes.set_title(f"Bytes of each partition{more}")
    names = [f"{log.topic}-{log.partition}" for log in shown]
    _bars(axes, names, [log.size_bytes for log in shown], "B", _COLORS[0])


def _draw_lags(axes: Axes, lags: Sequence[GroupLag], count: int) -> None:
    more = "" if len(lags) == count else f", the largest {len(lags)} of {count}"
    axes.set_title(f"Lag of the groups, in offsets{more}")
    names = [f"{lag.group}: {lag.topic_partition}" for lag in lags]
    _bars(axes, names, [lag.lag for lag in lags], "", _COLORS[1])


def _bars(axes: Axes, names: Sequence[str], values: Sequence[int], unit: str, color: str) -> None:
    places = range(len(names))
    axes.barh(places, values, height=0.7, color=color)
    axes.set_yticks(list(places), [name if len(name) <= 40 else f"{name[:39]}…" for name in names])
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    for place, value in zip(places, values, strict=True):
        axes.annotate(
            _amount(value, unit), (value, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8
        )
    axes.margins(x=0.18)
    axes.set_xlim(left=0)


# -- HTML


def _page(title: str, svg: str, logs: Sequence[LogStatistics]) -> bytes:
    columns = ("topic", "partition", "records", "batches", "bytes", "from", "to")
    rows = [
        (
            log.topic,
            log.partition,
            f"{log.records:,}",
            f"{log.batches:,}",
            f"{log.size_bytes:,}",
            "" if log.least_timestamp is None else _moment(log.least_timestamp),
            "" if log.greatest_timestamp is None else _moment(log.greatest_timestamp),
        )
        for log in logs
    ]
    picture = svg[svg.index("<svg") :]
    style = (
        "body{font-family:sans-serif;margin:2em auto;max-width:60em}svg{width:100%;height:auto}"
        "table{border-collapse:collapse}caption{text-align:left;font-weight:bold;padding:.4em 0}"
        "td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}"
        "td:first-child,th:first-child{text-align:left}"
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{style}</style></head><body>\n{picture}\n{html_table('Partitions', columns, rows)}\n</body></html>\n"
    ).encode()
