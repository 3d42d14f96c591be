"""The segments of a log on a line of time, for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odradek.plots import Span, timeline
from odradek.records.timestamps import iso_text
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.timestamp_lookup import largest_timestamp

_DRAWN_SEGMENTS = 100
_WALKED_BYTES = 4 << 20


def segments_timeline(name: str, segments: Sequence[Segment]) -> tuple[str, str]:
    """Return a plot of the newest segments of a log, as SVG, and the time of the newest record, as far as it is known.

    Of records only the headers of batches are read.
    """
    spans = [*_spans(name, segments[-_DRAWN_SEGMENTS:])]
    newest = max((iso_text(span.end_ms) for span in spans), default="not known")
    return timeline("Segments by the times of their records", spans) or "", newest


def _spans(name: str, segments: Sequence[Segment]) -> Iterator[Span]:
    for segment in segments:
        # Without an index, the whole segment would have to be read.
        is_known = segment.known_largest() is not None or segment.time_index.count
        if not is_known and segment.size_bytes > _WALKED_BYTES:
            continue
        first, newest = next(iter(segment.scan()), None), largest_timestamp(segment).timestamp
        if first is not None and first.base_timestamp >= 0 and newest >= 0:
            start, end = sorted((first.base_timestamp, newest))
            text = f"segment {segment.base_offset}, {segment.size_bytes:,} bytes, {iso_text(start)} to {iso_text(end)}"
            yield Span(name, start, end, text)
