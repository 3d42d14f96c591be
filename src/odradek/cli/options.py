"""Values that several commands take on their command line."""

from __future__ import annotations

from typing import Any

import click

from odradek.records.timestamps import timestamp_ms


class OffsetRange(click.ParamType[Any]):
    """`A:B`, half-open, either end may be missing; `A` alone is one offset."""

    name = "A:B"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a pair of offsets or None."""
        if not isinstance(value, str):
            return value
        first, separator, last = value.partition(":")
        try:
            start = int(first) if first else None
            end = int(last) if last else None
        except ValueError:
            self.fail(f"{value!r} is not of the form A:B, two offsets", param, ctx)
        if not separator:
            if start is None:
                self.fail("an empty range", param, ctx)
            end = start + 1
        if min(start or 0, end or 0) < 0:
            self.fail(f"{value!r} has a negative offset", param, ctx)
        if start is not None and end is not None and end < start:
            self.fail(f"{value!r} ends before it begins", param, ctx)
        return start, end


class Timestamp(click.ParamType[Any]):
    """Milliseconds since the epoch, or a date or time of ISO 8601; UTC where it names no zone."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return milliseconds."""
        if not isinstance(value, str):
            return value
        try:
            return int(value)
        except ValueError:
            pass
        try:
            return timestamp_ms(value)
        except ValueError:
            self.fail(f"{value!r} is neither milliseconds nor a time such as 2026-11-01T12:00:00", param, ctx)
