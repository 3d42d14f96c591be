"""What is looked for in records: a pattern over key, value and headers."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Literal as Word

from odradek.buffers import Buffer
from odradek.errors import OptionError
from odradek.inspection.searching.re2_pattern import re2_pattern
from odradek.inspection.searching.required_literals import is_literal, required_literals
from odradek.inspection.selection import DumpSelection
from odradek.records.kernels.search import RecordSearch, Texts, chosen
from odradek.records.large_section import open_section

Field = Word["key", "value", "headers"]
FIELDS: tuple[Field, ...] = ("key", "value", "headers")

Judge = Callable[[Texts], bytearray]
"""Returns a byte for each record: 1 if it matches, 0 if not, 2 if one of its texts is not plain."""

_FEW = 20_000
"""After this many records that Python has tried, RE2 is loaded, which takes a tenth of a second."""


class RecordPattern:
    """A regular expression of Python's `re`, over the text of some fields of a record.

    Bytes are read as UTF-8. A byte that is not UTF-8 is a character of its own, which `.` matches, and the same byte in
    the pattern (as `surrogateescape` writes it). Null matches nothing, and each header's name and value is a text of
    its own.

    Args:
        pattern: The regular expression.
        fixed: Whether it is a text that is to be found as it stands.
        ignore_case: Whether the case of letters is ignored.
        fields: In which fields: any of `FIELDS`; `headers` are their names and values.
        invert: Whether the records are wanted that do not match.
        load_re2: Called with a pattern in RE2's syntax when there is much to try it on; returns what judges by it, or
            None.

    Attributes:
        regex: The regular expression.
        re2: The same for RE2; None if there is none, or no pattern is tried.
        is_literal: Whether every record that `search` finds is wanted, and no pattern is tried.

    Raises:
        OptionError: It is no regular expression, or there is no such field.
    """

    def __init__(
        self,
        pattern: str,
        *,
        fixed: bool = False,
        ignore_case: bool = False,
        fields: Iterable[Field] = FIELDS,
        invert: bool = False,
        load_re2: Callable[[str], Judge | None] = lambda pattern: None,
    ) -> None:
        wanted = frozenset(fields)
        if not wanted or not wanted <= set(FIELDS):
            raise OptionError(f"fields must be some of {', '.join(FIELDS)}, not {', '.join(sorted(wanted)) or 'none'}")
        try:
            self.regex = re.compile(re.escape(pattern) if fixed else pattern, re.IGNORECASE if ignore_case else 0)
            self.is_literal = is_literal(self.regex)
            self._literals = () if invert and not self.is_literal else required_literals(self.regex)
        except (re.error, OverflowError, RecursionError) as error:
            raise OptionError(f"{pattern!r} is not a regular expression: {error}") from error
        self._in_key, self._in_value, self._in_headers = ("key" in wanted, "value" in wanted, "headers" in wanted)
        self._invert = invert
        self.re2 = None if self.is_literal else re2_pattern(self.regex)
        self._load_re2 = load_re2
        self._tried = 0

    def search(self, selection: DumpSelection, aborted: Sequence[tuple[int, int, int]] = ()) -> RecordSearch:
        """Return what finds the records that are wanted, or that the pattern is to be tried on.

        Args:
            selection: Which records are looked at.
            aborted: Transactions that are left out: producer id, first offset, offset of the marker.
        """
        return RecordSearch(
            open_section,
            self._literals,
            self._in_key,
            self._in_value,
            self._in_headers,
            self._invert and self.is_literal,
            not self.is_literal,
            self.re2 is None or self.re2.is_of_ascii,
            *selection.bounds,
            aborted,
        )

    def judged(self, texts: Texts) -> bytearray:
        """Return a byte for each record: 1 if it matches, 0 if not, 2 if that is not known.

        Any thread may call it, and others run meanwhile.
        """
        judge = self._judge if self._tried >= _FEW else None
        return bytearray(b"\2") * len(texts) if judge is None else judge(texts)

    def decide(self, texts: Texts, verdicts: bytearray) -> None:
        """Replace each 2 of `judged` by 1 or 0."""
        number = verdicts.find(2)
        while number >= 0:
            verdicts[number] = any(map(self.regex.search, texts.of(number)))
            self._tried += 1
            number = verdicts.find(2, number + 1)

    def chosen(self, marks: Buffer, verdicts: bytearray) -> Buffer:
        """Return the marks of the records that are wanted."""
        return chosen(marks, verdicts, self._invert)

    @functools.cached_property
    def _judge(self) -> Judge | None:
        return None if self.re2 is None else self._load_re2(self.re2.pattern)
