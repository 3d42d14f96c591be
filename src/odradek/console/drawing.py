"""The plots of the console: sampled minutes, how the logs of a topic grew, segments and sizes of files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from odradek.console.history import GAP_MS
from odradek.console.source import TopicTotals
from odradek.console.text_filters import number_text, time_text
from odradek.errors import FormatError, LogError
from odradek.inspection.growth import first_timestamp, grown_at, growth
from odradek.inspection.live_segments import LiveSegment, find_end, live_segments
from odradek.inspection.log_files import partition_folder
from odradek.minutes import MINUTE_MS, Minute, this_minute
from odradek.places.place import Place
from odradek.plots import Span, Svg, largest_bars, series, timeline
from odradek.printable import size_text
from odradek.records.timestamps import now_ms
from odradek.storage.names import TopicPartition

_SMALL = 400
"""The width of a small plot: about its pixels on a page, so that its text is not scaled."""

DRAWN_PARTITIONS = 16
"""How many partitions are drawn at most."""

_DRAWN_SEGMENTS = 400
_BUCKETS = 60
_ASKED = 24
_DAY_MS = 86_400_000
_UNREADABLE = (OSError, FormatError, LogError)
"""What a partition is left out for: what cannot be read is among the problems that pages list."""


def drawn(*plots: Svg | None) -> list[Svg]:
    """Return the plots that have something to show."""
    return [plot for plot in plots if plot is not None]


def levels(title: str, minutes: Sequence[Minute], text: Callable[[float], str] = number_text) -> Svg | None:
    """Return a plot of the levels of minutes; None without any."""
    return series(title, [(one.number * MINUTE_MS, one.level) for one in minutes], text, gap_ms=GAP_MS, width=_SMALL)


def rates(title: str, minutes: Sequence[Minute]) -> Svg | None:
    """Return a plot of the amounts of minutes, per second; None without a minute that is over."""
    now = this_minute()
    points = [(one.number * MINUTE_MS, one.amount / 60) for one in minutes if one.number < now]
    return series(title, points, number_text, gap_ms=GAP_MS, width=_SMALL)


def growth_plots(folder: Path, names: Sequence[TopicPartition], since: int | None, until: int | None) -> list[Svg]:
    """Return plots of the rate at which the logs of a folder grew, and of their size, within a range of times."""
    logs = []
    for name in names:
        with suppress(*_UNREADABLE):
            logs.append(growth(partition_folder(folder / str(name))))
    logs = [log for log in logs if log]
    if not logs:
        return []
    first = max(min(log[0].timestamp for log in logs), -1 if since is None else since)
    last = min(max(log[-1].timestamp for log in logs), first + (1 << 60) if until is None else until)
    if last <= first:
        return []
    times = _times(first, last, _BUCKETS)
    grown = [grown_at(log, times) for log in logs]
    offsets = [sum(log[number].offset for log in grown) for number in range(len(times))]
    sizes = [(time, sum(log[number].size_bytes for log in grown)) for number, time in enumerate(times)]
    return drawn(_rate(times, offsets), series("Size, by the times of records", sizes, size_text, width=_SMALL))


def asked_plots(place: Place, names: Sequence[TopicPartition], since: int | None, until: int | None) -> list[Svg]:
    """Return a plot of the rate at which the logs of a broker grew, by ListOffsets; by default of the last day."""
    last = now_ms() if until is None else until
    first = last - _DAY_MS if since is None else since
    bounds = place.all_bounds(names)
    if last <= first or not bounds:
        return []
    times = _times(first, last, _ASKED)
    offsets: list[float] = []
    for time in times:
        found = place.offsets_for_times(dict.fromkeys(bounds, time))
        # A partition without such a record has reached its end.
        reached = {name: held.end_offset for name, held in bounds.items()}
        reached |= {name: offset for name, offset in found.items() if offset is not None}
        offsets.append(sum(reached.values()))
    return drawn(_rate(times, offsets))


def _times(first: int, last: int, most: int) -> list[int]:
    """Return different times from the first to the last; records may be a millisecond apart, or of any year."""
    return sorted({first + (last - first) * number // most for number in range(most + 1)})


def _rate(times: Sequence[int], offsets: Sequence[float]) -> Svg | None:
    """Return a plot of the offsets written per second, from the offsets reached at each time."""
    spans = zip(pairwise(times), pairwise(offsets), strict=True)
    points = [(start, max(0.0, after - before) * 1000 / (end - start)) for (start, end), (before, after) in spans]
    return series("Offsets written per second, by the times of records", points, number_text, width=_SMALL)


def segments_timeline(folder: Path, names: Sequence[TopicPartition]) -> Svg | None:
    """Return a plot of the segments of the first partitions of a log directory, by the times of their records."""
    spans: list[Span] = []
    for name in names[:DRAWN_PARTITIONS]:
        with suppress(*_UNREADABLE):
            for segment in live_segments(partition_folder(folder / str(name)))[: _DRAWN_SEGMENTS - len(spans)]:
                spans.extend(_span(name, segment))
    return timeline("Segments by the times of their records", spans)


def _span(name: TopicPartition, segment: LiveSegment) -> Iterator[Span]:
    start, end = first_timestamp(segment), find_end(segment)
    if start is None or end.last_timestamp is None or start < 0:
        return
    start, stop = sorted((start, end.last_timestamp))
    text = (
        f"segment {segment.base_offset} to {end.next_offset - 1}, {size_text(end.size_bytes)}, "
        f"{time_text(start)} to {time_text(stop)}"
    )
    yield Span(str(name), start, stop, text)


def largest_topics(topics: Mapping[str, TopicTotals], most: int) -> Svg | None:
    """Return a plot of the sizes of the largest topics."""
    sizes = {name: totals.size_bytes or 0 for name, totals in topics.items()}
    return largest_bars("The largest topics", sizes, size_text, most)
