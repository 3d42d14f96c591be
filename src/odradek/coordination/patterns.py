"""Compiles patterns that clients send.

RE2 matches in linear time, but takes its time to compile: 20 seconds for 600 KB of `\\pL`, 8 seconds for 500 bytes of
`x{0,999}`, and Python waits meanwhile. So a pattern has a limit for its length, for its parts that cost most, for how
often it has a choice, and for its memory. Apache Kafka has none of these; there a long pattern keeps one of several
threads busy.
"""

from __future__ import annotations

import re
from typing import Any

import re2

MOST_CHARACTERS = 1 << 15
MOST_OPERATORS = 3_000
MOST_CHOICES = 3_000
MOST_CLASSES = 100
MOST_NAMES = 10
_CHOICES_OF_CLASS = 30
_MOST_BYTES = 1 << 20
_OPERATORS = re.compile(r"[?*+\[\\{]")
_CLASSES = re.compile(r"\\[pP]")
# What RE2 refuses, such as a class without an end, is read to the end of the text: nothing is read twice.
_NUMBER = "(?: 0 | [1-9][0-9]{0,7} )"
_TOKEN = re.compile(
    r"(?P<nothing> \\Q\\E | \(\?[A-Za-z-]*\) )"
    rf"| (?P<times> (?: [?*+] | \{{ (?P<least> {_NUMBER} ) (?P<range> , (?P<most> {_NUMBER} )? )? \}} ) \?? )"
    r"| (?P<begin> \( (?: \?P?<[^>]*>? | \?[A-Za-z-]*:? )? )"
    r"| (?P<end> \) )"
    r"| (?P<or> \| )"
    r"| \\Q .*? (?: \\E | \Z )"
    r"| \\[pPx]\{[^}]*\}? | \\[pP]. | \\."
    r"| \[ \^? \]? (?: \[:\^?\w+:\] | \\. | [^]\\] )* \]?"
    r"| [^\\\[()|?*+{]+ | .",
    re.VERBOSE | re.DOTALL,
)
_TIMES: dict[str, tuple[int, int | None]] = {"?": (0, 1), "*": (0, None), "+": (1, None)}


def pattern_options(most_bytes: int = _MOST_BYTES) -> Any:
    """Return how a pattern of somebody else is compiled.

    Args:
        most_bytes: The most memory that it may take.
    """
    options = re2.Options()
    # Otherwise it writes to the standard error output.
    options.log_errors = False
    # Nobody asks what a group in parentheses has matched, and to know it costs the square of their number for each
    # character.
    options.never_capture = True
    options.max_mem = most_bytes
    return options


def _choices(pattern: str) -> int:
    """Return how often a pattern has a choice: alternatives, and what may be absent or repeated, multiplied out.

    Where many follow each other, RE2 finds out for each of them what may come next, which takes the square of this
    number. A class of Unicode is a choice of many ranges. Above the limit it is not counted to the end.
    """
    outside: list[int] = []
    before = last = 0
    for token in _TOKEN.finditer(pattern):
        kind = token.lastgroup
        if kind == "times":
            least, most = _times(token)
            last = last * max(least, 1) + 1 if most is None else last * most + most - least
        elif kind != "nothing":
            before, last = before + last, 0
            if kind == "or":
                before += 1
            elif kind == "begin":
                outside.append(before)
                before = 0
            elif kind == "end" and outside:
                before, last = outside.pop(), before
            elif kind is None:
                last = _CHOICES_OF_CLASS * len(_CLASSES.findall(token[0]))
        if before + last > MOST_CHOICES:
            break
    return before + last


def _times(token: re.Match[str]) -> tuple[int, int | None]:
    if token["least"] is None:
        return _TIMES[token[0][0]]
    least = int(token["least"])
    if token["range"] is None:
        return least, least
    return least, int(token["most"]) if token["most"] else None


def check_pattern(pattern: str, *, is_compiled: bool = True) -> None:
    """Check that a pattern, or several in a row, take some milliseconds at most.

    Args:
        pattern: The pattern.
        is_compiled: Whether it is compiled, or only parsed, which leaves repetitions as they are.

    Raises:
        re2.error: It has too much of something.
    """
    _check("characters", len(pattern), MOST_CHARACTERS)
    _check("classes of Unicode", len(_CLASSES.findall(pattern)), MOST_CLASSES)
    if is_compiled:
        _check("operators", len(_OPERATORS.findall(pattern)), MOST_OPERATORS)
        _check("choices", _choices(pattern), MOST_CHOICES)


def _check(what: str, found: int, most: int) -> None:
    if found > most:
        raise re2.error(f"{found} {what}, more than {most}")


def compiled(pattern: str, most_bytes: int = _MOST_BYTES) -> Any:
    """Compile a pattern.

    Args:
        pattern: The pattern.
        most_bytes: The most memory that it may take.

    Raises:
        re2.error: It is none of RE2's, or has too much of something.
    """
    check_pattern(pattern)
    found = _compiled(pattern, pattern_options(most_bytes))
    # RE2 remembers these all the same.
    if found.groups > MOST_NAMES:
        raise re2.error(f"{found.groups} named groups, more than {MOST_NAMES}")
    return found


def compiled_setting(pattern: str) -> Any:
    """Compile a pattern of somebody who is trusted; its groups can be asked for.

    Raises:
        re2.error: It is none of RE2's.
    """
    options = re2.Options()
    options.log_errors = False
    return _compiled(pattern, options)


def _compiled(pattern: str, options: Any) -> Any:
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        (said,) = error.args
        raise re2.error(said.decode(errors="replace") if isinstance(said, bytes) else said) from None
    finally:
        # Else the last 128 ones are kept, up to a megabyte each.
        re2.purge()
