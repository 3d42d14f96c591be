"""Conditions on the columns of a record, as SQL writes them: no queries, no files, and only the functions of a list.

    partition = 0 and value.user.id in (17, 42) and not key like 'test-%'

    or        and        not
    = <> < <= > >=       [not] in (...)       [not] like 'a%'       [not] between 1 and 9       is [not] null
    columns   topic partition offset timestamp timestamp_type key value default_partition
              value.user.id, key.id: a field of JSON (lists by number: value.items.0); headers.trace: a header's value
    literals  1 2.5 'text' true false null
    functions lower upper length contains starts_with ends_with matches coalesce is_json

A comparison with null is null, as in SQL, and a record is wanted only where the condition is true. Text of digits is
compared with a number as a number. `matches` and `like` are RE2, so no text takes long. `default_partition` is where
Kafka's own partitioner puts the key.
"""

from __future__ import annotations

import functools
import json
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import re2

from odradek.coordination import patterns
from odradek.errors import OptionError
from odradek.inspection.decoding import Content
from odradek.records import Record
from odradek.records.partitioner import partition_for_key
from odradek.records.timestamps import typed_bound_ms
from odradek.storage.names import TopicPartition

Value = str | int | float | bool | None
Expression = Callable[["Row"], Value]
"""Computes a value from a record."""

MOST_CHARACTERS = 4_000
_DEEPEST = 40
_NAME = r"[A-Za-z_]\w*(?:\.(?:\w+|\"[^\"]*\"))*"
_SIGN = "<>|!=|<=|>=|[=<>(),]"
_TOKEN = re.compile(
    rf"\s*(?:(?P<number>-?\d+(?:\.\d+)?)|(?P<text>'(?:[^']|'')*')|(?P<name>{_NAME})|(?P<sign>{_SIGN}))", re.ASCII
)
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<>": operator.ne, "!=": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_CONSTANTS: dict[str, Value] = {"true": True, "false": False, "null": None}
_MOST_BYTES = 8 << 20
_NOT_PARSED = object()


class Row(NamedTuple):
    """A record as a condition sees it, after what is not to be shown was left out.

    Attributes:
        owner: Its partition.
        record: The record.
        key: Its key; text is JSON that was decoded.
        value: Its value.
        headers: Its headers.
        partitions: How many partitions its topic has; 0 if that is not known.
        parsed: The JSON of its key and value, as far as it was needed.
    """

    owner: TopicPartition
    record: Record
    key: Content
    value: Content
    headers: Sequence[tuple[str, bytes | None]]
    partitions: int
    parsed: dict[str, Any]

    def json(self, name: str) -> Any:
        """Return the key or the value as JSON; None if it is none."""
        found = self.parsed.get(name, _NOT_PARSED)
        if found is _NOT_PARSED:
            found = self.parsed[name] = parsed_json(getattr(self, name))[1]
        return found


def parsed_json(content: Content) -> tuple[bool, Any]:
    """Return whether a content is JSON, and which."""
    try:
        return (False, None) if content is None else (True, json.loads(content))
    except (ValueError, RecursionError):
        return False, None


def text_of(content: Content) -> str | None:
    """Return a content as text; bytes that are not UTF-8 are escaped (`\\xff`)."""
    return content.decode("utf-8", "backslashreplace") if isinstance(content, bytes) else content


def compiled(pattern: str, *, ignore_case: bool = False) -> Any:
    """Compile a regular expression of RE2.

    Args:
        pattern: The regular expression.
        ignore_case: Whether the case of letters is ignored.

    Raises:
        OptionError: RE2 does not take it.
    """
    try:
        return patterns.compiled(f"(?i){pattern}" if ignore_case else pattern, _MOST_BYTES)
    except (re2.error, UnicodeError) as error:
        raise OptionError(f"{pattern!r} is not a regular expression of RE2: {error}") from error


def condition(text: str) -> Callable[[Row], bool]:
    """Return what tells whether a record is wanted.

    Raises:
        OptionError: The text is not a condition.
    """
    wanted = _Parser(text).whole(_Parser.disjunction)
    return lambda row: wanted(row) is True


def expression(text: str) -> Expression:
    """Return what computes a column, a field of JSON or a function of these.

    Raises:
        OptionError: The text is nothing of the kind.
    """
    return _Parser(text).whole(_Parser.operand)


class _Parser:
    """Reads one text, by recursive descent."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0
        self._tokens: list[tuple[str, str, int]] = []
        if len(text) > MOST_CHARACTERS:
            raise OptionError(f"a condition has at most {MOST_CHARACTERS} characters")
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._error(position)
            assert match.lastgroup is not None
            self._tokens.append((match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
            position = match.end()
        self._tokens.append(("end", "", len(text)))
        self._next = 0

    def _error(self, position: int, wanted: str = "") -> OptionError:
        found = self._text[position : position + 20].strip() or "the end"
        return OptionError(
            f"condition: unexpected {found!r} at character {position}{wanted and f', expected {wanted}'}"
        )

    def whole(self, rule: Callable[[_Parser], Expression]) -> Expression:
        """Read all of the text by a rule."""
        found = rule(self)
        if self._tokens[self._next][0] != "end":
            raise self._error(self._tokens[self._next][2])
        return found

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise OptionError("condition: nested too deeply")

    def _takes(self, *words: str) -> bool:
        """Step over words, if they are next."""
        following = self._tokens[self._next : self._next + len(words)]
        if [token[1].lower() for token in following] != list(words):
            return False
        self._next += len(words)
        return True

    def _expect(self, word: str) -> None:
        if not self._takes(word):
            raise self._error(self._tokens[self._next][2], word)

    def disjunction(self) -> Expression:
        """Read `a or b`."""
        parts = [self._conjunction()]
        while self._takes("or"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else functools.partial(_any_of, parts)

    def _conjunction(self) -> Expression:
        parts = [self._negation()]
        while self._takes("and"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else functools.partial(_all_of, parts)

    def _negation(self) -> Expression:
        self._deeper()
        if self._takes("not"):
            found = _negated(self._negation())
        elif self._takes("("):
            found = self.disjunction()
            self._expect(")")
        else:
            found = self._predicate()
        self._depth -= 1
        return found

    def _predicate(self) -> Expression:
        is_time = self._tokens[self._next][1].lower() == "timestamp"
        left = self.operand()
        if self._takes("is", "not", "null"):
            return lambda row: left(row) is not None
        if self._takes("is", "null"):
            return lambda row: left(row) is None
        is_negated = self._takes("not")
        found: Expression | None = None
        if self._takes("in"):
            found = _any_equal(left, self._several(is_time))
        elif self._takes("like"):
            found = _matching(left, _like(self._literal_text()), is_whole=True)
        elif self._takes("between"):
            low = self.operand(is_time)
            self._expect("and")
            found = functools.partial(
                _all_of, [_comparison(operator.ge, left, low), _comparison(operator.le, left, self.operand(is_time))]
            )
        if found is not None:
            return _negated(found) if is_negated else found
        if is_negated:
            raise self._error(self._tokens[self._next][2], "in, like or between")
        kind, sign, _ = self._tokens[self._next]
        if kind != "sign" or sign not in _COMPARED:
            return left
        self._next += 1
        return _comparison(_COMPARED[sign], left, self.operand(is_time))

    def _several(self, is_time: bool) -> list[Expression]:
        self._expect("(")
        found = [self.operand(is_time)]
        while self._takes(","):
            found.append(self.operand(is_time))
        self._expect(")")
        return found

    def _literal_text(self) -> str:
        kind, text, position = self._tokens[self._next]
        if kind != "text":
            raise self._error(position, "a text in single quotes")
        self._next += 1
        return text[1:-1].replace("''", "'")

    def operand(self, is_time: bool = False) -> Expression:
        """Read a literal, a column or a call of a function.

        Args:
            is_time: Whether a text stands for a time.
        """
        kind, text, position = self._tokens[self._next]
        if kind == "number":
            self._next += 1
            return _constant(float(text) if "." in text else int(text))
        if kind == "text":
            literal = self._literal_text()
            return _constant(typed_bound_ms(literal) if is_time else literal)
        if kind != "name":
            raise self._error(position, "a column, a literal or a function")
        self._next += 1
        if self._takes("("):
            return self._call(text.lower(), position)
        if text.lower() in _CONSTANTS:
            return _constant(_CONSTANTS[text.lower()])
        names = [part.strip('"') for part in re.findall(r'"[^"]*"|[^."]+', text)]
        return _column(names)

    def _call(self, name: str, position: int) -> Expression:
        if name == "matches":
            self._deeper()
            of = self.operand()
            self._depth -= 1
            self._expect(",")
            found = _matching(of, compiled(self._literal_text()), is_whole=False)
            self._expect(")")
            return found
        if name not in FUNCTIONS:
            raise self._error(position, f"one of the functions {', '.join((*FUNCTIONS, 'matches'))}")
        self._next -= 1
        self._deeper()
        arguments = self._several(False)
        self._depth -= 1
        count, function = FUNCTIONS[name]
        if count and len(arguments) != count:
            raise OptionError(f"condition: {name} takes {count} argument{'s' * (count > 1)}, not {len(arguments)}")
        return lambda row: function(*(argument(row) for argument in arguments))


def _constant(value: Value) -> Expression:
    return lambda row: value


def _column(names: list[str]) -> Expression:
    root, path = names[0].lower(), names[1:]
    if root in ("key", "value"):
        if path:
            return lambda row: _field(row.json(root), path)
        return lambda row: text_of(getattr(row, root))
    if root == "headers" and path:
        name = ".".join(path)
        return lambda row: next((text_of(value) for key, value in row.headers if key == name), None)
    if not path and root in ("topic", "partition"):
        return lambda row: getattr(row.owner, root)
    if not path and root in ("offset", "timestamp", "timestamp_type"):
        return lambda row: getattr(row.record, root)
    if not path and root == "default_partition":
        return _default_partition
    raise OptionError(
        f"condition: no column {'.'.join(names)!r}; there are topic, partition, offset, timestamp, timestamp_type, "
        "key, value, default_partition, key.FIELD, value.FIELD and headers.NAME"
    )


def _default_partition(row: Row) -> Value:
    key = row.record.key
    return None if key is None or not row.partitions else partition_for_key(key, row.partitions)


def _field(found: Any, path: list[str]) -> Value:
    for name in path:
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return json.dumps(found) if isinstance(found, dict | list) else found


def _negated(inner: Expression) -> Expression:
    def negated(row: Row) -> Value:
        found = inner(row)
        return None if found is None else not found

    return negated


def _joined(decisive: bool, parts: Iterable[Expression], row: Row) -> Value:
    """Join parts by `or`, which a true one decides, or by `and`, which a false one does; else null wins."""
    found: Value = not decisive
    for part in parts:
        one = part(row)
        if one is None:
            found = None
        elif bool(one) is decisive:
            return decisive
    return found


_all_of = functools.partial(_joined, False)
_any_of = functools.partial(_joined, True)


def _comparison(compare: Callable[[Any, Any], bool], left: Expression, right: Expression) -> Expression:
    def compared(row: Row) -> Value:
        one, other = left(row), right(row)
        if one is None or other is None:
            return None
        if isinstance(one, str) != isinstance(other, str):
            # A key of digits is compared with a number, say.
            try:
                one, other = float(one), float(other)
            except (ValueError, OverflowError):
                return None
        return compare(one, other)

    return compared


def _any_equal(left: Expression, right: list[Expression]) -> Expression:
    return functools.partial(_any_of, [_comparison(operator.eq, left, one) for one in right])


def _like(pattern: str) -> Any:
    parts = {"%": "(?s:.*)", "_": "(?s:.)"}
    return compiled("".join(parts.get(char) or re2.escape(char) for char in pattern))


def _matching(of: Expression, pattern: Any, *, is_whole: bool) -> Expression:
    match = pattern.fullmatch if is_whole else pattern.search

    def matching(row: Row) -> Value:
        text = of(row)
        return None if text is None else match(str(text).encode("utf-8", "replace")) is not None

    return matching


def _of_texts(function: Callable[..., Value]) -> Callable[..., Value]:
    """Return a function of texts that is null if one of them is."""
    return lambda *given: None if None in given else function(*map(str, given))


FUNCTIONS: dict[str, tuple[int, Callable[..., Value]]] = {
    "lower": (1, _of_texts(str.lower)),
    "upper": (1, _of_texts(str.upper)),
    "length": (1, _of_texts(len)),
    "contains": (2, _of_texts(lambda text, part: part in text)),
    "starts_with": (2, _of_texts(str.startswith)),
    "ends_with": (2, _of_texts(str.endswith)),
    "coalesce": (0, lambda *given: next((one for one in given if one is not None), None)),
    "is_json": (1, lambda text: None if text is None else parsed_json(str(text))[0]),
}
"""The functions, with the number of their arguments; 0 for any."""
