"""Picks, of the rows of one log, those around the ones that were found.

    row  row  FOUND  row  row  row  None  row  row  FOUND ...         with two before and one after:
    row  row  FOUND  row            |     row  row  FOUND ...

None stands for a gap, which no context crosses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from odradek.inspection.searching.part_search import Context, Row


class ContextWindow:
    """The window over one log.

    Args:
        context: How many rows around each that was found are wanted.
        limit: How many that were found are wanted; all if None.

    Attributes:
        found: How many that were found were given.
    """

    def __init__(self, context: Context, limit: int | None = None) -> None:
        self.found = 0
        self._limit = limit
        self._after = context.after
        self._before: deque[Row] = deque(maxlen=context.before)
        self._left = 0
        self._is_apart = True

    @property
    def is_done(self) -> bool:
        """Whether no further row will be given."""
        return self.found == self._limit and not self._left

    def rows(self, rows: Iterable[Row | None]) -> Iterator[tuple[Row, bool]]:
        """Yield the rows that are wanted, and whether others were left out between one and the row given before it."""
        for row in rows:
            if self.is_done:
                return
            if row is None:
                self._before.clear()
                self._is_apart = True
            elif row.is_found and self.found != self._limit:
                for earlier in self._before:
                    yield self._given(earlier)
                self._before.clear()
                yield self._given(row)
                self.found += 1
                self._left = self._after
            elif self._left:
                self._left -= 1
                yield self._given(row)
            else:
                self._is_apart |= len(self._before) == self._before.maxlen
                self._before.append(row)

    def _given(self, row: Row) -> tuple[Row, bool]:
        is_apart, self._is_apart = self._is_apart, False
        return row, is_apart
