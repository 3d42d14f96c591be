"""What is left out of records, wherever they are shown, searched, counted or exported by a console or a tool."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek.inspection.decoding import Content, ValueDecoder, decode_of
from odradek.inspection.record_json import Decode
from odradek.inspection.searching.pattern import FIELDS, Field
from odradek.records import Record
from odradek.sources.condition import Row, compiled
from odradek.storage.names import TopicPartition

_REDACTED = b"[redacted]"


class Redaction:
    """Leaves parts out of records; one thread at a time.

    Args:
        redact: `key`, `value`, `headers`, or a path such as `value.card.number`.
        values: Decodes values.

    Attributes:
        whole: The parts that are left out as a whole.
        paths: The parts of keys and values that are JSON which are left out.
    """

    def __init__(self, redact: Sequence[str], values: ValueDecoder | None = None) -> None:
        self.whole = frozenset(part for part in redact if part in FIELDS)
        self.paths = tuple(part for part in redact if part not in FIELDS)
        self._values = values
        self._decoders: dict[str, Decode | None] = {}

    @property
    def hides_anything(self) -> bool:
        """Whether anything is left out."""
        return bool(self.whole or self.paths)

    def hides(self, part: str) -> bool:
        """Whether a key, a value or headers are shown without some of their content, or not at all."""
        return part in self.whole or any(path.split(".")[0] == part for path in self.paths)

    def fields(self, wanted: Sequence[Field]) -> list[Field]:
        """Return those fields of records of which something is shown."""
        return [name for name in wanted if name not in self.whole]

    def row(self, owner: TopicPartition, record: Record, partitions: int = 0) -> Row:
        """Return a record as it is shown, and as conditions see it."""
        if owner.topic not in self._decoders:
            self._decoders[owner.topic] = decode_of(owner.topic, self._values, self.paths, lambda record, error: None)
        decode = self._decoders[owner.topic]
        key, value = (record.key, record.value) if decode is None else decode(record)
        headers: Sequence[tuple[str, bytes | None]] = record.headers
        if "headers" in self.whole:
            headers = [(name, None if value is None else _REDACTED) for name, value in headers]
        # The hash of a key would tell something of it.
        known = 0 if self.hides("key") else partitions
        return Row(owner, record, self._shown("key", key), self._shown("value", value), headers, known, {})

    def _shown(self, name: str, data: Content) -> Content:
        return _REDACTED if data is not None and name in self.whole else data


def matching(pattern: str, fields: Sequence[Field], *, ignore_case: bool) -> Callable[[Row], bool]:
    """Return what tells whether a pattern matches in a record as it is shown, so that no search tells what is not.

    Raises:
        OptionError: It is no regular expression of RE2.
    """
    search = compiled(pattern, ignore_case=ignore_case).search

    def matches(row: Row) -> bool:
        texts: list[Content] = [row.key] if "key" in fields else []
        texts += [row.value] if "value" in fields else []
        texts += [part for header in row.headers for part in header] if "headers" in fields else []
        shown = (
            text if isinstance(text, bytes) else text.encode("utf-8", "replace") for text in texts if text is not None
        )
        return any(search(text) is not None for text in shown)

    return matches
