"""A pattern that RE2 alone decides on: for those of strangers, as Python's own can take hours for one record."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.inspection.searching.pattern import Field, RecordPattern
from odradek.records.kernels.search import Texts
from odradek.sources.condition import compiled


class Re2Pattern(RecordPattern):
    r"""A regular expression of RE2 over the text of some fields of a record.

    `\w` and its like are those of ASCII. The literal parts of the pattern are looked for first, at compiled speed.

    Args:
        pattern: The regular expression.
        fields: In which fields.
        ignore_case: Whether the case of letters is ignored.

    Raises:
        OptionError: It is no regular expression of RE2, or there is no such field.
    """

    def __init__(self, pattern: str, fields: Sequence[Field], *, ignore_case: bool) -> None:
        self._match = compiled(pattern, ignore_case=ignore_case).search
        super().__init__(pattern, fields=fields, ignore_case=ignore_case)

    def judged(self, texts: Texts) -> bytearray:
        """Leave all to `decide`."""
        return bytearray(b"\2") * len(texts)

    def decide(self, texts: Texts, verdicts: bytearray) -> None:
        """Try the pattern on each record."""
        for number in range(len(verdicts)):
            verdicts[number] = any(
                self._match(text.encode("utf-8", "surrogateescape")) is not None for text in texts.of(number)
            )
