r"""The same regular expression for RE2, which matches many texts at once, in linear time and without the GIL.

    user=\d+(?:ok|failed)$    ->    user=[0-9]{1,}(?:ok|failed)\n?\z        of texts that are ASCII

RE2 has fewer constructs than Python's `re`, and means other things by some. So the pattern is written again, from what
Python's own parser makes of it, construct by construct; of a pattern with any other construct there is none for RE2:

* references to groups, assertions about what comes before or after, atomic groups and possessive repeats;
* `$` anywhere but at the end, and `\B`, which does not match an empty text in Python;
* a repeat of what may be empty, and one of more than 1,000 times;
* the flag `re.ASCII`.

Letters, digits and spaces (`\w`, `\d`, `\s`, `\b`), and letters whose case is ignored, are those of Unicode in Python,
and RE2 has another version of it. A pattern with them is for texts that are ASCII. Every other one is for any UTF-8.

Source: `re._parser`; https://github.com/google/re2/wiki/Syntax.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

_MOST_REPEATS = 1000

_DIGITS = [(0x30, 0x39)]
_WORDS = [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)]
_SPACES = [(0x09, 0x0D), (0x1C, 0x20)]
_LAST = 0x7F


def _others(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    starts = [0, *(last + 1 for _, last in ranges)]
    ends = [*(first - 1 for first, _ in ranges), _LAST]
    return list(zip(starts, ends, strict=True))


_CATEGORIES = {
    _constants.CATEGORY_DIGIT: _DIGITS,
    _constants.CATEGORY_NOT_DIGIT: _others(_DIGITS),
    _constants.CATEGORY_WORD: _WORDS,
    _constants.CATEGORY_NOT_WORD: _others(_WORDS),
    _constants.CATEGORY_SPACE: _SPACES,
    _constants.CATEGORY_NOT_SPACE: _others(_SPACES),
}


class Re2Pattern(NamedTuple):
    """A regular expression in RE2's syntax.

    Attributes:
        pattern: The expression.
        is_of_ascii: Whether it means the same only of texts that are ASCII; else of any UTF-8.
    """

    pattern: str
    is_of_ascii: bool


class _OtherError(Exception):
    """RE2 has no such construct, or means something else by it."""


def re2_pattern(regex: re.Pattern[str]) -> Re2Pattern | None:
    """Return the expression for RE2 that matches in the same texts, or None."""
    translation = _Translation()
    try:
        pattern = translation.sequence(_parser.parse(regex.pattern, regex.flags), regex.flags, is_last=True)
    except (_OtherError, RecursionError):
        # Its parts may be nested more deeply than this walks, though Python compiled it.
        return None
    return Re2Pattern(pattern, translation.is_of_ascii)


class _Translation:
    def __init__(self) -> None:
        self.is_of_ascii = False

    def sequence(self, items: Iterable[Any], flags: int, *, is_last: bool) -> str:
        """Return what stands one after the other; `is_last` if nothing comes after it."""
        listed = list(items)
        return "".join(
            self._item(code, argument, flags, is_last and number == len(listed) - 1)
            for number, (code, argument) in enumerate(listed)
        )

    def _item(self, code: Any, argument: Any, flags: int, is_last: bool) -> str:
        if code in (_constants.LITERAL, _constants.NOT_LITERAL):
            return self._class([(_constants.LITERAL, argument)], flags, is_negated=code is _constants.NOT_LITERAL)
        if code is _constants.IN:
            is_negated = argument[0][0] is _constants.NEGATE
            return self._class(argument[is_negated:], flags, is_negated=is_negated)
        if code is _constants.ANY:
            return "(?s:.)" if flags & re.DOTALL else r"[^\n]"
        if code is _constants.AT:
            return self._place(argument, flags, is_last)
        if code is _constants.SUBPATTERN:
            _, added, removed, inner = argument
            return f"(?:{self.sequence(inner, (flags | added) & ~removed, is_last=is_last)})"
        if code is _constants.BRANCH:
            return f"(?:{'|'.join(self.sequence(one, flags, is_last=is_last) for one in argument[1])})"
        if code in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            # How many are taken first makes a difference only to where a match ends.
            least, most, inner = argument
            return self._repeat(least, most, inner, flags) + ("?" if code is _constants.MIN_REPEAT else "")
        raise _OtherError

    def _repeat(self, least: int, most: Any, inner: Any, flags: int) -> str:
        is_endless = most is _constants.MAXREPEAT
        may_be_empty = most > 1 and inner.getwidth()[0] == 0
        if may_be_empty or (least if is_endless else most) > _MOST_REPEATS:
            raise _OtherError
        return f"(?:{self.sequence(inner, flags, is_last=False)}){{{least},{'' if is_endless else most}}}"

    def _place(self, place: Any, flags: int, is_last: bool) -> str:
        if place is _constants.AT_BEGINNING:
            return "(?m:^)" if flags & re.MULTILINE else r"\A"
        if place is _constants.AT_BEGINNING_STRING:
            return r"\A"
        if place is _constants.AT_END_STRING:
            return r"\z"
        if place is _constants.AT_END and flags & re.MULTILINE:
            return "(?m:$)"
        if place is _constants.AT_END and is_last:
            return r"\n?\z"
        if place is _constants.AT_BOUNDARY:
            self._limit_to_ascii(flags)
            return r"\b"
        raise _OtherError

    def _limit_to_ascii(self, flags: int) -> None:
        if flags & re.ASCII:
            raise _OtherError
        self.is_of_ascii = True

    def _class(self, members: Iterable[Any], flags: int, *, is_negated: bool) -> str:
        ranges: list[tuple[int, int]] = []
        for code, argument in members:
            if code is _constants.CATEGORY:
                self._limit_to_ascii(flags)
                ranges += _CATEGORIES[argument]
                continue
            first, last = (argument, argument) if code is _constants.LITERAL else argument
            if any(0xD800 <= end <= 0xDFFF for end in (first, last)):
                # A surrogate stands for a byte that is not UTF-8, which RE2 cannot match.
                raise _OtherError
            if flags & re.IGNORECASE:
                self._limit_to_ascii(flags)
                if last > _LAST:
                    raise _OtherError
            ranges.append((first, last))
        text = "".join(f"\\x{{{first:x}}}-\\x{{{last:x}}}" for first, last in ranges)
        return f"(?{'i' if flags & re.IGNORECASE else '-i'}:[{'^' if is_negated else ''}{text}])"
