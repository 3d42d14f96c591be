"""The literals that a regular expression requires: no text without one of them can match.

    user=\\d+ .*failed      -> user=   or   failed       the longest one is taken
    (timeout|refused)$     -> timeout, refused          any of them
    (?i)disk               -> d                         i, s and k match letters outside of ASCII too: ı, ſ, K

Bytes can be searched for literals much faster than for a pattern, and what has none of them need not be looked at.

Source: Python's own parser of patterns, `re._parser`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

_MOST_ALTERNATIVES = 16

# The ASCII letters that match a letter outside of ASCII too if the case is ignored: the dotted capital I, the dotless
# i, the sign of Kelvin, the long s.
_WITH_FOREIGN_CASES = frozenset("ikIKsS")


class Literal(NamedTuple):
    """Bytes that are looked for.

    Attributes:
        data: The bytes, at least one.
        ignores_case: Whether the case of ASCII letters among them is ignored.
    """

    data: bytes
    ignores_case: bool


_Run = tuple[str, bool]
_Choice = tuple[Literal, ...]


def required_literals(regex: re.Pattern[str]) -> tuple[Literal, ...]:
    """Return literals of which each text that matches has at least one; none if the pattern requires none.

    A literal is one of the text's UTF-8, in which bytes that are not UTF-8 stand as they are (`surrogateescape`).
    """
    return _best(_choices(_parser.parse(regex.pattern, regex.flags), regex.flags)) or ()


def is_literal(regex: re.Pattern[str]) -> bool:
    """Whether a text matches exactly if it has the literal that is required."""
    items = list(_parser.parse(regex.pattern, regex.flags))
    if not items or any(code is not _constants.LITERAL for code, _ in items):
        return False
    text = "".join(chr(argument) for _, argument in items)
    # Half of a surrogate pair stands for a byte, which may be a part of a character.
    if any("\ud800" <= character <= "\udfff" for character in text):
        return False
    literal = literal_of(text, ignores_case=bool(regex.flags & re.IGNORECASE))
    return literal is not None and literal.data == text.encode()


def literal_of(text: str, *, ignores_case: bool) -> Literal | None:
    """Return the longest literal that each text has in which `text` stands, or None."""
    pieces = [text]
    if ignores_case:
        pieces = re.split("[" + "".join(sorted(_WITH_FOREIGN_CASES)) + "\x80-\U0010ffff]", text)
    longest = max(pieces, key=len)
    return Literal(longest.encode("utf-8", "surrogateescape"), ignores_case) if longest else None


def _best(choices: Iterable[_Choice]) -> _Choice | None:
    """Return the choice that is found least often: the one whose shortest literal is the longest."""
    return max(choices, key=lambda choice: (min(len(one.data) for one in choice), -len(choice)), default=None)


def _choices(items: Iterable[Any], flags: int) -> Iterator[_Choice]:
    """Yield sets of literals; of each set the text has one."""
    run: list[str] = []
    for part in _parts(items, flags):
        if isinstance(part, str):
            run.append(part)
            continue
        yield from _choice_of_run(run, flags)
        run = []
        if part is not None:
            yield part
    yield from _choice_of_run(run, flags)


def _choice_of_run(run: list[str], flags: int) -> Iterator[_Choice]:
    literal = literal_of("".join(run), ignores_case=bool(flags & re.IGNORECASE)) if run else None
    if literal is not None:
        yield (literal,)


def _parts(items: Iterable[Any], flags: int) -> Iterator[str | _Choice | None]:
    """Yield the characters that stand one after the other; a set of literals or None where anything may stand."""
    for code, argument in items:
        if code is _constants.LITERAL:
            yield chr(argument)
        elif code is _constants.SUBPATTERN:
            _, added, removed, inner = argument
            inner_flags = (flags | added) & ~removed
            if (inner_flags ^ flags) & re.IGNORECASE:
                yield None
                yield from _choices(inner, inner_flags)
                yield None
            else:
                yield from _parts(inner, inner_flags)
        elif code is _constants.ATOMIC_GROUP:
            yield from _parts(argument, flags)
        elif code in (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT):
            least, _, inner = argument
            # Its first repetition directly follows what comes before it; after that anything may follow.
            if least:
                yield from _parts(inner, flags)
            yield None
        elif code is _constants.BRANCH:
            best = [_best(_choices(inner, flags)) for inner in argument[1]]
            found = tuple(literal for choice in best if choice is not None for literal in choice)
            is_required = None not in best and len(found) <= _MOST_ALTERNATIVES
            yield found if is_required else None
        elif code not in (_constants.AT, _constants.ASSERT, _constants.ASSERT_NOT):
            # Only positions and assertions match no text, so that their neighbours touch; anything else separates them.
            yield None
