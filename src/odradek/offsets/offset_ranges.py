"""Ranges of offsets, as programs with Spark's direct streams (DStreams) kept them in texts.

    events,0,100,120          topic, partition, first offset, offset after the last; one on each line
    events:0:100:120          the same, with colons
    OffsetRange(topic: 'events', partition: 0, range: [100 -> 120])
    {"topic": "events", "partition": 0, "fromOffset": 100, "untilOffset": 120}                 also many in an array
    [{'topic': u'events', 'partition': 0, 'fromOffset': 100L, 'untilOffset': 120L}]            Python's `str`, 2 or 3

Such programs read Python's text by `eval`. Here nothing is evaluated: a text is taken apart by the few forms of a token
that it may have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

from odradek.errors import OffsetStoreError
from odradek.offsets.store import MAX_OFFSET, MAX_PARTITION, NUMBER, unique_fields
from odradek.storage.names import TopicPartition, invalid_topic_name_reason

_PLAIN = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]+)(?P<mark>[,:;|\s])\s*"
    rf"(?P<partition>{NUMBER})(?P=mark)\s*(?P<start>{NUMBER})(?P=mark)\s*(?P<end>{NUMBER})",
    re.ASCII,
)
_OF_SPARK = re.compile(
    rf"OffsetRange\(topic: '?(?P<topic>[A-Za-z0-9._-]+)'?, partition: (?P<partition>{NUMBER}), "
    rf"range: \[(?P<start>{NUMBER}) -> (?P<end>{NUMBER})\]\)",
    re.ASCII,
)
_FIELDS = ("topic", "partition", "fromOffset", "untilOffset")
_ENDS = ("untilOffset", "until_offset", "until", "endOffset", "end")
_TOKEN = re.compile(
    r"""(?P<mark>[][{}(),:])|[uU]?(?P<text>'[^'\\\n]*'|"[^"\\\n]*")|(?P<number>"""
    rf"{NUMBER})[lL]?(?![\w.])",
    re.ASCII,
)
_CLOSING = {"[": "]", "(": ")", "{": "}"}
_MOST_NESTED = 3


class OffsetSpan(NamedTuple):
    """The offsets that a program has done, the end exclusive."""

    start: int
    end: int


class TextForm(Enum):
    """The form of a text, as far as the same form can be written."""

    PYTHON = "a list of Python"
    JSON = "a list in JSON"
    OTHER = "another form"


def parse_ranges(text: str, where: str) -> tuple[list[tuple[TopicPartition, OffsetSpan]], TextForm]:
    """Return the ranges of a text, and its form.

    Raises:
        OffsetStoreError: The text has none of the forms; `where` names its place.
    """
    text = text.strip()
    if text[:1] not in ("{", "["):
        return list(_of_lines(text, where)), TextForm.OTHER
    form = TextForm.JSON
    try:
        content = json.loads(text, object_pairs_hook=unique_fields)
    except (ValueError, RecursionError):
        content, form = _PythonText(text, where).content(), TextForm.PYTHON
    is_list = isinstance(content, list) and all(isinstance(entry, (dict, list, tuple)) for entry in content)
    entries = content if is_list else [content]
    if not entries:
        return [], TextForm.PYTHON
    if not (is_list and all(isinstance(entry, dict) and sorted(entry) == sorted(_FIELDS) for entry in entries)):
        form = TextForm.OTHER
    return [_of_entry(entry, where) for entry in entries], form


def format_ranges(ranges: Mapping[TopicPartition, OffsetSpan], form: TextForm) -> str:
    """Return ranges as one text, in JSON or as Python 3's `str` writes them."""
    entries = [dict(zip(_FIELDS, (*name, *span), strict=True)) for name, span in sorted(ranges.items())]
    return json.dumps(entries) if form is TextForm.JSON else str(entries)


def _of_lines(text: str, where: str) -> Iterator[tuple[TopicPartition, OffsetSpan]]:
    for line in text.splitlines() or [""]:
        match = _PLAIN.fullmatch(line.strip()) or _OF_SPARK.fullmatch(line.strip())
        if match is None:
            raise OffsetStoreError(f"{where}: {line!r:.100} is no range, such as events,0,100,120")
        yield _checked([match[name] for name in ("topic", "partition", "start", "end")], line, where)


def _of_entry(entry: Any, where: str) -> tuple[TopicPartition, OffsetSpan]:
    fields: list[Any] = []
    if isinstance(entry, dict):
        end = next((entry[name] for name in _ENDS if name in entry), None)
        fields = [entry.get("topic"), entry.get("partition"), entry.get("fromOffset", 0), end]
    elif isinstance(entry, (list, tuple)) and len(entry) == len(_FIELDS):
        fields = list(entry)
    if not (fields and isinstance(fields[0], str) and all(_is_number(field) for field in fields[1:])):
        example = '{"topic": "events", "partition": 0, "fromOffset": 100, "untilOffset": 120}'
        raise OffsetStoreError(f"{where}: {entry!r:.100} is no range, such as {example}")
    return _checked(fields, entry, where)


def _checked(fields: list[Any], shown: Any, where: str) -> tuple[TopicPartition, OffsetSpan]:
    """Return the range of a topic and three numbers; half of a number that was cut is smaller than it was."""
    topic, (partition, start, end) = fields[0], map(int, fields[1:])
    if invalid_topic_name_reason(topic) or partition > MAX_PARTITION or not start <= end <= MAX_OFFSET:
        raise OffsetStoreError(f"{where}: {shown!r:.100} is no range: Kafka has no such topic, partition or offsets")
    return TopicPartition(topic, partition), OffsetSpan(start, end)


def _is_number(field: Any) -> bool:
    return isinstance(field, int | str) and re.fullmatch(NUMBER, str(field)) is not None


class _PythonText:
    """Reads lists, tuples, dicts, texts without escapes, and numbers, as Python 2 and Python 3 print them."""

    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where
        self._position = 0

    def content(self) -> Any:
        """Return what the text stands for.

        Raises:
            OffsetStoreError: It has something else in it, or is not complete.
        """
        content = self._value(self._next(), 0)
        if self._position < len(self._text):
            raise self._error("the end")
        return content

    def _next(self, wanted: str = "a value") -> re.Match[str]:
        match = _TOKEN.match(self._text, self._position)
        if match is None:
            raise self._error(wanted)
        self._position = match.end()
        while self._text[self._position : self._position + 1].isspace():
            self._position += 1
        return match

    def _value(self, token: re.Match[str], depth: int) -> Any:
        if token["number"]:
            return int(token["number"])
        if token["text"]:
            return token["text"][1:-1]
        if token["mark"] not in _CLOSING or depth == _MOST_NESTED:
            raise self._error("a value", token.start())
        closing = _CLOSING[token["mark"]]
        items: list[Any] = []
        while (token := self._next())["mark"] != closing:
            item = self._value(token, depth + 1)
            if closing == "}":
                if not isinstance(item, str) or self._next("':'")["mark"] != ":":
                    raise self._error("a name and ':'", token.start())
                item = item, self._value(self._next(), depth + 1)
            items.append(item)
            token = self._next(f"',' or {closing!r}")
            if token["mark"] == closing:
                break
            if token["mark"] != ",":
                raise self._error(f"',' or {closing!r}", token.start())
        if closing == "}" and len(dict(items)) < len(items):
            raise self._error("each name once")
        return dict(items) if closing == "}" else items

    def _error(self, wanted: str, position: int | None = None) -> OffsetStoreError:
        at = self._position if position is None else position
        found = repr(self._text[at : at + 20]) if at < len(self._text) else "the end"
        return OffsetStoreError(
            f"{self._where}: {self._text!r:.100} is neither a range nor JSON nor a list of Python: at position {at} "
            f"expected {wanted}, got {found}"
        )
